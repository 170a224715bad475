/* Copies: clone, contiguous, and cast, which the engine brings along. */
#include <tutti/op_shape.h>

#include "compute/autograd/cast.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"

static tutti_status_t forward(tutti_op_call_t *call)
{
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]),
                       x = tt_tensor_strided(call->inputs[0]);
    TT_TRY(tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &x));
    return TUTTI_OK;
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    call->grads[0] = call->grad_outputs[0];
    return TUTTI_OK;
}

const tutti_op_t tt_op_clone = {
    .name = "clone",
    .about = "a contiguous copy; dx = dy",
    .infer = tutti_op_infer_same,
    .forward = forward,
    .backward = backward,
    .grad = backward,
};

tutti_tensor_t *tutti_clone(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_op_run(s, &tt_op_clone, &x, 1, NULL);
}

tutti_tensor_t *tutti_contiguous(tutti_scope_t *s, tutti_tensor_t *x)
{
    return x->status >= 0 && tutti_tensor_is_contiguous(x) ? x : tutti_clone(s, x);
}

tutti_tensor_t *tutti_cast(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype)
{
    char text[192];
    if (x->status >= 0 && (int)dtype >= TUTTI_DTYPE_COUNT) {
        return tutti_scope_fail(s,
                                TT_FAIL(TUTTI_ERR_ARG, "cast: there is no dtype %d: %s", (int)dtype,
                                        tutti_tensor_describe(x, text, sizeof text)));
    }
    return tt_cast(s, x, dtype);
}
