/* Cases of op_shape.h. Inputs count 0, 1, 2, … where the expected values are listed. */
#include <tutti/op_shape.h>

#include "op_cases.h"

/* A call of one line. */
#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

CALL(view, tutti_view(s, in[0], TUTTI_SHAPE(2, -1)))
CALL(view_permuted, tutti_view(s, tutti_transpose(s, in[0], 0, 1), TUTTI_SHAPE(3, 2, 2)))
CALL(view_nothing, tutti_view(s, in[0], TUTTI_SHAPE(0, 5)))
CALL(view_scalar, tutti_view(s, in[0], TUTTI_SCALAR))
CALL(reshape, tutti_reshape(s, in[0], TUTTI_SHAPE(3, 2)))
CALL(reshape_permuted, tutti_reshape(s, tutti_transpose(s, in[0], 0, 1), TUTTI_SHAPE(6)))
CALL(reshape_expanded,
     tutti_reshape(s, tutti_expand(s, in[0], TUTTI_SHAPE(2, 3)), TUTTI_SHAPE(3, -1)))
CALL(flatten, tutti_flatten(s, in[0], 0, 1))
CALL(flatten_all, tutti_flatten(s, in[0], 0, -1))
CALL(squeeze, tutti_squeeze(s, in[0], 1))
CALL(unsqueeze, tutti_unsqueeze(s, in[0], -1))
CALL(transpose, tutti_transpose(s, in[0], 0, -1))
CALL(permute, tutti_permute(s, in[0], TUTTI_DIMS(2, 0, -2)))
CALL(slice, tutti_slice(s, in[0], 1, ((tutti_range_t){.start = 1, .stop = -1, .step = 2})))
CALL(slice_from, tutti_slice(s, in[0], 0, TUTTI_RANGE_FROM(-2)))
CALL(slice_beyond, tutti_slice(s, in[0], 0, TUTTI_RANGE(5, 9)))
CALL(slice_huge_step,
     tutti_slice(s, in[0], 0, ((tutti_range_t){.stop = INT64_MAX, .step = INT64_MAX})))
CALL(narrow, tutti_narrow(s, in[0], 1, -3, 2))
CALL(select, tutti_select(s, in[0], 1, -1))
CALL(expand, tutti_expand(s, in[0], TUTTI_SHAPE(2, -1, 3)))
CALL(cat, tutti_cat(s, in, 3, 1))
CALL(cat_mixed, tutti_cat(s, in, 2, -1))
CALL(cat_one, tutti_cat(s, in, 1, 0))
CALL(stack, tutti_stack(s, in, 2, 1))
CALL(stack_last, tutti_stack(s, in, 2, -1))
CALL(gather, tutti_gather_along(s, in[0], 1, in[1]))
CALL(index_select, tutti_index_select(s, in[0], 1, in[1]))
CALL(index_select_rows, tutti_index_select(s, in[0], 0, in[1]))
CALL(to_f32, tutti_cast(s, in[0], TUTTI_F32))
CALL(to_f64, tutti_cast(s, in[0], TUTTI_F64))
CALL(to_i64, tutti_cast(s, in[0], TUTTI_I64))
CALL(to_bool, tutti_cast(s, in[0], TUTTI_BOOL))
CALL(clone, tutti_clone(s, in[0]))
CALL(contiguous, tutti_contiguous(s, tutti_transpose(s, in[0], 0, 1)))

static void call_split(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_split(s, in[0], 1, 3, out);
}

static void call_split_rows(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_split(s, in[0], 0, 5, out);
}

static void call_split_sizes(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_split_sizes(s, in[0], -1, TUTTI_SHAPE(3, 0, 1), out);
}

static void call_split_partly(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_tensor_t *parts[2];
    tutti_split(s, in[0], 0, 2, parts);
    out[0] = parts[1];
}

