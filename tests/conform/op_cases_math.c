/* Cases of op_math.h. */
#include <math.h>

#include <tutti/op_math.h>

#include "op_cases.h"

/* ---- calls ----------------------------------------------------------------------------------- */

#define UNARY_OPS(X)                                                                               \
    X(neg)                                                                                         \
    X(abs)                                                                                         \
    X(square)                                                                                      \
    X(sqrt)                                                                                        \
    X(rsqrt)                                                                                       \
    X(exp)                                                                                         \
    X(log)                                                                                         \
    X(log1p)                                                                                       \
    X(expm1)                                                                                       \
    X(sign)                                                                                        \
    X(floor)                                                                                       \
    X(ceil)                                                                                        \
    X(round)                                                                                       \
    X(trunc)                                                                                       \
    X(sin)                                                                                         \
    X(cos)                                                                                         \
    X(erf)                                                                                         \
    X(tanh)                                                                                        \
    X(sigmoid)                                                                                     \
    X(relu)                                                                                        \
    X(silu)                                                                                        \
    X(logical_not)                                                                                 \
    X(isnan)                                                                                       \
    X(isinf)                                                                                       \
    X(isfinite)

#define BINARY_OPS(X)                                                                              \
    X(add)                                                                                         \
    X(sub)                                                                                         \
    X(mul)                                                                                         \
    X(div)                                                                                         \
    X(pow)                                                                                         \
    X(maximum)                                                                                     \
    X(minimum)                                                                                     \
    X(eq)                                                                                          \
    X(ne)                                                                                          \
    X(lt)                                                                                          \
    X(le)                                                                                          \
    X(gt)                                                                                          \
    X(ge)                                                                                          \
    X(logical_and)                                                                                 \
    X(logical_or)

#define SCALAR_OPS(X)                                                                              \
    X(add_scalar)                                                                                  \
    X(sub_scalar)                                                                                  \
    X(mul_scalar)                                                                                  \
    X(div_scalar)                                                                                  \
    X(pow_scalar)                                                                                  \
    X(eq_scalar)                                                                                   \
    X(ne_scalar)                                                                                   \
    X(lt_scalar)                                                                                   \
    X(le_scalar)                                                                                   \
    X(gt_scalar)                                                                                   \
    X(ge_scalar)

#define X(id)                                                                                      \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = tutti_##id(s, in[0]);                                                             \
    }
UNARY_OPS(X)
#undef X

#define X(id)                                                                                      \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = tutti_##id(s, in[0], in[1]);                                                      \
    }
BINARY_OPS(X)
#undef X

#define X(id)                                                                                      \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        out[0] = tutti_##id(s, in[0], 1.5);                                                        \
    }
SCALAR_OPS(X)
#undef X

static void call_scalar_sub(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_scalar_sub(s, 1.5, in[0]);
}

static void call_scalar_div(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_scalar_div(s, 1.5, in[0]);
}

static void call_clamp(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_clamp(s, in[0], -1, 1.25);
}

static void call_clamp_low(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_clamp(s, in[0], -1, INFINITY);
}

static void call_gelu(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_gelu(s, in[0], TUTTI_GELU_ERF);
}

static void call_gelu_tanh(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_gelu(s, in[0], TUTTI_GELU_TANH);
}

static void call_where(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_where(s, in[0], in[1], in[2]);
}

static void call_masked_fill(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_masked_fill(s, in[0], in[1], -7);
}

static void call_add_twice(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_add(s, in[0], in[0]);
}

static void call_add_one(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_add_scalar(s, in[0], 1);
}

static void call_mul_half(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_mul_scalar(s, in[0], 0.5);
}

/* ---- references ------------------------------------------------------------------------------ */

#define REFERENCE(id, formula)                                                                     \
    static double ref_##id(double x)                                                               \
    {                                                                                              \
        return formula;                                                                            \
    }
