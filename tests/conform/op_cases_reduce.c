/* Cases of op_reduce.h. */
#include <math.h>

#include <tutti/op_reduce.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

/* Everything; rows; columns, kept; the outer dimensions of three. */
#define CALLS(id)                                                                                  \
    CALL(id, tutti_##id(s, in[0]))                                                                 \
    CALL(id##_rows, tutti_##id##_over(s, in[0], TUTTI_DIMS(-1), false))                            \
    CALL(id##_columns, tutti_##id##_over(s, in[0], TUTTI_DIMS(0), true))                           \
    CALL(id##_outer, tutti_##id##_over(s, in[0], TUTTI_DIMS(2, 0), false))

CALLS(sum)
CALLS(mean)
CALLS(prod)
CALLS(max)
CALLS(min)
CALLS(any)
CALLS(all)
CALL(var, tutti_var(s, in[0]))
CALL(var_rows, tutti_var_over(s, in[0], TUTTI_DIMS(-1), false, 1))
CALL(var_columns, tutti_var_over(s, in[0], TUTTI_DIMS(0), true, 0))
CALL(var_outer, tutti_var_over(s, in[0], TUTTI_DIMS(2, 0), false, 0.5))
CALL(argmax, tutti_argmax(s, in[0], -1, false))
CALL(argmin, tutti_argmin(s, in[0], 0, true))
CALL(max_values, tutti_max_along(s, in[0], 1, true, NULL))

static void call_max_along(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_max_along(s, in[0], -1, false, &out[1]);
}

static void call_min_along(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_min_along(s, in[0], 0, true, &out[1]);
}

#define SIX VALUES(1.5, -2, 3, 0.5, 4, -1)
#define TWELVE VALUES(1, 5, -2, 3, 0.5, 4, -1, 2, 2.5, -3, 6, 1.25)

/* The four calls on given values, and an empty input. */
#define FOUR(id, all_, rows, columns, outer, empty, grads)                                         \
    {.op = #id,                                                                                    \
     .what = "everything",                                                                         \
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},                                            \
     .call = call_##id,                                                                            \
     .expected = all_,                                                                             \
     .has_no_gradient = !(grads)},                                                                 \
        {.op = #id,                                                                                \
         .what = "rows",                                                                           \
         .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},                                        \
         .call = call_##id##_rows,                                                                 \
         .expected = rows,                                                                         \
         .expected_shape = SHAPE(2),                                                               \
         .has_no_gradient = !(grads)},                                                             \
        {.op = #id,                                                                                \
         .what = "columns, kept",                                                                  \
         .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},                                        \
         .call = call_##id##_columns,                                                              \
         .expected = columns,                                                                      \
         .expected_shape = SHAPE(1, 3),                                                            \
         .has_no_gradient = !(grads)},                                                             \
        {.op = #id,                                                                                \
         .what = "two of three dimensions",                                                        \
         .inputs = {{.shape = SHAPE(2, 2, 3), .values = TWELVE}},                                  \
         .call = call_##id##_outer,                                                                \
         .expected = outer,                                                                        \
         .expected_shape = SHAPE(2),                                                               \
         .has_no_gradient = !(grads)},                                                             \
        {.op = #id,                                                                                \
         .what = "long",                                                                           \
         .inputs = {{.shape = SHAPE(3, 70)}},                                                      \
         .call = call_##id##_rows,                                                                 \
         .has_no_gradient = !(grads)},                                                             \
    {                                                                                              \
        .op = #id, .what = "empty", .inputs = {{.shape = SHAPE(0, 3)}}, .call = call_##id##_rows,  \
        .expected = empty, .expected_shape = SHAPE(0)                                              \
    }

const op_case_t op_cases_reduce[] = {
    FOUR(sum, VALUES(6), VALUES(2.5, 3.5), VALUES(2, 2, 2), VALUES(7.5, 11.75), VALUES(0), true),
    FOUR(mean, VALUES(1), VALUES(2.5 / 3, 3.5 / 3), VALUES(1, 1, 1), VALUES(1.25, 11.75 / 6),
         VALUES(0), true),
    FOUR(prod, VALUES(18), VALUES(-9, -2), VALUES(0.75, -8, -3), VALUES(50, -135), VALUES(0), true),
    FOUR(max, VALUES(4), VALUES(3, 4), VALUES(1.5, 4, 3), VALUES(5, 6), VALUES(0), true),
    FOUR(min, VALUES(-2), VALUES(-2, -1), VALUES(0.5, -2, -1), VALUES(-2, -3), VALUES(0), true),
    FOUR(any, VALUES(1), VALUES(1, 1), VALUES(1, 1, 1), VALUES(1, 1), VALUES(0), false),
    FOUR(all, VALUES(1), VALUES(1, 1), VALUES(1, 1, 1), VALUES(1, 1), VALUES(0), false),
    FOUR(var, VALUES(5.3), VALUES(79 / 12.0, 79 / 12.0), VALUES(0.25, 9, 4),
         VALUES(5.795454545454546, 8.873106060606062), VALUES(0), true),
    {.op = "sum",
     .what = "scalar",
     .inputs = {{.shape = {.rank = 0}, .values = SIX}},
     .call = call_sum,
     .expected = VALUES(1.5)},
    {.op = "sum",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_sum_columns,
     .expected = VALUES(0, 0, 0),
     .expected_shape = SHAPE(1, 3)},
    {.op = "sum",
     .what = "integers",
     .inputs = {{.shape = SHAPE(3), .dtype = TUTTI_U8, .values = VALUES(200, 100, 7)}},
     .call = call_sum,
     .expected = VALUES(307)},
    {.op = "sum",
     .what = "bool",
     .inputs = {{.shape = SHAPE(3), .dtype = TUTTI_BOOL, .values = VALUES(1, 0, 1)}},
     .call = call_sum,
     .expected = VALUES(2)},
    {.op = "mean",
     .what = "integers",
     .inputs = {{.shape = SHAPE(2), .dtype = TUTTI_I64, .values = VALUES(1, 2)}},
     .call = call_mean,
     .expected = VALUES(1.5)},
    {.op = "mean",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_mean_columns,
     .expected = VALUES(NAN, NAN, NAN),
     .expected_shape = SHAPE(1, 3)},
    {.op = "prod",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_prod,
     .expected = VALUES(1)},
    {.op = "prod",
     .what = "one zero and two",
     .inputs = {{.shape = SHAPE(2, 3), .values = VALUES(2, 0, 3, 0, 4, 0)}},
     .call = call_prod_rows,
     .expected = VALUES(0, 0),
     .expected_shape = SHAPE(2)},
    {.op = "any",
     .what = "some rows",
     .inputs = {{.shape = SHAPE(2, 2), .dtype = TUTTI_BOOL, .values = VALUES(0, 0, 1, 0)}},
     .call = call_any_rows,
     .expected = VALUES(0, 1),
     .expected_shape = SHAPE(2)},
    {.op = "all",
     .what = "some rows",
     .inputs = {{.shape = SHAPE(2, 2), .dtype = TUTTI_BOOL, .values = VALUES(1, 1, 1, 0)}},
     .call = call_all_rows,
     .expected = VALUES(1, 0),
     .expected_shape = SHAPE(2)},
    {.op = "all",
     .what = "of nothing",
     .inputs = {{.shape = SHAPE(0)}},
     .call = call_all,
     .expected = VALUES(1)},
    {.op = "var",
     .what = "of one element",
     .inputs = {{.shape = SHAPE(1)}},
     .call = call_var,
     .expected = VALUES(NAN),
     .has_no_gradient = true},
    {.op = "max",
     .what = "integers",
     .inputs = {{.shape = SHAPE(3), .dtype = TUTTI_I32, .values = VALUES(-3, -1, -2)}},
     .call = call_max,
     .expected = VALUES(-1)},
    {.op = "max_along",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},
     .call = call_max_along,
     .output_count = 2,
     .expected = VALUES(3, 4),
     .expected_shape = SHAPE(2)},
    {.op = "max_along",
     .what = "values alone",
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},
     .call = call_max_values,
     .expected = VALUES(3, 4),
     .expected_shape = SHAPE(2, 1)},
    {.op = "max_along",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_max_along,
     .output_count = 2,
     .expected = SIX,
     .expected_shape = SHAPE(0)},
    {.op = "min_along",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},
     .call = call_min_along,
     .output_count = 2,
     .expected = VALUES(0.5, -2, -1),
     .expected_shape = SHAPE(1, 3)},
    {.op = "min_along",
     .what = "empty",
     .inputs = {{.shape = SHAPE(3, 0)}},
     .call = call_min_along,
     .output_count = 2,
     .expected = SIX,
     .expected_shape = SHAPE(1, 0)},
    {.op = "argmax",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},
     .call = call_argmax,
     .expected = VALUES(2, 1),
     .expected_shape = SHAPE(2)},
    {.op = "argmax",
     .what = "the first of equal ones",
     .inputs = {{.shape = SHAPE(2, 3), .values = VALUES(1, 3, 3, NAN, NAN, 9)}},
     .call = call_argmax,
     .expected = VALUES(1, 0),
     .expected_shape = SHAPE(2)},
    {.op = "argmax",
     .what = "empty",
     .inputs = {{.shape = SHAPE(0, 3)}},
     .call = call_argmax,
     .expected = SIX,
     .expected_shape = SHAPE(0)},
    {.op = "argmin",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 3), .values = SIX}},
     .call = call_argmin,
     .expected = VALUES(1, 0, 1),
     .expected_shape = SHAPE(1, 3)},
    {.op = "argmin",
     .what = "empty",
     .inputs = {{.shape = SHAPE(3, 0)}},
     .call = call_argmin,
     .expected = SIX,
     .expected_shape = SHAPE(1, 0)},
};

