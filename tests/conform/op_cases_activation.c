/* Cases of op_activation.h. Values lie on both sides of every corner. */
#include <math.h>

#include <tutti/op_activation.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = expression;                                                                       \
    }

CALL(leaky_relu, tutti_leaky_relu(s, in[0], 0.25))
CALL(elu, tutti_elu(s, in[0], 1.5))
CALL(celu, tutti_celu(s, in[0], 0.5))
CALL(selu, tutti_selu(s, in[0]))
CALL(softplus, tutti_softplus(s, in[0], 2, 1.5))
CALL(logsigmoid, tutti_logsigmoid(s, in[0]))
CALL(mish, tutti_mish(s, in[0]))
CALL(hardswish, tutti_hardswish(s, in[0]))
CALL(hardsigmoid, tutti_hardsigmoid(s, in[0]))
CALL(hardtanh, tutti_hardtanh(s, in[0], -1, 0.5))
CALL(softsign, tutti_softsign(s, in[0]))
CALL(tanhshrink, tutti_tanhshrink(s, in[0]))
CALL(threshold, tutti_threshold(s, in[0], 0.25, -7))
CALL(hardshrink, tutti_hardshrink(s, in[0], 0.75))
CALL(softshrink, tutti_softshrink(s, in[0], 0.75))
CALL(relu6, tutti_relu6(s, in[0]))
CALL(prelu, tutti_prelu(s, in[0], in[1]))
CALL(glu, tutti_glu(s, in[0], -1))
CALL(glu_rows, tutti_glu(s, in[0], 0))

static double plain_leaky_relu(double x)
{
    return x > 0 ? x : 0.25 * x;
}

static double plain_elu(double x)
{
    return x > 0 ? x : 1.5 * expm1(x);
}

static double plain_celu(double x)
{
    return x > 0 ? x : 0.5 * expm1(2 * x);
}

static double plain_selu(double x)
{
    return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x));
}

static double plain_softplus(double x)
{
    return 2 * x > 1.5 ? x : log1p(exp(2 * x)) / 2;
}

static double plain_logsigmoid(double x)
{
    return -log1p(exp(-x));
}

static double plain_mish(double x)
{
    return x * tanh(log1p(exp(x)));
}

static double plain_hardswish(double x)
{
    return x * fmin(fmax(x + 3, 0), 6) / 6;
}

static double plain_hardsigmoid(double x)
{
    return fmin(fmax(x + 3, 0), 6) / 6;
}

static double plain_hardtanh(double x)
{
    return fmin(fmax(x, -1), 0.5);
}

static double plain_softsign(double x)
{
    return x / (1 + fabs(x));
}

static double plain_tanhshrink(double x)
{
    return x - tanh(x);
}

static double plain_threshold(double x)
{
    return x > 0.25 ? x : -7;
}

static double plain_hardshrink(double x)
{
    return fabs(x) <= 0.75 ? 0 : x;
}

static double plain_softshrink(double x)
{
    return x > 0.75 ? x - 0.75 : x < -0.75 ? x + 0.75 : 0;
}

static double plain_relu6(double x)
{
    return fmin(fmax(x, 0), 6);
}

/* No two neighbours lie on one side of 0, and none near a corner. */
#define SIDES VALUES(-6, 5, -2.5, 3.5, -1.25, 2.25, -0.625, 1.125, -0.3125, 0.375, -0.0625, 0.125)