/* More inputs than a call takes. */
static void call_cat_many(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_tensor_t *many[70];
    for (int i = 0; i < 70; i++) {
        many[i] = in[i % 2];
    }
    tutti_tensor_t *whole = tutti_cat(s, many, 70, 0);
    out[0] = tutti_slice(s, whole, 0, TUTTI_RANGE_FROM(136));
}

#define COUNTING                                                                                   \
    ((const double[]){0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,                              \
                      12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})

const op_case_t op_cases_shape[] = {
    {.op = "view",
     .what = "",
     .inputs = {{.shape = SHAPE(4, 3), .values = COUNTING}},
     .call = call_view,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 6),
     .is_contiguous = true},
    {.op = "view",
     .what = "of a transposed one",
     .inputs = {{.shape = SHAPE(4, 3), .values = COUNTING}},
     .call = call_view_permuted,
     .expected = VALUES(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11),
     .expected_shape = SHAPE(3, 2, 2),
     .is_contiguous = true},
    {.op = "view",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_view_nothing,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 5)},
    {.op = "view",
     .what = "as a scalar",
     .inputs = {{.shape = SHAPE(1, 1), .values = COUNTING}},
     .call = call_view_scalar,
     .expected = COUNTING},
    {.op = "reshape",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_reshape,
     .expected = COUNTING,
     .expected_shape = SHAPE(3, 2)},
    {.op = "reshape",
     .what = "that must copy",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_reshape_permuted,
     .expected = VALUES(0, 3, 1, 4, 2, 5),
     .expected_shape = SHAPE(6),
     .copies = true},
    {.op = "reshape",
     .what = "of repetitions",
     .inputs = {{.shape = SHAPE(2, 1), .values = COUNTING}},
     .call = call_reshape_expanded,
     .expected = VALUES(0, 0, 0, 1, 1, 1),
     .expected_shape = SHAPE(3, 2),
     .copies = true},
    {.op = "reshape",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_view_nothing,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 5)},
    {.op = "flatten",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 2, 3), .values = COUNTING}},
     .call = call_flatten,
     .expected = COUNTING,
     .expected_shape = SHAPE(4, 3)},
    {.op = "flatten",
     .what = "scalar",
     .inputs = {{.shape = {.rank = 0}, .values = COUNTING}},
     .call = call_flatten_all,
     .expected = COUNTING,
     .expected_shape = SHAPE(1)},
    {.op = "flatten",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0, 3)}},
     .call = call_flatten,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 3)},
    {.op = "squeeze",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 1, 3), .values = COUNTING}},
     .call = call_squeeze,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 3)},
    {.op = "squeeze",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 1)}},
     .call = call_squeeze,
     .expected = COUNTING,
     .expected_shape = SHAPE(0)},
    {.op = "unsqueeze",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_unsqueeze,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 3, 1)},
    {.op = "unsqueeze",
     .what = "scalar",
     .inputs = {{.shape = {.rank = 0}, .values = COUNTING}},
     .call = call_unsqueeze,
     .expected = COUNTING,
     .expected_shape = SHAPE(1)},
    {.op = "unsqueeze",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0)}},
     .call = call_unsqueeze,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 1)},
    {.op = "transpose",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_transpose,
     .expected = VALUES(0, 3, 1, 4, 2, 5),
     .expected_shape = SHAPE(3, 2)},
    {.op = "transpose",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_transpose,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "permute",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 1, 3), .values = COUNTING}},
     .call = call_permute,
     .expected = VALUES(0, 3, 1, 4, 2, 5),
     .expected_shape = SHAPE(3, 2, 1)},
    {.op = "permute",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0, 3)}},
     .call = call_permute,
     .expected = COUNTING,
     .expected_shape = SHAPE(3, 2, 0)},
    {.op = "slice",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 6), .values = COUNTING}},
     .call = call_slice,
     .expected = VALUES(1, 3, 7, 9),
     .expected_shape = SHAPE(2, 2)},
    {.op = "slice",
     .what = "to the end",
     .inputs = {{.shape = SHAPE(4, 2), .values = COUNTING}},
     .call = call_slice_from,
     .expected = VALUES(4, 5, 6, 7),
     .expected_shape = SHAPE(2, 2)},
    {.op = "slice",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(4, 2)}},
     .call = call_slice_beyond,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "slice",
     .what = "huge step",
     .inputs = {{.shape = SHAPE(4, 2), .values = COUNTING}},
     .call = call_slice_huge_step,
     .expected = COUNTING,
     .expected_shape = SHAPE(1, 2)},
    {.op = "slice",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2)}},
     .call = call_slice_from,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "narrow",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 4), .values = COUNTING}},
     .call = call_narrow,
     .expected = VALUES(1, 2, 5, 6),
     .expected_shape = SHAPE(2, 2)},
    {.op = "narrow",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 4)}},
     .call = call_narrow,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "select",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 2, 2), .values = COUNTING}},
     .call = call_select,
     .expected = VALUES(2, 3, 6, 7),
     .expected_shape = SHAPE(2, 2)},
    {.op = "select",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2)}},
     .call = call_select,
     .expected = COUNTING,
     .expected_shape = SHAPE(0)},
    {.op = "split",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 6), .values = COUNTING}},
     .call = call_split,
     .output_count = 3,
     .expected = VALUES(0, 1, 6, 7),
     .expected_shape = SHAPE(2, 2)},
    {.op = "split",
     .what = "into five",
     .inputs = {{.shape = SHAPE(10, 2), .values = COUNTING}},
     .call = call_split_rows,
     .output_count = 5,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 2)},
    {.op = "split",
     .what = "unequal",
     .inputs = {{.shape = SHAPE(2, 4), .values = COUNTING}},
     .call = call_split_sizes,
     .output_count = 3,
     .expected = VALUES(0, 1, 2, 4, 5, 6),
     .expected_shape = SHAPE(2, 3)},
    {.op = "split",
     .what = "of which one part is used",
     .inputs = {{.shape = SHAPE(4), .values = COUNTING}},
     .call = call_split_partly,
     .expected = VALUES(2, 3),
     .expected_shape = SHAPE(2)},
    {.op = "split",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 6)}},
     .call = call_split,
     .output_count = 3,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "expand",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 1), .values = COUNTING}},
     .call = call_expand,
     .expected = VALUES(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1),
     .expected_shape = SHAPE(2, 2, 3)},
    {.op = "expand",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 1)}},
     .call = call_expand,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 0, 3)},
    {.op = "cat",
     .what = "",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 1), .values = VALUES(0, 1)},
                {.shape = SHAPE(2, 2), .values = VALUES(2, 3, 4, 5)},
                {.shape = SHAPE(2, 0)}},
     .call = call_cat,
     .expected = VALUES(0, 2, 3, 1, 4, 5),
     .expected_shape = SHAPE(2, 3)},
    {.op = "cat",
     .what = "mixed types",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2), .dtype = TUTTI_I32, .values = VALUES(1, 2)},
                {.shape = SHAPE(1), .values = VALUES(0.5)}},
     .call = call_cat_mixed,
     .expected = VALUES(1, 2, 0.5),
     .expected_shape = SHAPE(3)},
    {.op = "cat",
     .what = "seventy inputs",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2), .values = VALUES(1, 2)},
                {.shape = SHAPE(2), .values = VALUES(3, 4)}},
     .call = call_cat_many,
     .expected = VALUES(1, 2, 3, 4),
     .expected_shape = SHAPE(4)},
    {.op = "cat",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 2)}},
     .call = call_cat_one,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2)},
    {.op = "stack",
     .what = "",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 2), .values = VALUES(0, 1, 2, 3)},
                {.shape = SHAPE(2, 2), .values = VALUES(4, 5, 6, 7)}},
     .call = call_stack,
     .expected = VALUES(0, 1, 4, 5, 2, 3, 6, 7),
     .expected_shape = SHAPE(2, 2, 2)},
    {.op = "stack",
     .what = "at the end",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3), .values = VALUES(0, 1, 2)},
                {.shape = SHAPE(3), .values = VALUES(3, 4, 5)}},
     .call = call_stack_last,
     .expected = VALUES(0, 3, 1, 4, 2, 5),
     .expected_shape = SHAPE(3, 2)},
    {.op = "stack",
     .what = "empty",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(0, 2)}, {.shape = SHAPE(0, 2)}},
     .call = call_stack,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 2, 2)},
    {.op = "gather",
     .what = "",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3, 3), .values = COUNTING},
                {.shape = SHAPE(2, 4),
                 .dtype = TUTTI_I64,
                 .values = VALUES(0, 2, 2, 1, 1, 1, 1, 0)}},
     .call = call_gather,
     .expected = VALUES(0, 2, 2, 1, 4, 4, 4, 3),
     .expected_shape = SHAPE(2, 4)},
    {.op = "gather",
     .what = "i32",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(1, 3), .values = COUNTING},
                {.shape = SHAPE(1, 2), .dtype = TUTTI_I32, .values = VALUES(2, 0)}},
     .call = call_gather,
     .expected = VALUES(2, 0),
     .expected_shape = SHAPE(1, 2)},
    {.op = "gather",
     .what = "empty",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 3)}, {.shape = SHAPE(2, 0), .dtype = TUTTI_I64}},
     .call = call_gather,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 0)},
    {.op = "index_select",
     .what = "",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING},
                {.shape = SHAPE(4), .dtype = TUTTI_I64, .values = VALUES(2, 0, 2, 2)}},
     .call = call_index_select,
     .expected = VALUES(2, 0, 2, 2, 5, 3, 5, 5),
     .expected_shape = SHAPE(2, 4)},
    {.op = "index_select",
     .what = "i32",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3, 2), .values = COUNTING},
                {.shape = SHAPE(2), .dtype = TUTTI_I32, .values = VALUES(2, 0)}},
     .call = call_index_select_rows,
     .expected = VALUES(4, 5, 0, 1),
     .expected_shape = SHAPE(2, 2)},
    {.op = "index_select",
     .what = "empty",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 3)}, {.shape = SHAPE(0), .dtype = TUTTI_I64}},
     .call = call_index_select,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 0)},
    {.op = "cast",
     .what = "to f32",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_to_f32,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 3),
     .step = 0.25},
    {.op = "cast",
     .what = "to f64",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_to_f64,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 3)},
    {.op = "cast",
     .what = "to integers",
     .inputs = {{.shape = SHAPE(4), .values = VALUES(1.75, -1.75, 2.5, -0.25)}},
     .call = call_to_i64,
     .expected = VALUES(1, -1, 2, 0),
     .expected_shape = SHAPE(4),
     .has_no_gradient = true},
    {.op = "cast",
     .what = "to bool",
     .inputs = {{.shape = SHAPE(3), .values = VALUES(0.25, 0, -3)}},
     .call = call_to_bool,
     .expected = VALUES(1, 0, 1),
     .expected_shape = SHAPE(3),
     .has_no_gradient = true},
    {.op = "cast",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0)}},
     .call = call_to_f32,
     .expected = COUNTING,
     .expected_shape = SHAPE(0)},
    {.op = "clone",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_clone,
     .expected = COUNTING,
     .expected_shape = SHAPE(2, 3)},
    {.op = "clone",
     .what = "by contiguous",
     .inputs = {{.shape = SHAPE(2, 3), .values = COUNTING}},
     .call = call_contiguous,
     .expected = VALUES(0, 3, 1, 4, 2, 5),
     .expected_shape = SHAPE(3, 2)},
    {.op = "clone",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_clone,
     .expected = COUNTING,
     .expected_shape = SHAPE(0, 3)},
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* A call of one line on x of [2, 3], and its text. */
#define ERROR(id, expression)                                                                      \
    static void fail_##id(tutti_scope_t *s)                                                        \
    {                                                                                              \
        tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3));                          \
        (void)x;                                                                                   \
        (void)(expression);                                                                        \
    }