REFERENCE(neg, -x)
REFERENCE(square, x *x)
REFERENCE(rsqrt, 1 / sqrt(x))
REFERENCE(sigmoid, 1 / (1 + exp(-x)))
REFERENCE(relu, x > 0 ? x : 0)
REFERENCE(silu, x / (1 + exp(-x)))
REFERENCE(gelu, x * 0.5 * erfc(-x * M_SQRT1_2))
REFERENCE(gelu_tanh, 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))))
REFERENCE(logical_not, x == 0)
REFERENCE(isnan, isnan(x) != 0)
REFERENCE(isinf, isinf(x) != 0)
REFERENCE(isfinite, isfinite(x) != 0)
REFERENCE(sign, (x > 0) - (x < 0))
REFERENCE(add_scalar, x + 1.5)
REFERENCE(sub_scalar, x - 1.5)
REFERENCE(scalar_sub, 1.5 - x)
REFERENCE(mul_scalar, x * 1.5)
REFERENCE(div_scalar, x / 1.5)
REFERENCE(scalar_div, 1.5 / x)
REFERENCE(pow_scalar, pow(x, 1.5))
REFERENCE(eq_scalar, x == 1.5)
REFERENCE(ne_scalar, x != 1.5)
REFERENCE(lt_scalar, x < 1.5)
REFERENCE(le_scalar, x <= 1.5)
REFERENCE(gt_scalar, x > 1.5)
REFERENCE(ge_scalar, x >= 1.5)
REFERENCE(clamp, fmin(fmax(x, -1), 1.25))
REFERENCE(clamp_low, fmax(x, -1))
REFERENCE(twice, x + x)
REFERENCE(one_more, x + 1)
REFERENCE(half, x * 0.5)

#define REFERENCE_OF_TWO(id, formula)                                                              \
    static double ref_##id(double a, double b)                                                     \
    {                                                                                              \
        return formula;                                                                            \
    }
REFERENCE_OF_TWO(add, a + b)
REFERENCE_OF_TWO(sub, a - b)
REFERENCE_OF_TWO(mul, a *b)
REFERENCE_OF_TWO(div, a / b)
REFERENCE_OF_TWO(eq, a == b)
REFERENCE_OF_TWO(ne, a != b)
REFERENCE_OF_TWO(lt, a < b)
REFERENCE_OF_TWO(le, a <= b)
REFERENCE_OF_TWO(gt, a > b)
REFERENCE_OF_TWO(ge, a >= b)
REFERENCE_OF_TWO(logical_and, a != 0 && b != 0)
REFERENCE_OF_TWO(logical_or, a != 0 || b != 0)
REFERENCE_OF_TWO(masked_fill, b != 0 ? -7 : a)

/* ---- the table ------------------------------------------------------------------------------- */

/* A function of one tensor on a range: ordinary, a scalar, more than a vector, empty. */
#define ONE(id, from, to, reference)                                                               \
    {.op = #id,                                                                                    \
     .what = "",                                                                                   \
     .inputs = {{.shape = SHAPE(3, 4), .low = from, .high = to}},                                  \
     .call = call_##id,                                                                            \
     .unary = reference},                                                                          \
        {.op = #id,                                                                                \
         .what = "long",                                                                           \
         .inputs = {{.shape = SHAPE(2, 41), .low = from, .high = to}},                             \
         .call = call_##id,                                                                        \
         .unary = reference},                                                                      \
        {.op = #id,                                                                                \
         .what = "scalar",                                                                         \
         .inputs = {{.shape = {.rank = 0}, .low = from, .high = to}},                              \
         .call = call_##id,                                                                        \
         .unary = reference},                                                                      \
    {                                                                                              \
        .op = #id, .what = "empty", .inputs = {{.shape = SHAPE(2, 0, 3)}}, .call = call_##id,      \
        .unary = reference                                                                         \
    }

