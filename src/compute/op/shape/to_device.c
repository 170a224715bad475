/* to: a contiguous copy on another device. dx = dy, copied back. */
#include <tutti/devices.h>

#include "compute/op/ops.h"

/* NULL: the host. */
typedef struct {
    tt_device_t *to, *from;
} params_t;

static tutti_status_t forward(tutti_op_call_t *call)
{
    const params_t *p = call->params;
    tutti_tensor_t *x = call->inputs[0];
    TT_TRY(tt_tensor_new(p->to == NULL ? call->scope->ctx->cpu : p->to, x->dtype, x->shape, false,
                         tt_op_output(call, 0)));
    return tutti_tensor_copy(call->outputs[0], x);
}

static tutti_status_t backward(tutti_op_backward_t *call)
{
    const params_t *p = call->params;
    call->grads[0] = tutti_tensor_to(call->scope, call->grad_outputs[0], p->from);
    return TUTTI_OK;
}

static void retain_params(const void *params)
{
    const params_t *p = params;
    if (p->to != NULL) {
        tutti_device_retain(p->to);
    }
    if (p->from != NULL) {
        tutti_device_retain(p->from);
    }
}

static void release_params(const void *params)
{
    const params_t *p = params;
    tutti_device_release(p->to);
    tutti_device_release(p->from);
}

const tutti_op_t tt_op_to = {
    .name = "to",
    .about = "a contiguous copy on another device; dx = dy, copied back",
    .params_bytes = sizeof(params_t),
    .infer = tutti_op_infer_same,
    .forward = forward,
    .backward = backward,
    .grad = backward,
    .retain_params = retain_params,
    .release_params = release_params,
    .makes_outputs = true,
};

tutti_tensor_t *tutti_tensor_to(tutti_scope_t *s, tutti_tensor_t *x, tutti_device_t *device)
{
    tt_device_t *to = device != NULL && tt_device_is_accelerator(device) ? device : NULL;
    if (x->status >= 0 && tutti_tensor_device(x) == to) {
        return x;
    }
    const params_t params = {to, tutti_tensor_device(x)};
    return tutti_op_run(s, &tt_op_to, &x, 1, &params);
}