static tutti_tensor_t *index_of(tutti_scope_t *s, int64_t a, int64_t b)
{
    return tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){a, b});
}

static tutti_tensor_t *deep(tutti_scope_t *s)
{
    return tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
}

static tutti_tensor_t *split_five(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *out[5];
    tutti_split(s, x, 1, 5, out);
    return out[4];
}

static tutti_tensor_t *split_wrongly(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *out[2];
    tutti_split_sizes(s, x, 1, TUTTI_SHAPE(2, 2), out);
    return out[1];
}

ERROR(view_size, tutti_view(s, x, TUTTI_SHAPE(4, -1)))
ERROR(view_open, tutti_view(s, x, TUTTI_SHAPE(-1, -1)))
ERROR(view_strides, tutti_view(s, tutti_transpose(s, x, 0, 1), TUTTI_SHAPE(6)))
ERROR(reshape, tutti_reshape(s, x, TUTTI_SHAPE(5)))
ERROR(flatten_dim, tutti_flatten(s, x, 0, 2))
ERROR(flatten_order, tutti_flatten(s, x, 1, 0))
ERROR(squeeze_size, tutti_squeeze(s, x, 0))
ERROR(squeeze_scalar,
      tutti_squeeze(
          s, tutti_view(s, tutti_narrow(s, tutti_narrow(s, x, 0, 0, 1), 1, 0, 1), TUTTI_SCALAR), 0))