/* A function of two tensors, operands broadcast in turn. */
#define TWO(id, from, to, from_b, to_b, reference)                                                 \
    {.op = #id,                                                                                    \
     .what = "",                                                                                   \
     .input_count = 2,                                                                             \
     .inputs = {{.shape = SHAPE(3, 4), .low = from, .high = to},                                   \
                {.shape = SHAPE(3, 4), .low = from_b, .high = to_b}},                              \
     .call = call_##id,                                                                            \
     .binary = reference},                                                                         \
        {.op = #id,                                                                                \
         .what = "broadcast",                                                                      \
         .input_count = 2,                                                                         \
         .inputs = {{.shape = SHAPE(2, 1, 4), .low = from, .high = to},                            \
                    {.shape = SHAPE(3, 1), .low = from_b, .high = to_b}},                          \
         .call = call_##id,                                                                        \
         .binary = reference},                                                                     \
        {.op = #id,                                                                                \
         .what = "scalar operand",                                                                 \
         .input_count = 2,                                                                         \
         .inputs = {{.shape = {.rank = 0}, .low = from, .high = to},                               \
                    {.shape = SHAPE(2, 19), .low = from_b, .high = to_b}},                         \
         .call = call_##id,                                                                        \
         .binary = reference},                                                                     \
    {                                                                                              \
        .op = #id, .what = "empty", .input_count = 2,                                              \
        .inputs = {{.shape = SHAPE(0, 4)}, {.shape = SHAPE(1, 4)}}, .call = call_##id,             \
        .binary = reference                                                                        \
    }

/* Integers, without gradients. */
#define WHOLE(id, type, reference)                                                                 \
    {                                                                                              \
        .op = #id, .what = #type,                                                                  \
        .inputs = {{.shape = SHAPE(3, 5), .dtype = type, .low = 0, .high = 9}}, .call = call_##id, \
        .unary = reference                                                                         \
    }

#define WHOLE_TWO(id, type, other, reference)                                                      \
    {                                                                                              \
        .op = #id, .what = #type " with " #other, .input_count = 2,                                \
        .inputs = {{.shape = SHAPE(3, 5), .dtype = type, .low = 0, .high = 3},                     \
                   {.shape = SHAPE(5), .dtype = other, .low = 1, .high = 3}},                      \
        .call = call_##id, .binary = reference                                                     \
    }

