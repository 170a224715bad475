/* Cases of tensor.h: that they run, fail and free; op_random_test.c looks at the numbers. */
#include <math.h>

#include <tutti/tensor.h>

#include "op_cases.h"

#define CALL(id, expression)                                                                       \
    static void call_##id(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)       \
    {                                                                                              \
        (void)in;                                                                                  \
        out[0] = expression;                                                                       \
    }

CALL(uniform, tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, 3), 0.5, 0.5))
CALL(uniform_none, tutti_uniform(s, TUTTI_F64, TUTTI_SHAPE(0), -1, 1))
CALL(normal, tutti_normal(s, TUTTI_BF16, TUTTI_SHAPE(2, 3), 0.5, 0))
CALL(normal_none, tutti_normal(s, TUTTI_F16, TUTTI_SHAPE(3, 0), 0, 1))
CALL(randint, tutti_randint(s, TUTTI_I8, TUTTI_SHAPE(2, 3), -7, -6))
CALL(randint_none, tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(0), INT64_MIN, INT64_MAX))
CALL(bernoulli, tutti_bernoulli(s, TUTTI_BOOL, TUTTI_SHAPE(2, 3), 1))
CALL(bernoulli_never, tutti_bernoulli(s, TUTTI_F32, TUTTI_SHAPE(2, 3), 0))
CALL(bernoulli_none, tutti_bernoulli(s, TUTTI_U8, TUTTI_SHAPE(0), 0.5))

#define ALL(v) ((const double[]){v, v, v, v, v, v})
#define CASE(id, called, about, dims, values)                                                      \
    {                                                                                              \
        .op = #id, .what = about, .input_count = -1, .call = call_##called, .expected = values,    \
        .expected_shape = dims                                                                     \
    }
#define SIX                                                                                        \
    {                                                                                              \
        .rank = 2, .dims = { 2, 3 }                                                                \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .rank = 1                                                                                  \
    }

const op_case_t op_cases_random[] = {
    CASE(uniform, uniform, "between equal bounds", SIX, ALL(0.5)),
    CASE(uniform, uniform_none, "empty", NONE, ALL(0)),
    CASE(normal, normal, "without deviation", SIX, ALL(0.5)),
    {.op = "normal",
     .what = "empty",
     .input_count = -1,
     .call = call_normal_none,
     .expected = ALL(0),
     .expected_shape = SHAPE(3, 0)},
    CASE(randint, randint, "of one number", SIX, ALL(-7)),
    CASE(randint, randint_none, "empty", NONE, ALL(0)),
    CASE(bernoulli, bernoulli, "always", SIX, ALL(1)),
    CASE(bernoulli, bernoulli_never, "never", SIX, ALL(0)),
    CASE(bernoulli, bernoulli_none, "empty", NONE, ALL(0)),
};

static void uniform_of_ints(tutti_scope_t *s)
{
    (void)tutti_uniform(s, TUTTI_I64, TUTTI_SHAPE(2), 0, 1);
}

static void uniform_of_nothing(tutti_scope_t *s)
{
    (void)tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2), 1, 0);
}

static void normal_with_negative_deviation(tutti_scope_t *s)
{
    (void)tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2), 0, -1);
}

static void randint_of_nothing(tutti_scope_t *s)
{
    (void)tutti_randint(s, TUTTI_I64, TUTTI_SHAPE(2), 5, 5);
}

static void randint_too_large(tutti_scope_t *s)
{
    (void)tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(2), 0, 257);
}

static void bernoulli_of_no_probability(tutti_scope_t *s)
{
    (void)tutti_bernoulli(s, TUTTI_BOOL, TUTTI_SHAPE(2), (double)NAN);
}

static void normal_of_negative_size(tutti_scope_t *s)
{
    (void)tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, -2), 0, 1);
}

const op_error_t op_errors_random[] = {
    {"uniform", uniform_of_ints, "uniform: want a floating dtype, not i64"},
    {"uniform", uniform_of_nothing, "uniform: nothing lies between 1 and 0"},
    {"normal", normal_with_negative_deviation, "normal: the standard deviation -1 is negative"},
    {"normal", normal_of_negative_size, "normal: output 0: shape [2, -2]: dimension 1 is negative"},
    {"randint", randint_of_nothing, "randint: nothing lies in [5, 5)"},
    {"randint", randint_too_large, "randint: u8 does not hold all of [0, 257)"},
    {"bernoulli", bernoulli_of_no_probability, "bernoulli: nan is no probability: want 0 to 1"},
};

OP_CASE_LISTS(random);