ERROR(unsqueeze, tutti_unsqueeze(s, x, 3))
ERROR(unsqueeze_deep, tutti_unsqueeze(s, deep(s), 0))
ERROR(transpose, tutti_transpose(s, x, 0, 2))
ERROR(permute_count, tutti_permute(s, x, TUTTI_DIMS(0)))
ERROR(permute_twice, tutti_permute(s, x, TUTTI_DIMS(0, -2)))
ERROR(slice_dim, tutti_slice(s, x, -3, TUTTI_RANGE(0, 1)))
ERROR(slice_step, tutti_slice(s, x, 0, ((tutti_range_t){.stop = 2, .step = -1})))
ERROR(narrow, tutti_narrow(s, x, 1, 2, 2))
ERROR(select, tutti_select(s, x, 0, 2))
ERROR(split, split_five(s, x))
ERROR(split_sizes, split_wrongly(s, x))
ERROR(expand_rank, tutti_expand(s, x, TUTTI_SHAPE(6)))
ERROR(expand_size, tutti_expand(s, x, TUTTI_SHAPE(4, 3)))
ERROR(cat_none, tutti_cat(s, NULL, 0, 0))
ERROR(cat_shape, tutti_cat(s, (tutti_tensor_t *[]){x, tutti_transpose(s, x, 0, 1)}, 2, 0))
ERROR(cat_dim, tutti_cat(s, &x, 1, 2))
ERROR(stack_none, tutti_stack(s, NULL, 0, 0))
ERROR(stack_shape, tutti_stack(s, (tutti_tensor_t *[]){x, tutti_transpose(s, x, 0, 1)}, 2, 0))
ERROR(gather_dtype, tutti_gather_along(s, x, 0, x))
ERROR(gather_shape, tutti_gather_along(s, x, 0, index_of(s, 0, 1)))
ERROR(gather_range, tutti_gather_along(s, tutti_select(s, x, 0, 0), 0, index_of(s, 0, 3)))
ERROR(index_select_range, tutti_index_select(s, x, 0, index_of(s, 1, -1)))
ERROR(index_select_shape, tutti_index_select(s, x, 0, tutti_cast(s, x, TUTTI_I64)))
ERROR(cast, tutti_cast(s, x, (tutti_dtype_t)99))