const op_case_t op_cases_math[] = {
    ONE(neg, -2, 2, ref_neg),
    ONE(abs, -2, 2, fabs),
    ONE(square, -2, 2, ref_square),
    ONE(sqrt, 0.25, 2, sqrt),
    ONE(rsqrt, 0.25, 2, ref_rsqrt),
    ONE(exp, -2, 2, exp),
    ONE(log, 0.25, 2, log),
    ONE(log1p, -0.5, 2, log1p),
    ONE(expm1, -2, 2, expm1),
    ONE(sign, -2, 2, ref_sign),
    ONE(floor, -4, 4, floor),
    ONE(ceil, -4, 4, ceil),
    ONE(round, -4, 4, rint),
    ONE(trunc, -4, 4, trunc),
    ONE(sin, -4, 4, sin),
    ONE(cos, -4, 4, cos),
    ONE(erf, -3, 3, erf),
    ONE(tanh, -3, 3, tanh),
    ONE(sigmoid, -6, 6, ref_sigmoid),
    ONE(relu, -2, 2, ref_relu),
    ONE(silu, -6, 6, ref_silu),
    ONE(gelu, -4, 4, ref_gelu),
    ONE(gelu_tanh, -4, 4, ref_gelu_tanh),
    ONE(clamp, -2, 2, ref_clamp),
    ONE(logical_not, -2, 2, ref_logical_not),
    ONE(isnan, -2, 2, ref_isnan),
    ONE(isinf, -2, 2, ref_isinf),
    ONE(isfinite, -2, 2, ref_isfinite),
    ONE(add_scalar, -2, 2, ref_add_scalar),
    ONE(sub_scalar, -2, 2, ref_sub_scalar),
    ONE(scalar_sub, -2, 2, ref_scalar_sub),
    ONE(mul_scalar, -2, 2, ref_mul_scalar),
    ONE(div_scalar, -2, 2, ref_div_scalar),
    ONE(scalar_div, 0.5, 2, ref_scalar_div),
    ONE(pow_scalar, 0.25, 2, ref_pow_scalar),
    ONE(eq_scalar, 1, 2, ref_eq_scalar),
    ONE(ne_scalar, 1, 2, ref_ne_scalar),
    ONE(lt_scalar, 1, 2, ref_lt_scalar),
    ONE(le_scalar, 1, 2, ref_le_scalar),
    ONE(gt_scalar, 1, 2, ref_gt_scalar),
    ONE(ge_scalar, 1, 2, ref_ge_scalar),
    TWO(add, -2, 2, -2, 2, ref_add),
    TWO(sub, -2, 2, -2, 2, ref_sub),
    TWO(mul, -2, 2, -2, 2, ref_mul),
    TWO(div, -2, 2, 0.5, 2, ref_div),
    TWO(pow, 0.25, 2, -2, 2, pow),
    TWO(maximum, -2, 2, -2, 2, fmax),
    TWO(minimum, -2, 2, -2, 2, fmin),
    TWO(eq, -2, 2, -2, 2, ref_eq),
    TWO(ne, -2, 2, -2, 2, ref_ne),
    TWO(lt, -2, 2, -2, 2, ref_lt),
    TWO(le, -2, 2, -2, 2, ref_le),
    TWO(gt, -2, 2, -2, 2, ref_gt),
    TWO(ge, -2, 2, -2, 2, ref_ge),
    TWO(logical_and, -2, 2, -2, 2, ref_logical_and),
    TWO(logical_or, -2, 2, -2, 2, ref_logical_or),

    WHOLE(neg, TUTTI_I64, ref_neg),
    WHOLE(abs, TUTTI_I32, fabs),
    WHOLE(square, TUTTI_I32, ref_square),
    WHOLE(relu, TUTTI_I8, ref_relu),
    WHOLE(sqrt, TUTTI_I64, sqrt),
    WHOLE(log1p, TUTTI_I32, log1p),
    WHOLE(expm1, TUTTI_U8, expm1),
    WHOLE(sign, TUTTI_I32, ref_sign),
    WHOLE(floor, TUTTI_I64, floor),
    WHOLE(round, TUTTI_U8, rint),
    WHOLE(isfinite, TUTTI_BOOL, ref_isfinite),
    WHOLE(isnan, TUTTI_I32, ref_isnan),
    WHOLE(exp, TUTTI_U8, exp),
    WHOLE(clamp, TUTTI_I64, ref_clamp),
    WHOLE(add_scalar, TUTTI_I32, ref_add_scalar),
    WHOLE(div_scalar, TUTTI_I64, ref_div_scalar),
    WHOLE(gt_scalar, TUTTI_I64, ref_gt_scalar),
    WHOLE(le_scalar, TUTTI_U8, ref_le_scalar),
    WHOLE(logical_not, TUTTI_I32, ref_logical_not),
    WHOLE_TWO(add, TUTTI_I64, TUTTI_I32, ref_add),
    WHOLE_TWO(add, TUTTI_BOOL, TUTTI_I32, ref_add),
    WHOLE_TWO(sub, TUTTI_I8, TUTTI_U8, ref_sub),
    WHOLE_TWO(mul, TUTTI_U8, TUTTI_U8, ref_mul),
    WHOLE_TWO(div, TUTTI_I64, TUTTI_I64, ref_div),
    WHOLE_TWO(maximum, TUTTI_I32, TUTTI_I64, fmax),
    WHOLE_TWO(eq, TUTTI_I64, TUTTI_U8, ref_eq),
    WHOLE_TWO(lt, TUTTI_I32, TUTTI_I32, ref_lt),
    WHOLE_TWO(logical_and, TUTTI_BOOL, TUTTI_BOOL, ref_logical_and),

    {.op = "add",
     .what = "to itself",
     .inputs = {{.shape = SHAPE(2, 3)}},
     .call = call_add_twice,
     .unary = ref_twice},
    {.op = "add_scalar",
     .what = "an integer to integers",
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_I64, .high = 9}},
     .call = call_add_one,
     .unary = ref_one_more},
    {.op = "add_scalar",
     .what = "a number to bool",
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_BOOL, .high = 1}},
     .call = call_add_one,
     .unary = ref_one_more},
    {.op = "mul_scalar",
     .what = "a fraction of integers",
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_I64, .high = 9}},
     .call = call_mul_half,
     .unary = ref_half},
    {.op = "clamp",
     .what = "one bound",
     .inputs = {{.shape = SHAPE(3, 4)}},
     .call = call_clamp_low,
     .unary = ref_clamp_low},
    {.op = "clamp",
     .what = "one bound, integers",
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_I32, .low = -5, .high = 5}},
     .call = call_clamp_low,
     .unary = ref_clamp_low},
    {.op = "maximum",
     .what = "equal operands share",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3), .values = (const double[]){1, 1, 2}, .is_constant = true},
                {.shape = SHAPE(3), .values = (const double[]){1, 2, 1}}},
     .call = call_maximum,
     .binary = fmax,
     .has_no_gradient = true},

    {.op = "where",
     .what = "",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 3),
                 .dtype = TUTTI_BOOL,
                 .values = (const double[]){1, 0, 1, 0, 0, 1}},
                {.shape = SHAPE(2, 3), .values = (const double[]){1, 2, 3, 4, 5, 6}},
                {.shape = SHAPE(2, 3), .values = (const double[]){-1, -2, -3, -4, -5, -6}}},
     .call = call_where,
     .expected = (const double[]){1, -2, 3, -4, -5, 6},
     .expected_shape = SHAPE(2, 3)},
    {.op = "where",
     .what = "broadcast",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(2, 1), .dtype = TUTTI_BOOL, .values = (const double[]){1, 0}},
                {.shape = SHAPE(3), .values = (const double[]){1, 2, 3}},
                {.shape = {.rank = 0}, .values = (const double[]){9}}},
     .call = call_where,
     .expected = (const double[]){1, 2, 3, 9, 9, 9},
     .expected_shape = SHAPE(2, 3)},
    {.op = "where",
     .what = "empty",
     .input_count = 3,
     .inputs = {{.shape = SHAPE(0, 3), .dtype = TUTTI_BOOL},
                {.shape = SHAPE(3)},
                {.shape = SHAPE(1, 3)}},
     .call = call_where,
     .expected = (const double[]){0},
     .expected_shape = SHAPE(0, 3)},
    {.op = "masked_fill",
     .what = "",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(3, 4)}, {.shape = SHAPE(3, 4), .dtype = TUTTI_BOOL, .high = 1}},
     .call = call_masked_fill,
     .binary = ref_masked_fill},
    {.op = "masked_fill",
     .what = "broadcast",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(2, 3, 4)}, {.shape = SHAPE(3, 1), .dtype = TUTTI_BOOL, .high = 1}},
     .call = call_masked_fill,
     .binary = ref_masked_fill},
    {.op = "masked_fill",
     .what = "integers",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(4), .dtype = TUTTI_I32, .high = 9},
                {.shape = SHAPE(4), .dtype = TUTTI_BOOL, .high = 1}},
     .call = call_masked_fill,
     .binary = ref_masked_fill},
    {.op = "masked_fill",
     .what = "empty",
     .input_count = 2,
     .inputs = {{.shape = SHAPE(0)}, {.shape = SHAPE(1), .dtype = TUTTI_BOOL, .high = 1}},
     .call = call_masked_fill,
     .binary = ref_masked_fill},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, int64_t rows, int64_t columns)
{
    return tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(rows, columns));
}

