/* rotary: pairs of each row turned by the angle of their position; backward turns them back.
 * Cost: one pass, and a table of T · D/2 cosines and sines. Source: op_nn.h. */
#include <tutti/op_nn.h>

#include "compute/autograd/adjoint.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/base/default.h"
#include "core/kernel/attention/rotary.h"

typedef struct {
    double base;
    int64_t start;
    bool is_interleaved;
} rotary_params_t;

static tutti_status_t rotary_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const rotary_params_t *params = call->params;
    const tutti_shape_t x = call->inputs[0]->shape;
    if (x.rank < 2 || x.dims[x.rank - 1] % 2 != 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x must be [..., T, D] with an even D");
    }
    if (!(params->base > 0)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "base must be positive, not %g", params->base);
    }
    return tutti_op_infer_same_float(call, outputs);
}

static tutti_status_t turn(tutti_scope_t *s, const rotary_params_t *params, bool inverse,
                           const tutti_tensor_t *y, const tutti_tensor_t *x)
{
    const int64_t positions = tutti_tensor_dim(x, -2), pairs = tutti_tensor_dim(x, -1) / 2;
    tutti_tensor_t *table;
    if (tutti_tensor_numel(x) == 0) {
        return TUTTI_OK; /* of the other sizes one may be as large as it likes */
    }
    TT_TRY(tt_tensor_new(s->ctx->place.device, TUTTI_F32, TUTTI_SHAPE(2, positions, pairs), false,
                         &table));
    float *cosine = tt_tensor_data(table), *sine = cosine + positions * pairs;
    const tt_rotary_t rotary = {cosine, sine, params->is_interleaved, inverse};
    const tt_strided_t out = tt_tensor_strided(y), in = tt_tensor_strided(x);
    tutti_status_t status =
        tt_rotary_table(tt_scope_exec(s), &(tt_rotary_table_t){cosine, sine, positions, pairs,
                                                               params->start, params->base});
    if (status >= 0) {
        status = tt_rotary(tt_scope_exec(s), &rotary, &out, &in);
    }
    tutti_tensor_release(table);
    return status;
}

static tutti_status_t rotary_forward(tutti_op_call_t *call)
{
    return turn(call->scope, call->params, false, call->outputs[0], call->inputs[0]);
}

static tutti_status_t rotary_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dx = tt_scratch(call->scope, call->inputs[0].dtype, call->inputs[0].shape);
    call->grads[0] = dx;
    return dx == NULL ? tutti_scope_status(call->scope)
                      : turn(call->scope, call->params, true, dx, call->grad_outputs[0]);
}

const tutti_op_t tt_op_rotary = {
    .name = "rotary",
    .about = "pairs turned by t · base^(-2i/D); dx = dy turned back",
    .params_bytes = sizeof(rotary_params_t),
    .infer = rotary_infer,
    .forward = rotary_forward,
    .backward = rotary_backward,
    .grad = tt_grad_linear,
};

tutti_tensor_t *tutti_rotary(tutti_scope_t *s, tutti_tensor_t *x,
                             const tutti_rotary_options_t *options)
{
    const tutti_rotary_options_t o = options == NULL ? (tutti_rotary_options_t){0} : *options;
    const rotary_params_t params = {tt_or_default(o.base, 10000), o.start, o.is_interleaved};
    return tutti_op_run(s, &tt_op_rotary, &x, 1, &params);
}
