/* Functions whose slope is 0 wherever they have one: whole numbers near x, its sign. Integers stay
 * as they are; bool is refused. Each is a line of the list below. */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

/* X(name, kernel, formula) */
#define STEPS(X)                                                                                   \
    X(sign, SIGN, "-1 below 0, 1 above, else 0; dx = 0")                                           \
    X(floor, FLOOR, "the whole number below; dx = 0")                                              \
    X(ceil, CEIL, "the whole number above; dx = 0")                                                \
    X(round, ROUND, "the nearest whole number, of halves the even one; dx = 0")                    \
    X(trunc, TRUNC, "the whole number towards 0; dx = 0")

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, outputs));
    return outputs->dtype != TUTTI_BOOL
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_DTYPE, "bool is no number: cast it first");
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    return tt_forward_unary(call, *(const tt_unary_t *)call->op->family);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_zeros(call->scope, call->inputs[0].dtype, call->inputs[0].shape);
    return TUTTI_OK;
}

/* Of what comes in, too, so that it has a gradient. */
static tutti_status_t grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0];
    call->grads[0] = tutti_where(s, tutti_ones(s, TUTTI_BOOL, TUTTI_SCALAR),
                                 tutti_zeros(s, g->dtype, TUTTI_SCALAR), g);
    return TUTTI_OK;
}

#define X(id, kernel, formula)                                                                     \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .grad = grad,                                                                              \
        .family = &(const tt_unary_t){TT_UNARY_##kernel},                                          \
    };                                                                                             \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *x)                                \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, &x, 1, NULL);                                          \
    }
STEPS(X)
#undef X
