/* Cases of op_pad.h. Inputs count 0, 1, 2, … where the expected values are listed. */
#include <tutti/op_pad.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

#define PAD(id, mode, value, ...)                                                                  \
    CALL(id, tutti_pad(s, in[0], TUTTI_PADDING(__VA_ARGS__), TUTTI_PAD_##mode, value))

PAD(constant, CONSTANT, -1, 1, 2)
PAD(constant_both, CONSTANT, 7, -1, 1, 1, 0)
PAD(reflect, REFLECT, 0, 2, 1)
PAD(reflect_both, REFLECT, 0, 1, -1, 1, 1)
PAD(replicate, REPLICATE, 0, 2, 1, 1, 0)
PAD(circular, CIRCULAR, 0, 2, 3)
PAD(circular_cut, CIRCULAR, 0, -1, 2)
CALL(no_padding, tutti_pad(s, in[0], (tutti_padding_t){0}, TUTTI_PAD_CONSTANT, 0))
CALL(roll, tutti_roll(s, in[0], TUTTI_SHAPE(1), TUTTI_DIMS(-1)))
CALL(roll_both, tutti_roll(s, in[0], TUTTI_SHAPE(-1, 4, 1), TUTTI_DIMS(0, 1, 1)))
CALL(roll_flat, tutti_roll(s, in[0], TUTTI_SHAPE(2), TUTTI_ALL_DIMS))
CALL(flip, tutti_flip(s, in[0], TUTTI_DIMS(1)))
CALL(flip_both, tutti_flip(s, in[0], TUTTI_DIMS(-2, -1)))
CALL(flip_none, tutti_flip(s, in[0], TUTTI_ALL_DIMS))
CALL(tril, tutti_tril(s, in[0], 0))
CALL(tril_above, tutti_tril(s, in[0], 1))
CALL(tril_never, tutti_tril(s, in[0], INT64_MIN))
CALL(triu, tutti_triu(s, in[0], 0))
CALL(triu_below, tutti_triu(s, in[0], -1))
CALL(triu_never, tutti_triu(s, in[0], INT64_MAX))
CALL(unfold, tutti_unfold(s, in[0], &(tutti_unfold_options_t){.kernel = {2, 2}}))
CALL(unfold_far,
     tutti_unfold(s, in[0],
                  &(tutti_unfold_options_t){
                      .kernel = {2, 1}, .stride = {2, 2}, .padding = {1, 1}, .dilation = {2, 1}}))
CALL(fold, tutti_fold(s, in[0], 2, 3, &(tutti_unfold_options_t){.kernel = {2, 2}}))
CALL(fold_padded,
     tutti_fold(s, in[0], 2, 2,
                &(tutti_unfold_options_t){.kernel = {1, 2}, .stride = {1, 2}, .padding = {0, 1}}))

#define COUNTING ((const double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})

const op_case_t op_cases_pad[] = {
    {.op = "pad",
     .what = "constant",
     .inputs = {{.shape = SHAPE(2, 2), .values = COUNTING}},
     .call = call_constant,
     .expected = VALUES(-1, 0, 1, -1, -1, -1, 2, 3, -1, -1),
     .expected_shape = SHAPE(2, 5)},
    {.op = "pad",
     .what = "constant, cut and padded",
     .inputs = {{.shape = SHAPE(2, 2), .values = COUNTING}},
     .call = call_constant_both,
     .expected = VALUES(7, 7, 1, 7, 3, 7),
     .expected_shape = SHAPE(3, 2)},
    {.op = "pad",
     .what = "u8",
     .inputs = {{.shape = SHAPE(2, 2), .dtype = TUTTI_U8, .values = COUNTING}},
     .call = call_constant_both,
     .expected = VALUES(7, 7, 1, 7, 3, 7),
     .expected_shape = SHAPE(3, 2)},
    {.op = "pad",
     .what = "nothing",
     .inputs = {{.shape = {.rank = 0}, .values = COUNTING}},
     .call = call_no_padding,
     .expected = COUNTING},
    {.op = "pad",
     .what = "reflect",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_reflect,
     .expected = VALUES(2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4),
     .expected_shape = SHAPE(2, 6)},
    {.op = "pad",
     .what = "reflect, cut",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_reflect_both,
     .expected = VALUES(4, 3, 4, 1, 0, 1, 4, 3, 4, 1, 0, 1),
     .expected_shape = SHAPE(4, 3)},
    {.op = "pad",
     .what = "replicate",
     .inputs = {{.shape = SHAPE(2, 2), .values = COUNTING}},
     .call = call_replicate,
     .expected = VALUES(0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3),
     .expected_shape = SHAPE(3, 5)},
    {.op = "pad",
     .what = "circular",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_circular,
     .expected = VALUES(1, 2, 0, 1, 2, 0, 1, 2, 4, 5, 3, 4, 5, 3, 4, 5),
     .expected_shape = SHAPE(2, 8)},
    {.op = "pad",
     .what = "circular, cut",
     .inputs = {{.shape = SHAPE(1, 3), .values = COUNTING}},
     .call = call_circular_cut,
     .expected = VALUES(1, 2, 1, 2),
     .expected_shape = SHAPE(1, 4)},
    {.op = "pad",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2)}},
     .call = call_constant,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 5)},
    {.op = "roll",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_roll,
     .expected = VALUES(2, 0, 1, 5, 3, 4),
     .expected_shape = SHAPE(2, 3)},
    {.op = "roll",
     .what = "in both dimensions, one of them twice",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_roll_both,
     .expected = VALUES(4, 5, 3, 1, 2, 0),
     .expected_shape = SHAPE(2, 3)},
    {.op = "roll",
     .what = "of all elements",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_roll_flat,
     .expected = VALUES(4, 5, 0, 1, 2, 3),
     .expected_shape = SHAPE(2, 3)},
    {.op = "roll",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_roll,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 0)},
    {.op = "flip",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_flip,
     .expected = VALUES(2, 1, 0, 5, 4, 3),
     .expected_shape = SHAPE(2, 3)},
    {.op = "flip",
     .what = "both, i64",
     .inputs = {{.shape = SHAPE(2, 3), .dtype = TUTTI_I64, .values = COUNTING}},
     .call = call_flip_both,
     .expected = VALUES(5, 4, 3, 2, 1, 0),
     .expected_shape = SHAPE(2, 3)},
    {.op = "flip",
     .what = "of a scalar",
     .inputs = {{.shape = {.rank = 0}, .values = COUNTING}},
     .call = call_flip_none,
     .expected = COUNTING},
    {.op = "flip",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2)}},
     .call = call_flip,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "tril",
     .what = "",
     .inputs = {{.shape = SHAPE(1, 3, 2), .values = VALUES(1, 2, 3, 4, 5, 6)}},
     .call = call_tril,
     .expected = VALUES(1, 0, 3, 4, 5, 6),
     .expected_shape = SHAPE(1, 3, 2)},
    {.op = "tril",
     .what = "and the diagonal above",
     .inputs = {{.shape = SHAPE(2, 3), .values = VALUES(1, 2, 3, 4, 5, 6)}},
     .call = call_tril_above,
     .expected = VALUES(1, 2, 0, 4, 5, 6),
     .expected_shape = SHAPE(2, 3)},
    {.op = "tril",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(2, 2), .values = COUNTING}},
     .call = call_tril_never,
     .expected = VALUES(0, 0, 0, 0),
     .expected_shape = SHAPE(2, 2)},
    {.op = "tril",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2, 2)}},
     .call = call_tril,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2, 2)},
    {.op = "triu",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 2, 2), .values = VALUES(1, 2, 3, 4, 5, 6, 7, 8)}},
     .call = call_triu,
     .expected = VALUES(1, 2, 0, 4, 5, 6, 0, 8),
     .expected_shape = SHAPE(2, 2, 2)},
    {.op = "triu",
     .what = "and the diagonal below",
     .inputs = {{.shape = SHAPE(3, 2), .dtype = TUTTI_I32, .values = VALUES(1, 2, 3, 4, 5, 6)}},
     .call = call_triu_below,
     .expected = VALUES(1, 2, 3, 4, 0, 6),
     .expected_shape = SHAPE(3, 2)},
    {.op = "triu",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(2, 2), .values = COUNTING}},
     .call = call_triu_never,
     .expected = VALUES(0, 0, 0, 0),
     .expected_shape = SHAPE(2, 2)},
    {.op = "triu",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_triu,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 0)},
    {.op = "unfold",
     .what = "",
     .inputs = {{.shape = SHAPE(1, 1, 2, 3), .values = COUNTING}},
     .call = call_unfold,
     .expected = VALUES(0, 1, 1, 2, 3, 4, 4, 5),
     .expected_shape = SHAPE(1, 4, 2)},
    {.op = "unfold",
     .what = "with gaps, without batch",
     .inputs = {{.shape = SHAPE(1, 2, 3), .values = VALUES(1, 2, 3, 4, 5, 6)}},
     .call = call_unfold_far,
     .expected = VALUES(0, 0, 0, 0, 5, 0),
     .expected_shape = SHAPE(2, 3)},
    {.op = "unfold",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 1, 2, 3)}},
     .call = call_unfold,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 4, 2)},
    {.op = "fold",
     .what = "",
     .inputs = {{.shape = SHAPE(1, 4, 2), .values = VALUES(0, 1, 2, 3, 4, 5, 6, 7)}},
     .call = call_fold,
     .expected = VALUES(0, 3, 3, 4, 11, 7),
     .expected_shape = SHAPE(1, 1, 2, 3)},
    {.op = "fold",
     .what = "with padding, without batch",
     .inputs = {{.shape = SHAPE(4, 4),
                 .values = VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}},
     .call = call_fold_padded,
     .expected = VALUES(4, 1, 6, 3, 12, 9, 14, 11),
     .expected_shape = SHAPE(2, 2, 2)},
    {.op = "fold",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 4, 2)}},
     .call = call_fold,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 1, 2, 3)},
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* A call of one line on x of [2, 3]. */
#define ERROR(id, expression)                                                                      \
    static void fail_##id(tutti_scope_t *s)                                                        \
    {                                                                                              \
        tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3));                          \
        (void)(expression);                                                                        \
    }

