/* dropout: y = x · mask / (1 - p). The mask is a function of the stream and the element's index,
 * so backward makes it again from the stream's name alone.
 * Cost: one pass each way. Source: op_nn.h. */
#include "compute/autograd/adjoint.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "compute/op/shape/random_stream.h"
#include "core/kernel/random/random.h"

typedef struct {
    tt_rng_t rng;
    double p;
    tt_window_t window;
} dropout_params_t;

/* One row of the window behind the other; of a whole there is one. */
static tutti_status_t drop_rows(tt_exec_t *exec, const dropout_params_t *params,
                                const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    const tt_window_t *w = &params->window;
    const int64_t row = w->whole > 0 ? w->own * w->each : y->numel;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(y->dtype);
    for (int64_t i = 0; row > 0 && i < y->numel / row; i++) {
        const tt_random_t at = {params->rng, (uint64_t)((i * w->whole + w->first) * w->each)};
        TT_TRY(tt_dropout(exec, at, y->dtype, (char *)tt_tensor_data(y) + i * row * bytes,
                          (const char *)tt_tensor_data(x) + i * row * bytes, (size_t)row,
                          params->p));
    }
    return TUTTI_OK;
}

static tutti_status_t mask(tutti_scope_t *s, const dropout_params_t *params, tutti_tensor_t *x,
                           const tutti_tensor_t *y)
{
    tutti_tensor_t *in;
    TT_TRY(tt_dense(s, x, y->dtype, &in));
    const tutti_status_t status = drop_rows(tt_scope_exec(s), params, y, in);
    tutti_tensor_release(in);
    return status;
}

static tutti_status_t dropout_forward(tutti_op_call_t *call)
{
    return mask(call->scope, call->params, call->inputs[0], call->outputs[0]);
}

static tutti_status_t dropout_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dx = tt_scratch(call->scope, call->inputs[0].dtype, call->inputs[0].shape);
    call->grads[0] = dx;
    return dx == NULL ? tutti_scope_status(call->scope)
                      : mask(call->scope, call->params, call->grad_outputs[0], dx);
}

const tutti_op_t tt_op_dropout = {
    .name = "dropout",
    .about = "y = x mask / (1 - p); dx = dy mask / (1 - p), the mask drawn again",
    .params_bytes = sizeof(dropout_params_t),
    .infer = tutti_op_infer_same_float,
    .forward = dropout_forward,
    .backward = dropout_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tt_dropout_by(tutti_scope_t *s, tutti_tensor_t *x, tt_rng_t rng, double p,
                              const tt_window_t *window)
{
    const dropout_params_t params = {rng, p, window != NULL ? *window : (tt_window_t){0}};
    return tutti_op_run(s, &tt_op_dropout, &x, 1, &params);
}

static tutti_tensor_t *drop(tutti_scope_t *s, tutti_tensor_t *x, float p, tutti_random_name_t name,
                            const tt_window_t *window)
{
    if (!(p >= 0 && p <= 1)) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "dropout: p must be in [0, 1], not %g", (double)p));
    }
    if (x->status >= 0 && (p == 0 || !s->ctx->is_training)) {
        return x;
    }
    return tt_dropout_by(s, x, tt_random_stream(s->ctx, name), (double)p, window);
}

tutti_tensor_t *tutti_dropout_named(tutti_scope_t *s, tutti_tensor_t *x, float p,
                                    tutti_random_name_t name)
{
    return drop(s, x, p, name, NULL);
}

tutti_tensor_t *tt_dropout_part(tutti_scope_t *s, tutti_tensor_t *x, float p,
                                const tt_window_t *window)
{
    return drop(s, x, p, (tutti_random_name_t){0}, window);
}

tutti_tensor_t *tutti_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p)
{
    return tutti_dropout_named(s, x, p, (tutti_random_name_t){0});
}
