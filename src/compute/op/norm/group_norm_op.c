/* group_norm: groups of a sample's channels of mean 0 and variance 1. Statistics and parameter
 * gradients are f64, whatever x is. Cost: channels.h; keeps x, mean, 1/σ. Source: op_nn.h. */
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "compute/op/shape/channel_order.h"
#include "core/base/default.h"
#include "core/kernel/norm/channels.h"

enum { X, WEIGHT, BIAS, INPUTS };
enum { SAVED_X, SAVED_WEIGHT, SAVED_MEAN, SAVED_RSTD };

typedef struct {
    int64_t groups;
    double eps;
} group_norm_params_t;

static tutti_status_t group_norm_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const group_norm_params_t *params = call->params;
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    if (outputs->shape.rank < 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x must be [N, C, ...]");
    }
    if (!(params->eps >= 0)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "eps must be at least 0, not %g", params->eps);
    }
    const int64_t channels = outputs->shape.dims[1];
    if (params->groups < 1 || channels % params->groups != 0) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%lld groups do not divide %lld channels",
                             (long long)params->groups, (long long)channels);
    }
    TT_TRY(tt_channels_check(call, WEIGHT, "weight and bias"));
    return tt_channels_check(call, BIAS, "weight and bias");
}

/* What the kernel needs to know of a shape; no work where there are no elements. */
static tt_groups_t groups_of(const group_norm_params_t *params, tutti_dtype_t dtype,
                             tutti_shape_t shape)
{
    tt_groups_t g = {.dtype = dtype,
                     .batch = (size_t)shape.dims[0],
                     .groups = (size_t)params->groups,
                     .channels = (size_t)shape.dims[1],
                     .n = 1,
                     .eps = params->eps};
    for (int i = 2; i < shape.rank; i++) {
        g.n *= (size_t)shape.dims[i];
    }
    g.batch = g.channels * g.n == 0 ? 0 : g.batch;
    return g;
}

/* What forward makes on its way: tensors alone. */
typedef struct {
    tutti_tensor_t *x, *weight, *bias, *mean, *rstd;
} parts_t;

static tutti_status_t compute(tutti_op_call_t *call, parts_t *p)
{
    tutti_tensor_t *x = call->inputs[X];
    tt_groups_t g = groups_of(call->params, x->dtype, x->shape);
    const tutti_shape_t rows = TUTTI_SHAPE((int64_t)(g.batch * g.groups));
    TT_TRY(tt_dense(call->scope, x, x->dtype, &p->x));
    TT_TRY(tt_dense(call->scope, call->inputs[WEIGHT], TUTTI_F64, &p->weight));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], TUTTI_F64, &p->bias));
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, TUTTI_F64, rows, false, &p->mean));
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, TUTTI_F64, rows, false, &p->rstd));
    g.x = tt_data_of(p->x);
    g.gamma = tt_data_of(p->weight);
    g.beta = tt_data_of(p->bias);
    g.mean = tt_data_of(p->mean);
    g.rstd = tt_data_of(p->rstd);
    g.y = tt_tensor_data(call->outputs[0]);
    TT_TRY(tt_groups_forward(tt_scope_exec(call->scope), &g));
    TT_TRY(tutti_op_save_copy(call, p->x, X));
    TT_TRY(tutti_op_save_copy(call, p->weight, WEIGHT));
    TT_TRY(tutti_op_save(call, p->mean));
    return tutti_op_save(call, p->rstd);
}

static tutti_status_t group_norm_forward(tutti_op_call_t *call)
{
    parts_t parts = {0};
    const tutti_status_t status = compute(call, &parts);
    tt_tensors_release((tutti_tensor_t **)&parts, sizeof parts / sizeof(tutti_tensor_t *));
    return status;
}

