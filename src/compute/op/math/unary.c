/* Functions of one tensor, each a line of unary.def: y = f(x), dx = k(dy, x or y).
 *
 * One pass forward, one backward; what the gradient needs (the input or the result) is shared, not
 * copied. For relu that is the result, which the next operation usually keeps anyway.
 */
#include <tutti/op_math.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

typedef enum { FLOATS, NUMBERS } types_t;
typedef enum { INPUT, RESULT } kept_t;

typedef struct {
    tt_unary_t kind;
    types_t types;
    tt_binary_t backward;
    kept_t kept;
} unary_t;

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const unary_t *unary = call->op->family;
    TT_TRY(tutti_op_infer_same(call, outputs));
    if (unary->types == FLOATS) {
        outputs->dtype = tt_float_of(outputs->dtype);
    } else if (outputs->dtype == TUTTI_BOOL) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "bool is no number: cast it first");
    }
    return TUTTI_OK;
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const unary_t *unary = call->op->family;
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]),
                       x = tt_tensor_strided(call->inputs[0]);
    tt_map_unary(tt_scope_pool(call->scope), unary->kind, (tt_map_params_t){0}, &out, &x);
    return tutti_op_save(call, unary->kept == INPUT ? call->inputs[0] : call->outputs[0]);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const unary_t *unary = call->op->family;
    const tt_map_to_t to = {call->inputs[0].dtype, call->inputs[0].shape, {0, 0}};
    call->grads[0] =
        tt_new_binary(call->scope, unary->backward, to, call->grad_outputs[0], call->saved[0]);
    return TUTTI_OK;
}

#define X(id, kernel, accepted, cast, gradient, keep, formula)                                     \
    const tutti_op_t tt_op_##id = {                                                                \
        .name = #id,                                                                               \
        .about = formula,                                                                          \
        .autocast = TUTTI_OP_AUTOCAST_##cast,                                                      \
        .infer = infer,                                                                            \
        .forward = forward,                                                                        \
        .backward = backward,                                                                      \
        .family = &(const unary_t){TT_UNARY_##kernel, accepted, TT_BINARY_##gradient, keep},       \
    };
#include "compute/op/math/unary.def"
#undef X

#define X(id, ...)                                                                                 \
    tutti_tensor_t *tutti_##id(tutti_scope_t *s, tutti_tensor_t *x)                                \
    {                                                                                              \
        return tutti_op_run(s, &tt_op_##id, &x, 1, NULL);                                          \
    }
#include "compute/op/math/unary.def"
#undef X

const tutti_op_t tt_op_gelu = {
    .name = "gelu",
    .about = "y = x Φ(x); dx = dy (Φ(x) + x φ(x))",
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .family = &(const unary_t){TT_UNARY_GELU, FLOATS, TT_BINARY_GELU_BACKWARD, INPUT},
};

const tutti_op_t tt_op_gelu_tanh = {
    .name = "gelu_tanh",
    .about = "y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))); dx = dy times its slope",
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .family = &(const unary_t){TT_UNARY_GELU_TANH, FLOATS, TT_BINARY_GELU_TANH_BACKWARD, INPUT},
};

tutti_tensor_t *tutti_gelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_gelu_t formula)
{
    if (formula != TUTTI_GELU_ERF && formula != TUTTI_GELU_TANH) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "gelu: formula %d: want TUTTI_GELU_ERF or TUTTI_GELU_TANH",
                       (int)formula));
    }
    return tutti_op_run(s, formula == TUTTI_GELU_ERF ? &tt_op_gelu : &tt_op_gelu_tanh, &x, 1, NULL);
}