static tutti_tensor_t *bits(tutti_scope_t *s, int64_t n)
{
    return tutti_zeros(s, TUTTI_BOOL, TUTTI_SHAPE(n));
}

static void add_of_unlike_shapes(tutti_scope_t *s)
{
    (void)tutti_add(s, f32(s, 2, 3), f32(s, 4, 3));
}

static void sub_of_bool(tutti_scope_t *s)
{
    (void)tutti_sub(s, bits(s, 2), bits(s, 2));
}

static void floor_of_bool(tutti_scope_t *s)
{
    (void)tutti_floor(s, bits(s, 2));
}

static void abs_of_bool(tutti_scope_t *s)
{
    (void)tutti_abs(s, bits(s, 2));
}

static void neg_of_bool(tutti_scope_t *s)
{
    (void)tutti_neg(s, bits(s, 2));
}

static void clamp_to_nothing(tutti_scope_t *s)
{
    (void)tutti_clamp(s, f32(s, 2, 3), 1, -1);
}

static void clamp_to_nan(tutti_scope_t *s)
{
    (void)tutti_clamp(s, f32(s, 2, 3), (double)NAN, 1);
}

static void gelu_of_no_formula(tutti_scope_t *s)
{
    (void)tutti_gelu(s, f32(s, 2, 3), (tutti_gelu_t)7);
}