#define PAD_ERROR(id, mode, ...)                                                                   \
    ERROR(id, tutti_pad(s, x, TUTTI_PADDING(__VA_ARGS__), TUTTI_PAD_##mode, 0))

PAD_ERROR(pad_odd, CONSTANT, 1)
PAD_ERROR(pad_many, CONSTANT, 1, 1, 1, 1, 1, 1)
PAD_ERROR(pad_cut, CONSTANT, -2, -2)
PAD_ERROR(pad_huge, CONSTANT, INT64_MAX, 1)
PAD_ERROR(pad_reflect, REFLECT, 3, 0)
PAD_ERROR(pad_circular, CIRCULAR, -1, 3)
ERROR(pad_replicate,
      tutti_pad(s, tutti_narrow(s, x, 1, 0, 0), TUTTI_PADDING(1, 0), TUTTI_PAD_REPLICATE, 0))
ERROR(pad_mode, tutti_pad(s, x, TUTTI_PADDING(1, 1), (tutti_pad_mode_t)9, 0))
ERROR(pad_value,
      tutti_pad(s, tutti_cast(s, x, TUTTI_I8), TUTTI_PADDING(1, 1), TUTTI_PAD_CONSTANT, 300))
ERROR(roll_count, tutti_roll(s, x, TUTTI_SHAPE(1, 2), TUTTI_DIMS(0)))
ERROR(roll_dim, tutti_roll(s, x, TUTTI_SHAPE(1), TUTTI_DIMS(2)))
ERROR(flip_dim, tutti_flip(s, x, TUTTI_DIMS(-3)))
ERROR(flip_twice, tutti_flip(s, x, TUTTI_DIMS(1, -1)))
ERROR(tril, tutti_tril(s, tutti_select(s, x, 0, 0), 0))
ERROR(triu, tutti_triu(s, tutti_select(s, x, 0, 0), 0))
ERROR(unfold_rank, tutti_unfold(s, x, &(tutti_unfold_options_t){.kernel = {1, 1}}))
ERROR(unfold_size,
      tutti_unfold(s, tutti_unsqueeze(s, x, 0), &(tutti_unfold_options_t){.kernel = {3, 1}}))
ERROR(unfold_none, tutti_unfold(s, tutti_unsqueeze(s, x, 0), NULL))
ERROR(fold_rank,
      tutti_fold(s, tutti_select(s, x, 0, 0), 2, 2, &(tutti_unfold_options_t){.kernel = {1, 1}}))
ERROR(fold_size, tutti_fold(s, x, 2, 2, &(tutti_unfold_options_t){.kernel = {2, 2}}))

const op_error_t op_errors_pad[] = {
    {"pad", fail_pad_odd,
     "pad: 1 sizes: want two for each of the last dimensions, of 2: f32[2, 3]"},
    {"pad", fail_pad_many,
     "pad: 6 sizes: want two for each of the last dimensions, of 2: f32[2, 3]"},
    {"pad", fail_pad_cut, "pad: -2 before and -2 after dimension 1 leave no size: f32[2, 3]"},
    {"pad", fail_pad_huge,
     "pad: 9223372036854775807 before and 1 after dimension 1 leave no size: f32[2, 3]"},
    {"pad", fail_pad_reflect,
     "pad: 3 elements beside dimension 1 of 3: a reflection has fewer: f32[2, 3]"},
    {"pad", fail_pad_circular,
     "pad: 3 elements beside dimension 1 of 2: it repeats once at most: f32[2, 3]"},
    {"pad", fail_pad_replicate, "pad: dimension 1 has no element to repeat: f32[2, 0]"},
    {"pad", fail_pad_mode, "pad: there is no mode 9: f32[2, 3]"},
    {"pad", fail_pad_value, "pad: i8 does not hold 300: i8[2, 3]"},
    {"roll", fail_roll_count, "roll: 2 shifts and 1 dimensions: want one for each"},
    {"roll", fail_roll_dim, "roll: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"flip", fail_flip_dim, "flip: dimension -3 is outside -2 to 1: f32[2, 3]"},
    {"flip", fail_flip_twice, "flip: dimension 1 is given twice: f32[2, 3]"},
    {"tril", fail_tril, "tril: want matrices: at least two dimensions: f32[3]"},
    {"triu", fail_triu, "triu: want matrices: at least two dimensions: f32[3]"},
    {"unfold", fail_unfold_rank, "unfold: want planes [N, C, H, W] or [C, H, W]: f32[2, 3]"},
    {"unfold", fail_unfold_size,
     "unfold: no window of 3 (stride 1, padding 0, dilation 1) fits into 2: f32[1, 2, 3]"},
    {"unfold", fail_unfold_none,
     "unfold: no window of 0 (stride 1, padding 0, dilation 1) fits into 2: f32[1, 2, 3]"},
    {"fold", fail_fold_rank, "fold: want columns [N, C k, L] or [C k, L]: f32[3]"},
    {"fold", fail_fold_size,
     "fold: want a multiple of 4 rows, and 1 columns: the windows of [2, 2]: f32[2, 3]"},
};

OP_CASE_LISTS(pad);
