/* Cases of op_index.h. */
#include <math.h>

#include <tutti/op_index.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

CALL(sort, tutti_sort(s, in[0], -1, false, &out[1]))
CALL(sort_down, tutti_sort(s, in[0], 0, true, &out[1]))
CALL(sort_alone, tutti_sort(s, in[0], 1, false, NULL))
CALL(argsort, tutti_argsort(s, in[0], -1, false))
CALL(argsort_down, tutti_argsort(s, in[0], -1, true))
CALL(topk, tutti_topk(s, in[0], 2, -1, &out[1]))
CALL(topk_rows, tutti_topk(s, in[0], 1, 0, &out[1]))
CALL(topk_few, tutti_topk(s, in[0], 3, 0, &out[1]))
CALL(topk_smallest, tutti_topk_smallest(s, in[0], 2, 1, &out[1]))
CALL(topk_none, tutti_topk(s, in[0], 0, -1, &out[1]))
CALL(cumsum, tutti_cumsum(s, in[0], -1))
CALL(cumsum_rows, tutti_cumsum(s, in[0], 0))
CALL(cumprod, tutti_cumprod(s, in[0], 1))
CALL(cumprod_rows, tutti_cumprod(s, in[0], 0))
CALL(one_hot, tutti_one_hot(s, in[0], 3))
CALL(multinomial, tutti_multinomial(s, in[0], 3, true))
CALL(multinomial_once, tutti_multinomial(s, in[0], 1, false))
CALL(index_add, tutti_index_add(s, in[0], 1, in[1], in[2]))
CALL(index_add_rows, tutti_index_add(s, in[0], -2, in[1], in[2]))
CALL(scatter, tutti_scatter_along(s, in[0], 1, in[1], in[2]))
CALL(scatter_rows, tutti_scatter_along(s, in[0], 0, in[1], in[2]))
CALL(scatter_add, tutti_scatter_along_add(s, in[0], 1, in[1], in[2]))
CALL(scatter_add_rows, tutti_scatter_along_add(s, in[0], -2, in[1], in[2]))

#define NUMBERS ((const double[]){3, 1, 2, 0.5, -1, 4})