const op_error_t op_errors_shape[] = {
    {"view", fail_view_size,
     "view: [4, -1] has another number of elements than the input: f32[2, 3]"},
    {"view", fail_view_open, "view: [-1, -1]: only one size can be left open (-1): f32[2, 3]"},
    {"view", fail_view_strides,
     "view: the elements do not lie in memory so that a view can show them in this shape: use "
     "tutti_reshape: f32[3, 2]"},
    {"reshape", fail_reshape,
     "reshape: [5] has another number of elements than the input: f32[2, 3]"},
    {"flatten", fail_flatten_dim, "flatten: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"flatten", fail_flatten_order,
     "flatten: the last dimension 0 stands before the first, 1: f32[2, 3]"},
    {"squeeze", fail_squeeze_size, "squeeze: dimension 0 has size 2, not 1: f32[2, 3]"},
    {"squeeze", fail_squeeze_scalar, "squeeze: dimension 0 of a scalar, which has none: f32[]"},
    {"unsqueeze", fail_unsqueeze, "unsqueeze: dimension 3 is outside -3 to 2: f32[2, 3]"},
    {"unsqueeze", fail_unsqueeze_deep,
     "unsqueeze: a tensor has at most 8 dimensions: f32[1, 1, 1, 1, 1, 1, 1, 1]"},
    {"transpose", fail_transpose, "transpose: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"permute", fail_permute_count, "permute: 1 dimensions given for an input of 2: f32[2, 3]"},
    {"permute", fail_permute_twice, "permute: dimension 0 is given twice: f32[2, 3]"},
    {"slice", fail_slice_dim, "slice: dimension -3 is outside -2 to 1: f32[2, 3]"},
    {"slice", fail_slice_step, "slice: step -1 is negative: f32[2, 3]"},
    {"narrow", fail_narrow,
     "narrow: 2 indices from 2 on are not all within dimension 1 of size 3: f32[2, 3]"},
    {"select", fail_select, "select: index 2 is outside dimension 0 of size 2: f32[2, 3]"},
    {"split", fail_split, "split: 5 parts of equal size do not fit dimension 1: f32[2, 3]"},
    {"split", fail_split_sizes, "split: sizes [2, 2] do not add up to dimension 1: f32[2, 3]"},
    {"expand", fail_expand_rank, "expand: [6] has fewer dimensions than the input: f32[2, 3]"},
    {"expand", fail_expand_size,
     "expand: dimension 0 of the input has size 2; only size 1 expands to [4, 3]: f32[2, 3]"},
    {"cat", fail_cat_none, "cat: no tensors given"},
    {"cat", fail_cat_shape,
     "cat: sizes must be equal but for dimension 0, which input 1 breaks: f32[2, 3] and f32[3, "
     "2]"},
    {"cat", fail_cat_dim, "cat: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"stack", fail_stack_none, "stack: no tensors given"},
    {"stack", fail_stack_shape,
     "stack: shapes must be equal; input 1 breaks this: f32[2, 3] and f32[3, 2]"},
    {"gather", fail_gather_dtype, "gather: the index must be i64 or i32: f32[2, 3] and f32[2, 3]"},
    {"gather", fail_gather_shape,
     "gather: the index must have as many dimensions, none larger but dimension 0: f32[2, 3] and "
     "i64[2]"},
    {"gather", fail_gather_range, "gather: index 3 at element 1 is outside [0, 3)"},
    {"index_select", fail_index_select_range, "index_select: index 1 is -1, outside [0, 2)"},
    {"index_select", fail_index_select_shape,
     "index_select: the index must have one dimension: f32[2, 3] and i64[2, 3]"},
    {"cast", fail_cast, "cast: there is no dtype 99: f32[2, 3]"},
};

OP_CASE_LISTS(shape);
