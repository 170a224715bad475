/* Arithmetic of two tensors that broadcast, each a line of arithmetic.def.
 *
 * The gradient of an operand is computed in the broadcast shape and then summed to the operand's,
 * if they differ. Operands are kept only where a gradient needs them. pow is in pow.c.
 */
#include <tutti/op_math.h>

#include "compute/op/math/arithmetic.h"
#include "compute/op/ops.h"

#define SAME                                                                                       \
    {                                                                                              \
        SAME_FORM, 0                                                                               \
    }
#define NEGATIVE                                                                                   \
    {                                                                                              \
        NEGATIVE_FORM, 0                                                                           \
    }
#define BINARY(kernel)                                                                             \
    {                                                                                              \
        BINARY_FORM, TT_BINARY_##kernel                                                            \
    }
#define FIRST(kernel)                                                                              \
    {                                                                                              \
        FIRST_FORM, TT_TERNARY_##kernel                                                            \
    }
#define SECOND(kernel)                                                                             \
    {                                                                                              \
        SECOND_FORM, TT_TERNARY_##kernel                                                           \
    }

tutti_status_t tt_arithmetic_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_arithmetic_t *op = call->op->family;
    TT_TRY(tutti_op_infer_broadcast(call, outputs));
    if (op->types == FLOATS) {
        outputs->dtype = tt_float_of(outputs->dtype);
    } else if (op->types == NUMBERS && outputs->dtype == TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "bool is no number: cast one of them");
    }
    return TUTTI_OK;
}

/* Whether the gradient of operand i needs operand `kept`. */
static bool needs(const tutti_op_call_t *call, int i, int kept)
{
    const tt_arithmetic_t *op = call->op->family;
    if (!tutti_op_needs_grad(call, i)) {
        return false;
    }
    return op->slopes[i].form >= FIRST_FORM || (op->slopes[i].form == BINARY_FORM && kept != i);
}

tutti_status_t tt_arithmetic_forward(tutti_op_call_t *call)
{
    const tt_arithmetic_t *op = call->op->family;
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y),
                       a = tt_tensor_strided_as(call->inputs[0], y->shape),
                       b = tt_tensor_strided_as(call->inputs[1], y->shape);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope), op->kind, (tt_map_params_t){0}, &out, &a, &b));
    for (int i = 0; i < 2; i++) {
        const bool is_kept = needs(call, 0, i) || needs(call, 1, i);
        TT_TRY(tutti_op_save(call, is_kept ? call->inputs[i] : NULL));
    }
    return TUTTI_OK;
}

static tutti_tensor_t *operand_grad(tutti_op_backward_t *call, int i)
{
    const tt_arithmetic_t *op = call->op->family;
    tutti_tensor_t *g = call->grad_outputs[0], *a = call->saved[0], *b = call->saved[1];
    const bool is_narrow = !tutti_shape_equal(g->shape, call->inputs[i].shape);
    const tt_map_to_t to = {is_narrow ? g->dtype : call->inputs[i].dtype, g->shape, {0, 0}};
    switch (op->slopes[i].form) {
    case NEGATIVE_FORM:
        return tt_new_unary(call->scope, TT_UNARY_NEG, to, g);
    case BINARY_FORM:
        return tt_new_binary(call->scope, (tt_binary_t)op->slopes[i].kind, to, g, i == 0 ? b : a);
    case FIRST_FORM:
        return tt_new_ternary(call->scope, (tt_ternary_t)op->slopes[i].kind, to,
                              (tutti_tensor_t *[]){g, a, b});
    case SECOND_FORM:
        return tt_new_ternary(call->scope, (tt_ternary_t)op->slopes[i].kind, to,
                              (tutti_tensor_t *[]){g, b, a});
    default:
        return g;
    }
}

tutti_status_t tt_arithmetic_backward(tutti_op_backward_t *call)
{
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            tutti_tensor_t *grad = operand_grad(call, i);
            call->grads[i] = tutti_sum_to(call->scope, grad, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

static tutti_tensor_t *times_number(tutti_scope_t *s, tutti_tensor_t *x, double value)
{
    return tutti_mul(s, x, tutti_full(s, x->dtype, TUTTI_SCALAR, value));
}

/* Of a / b to b. */
static tutti_tensor_t *div_slope(tutti_scope_t *s, tutti_tensor_t *const in[3])
{
    tutti_tensor_t *g = tt_wide(s, in[0]), *a = tt_wide(s, in[1]), *b = tt_wide(s, in[2]);
    return times_number(s, tutti_mul(s, g, tutti_div(s, tutti_div(s, a, b), b)), -1);
}

/* Of the larger of two to the first, where `loses` compares them; NaN does not. */
static tutti_tensor_t *extreme_slope(tutti_scope_t *s, tutti_tensor_t *const in[3],
                                     tutti_tensor_t *loses)
{
    tutti_tensor_t *g = in[0], *zero = tutti_zeros(s, g->dtype, TUTTI_SCALAR);
    tutti_tensor_t *shared = tutti_where(s, tutti_eq(s, in[1], in[2]), times_number(s, g, 0.5), g);
    return tutti_where(s, loses, zero, shared);
}

/* As the kernel of that name. */
static tutti_tensor_t *ternary_slope(tutti_scope_t *s, int kind, tutti_tensor_t *const in[3])
{
    switch (kind) {
    case TT_TERNARY_DIV_BACKWARD_B:
        return div_slope(s, in);
    case TT_TERNARY_MAXIMUM_BACKWARD:
        return extreme_slope(s, in, tutti_lt(s, in[1], in[2]));
    default:
        return extreme_slope(s, in, tutti_gt(s, in[1], in[2]));
    }
}

static tutti_tensor_t *operand_slope(tutti_op_backward_t *call, int i)
{
    const tt_arithmetic_t *op = call->op->family;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0], *a = call->saved[0], *b = call->saved[1];
    tutti_tensor_t *const other = i == 0 ? b : a;
    switch (op->slopes[i].form) {
    case NEGATIVE_FORM:
        return times_number(s, g, -1);
    case BINARY_FORM:
        return op->slopes[i].kind == TT_BINARY_MUL ? tutti_mul(s, g, other)
                                                   : tutti_div(s, g, other);
    case FIRST_FORM:
        return ternary_slope(s, op->slopes[i].kind, (tutti_tensor_t *[]){g, a, b});
    case SECOND_FORM:
        return ternary_slope(s, op->slopes[i].kind, (tutti_tensor_t *[]){g, b, a});
    default:
        return g;
    }
}

static tutti_status_t grad(tutti_op_backward_t *call)
{
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            tutti_tensor_t *slope = operand_slope(call, i);
            call->grads[i] = tutti_sum_to(call->scope, slope, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

#define X(id, kernel, accepted, cast, da, db, formula)                                             \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = tt_arithmetic_infer,                                                              \
        .forward = tt_arithmetic_forward,                                                          \
        .backward = tt_arithmetic_backward,                                                        \
        .grad = grad,                                                                              \
        .family = &(const tt_arithmetic_t){TT_BINARY_##kernel, accepted, {da, db}},                \
    };
#include "compute/op/math/arithmetic.def"
#undef X

#define X(id, ...)                                                                                 \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)             \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, (tutti_tensor_t *[]){a, b}, 2, NULL);                  \
    }
#include "compute/op/math/arithmetic.def"
#undef X