const op_case_t op_cases_index[] = {
    {.op = "sort",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_sort,
     .output_count = 2,
     .expected = VALUES(1, 2, 3, -1, 0.5, 4),
     .expected_shape = SHAPE(2, 3),
     .step = 1e-3},
    {.op = "sort",
     .what = "of rows, descending",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_sort_down,
     .output_count = 2,
     .expected = VALUES(3, 1, 4, 0.5, -1, 2),
     .expected_shape = SHAPE(2, 3),
     .step = 1e-3},
    {.op = "sort",
     .what = "without indices, NaN last",
     .inputs = {{.shape = SHAPE(1, 5), .values = VALUES(NAN, 1, INFINITY, -INFINITY, -2)}},
     .call = call_sort_alone,
     .expected = VALUES(-INFINITY, -2, 1, INFINITY, NAN),
     .expected_shape = SHAPE(1, 5),
     .has_no_gradient = true},
    {.op = "sort",
     .what = "of i64",
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_I64, .values = VALUES(0x1p53, -0x1p53, 0, 5)}},
     .call = call_sort,
     .output_count = 2,
     .expected = VALUES(-0x1p53, 0, 5, 0x1p53),
     .expected_shape = SHAPE(4)},
    {.op = "sort",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_sort,
     .output_count = 2,
     .expected = NUMBERS,
     .expected_shape = SHAPE(2, 0)},
    {.op = "argsort",
     .what = "with ties",
     .inputs = {{.shape = SHAPE(6), .values = VALUES(1, 0, 1, -0.0, 1, 0)}},
     .call = call_argsort,
     .expected = VALUES(1, 3, 5, 0, 2, 4),
     .expected_shape = SHAPE(6)},
    {.op = "argsort",
     .what = "descending, with ties and NaN",
     .inputs = {{.shape = SHAPE(6), .values = VALUES(1, NAN, 1, -0.0, NAN, 0)}},
     .call = call_argsort_down,
     .expected = VALUES(1, 4, 0, 2, 3, 5),
     .expected_shape = SHAPE(6)},
    {.op = "argsort",
     .what = "of u8",
     .inputs = {{.shape = SHAPE(2, 3), .dtype = TUTTI_U8, .values = VALUES(200, 3, 255, 0, 0, 1)}},
     .call = call_argsort,
     .expected = VALUES(1, 0, 2, 0, 1, 2),
     .expected_shape = SHAPE(2, 3)},
    {.op = "argsort",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_argsort,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 3)},
    {.op = "topk",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_topk,
     .output_count = 2,
     .expected = VALUES(3, 2, 4, 0.5),
     .expected_shape = SHAPE(2, 2),
     .step = 1e-3},
    {.op = "topk",
     .what = "of rows",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_topk_rows,
     .output_count = 2,
     .expected = VALUES(3, 1, 4),
     .expected_shape = SHAPE(1, 3),
     .step = 1e-3},
    {.op = "topk",
     .what = "few of many, with ties",
     .inputs = {{.shape = SHAPE(50), .values = (const double[50]){[7] = 1, [20] = 2, [49] = 2}}},
     .call = call_topk_few,
     .output_count = 2,
     .expected = VALUES(2, 2, 1),
     .expected_shape = SHAPE(3),
     .has_no_gradient = true},
    {.op = "topk",
     .what = "the smallest",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_topk_smallest,
     .output_count = 2,
     .expected = VALUES(1, 2, -1, 0.5),
     .expected_shape = SHAPE(2, 2),
     .step = 1e-3},
    {.op = "topk",
     .what = "of none",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_topk_none,
     .output_count = 2,
     .expected = NUMBERS,
     .expected_shape = SHAPE(2, 0)},
    {.op = "topk",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_topk,
     .output_count = 2,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 2)},
    {.op = "cumsum",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_cumsum,
     .expected = VALUES(3, 4, 6, 0.5, -0.5, 3.5),
     .expected_shape = SHAPE(2, 3)},
    {.op = "cumsum",
     .what = "of rows",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_cumsum_rows,
     .expected = VALUES(3, 1, 2, 3.5, 0, 6),
     .expected_shape = SHAPE(2, 3)},
    {.op = "cumsum",
     .what = "of u8",
     .inputs = {{.shape = SHAPE(3), .dtype = TUTTI_U8, .values = VALUES(255, 255, 2)}},
     .call = call_cumsum,
     .expected = VALUES(255, 510, 512),
     .expected_shape = SHAPE(3)},
    {.op = "cumsum",
     .what = "empty",
     .inputs = {{.shape = SHAPE(2, 0)}},
     .call = call_cumsum,
     .expected = NUMBERS,
     .expected_shape = SHAPE(2, 0)},
    {.op = "cumprod",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS}},
     .call = call_cumprod,
     .expected = VALUES(3, 3, 6, 0.5, -0.5, -2),
     .expected_shape = SHAPE(2, 3)},
    {.op = "cumprod",
     .what = "of five, two of them 0",
     .inputs = {{.shape = SHAPE(5, 1), .values = VALUES(2, 0, 3, 0, 0.5)}},
     .call = call_cumprod_rows,
     .expected = VALUES(2, 0, 0, 0, 0),
     .expected_shape = SHAPE(5, 1)},
    {.op = "cumprod",
     .what = "of i32",
     .inputs = {{.shape = SHAPE(1, 3), .dtype = TUTTI_I32, .values = VALUES(65536, 65536, 3)}},
     .call = call_cumprod,
     .expected = VALUES(65536, 0x1p32, 0x3p32),
     .expected_shape = SHAPE(1, 3)},
    {.op = "cumprod",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_cumprod_rows,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 3)},
    {.op = "one_hot",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(0, 2, 1, 1)}},
     .call = call_one_hot,
     .expected = VALUES(1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0),
     .expected_shape = SHAPE(2, 2, 3)},
    {.op = "one_hot",
     .what = "a scalar of i32",
     .inputs = {{.shape = {.rank = 0}, .dtype = TUTTI_I32, .values = VALUES(2)}},
     .call = call_one_hot,
     .expected = VALUES(0, 0, 1),
     .expected_shape = SHAPE(3)},
    {.op = "one_hot",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0), .dtype = TUTTI_U8}},
     .call = call_one_hot,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 3)},
    {.op = "multinomial",
     .what = "of one weight above 0",
     .inputs = {{.shape = SHAPE(2, 3), .values = VALUES(2, 0, 0, 0, 1, 0)}},
     .call = call_multinomial,
     .expected = VALUES(0, 0, 0, 1, 1, 1),
     .expected_shape = SHAPE(2, 3),
     .has_no_gradient = true},
    {.op = "multinomial",
     .what = "without replacement",
     .inputs = {{.shape = SHAPE(3), .values = VALUES(0.25, 0, 0)}},
     .call = call_multinomial_once,
     .expected = VALUES(0),
     .expected_shape = SHAPE(1),
     .has_no_gradient = true},
    {.op = "multinomial",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_multinomial,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 3),
     .has_no_gradient = true},
    {.op = "index_add",
     .what = "",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(3), .dtype = TUTTI_I64, .values = VALUES(2, 0, 2)},
                {.shape = SHAPE(2, 3), .values = VALUES(1, 2, 3, 4, 5, 6)}},
     .call = call_index_add,
     .expected = VALUES(5, 1, 6, 5.5, -1, 14),
     .expected_shape = SHAPE(2, 3)},
    {.op = "index_add",
     .what = "rows, i32",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(1), .dtype = TUTTI_I32, .values = VALUES(1)},
                {.shape = SHAPE(1, 3), .values = VALUES(1, 2, 3)}},
     .call = call_index_add_rows,
     .expected = VALUES(3, 1, 2, 1.5, 1, 7),
     .expected_shape = SHAPE(2, 3)},
    {.op = "index_add",
     .what = "empty",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(0), .dtype = TUTTI_I64},
                {.shape = SHAPE(2, 0)}},
     .call = call_index_add,
     .expected = NUMBERS,
     .expected_shape = SHAPE(2, 3)},
    {.op = "scatter_along",
     .what = "the last one stands",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(2, 0, 1, 1)},
                {.shape = SHAPE(2, 2), .values = VALUES(10, 20, 30, 40)}},
     .call = call_scatter,
     .expected = VALUES(20, 1, 10, 0.5, 40, 4),
     .expected_shape = SHAPE(2, 3)},
    {.op = "scatter_along",
     .what = "a part of the source, i32",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(3, 2), .values = NUMBERS},
                {.shape = SHAPE(1, 1), .dtype = TUTTI_I32, .values = VALUES(2)},
                {.shape = SHAPE(2, 3), .values = VALUES(10, 20, 30, 40, 50, 60)}},
     .call = call_scatter_rows,
     .expected = VALUES(3, 1, 2, 0.5, 10, 4),
     .expected_shape = SHAPE(3, 2)},
    {.op = "scatter_along",
     .what = "empty",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(2, 0), .dtype = TUTTI_I64},
                {.shape = SHAPE(2, 1), .values = VALUES(1, 2)}},
     .call = call_scatter,
     .expected = NUMBERS,
     .expected_shape = SHAPE(2, 3)},
    {.op = "scatter_along_add",
     .what = "",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3), .values = NUMBERS},
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I64, .values = VALUES(2, 0, 1, 1)},
                {.shape = SHAPE(2, 2), .values = VALUES(10, 20, 30, 40)}},
     .call = call_scatter_add,
     .expected = VALUES(23, 1, 12, 0.5, 69, 4),
     .expected_shape = SHAPE(2, 3)},
    {.op = "scatter_along_add",
     .what = "i8, a part of the source",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 1), .dtype = TUTTI_I8, .values = VALUES(1, 2)},
                {.shape = SHAPE(2, 1), .dtype = TUTTI_I32, .values = VALUES(1, 1)},
                {.shape = SHAPE(2, 2), .dtype = TUTTI_I8, .values = VALUES(3, 100, 4, 100)}},
     .call = call_scatter_add_rows,
     .expected = VALUES(1, 9),
     .expected_shape = SHAPE(2, 1)},
    {.op = "scatter_along_add",
     .what = "empty",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(0, 3)},
                {.shape = SHAPE(0, 3), .dtype = TUTTI_I64},
                {.shape = SHAPE(0, 3)}},
     .call = call_scatter_add,
     .expected = NUMBERS,
     .expected_shape = SHAPE(0, 3)},
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* A call of one line on x of [2, 3]. */
#define ERROR(id, expression)                                                                      \
    static void fail_##id(tutti_scope_t *s)                                                        \
    {                                                                                              \
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));                           \
        (void)x;                                                                                   \
        (void)(expression);                                                                        \
    }

