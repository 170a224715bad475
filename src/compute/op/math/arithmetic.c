/* Arithmetic of two tensors that broadcast, each a line of arithmetic.def.
 *
 * The gradient of an operand is computed in the broadcast shape and then summed to the operand's,
 * if they differ. Operands are kept only where a gradient needs them.
 */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

typedef enum { FLOATS, NUMBERS, ANY } types_t;

/* How the gradient of one operand is made from the incoming one. */
typedef struct {
    enum { SAME_FORM, NEGATIVE_FORM, BINARY_FORM, FIRST_FORM, SECOND_FORM } form;
    int kind; /* tt_binary_t of BINARY_FORM, tt_ternary_t of the last two */
} slope_t;

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

typedef struct {
    tt_binary_t kind;
    types_t types;
    slope_t slopes[2];
} arithmetic_t;

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const arithmetic_t *op = call->op->family;
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
    const arithmetic_t *op = call->op->family;
    if (!tutti_op_needs_grad(call, i)) {
        return false;
    }
    return op->slopes[i].form >= FIRST_FORM || (op->slopes[i].form == BINARY_FORM && kept != i);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const arithmetic_t *op = call->op->family;
    tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y),
                       a = tt_tensor_strided_as(call->inputs[0], y->shape),
                       b = tt_tensor_strided_as(call->inputs[1], y->shape);
    tt_map_binary(tt_scope_pool(call->scope), op->kind, (tt_map_params_t){0}, &out, &a, &b);
    for (int i = 0; i < 2; i++) {
        const bool is_kept = needs(call, 0, i) || needs(call, 1, i);
        TT_TRY(tutti_op_save(call, is_kept ? call->inputs[i] : NULL));
    }
    return TUTTI_OK;
}

static tutti_tensor_t *operand_grad(tutti_op_backward_t *call, int i, slope_t slope)
{
    tutti_tensor_t *g = call->grad_outputs[0], *a = call->saved[0], *b = call->saved[1];
    const bool is_narrow = !tutti_shape_equal(g->shape, call->inputs[i].shape);
    const tt_map_to_t to = {is_narrow ? g->dtype : call->inputs[i].dtype, g->shape, {0, 0}};
    switch (slope.form) {
    case NEGATIVE_FORM:
        return tt_new_unary(call->scope, TT_UNARY_NEG, to, g);
    case BINARY_FORM:
        return tt_new_binary(call->scope, (tt_binary_t)slope.kind, to, g, i == 0 ? b : a);
    case FIRST_FORM:
        return tt_new_ternary(call->scope, (tt_ternary_t)slope.kind, to,
                              (tutti_tensor_t *[]){g, a, b});
    case SECOND_FORM:
        return tt_new_ternary(call->scope, (tt_ternary_t)slope.kind, to,
                              (tutti_tensor_t *[]){g, b, a});
    default:
        return g;
    }
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const arithmetic_t *op = call->op->family;
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            tutti_tensor_t *grad = operand_grad(call, i, op->slopes[i]);
            call->grads[i] = tutti_sum_to(call->scope, grad, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

#define X(id, kernel, accepted, cast, da, db, formula)                                             \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .family = &(const arithmetic_t){TT_BINARY_##kernel, accepted, {da, db}},                   \
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