/* ---- errors ---------------------------------------------------------------------------------- */

#define ERROR(id, expression)                                                                      \
    static void fail_##id(tutti_scope_t *s)                                                        \
    {                                                                                              \
        tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 0));                          \
        (void)(expression);                                                                        \
    }

ERROR(dim, tutti_sum_over(s, x, TUTTI_DIMS(2), false))
ERROR(twice, tutti_mean_over(s, x, TUTTI_DIMS(1, -1), false))
ERROR(count, tutti_var_over(s, x, ((tutti_dims_t){.count = 9}), false, 1))
ERROR(max, tutti_max_over(s, x, TUTTI_DIMS(1), false))
ERROR(min, tutti_min(s, x))
ERROR(max_along, tutti_max_along(s, x, 1, false, NULL))
ERROR(argmin, tutti_argmin(s, x, -1, true))
ERROR(argmax_dim, tutti_argmax(s, x, -3, true))

const op_error_t op_errors_reduce[] = {
    {"sum", fail_dim, "sum: dimension 2 is outside -2 to 1: f32[2, 0]"},
    {"mean", fail_twice, "mean: dimension 1 is given twice: f32[2, 0]"},
    {"var", fail_count, "var: 9 dimensions given; want 0 to 8: f32[2, 0]"},
    {"max", fail_max, "max: there is no element to choose: f32[2, 0]"},
    {"min", fail_min, "min: there is no element to choose: f32[2, 0]"},
    {"max_along", fail_max_along, "max_along: there is no element to choose: f32[2, 0]"},
    {"argmin", fail_argmin, "argmin: there is no element to choose: f32[2, 0]"},
    {"argmax", fail_argmax_dim, "argmax: dimension -3 is outside -2 to 1: f32[2, 0]"},
};

OP_CASE_LISTS(reduce);
