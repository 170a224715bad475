/* cast: y = (dtype)x, rounded to nearest even; dx = (dtype of x)dy. */
#include "compute/autograd/cast.h"

#include <tutti/modes.h>

#include "core/kernel/elementwise/map.h"

static tutti_status_t cast_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_dtype_t *dtype = call->params;
    outputs[0] = (tutti_spec_t){*dtype, call->inputs[0]->shape};
    return TUTTI_OK;
}

static tutti_status_t cast_forward(tutti_op_call_t *call)
{
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]),
                       in = tt_tensor_strided(call->inputs[0]);
    TT_TRY(
        tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    return TUTTI_OK;
}

static tutti_status_t cast_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tt_cast(call->scope, call->grad_outputs[0], call->inputs[0].dtype);
    return TUTTI_OK;
}

static bool is_float_to_float(const tutti_op_call_t *call)
{
    const tutti_dtype_t *dtype = call->params;
    return tutti_dtype_is_float(*dtype);
}

const tutti_op_t tt_op_cast = {
    .name = "cast",
    .about = "y = (dtype)x, to nearest even; dx = (dtype of x)dy",
    .params_bytes = sizeof(tutti_dtype_t),
    .infer = cast_infer,
    .forward = cast_forward,
    .backward = cast_backward,
    .grad = cast_backward,
    .is_differentiable = is_float_to_float,
};

tutti_tensor_t *tt_cast(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype)
{
    if (x->status >= 0 && x->dtype == dtype) {
        return x;
    }
    return tutti_op_run(s, &tt_op_cast, &x, 1, &dtype);
}

tutti_tensor_t *tt_cast_grad(tutti_scope_t *s, tutti_tensor_t *grad, tutti_dtype_t dtype)
{
    if (dtype != TUTTI_F16) {
        return tt_cast(s, grad, dtype);
    }
    const bool detects = tutti_context_set_detect_anomaly(s->ctx, false);
    tutti_tensor_t *cast = tt_cast(s, grad, dtype);
    (void)tutti_context_set_detect_anomaly(s->ctx, detects);
    return cast;
}