#define UNARY(id)                                                                                  \
    {.op = #id,                                                                                    \
     .what = "",                                                                                   \
     .inputs = {{.shape = SHAPE(3, 4), .values = SIDES}},                                          \
     .call = call_##id,                                                                            \
     .unary = plain_##id},                                                                         \
    {                                                                                              \
        .op = #id, .what = "empty", .inputs = {{.shape = SHAPE(0, 4)}}, .call = call_##id,         \
        .unary = plain_##id                                                                        \
    }

const op_case_t op_cases_activation[] = {
    UNARY(leaky_relu),
    UNARY(elu),
    UNARY(celu),
    UNARY(selu),
    UNARY(softplus),
    UNARY(logsigmoid),
    UNARY(mish),
    UNARY(hardswish),
    UNARY(hardsigmoid),
    UNARY(hardtanh),
    UNARY(softsign),
    UNARY(tanhshrink),
    UNARY(threshold),
    UNARY(hardshrink),
    UNARY(softshrink),
    {.op = "hardtanh",
     .what = "relu6",
     .inputs = {{.shape = SHAPE(4), .values = VALUES(-1, 3, 5.5, 7)}},
     .call = call_relu6,
     .unary = plain_relu6},
    {.op = "softplus",
     .what = "of i32",
     .inputs = {{.shape = SHAPE(3), .dtype = TUTTI_I32, .values = VALUES(-1, 0, 4)}},
     .call = call_softplus,
     .unary = plain_softplus},
    {.op = "prelu",
     .what = "a weight of each channel",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 2, 2), .values = VALUES(-1, 2, -3, 4, 5, -6, 7, -8)},
                {.shape = SHAPE(2), .values = VALUES(0.5, 0.25)}},
     .call = call_prelu,
     .expected = VALUES(-0.5, 2, -0.75, 4, 5, -3, 7, -2),
     .expected_shape = SHAPE(2, 2, 2)},
    {.op = "prelu",
     .what = "one weight, a line",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3), .values = VALUES(-1, 2, -3)},
                {.shape = SHAPE(1), .values = VALUES(0.5)}},
     .call = call_prelu,
     .expected = VALUES(-0.5, 2, -1.5),
     .expected_shape = SHAPE(3)},
    {.op = "prelu",
     .what = "scalars",
     .input_count = 2,
     .inputs = {{.shape = {.rank = 0}, .values = VALUES(-1)},
                {.shape = SHAPE(1), .values = VALUES(0.5)}},
     .call = call_prelu,
     .expected = VALUES(-0.5)},
    {.op = "prelu",
     .what = "empty",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(0, 3)}, {.shape = SHAPE(3)}},
     .call = call_prelu,
     .expected = SIDES,
     .expected_shape = SHAPE(0, 3)},
    {.op = "glu",
     .what = "",
     .inputs = {{.shape = SHAPE(2, 4), .values = VALUES(1, 2, 0, 0, -3, 4, 0, 0)}},
     .call = call_glu,
     .expected = VALUES(0.5, 1, -1.5, 2),
     .expected_shape = SHAPE(2, 2)},
    {.op = "glu",
     .what = "of rows",
     .inputs = {{.shape = SHAPE(2, 3), .values = VALUES(1, 2, -3, 0, 0, 0)}},
     .call = call_glu_rows,
     .expected = VALUES(0.5, 1, -1.5),
     .expected_shape = SHAPE(1, 3)},
    {.op = "glu",
     .what = "empty",
     .inputs = {{.shape = SHAPE(3, 0)}},
     .call = call_glu,
     .expected = SIDES,
     .expected_shape = SHAPE(3, 0)},
};

/* ---- errors ---------------------------------------------------------------------------------- */

#define ERROR(id, expression)                                                                      \
    static void fail_##id(tutti_scope_t *s)                                                        \
    {                                                                                              \
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));                           \
        (void)x;                                                                                   \
        (void)(expression);                                                                        \
    }

ERROR(celu, tutti_celu(s, x, 0))
ERROR(softplus, tutti_softplus(s, x, 0, 20))
ERROR(hardtanh, tutti_hardtanh(s, x, 1, -1))
ERROR(softshrink, tutti_softshrink(s, x, -0.5))
ERROR(prelu_count, tutti_prelu(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2))))
ERROR(prelu_rank, tutti_prelu(s, x, x))
ERROR(prelu_dtype, tutti_prelu(s, x, tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(3))))
ERROR(glu_odd, tutti_glu(s, x, 1))
ERROR(glu_dim, tutti_glu(s, x, 2))
ERROR(glu_dtype, tutti_glu(s, tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(2)), 0))

const op_error_t op_errors_activation[] = {
    {"celu", fail_celu, "celu: alpha must be a divisor, not 0"},
    {"softplus", fail_softplus, "softplus: beta must be a divisor, not 0"},
    {"hardtanh", fail_hardtanh, "hardtanh: the bounds 1 and -1 enclose nothing"},
    {"softshrink", fail_softshrink, "softshrink: lambda must be at least 0, not -0.5"},
    {"prelu", fail_prelu_count,
     "prelu: want one weight, or one for each of the 3 channels in dimension 1, not 2"},
    {"prelu", fail_prelu_rank,
     "prelu: want one weight, or one for each of the 3 channels in dimension 1, not 6"},
    {"prelu", fail_prelu_dtype,
     "prelu: both inputs must be of a floating dtype: f32[2, 3] and i64[1, 3]"},
    {"glu", fail_glu_odd, "glu: dimension 1 has no halves: f32[2, 3]"},
    {"glu", fail_glu_dim, "glu: dimension 2 is outside -2 to 1: f32[2, 3]"},
    {"glu", fail_glu_dtype, "glu: want a floating dtype: i64[2]"},
};

OP_CASE_LISTS(activation);