static tutti_tensor_t *index_of(tutti_scope_t *s, int64_t a, int64_t b)
{
    return tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){a, b});
}

static tutti_tensor_t *row_of(tutti_scope_t *s, int64_t a, int64_t b)
{
    return tutti_unsqueeze(s, index_of(s, a, b), 0);
}

static tutti_tensor_t *weights_of(tutti_scope_t *s, float a, float b)
{
    return tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2), (float[]){a, b});
}

ERROR(sort, tutti_sort(s, x, 2, false, NULL))
ERROR(argsort, tutti_argsort(s, tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 1), 0, false))
ERROR(topk, tutti_topk(s, x, 4, 1, NULL))
ERROR(topk_negative, tutti_topk_smallest(s, x, -1, 1, NULL))
ERROR(cumsum, tutti_cumsum(s, x, -3))
ERROR(cumprod, tutti_cumprod(s, x, 2))
ERROR(one_hot_dtype, tutti_one_hot(s, x, 3))
ERROR(one_hot_classes, tutti_one_hot(s, index_of(s, 0, 1), 0))
ERROR(one_hot_range, tutti_one_hot(s, index_of(s, 0, 3), 3))
ERROR(multinomial_dtype, tutti_multinomial(s, index_of(s, 0, 3), 1, true))
ERROR(multinomial_none, tutti_multinomial(s, x, 0, true))
ERROR(multinomial_many, tutti_multinomial(s, x, 4, false))
ERROR(multinomial_negative, tutti_multinomial(s, weights_of(s, 1, -0.5f), 1, true))
ERROR(multinomial_zero, tutti_multinomial(s, weights_of(s, 0, 0), 1, true))
ERROR(multinomial_few, tutti_multinomial(s, weights_of(s, 0, 1), 2, false))
ERROR(multinomial_shape, tutti_multinomial(s, tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 1), 1, true))
ERROR(index_add_dtype, tutti_index_add(s, x, 1, index_of(s, 0, 1), tutti_cast(s, x, TUTTI_F64)))
ERROR(index_add_index, tutti_index_add(s, x, 1, x, x))
ERROR(index_add_rank, tutti_index_add(s, x, 1, row_of(s, 0, 1), x))
ERROR(index_add_shape, tutti_index_add(s, x, 1, index_of(s, 0, 1), x))
ERROR(index_add_range, tutti_index_add(s, x, 0, index_of(s, 0, 2), x))
ERROR(scatter_shape, tutti_scatter_along(s, x, 1, index_of(s, 0, 1), x))
ERROR(scatter_range, tutti_scatter_along(s, x, 1, row_of(s, 0, -1), x))
ERROR(scatter_add_shape,
      tutti_scatter_along_add(s, x, 1, row_of(s, 0, 1), tutti_narrow(s, x, 1, 0, 1)))