static tutti_status_t differentiate(tutti_op_backward_t *call, tutti_tensor_t *dy)
{
    tutti_scope_t *s = call->scope;
    const tutti_tensor_t *x = call->saved[SAVED_X];
    tt_groups_t g = groups_of(call->params, x->dtype, x->shape);
    const tutti_shape_t shares = TUTTI_SHAPE((int64_t)g.batch, (int64_t)g.channels);
    tutti_tensor_t *sum = tt_scratch(s, TUTTI_F64, shares), *dot = tt_scratch(s, TUTTI_F64, shares);
    call->grads[X] = call->wanted[X] ? tt_scratch(s, x->dtype, x->shape) : NULL;
    TT_TRY(tutti_scope_status(s));
    g.x = tt_tensor_data(x);
    g.gamma = tt_data_of(call->saved[SAVED_WEIGHT]);
    g.mean = tt_data_of(call->saved[SAVED_MEAN]);
    g.rstd = tt_data_of(call->saved[SAVED_RSTD]);
    g.dy = tt_data_of(dy);
    g.dx = tt_data_of(call->grads[X]);
    g.sum = tt_data_of(sum);
    g.dot = tt_data_of(dot);
    TT_TRY(tt_groups_backward(tt_scope_exec(s), &g));
    call->grads[WEIGHT] =
        call->wanted[WEIGHT] ? tutti_sum_over(s, dot, TUTTI_DIMS(0), false) : NULL;
    call->grads[BIAS] = call->wanted[BIAS] ? tutti_sum_over(s, sum, TUTTI_DIMS(0), false) : NULL;
    return tutti_scope_status(s);
}

static tutti_status_t group_norm_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dy;
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], call->saved[SAVED_X]->dtype, &dy));
    const tutti_status_t status = differentiate(call, dy);
    tutti_tensor_release(dy);
    return status;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

/* y but for the bias: groups as rows, then channels as they were. */
static tutti_tensor_t *compose(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const group_norm_params_t *params = call->params;
    const tutti_shape_t shape = call->inputs[X].shape;
    tutti_scope_t *s = call->scope;
    const int64_t groups = shape.dims[0] * params->groups, numel = tutti_shape_numel(shape);
    tutti_tensor_t *x = tutti_reshape(s, tt_wide(s, inputs[X]),
                                      TUTTI_SHAPE(groups, groups == 0 ? 0 : numel / groups));
    x = tutti_layer_norm(s, x, NULL, NULL, params->eps == 0 ? TUTTI_ZERO : params->eps);
    x = tutti_reshape(s, x, shape);
    return inputs[WEIGHT] == NULL
               ? x
               : tutti_mul(s, x, tutti_reshape(s, inputs[WEIGHT], tt_channel_shape(shape)));
}

static tutti_status_t group_norm_grad(tutti_op_backward_t *call)
{
    const tutti_shape_t shape = call->inputs[X].shape;
    if (call->wanted[BIAS]) {
        tutti_tensor_t *dy = tt_wide(call->scope, call->grad_outputs[0]);
        call->grads[BIAS] =
            tutti_reshape(call->scope, tutti_sum_to(call->scope, dy, tt_channel_shape(shape)),
                          TUTTI_SHAPE(shape.dims[1]));
    }
    return tt_grad_composed(call, compose);
}

const tutti_op_t tt_op_group_norm = {
    .name = "group_norm",
    .optional_inputs = 1 << WEIGHT | 1 << BIAS,
    .about = "x̂ = (x - mean) / σ per sample and group, y = x̂ w + b; dx as layer_norm's, the "
             "group being the row",
    .params_bytes = sizeof(group_norm_params_t),
    .infer = group_norm_infer,
    .forward = group_norm_forward,
    .backward = group_norm_backward,
    .grad = group_norm_grad,
};

tutti_tensor_t *tutti_group_norm(tutti_scope_t *s, tutti_tensor_t *x, int64_t groups,
                                 tutti_tensor_t *weight, tutti_tensor_t *bias, double eps)
{
    const group_norm_params_t params = {groups, tt_or_default(eps, 1e-5)};
    return tutti_op_run(s, &tt_op_group_norm, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}
