/* Comparisons and logic: bool results, no gradients. Each is a line of the lists below. */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

/* X(name, kernel, formula) */
#define COMPARISONS(X)                                                                             \
    X(eq, EQ, "a = b")                                                                             \
    X(ne, NE, "a ≠ b")                                                                             \
    X(lt, LT, "a < b")                                                                             \
    X(le, LE, "a ≤ b")                                                                             \
    X(gt, GT, "a > b")                                                                             \
    X(ge, GE, "a ≥ b")

#define CONNECTIVES(X)                                                                             \
    X(logical_and, AND, "a ≠ 0 and b ≠ 0")                                                         \
    X(logical_or, OR, "a ≠ 0 or b ≠ 0")

#define PREDICATES(X)                                                                              \
    X(logical_not, NOT, "x = 0")                                                                   \
    X(isnan, IS_NAN, "x is no number")                                                             \
    X(isinf, IS_INF, "x is infinite")                                                              \
    X(isfinite, IS_FINITE, "x is neither infinite nor NaN")

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_broadcast(call, outputs));
    outputs->dtype = TUTTI_BOOL;
    return TUTTI_OK;
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const tt_binary_t *kind = call->op->family;
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y),
                       a = tt_tensor_strided_as(call->inputs[0], y->shape),
                       b = tt_tensor_strided_as(call->inputs[1], y->shape);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope), *kind, (tt_map_params_t){0}, &out, &a, &b));
    return TUTTI_OK;
}

static tutti_status_t scalar_forward(tutti_op_call_t *call)
{
    const tt_binary_t *kind = call->op->family;
    const double *value = call->params;
    tutti_tensor_t *y = call->outputs[0], *x = call->inputs[0];
    const tt_strided_t out = tt_tensor_strided(y), a = tt_tensor_strided(x);
    const tt_strided_t b = tt_number(tt_rounded_number(*value, x->dtype), x->dtype, y->shape);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope), *kind, (tt_map_params_t){0}, &out, &a, &b));
    return TUTTI_OK;
}

static tutti_status_t predicate_forward(tutti_op_call_t *call)
{
    return tt_forward_unary(call, *(const tt_unary_t *)call->op->family);
}

#define X(id, kernel, formula)                                                                     \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .family = &(const tt_binary_t){TT_BINARY_##kernel},                                        \
    };                                                                                             \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)             \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, (tutti_tensor_t *[]){a, b}, 2, NULL);                  \
    }
COMPARISONS(X)
CONNECTIVES(X)
#undef X

#define X(id, kernel, formula)                                                                     \
    const tutti_op_t tt_op_##id##_scalar = {                                                       \
        .name = #id "_scalar",                                                                     \
        .about = formula ", b a number",                                                           \
        .params_bytes = sizeof(double),                                                            \
        .infer = infer,                                                                            \
        .forward = scalar_forward,                                                                 \
        .family = &(const tt_binary_t){TT_BINARY_##kernel},                                        \
    };                                                                                             \
    tutti_tensor_t *tutti_##id##_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value)         \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id##_scalar, &x, 1, &value);                               \
    }
COMPARISONS(X)
#undef X

#define X(id, kernel, formula)                                                                     \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .infer = infer,                                                                            \
        .forward = predicate_forward,                                                              \
        .family = &(const tt_unary_t){TT_UNARY_##kernel},                                          \
    };                                                                                             \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *x)                                \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, &x, 1, NULL);                                          \
    }
PREDICATES(X)
#undef X