ERROR(scatter_add_range, tutti_scatter_along_add(s, x, 1, row_of(s, 3, 1), x))

const op_error_t op_errors_index[] = {
    {"sort", fail_sort, "sort: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"argsort", fail_argsort, "argsort: dimension 0 of a scalar, which has none: f32[]"},
    {"topk", fail_topk, "topk: 4 elements are asked for, of 3 in dimension 1: f32[2, 3]"},
    {"topk", fail_topk_negative, "topk: -1 elements are asked for, of 3 in dimension 1: f32[2, 3]"},
    {"cumsum", fail_cumsum, "cumsum: dimension -3 is outside -2 to 1: f32[2, 3]"},
    {"cumprod", fail_cumprod, "cumprod: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"one_hot", fail_one_hot_dtype, "one_hot: classes must be i64, i32 or u8: f32[2, 3]"},
    {"one_hot", fail_one_hot_classes,
     "one_hot: 0 classes of 1 dimensions: want at least 1, and at most 7: i64[2]"},
    {"one_hot", fail_one_hot_range, "one_hot: class 3 at element 1 is outside [0, 3)"},
    {"multinomial", fail_multinomial_dtype,
     "multinomial: weights must be of a floating dtype: i64[2]"},
    {"multinomial", fail_multinomial_none,
     "multinomial: 0 draws from 3 weights: want at least 1: f32[2, 3]"},
    {"multinomial", fail_multinomial_many,
     "multinomial: 4 draws from 3 weights: want at least 1, and without replacement no more than "
     "that: f32[2, 3]"},
    {"multinomial", fail_multinomial_negative,
     "multinomial: weight 1 of row 0 is -0.5: want finite ones, not below 0"},
    {"multinomial", fail_multinomial_zero,
     "multinomial: row 0 has 0 weights above 0: 1 are to be drawn"},
    {"multinomial", fail_multinomial_few,
     "multinomial: row 0 has 1 weights above 0: 2 are to be drawn without replacement"},
    {"multinomial", fail_multinomial_shape, "multinomial: there is no weight in a row: f32[]"},
    {"index_add", fail_index_add_dtype,
     "index_add: the source must have the dtype of the input: f32[2, 3], i64[2] and f64[2, 3]"},
    {"index_add", fail_index_add_index,
     "index_add: the index must be i64 or i32: f32[2, 3], f32[2, 3] and f32[2, 3]"},
    {"index_add", fail_index_add_rank,
     "index_add: the index must have one dimension: f32[2, 3], i64[1, 2] and f32[2, 3]"},
    {"index_add", fail_index_add_shape,
     "index_add: the source must have the input's shape, but as many indices in dimension 1 as the "
     "index: f32[2, 3], i64[2] and f32[2, 3]"},
    {"index_add", fail_index_add_range, "index_add: index 1 is 2, outside [0, 2)"},
    {"scatter_along", fail_scatter_shape,
     "scatter_along: the index must have as many dimensions as input and source, none larger than "
     "the source's, or but for dimension 1 than the input's: f32[2, 3], i64[2] and f32[2, 3]"},
    {"scatter_along", fail_scatter_range, "scatter_along: index -1 at element 1 is outside [0, 3)"},
    {"scatter_along_add", fail_scatter_add_shape,
     "scatter_along_add: the index must have as many dimensions as input and source, none larger "
     "than the source's, or but for dimension 1 than the input's: f32[2, 3], i64[1, 2] and f32[2, "
     "1]"},
    {"scatter_along_add", fail_scatter_add_range,
     "scatter_along_add: index 3 at element 0 is outside [0, 3)"},
};

OP_CASE_LISTS(index);