static void where_without_bool(tutti_scope_t *s)
{
    (void)tutti_where(s, f32(s, 2, 3), f32(s, 2, 3), f32(s, 2, 3));
}

static void masked_fill_without_bool(tutti_scope_t *s)
{
    (void)tutti_masked_fill(s, f32(s, 2, 3), f32(s, 2, 3), 0);
}

static void masked_fill_by_more(tutti_scope_t *s)
{
    (void)tutti_masked_fill(s, f32(s, 1, 3), tutti_zeros(s, TUTTI_BOOL, TUTTI_SHAPE(2, 3)), 0);
}

static void add_scalar_beyond_the_dtype(tutti_scope_t *s)
{
    (void)tutti_mul_scalar(s, tutti_ones(s, TUTTI_U8, TUTTI_SHAPE(2)), -1); /* wraps, as in torch */
    (void)tutti_add_scalar(s, tutti_zeros(s, TUTTI_I32, TUTTI_SHAPE(2)), 2147483648.0);
}

static void masked_fill_with_a_number_beyond_the_dtype(tutti_scope_t *s)
{
    (void)tutti_masked_fill(s, tutti_zeros(s, TUTTI_U8, TUTTI_SHAPE(2)),
                            tutti_zeros(s, TUTTI_BOOL, TUTTI_SHAPE(2)), 256);
}

static void lt_of_unlike_shapes(tutti_scope_t *s)
{
    (void)tutti_lt(s, f32(s, 2, 3), bits(s, 2));
}

const op_error_t op_errors_math[] = {
    {"add", add_of_unlike_shapes,
     "add: shapes [2, 3] and [4, 3] do not broadcast: dimension -2 must be equal or 1"},
    {"sub", sub_of_bool, "sub: bool is no number: cast one of them: bool[2] and bool[2]"},
    {"floor", floor_of_bool, "floor: bool is no number: cast it first: bool[2]"},
    {"abs", abs_of_bool, "abs: bool is no number: cast it first: bool[2]"},
    {"neg", neg_of_bool, "neg: bool is no number: cast it first: bool[2]"},
    {"clamp", clamp_to_nothing, "clamp: the bounds 1 and -1 enclose nothing: f32[2, 3]"},
    {"clamp", clamp_to_nan, "clamp: the bounds nan and 1 enclose nothing: f32[2, 3]"},
    {"gelu", gelu_of_no_formula, "gelu: formula 7: want TUTTI_GELU_ERF or TUTTI_GELU_TANH"},
    {"add_scalar", add_scalar_beyond_the_dtype, "add_scalar: i32 does not hold 2147483648: i32[2]"},
    {"masked_fill", masked_fill_with_a_number_beyond_the_dtype,
     "masked_fill: u8 does not hold 256: u8[2] and bool[2]"},
    {"where", where_without_bool,
     "where: the condition must be bool: f32[2, 3], f32[2, 3] and f32[2, 3]"},
    {"masked_fill", masked_fill_without_bool,
     "masked_fill: the mask must be bool: f32[2, 3] and f32[2, 3]"},
    {"masked_fill", masked_fill_by_more,
     "masked_fill: the mask is larger than what it masks: f32[1, 3] and bool[2, 3]"},
    {"lt", lt_of_unlike_shapes,
     "lt: shapes [2, 3] and [2] do not broadcast: dimension -1 must be equal or 1"},
};

OP_CASE_LISTS(math);
