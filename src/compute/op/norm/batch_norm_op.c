/* batch_norm: channels of mean 0 and variance 1, over samples and positions.
 *
 * While the context trains, or without running statistics, the batch's own are used, and the
 * running ones, which are inputs that forward writes, move towards them. Statistics and parameter
 * gradients are f64, whatever x is. A residual is added and negative results become 0 in the
 * same pass, with the bits that add and relu would give; backward then needs y, too, for where it
 * is 0. Cost: channels.h; keeps x, y with relu, and the statistics. Source: op_nn.h. */
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/autograd/history.h"
#include "compute/op/norm/batch_norm_op.h"
#include "compute/op/shape/channel_order.h"
#include "compute/op/linear/dense.h"
#include "compute/op/ops.h"
#include "core/base/default.h"
#include "core/kernel/norm/channels.h"
#include "core/kernel/elementwise/map.h"

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, RESIDUAL, INPUTS };
enum { OPTIONAL = 1 << WEIGHT | 1 << BIAS | 1 << RUNNING_MEAN | 1 << RUNNING_VAR | 1 << RESIDUAL };
enum { SAVED_X, SAVED_WEIGHT, SAVED_MEAN, SAVED_VAR, SAVED_COUNT, SAVED_Y };

typedef struct {
    double momentum, eps;
    bool is_of_batch; /* whose statistics */
    bool is_shared;   /* with other processes */
    bool relu;
    tt_shared_statistics_t shared;
    tt_deferred_statistics_t deferred; /* take is NULL: running ones move at once */
} batch_norm_params_t;

/* ---- rules ----------------------------------------------------------------------------------- */

static tutti_status_t check_running(const tutti_op_call_t *call)
{
    const tutti_tensor_t *mean = call->inputs[RUNNING_MEAN], *var = call->inputs[RUNNING_VAR];
    if ((mean == NULL) != (var == NULL)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "give both running_mean and running_var or neither");
    }
    return TUTTI_OK;
}

static tutti_status_t check_residual(const tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[X], *residual = call->inputs[RESIDUAL];
    if (residual == NULL) {
        return TUTTI_OK;
    }
    if (residual->dtype != x->dtype) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the residual must be of the dtype of x");
    }
    if (!tutti_shape_equal(residual->shape, x->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the residual must be of the shape of x");
    }
    return TUTTI_OK;
}

static tutti_status_t check_count(const tutti_op_call_t *call, double count)
{
    const batch_norm_params_t *params = call->params;
    if (params->is_of_batch && count == 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "one value has no variance: a channel needs more than one value while "
                             "training");
    }
    return TUTTI_OK;
}

static tutti_status_t batch_norm_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const batch_norm_params_t *params = call->params;
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    if (outputs->shape.rank < 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x must be [N, C, ...]");
    }
    if (!(params->eps >= 0)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "eps must be at least 0, not %g", params->eps);
    }
    if (!(params->momentum >= 0 && params->momentum <= 1)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "momentum must be from 0 to 1, not %g",
                             params->momentum);
    }
    for (int input = WEIGHT; input <= RUNNING_VAR; input++) {
        TT_TRY(tt_channels_check(call, input, "weight, bias and running statistics"));
    }
    TT_TRY(check_running(call));
    TT_TRY(check_residual(call));
    const int64_t channels = outputs->shape.dims[1], numel = call->inputs[X]->numel;
    return params->is_shared || numel == 0 ? TUTTI_OK
                                           : check_count(call, (double)(numel / channels));
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What forward makes on its way, tensors alone; per channel everything is f64. */
typedef struct {
    tutti_tensor_t *x, *weight, *bias, *mean, *variance, *residual, *y;
    tutti_tensor_t *running_mean, *running_var;
    tutti_tensor_t *count; /* a number of the host: elements that the statistics are over */
} parts_t;

static tutti_status_t make_statistics(tutti_op_call_t *call, size_t channels, parts_t *p)
{
    const batch_norm_params_t *params = call->params;
    TT_TRY(tt_dense(call->scope, call->inputs[RUNNING_MEAN], TUTTI_F64, &p->running_mean));
    TT_TRY(tt_dense(call->scope, call->inputs[RUNNING_VAR], TUTTI_F64, &p->running_var));
    if (!params->is_of_batch) {
        p->mean = tutti_tensor_retain(p->running_mean);
        p->variance = tutti_tensor_retain(p->running_var);
        return TUTTI_OK;
    }
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)channels);
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, TUTTI_F64, shape, false, &p->mean));
    return tt_tensor_new(call->scope->ctx->place.device, TUTTI_F64, shape, false, &p->variance);
}

static tutti_status_t make_parts(tutti_op_call_t *call, tt_channel_order_t order, parts_t *p)
{
    tutti_tensor_t *x = call->inputs[X], *residual = call->inputs[RESIDUAL];
    TT_TRY(tt_channels_bring(call->scope, x, order, x->dtype, &p->x));
    if (residual != NULL) {
        TT_TRY(tt_channels_bring(call->scope, residual, order, x->dtype, &p->residual));
    }
    TT_TRY(tt_dense(call->scope, call->inputs[WEIGHT], TUTTI_F64, &p->weight));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], TUTTI_F64, &p->bias));
    TT_TRY(make_statistics(call, order.channels, p));
    TT_TRY(tt_tensor_new(NULL, TUTTI_F64, TUTTI_SCALAR, false, &p->count));
    return tt_channels_lend(call->scope, call->outputs[0], order, &p->y);
}

/* running = (1 - momentum) old + momentum factor now */
static tutti_status_t move_running(tutti_scope_t *s, tutti_tensor_t *running,
                                   const tutti_tensor_t *old, const tutti_tensor_t *now,
                                   const double weights[2])
{
    TT_TRY(tt_channels_move(tt_scope_exec(s), (size_t)old->numel, tt_tensor_data(old),
                            tt_tensor_data(now), weights));
    if (old != running) {
        const tt_strided_t to = tt_tensor_strided(running), from = tt_tensor_strided(old);
        TT_TRY(tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from));
    }
    tt_tensor_touch(running);
    return TUTTI_OK;
}

/* The running variance is that of a sample: divided by count - 1. */
static tutti_status_t update_running(const tutti_op_call_t *call, const parts_t *p)
{
    const batch_norm_params_t *params = call->params;
    const tt_deferred_statistics_t *deferred = &params->deferred;
    const double count = *(double *)tutti_tensor_data(p->count), m = params->momentum;
    const bool is_first = !call->scope->ctx->is_recomputing;
    if (!params->is_of_batch || p->running_mean == NULL || count <= 0 || !is_first) {
        return TUTTI_OK;
    }
    if (deferred->take != NULL) {
        return deferred->take(deferred->user, call->scope, p->mean, p->variance, count);
    }
    TT_TRY(move_running(call->scope, call->inputs[RUNNING_MEAN], p->running_mean, p->mean,
                        (double[]){1 - m, m}));
    return move_running(call->scope, call->inputs[RUNNING_VAR], p->running_var, p->variance,
                        (double[]){1 - m, m * count / (count - 1)});
}

tutti_status_t tt_batch_norm_move(tutti_scope_t *s, tutti_tensor_t *running_mean,
                                  tutti_tensor_t *running_var, double momentum,
                                  const tt_batch_statistics_t *batch)
{
    tutti_tensor_t *old[2] = {NULL, NULL};
    const double m = momentum, of_sample = batch->count / (batch->count - 1);
    tutti_status_t status = tt_dense(s, running_mean, TUTTI_F64, &old[0]);
    status = status < 0 ? status : tt_dense(s, running_var, TUTTI_F64, &old[1]);
    if (status >= 0) {
        status = move_running(s, running_mean, old[0], batch->mean, (double[]){1 - m, m});
    }
    if (status >= 0) {
        status =
            move_running(s, running_var, old[1], batch->variance, (double[]){1 - m, m * of_sample});
    }
    tt_tensors_release(old, 2);
    return status;
}

static tutti_status_t run_forward(tutti_op_call_t *call, const parts_t *p, const tt_channels_t *c,
                                  double *count)
{
    const batch_norm_params_t *params = call->params;
    tt_exec_t *exec = tt_scope_exec(call->scope);
    if (params->is_of_batch && !params->is_shared) {
        return tt_channels_forward(exec, c);
    }
    if (params->is_of_batch) {
        const tt_shared_statistics_t *shared = &params->shared;
        TT_TRY(tt_channels_measure(exec, c));
        TT_TRY(shared->merge(shared->user, call->scope, p->mean, p->variance, count));
        TT_TRY(check_count(call, *count));
    }
    return tt_channels_normalize(exec, c);
}

static tutti_status_t compute(tutti_op_call_t *call, parts_t *p)
{
    const batch_norm_params_t *params = call->params;
    const tt_channel_order_t order = tt_channel_order(call->inputs[X]->shape);
    TT_TRY(make_parts(call, order, p));
    const tt_channels_t channels = {.dtype = p->x->dtype,
                                    .batch = order.batch,
                                    .channels = order.channels,
                                    .n = order.n,
                                    .eps = params->eps,
                                    .x = tt_data_of(p->x),
                                    .gamma = tt_data_of(p->weight),
                                    .beta = tt_data_of(p->bias),
                                    .mean = tt_data_of(p->mean),
                                    .variance = tt_data_of(p->variance),
                                    .residual = tt_data_of(p->residual),
                                    .relu = params->relu,
                                    .y = tt_data_of(p->y)};
    double *count = tutti_tensor_data(p->count);
    *count = (double)order.batch * (double)order.n;
    TT_TRY(run_forward(call, p, &channels, count));
    TT_TRY(tt_channels_return(call->scope, call->outputs[0], p->y));
    TT_TRY(tutti_op_save(call, p->x));
    TT_TRY(tutti_op_save_copy(call, p->weight, WEIGHT));
    TT_TRY(tutti_op_save(call, p->mean));
    TT_TRY(tutti_op_save(call, p->variance));
    TT_TRY(tutti_op_save(call, p->count));
    TT_TRY(tutti_op_save(call, params->relu ? p->y : NULL));
    return update_running(call, p); /* at last: after a failure they are as they were */
}

static tutti_status_t batch_norm_forward(tutti_op_call_t *call)
{
    parts_t parts = {0};
    const tutti_status_t status = compute(call, &parts);
    tt_tensors_release((tutti_tensor_t **)&parts, sizeof parts / sizeof(tutti_tensor_t *));
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dweight and dbias, both of this process's samples. */
static tutti_status_t new_parameter_grads(tutti_op_backward_t *call)
{
    const int64_t channels = call->saved[SAVED_VAR]->numel;
    for (int input = WEIGHT; input <= BIAS; input++) {
        if (call->wanted[input]) {
            call->grads[input] = tt_scratch(call->scope, TUTTI_F64, TUTTI_SHAPE(channels));
        }
    }
    return tutti_scope_status(call->scope);
}

static tutti_status_t run_backward(tutti_op_backward_t *call, const tt_channels_t *c,
                                   tutti_tensor_t *sums)
{
    const batch_norm_params_t *params = call->params;
    const tt_shared_statistics_t *shared = &params->shared;
    tt_exec_t *exec = tt_scope_exec(call->scope);
    if (!params->is_of_batch || !params->is_shared || c->dx == NULL) {
        return tt_channels_backward(exec, c);
    }
    TT_TRY(tt_channels_dot(exec, c));
    TT_TRY(shared->add(shared->user, call->scope, sums));
    return tt_channels_slope(exec, c);
}

/* Gradients in the kernel's order, tensors alone; each may be missing. */
typedef struct {
    tutti_tensor_t *dy, *dz, *dx;
} slopes_t;

static tutti_status_t differentiate(tutti_op_backward_t *call, const slopes_t *slopes)
{
    const batch_norm_params_t *params = call->params;
    const tutti_tensor_t *x = call->saved[SAVED_X];
    const tt_channel_order_t order = tt_channel_order(call->inputs[X].shape);
    tutti_tensor_t *sums =
        tt_scratch(call->scope, TUTTI_F64, TUTTI_SHAPE(2, (int64_t)order.channels));
    TT_TRY(new_parameter_grads(call));
    double *sum = tt_tensor_data(sums);
    const double count = *(double *)tutti_tensor_data(call->saved[SAVED_COUNT]);
    const tt_channels_t channels = {.dtype = x->dtype,
                                    .batch = order.batch,
                                    .channels = order.channels,
                                    .n = order.n,
                                    .eps = params->eps,
                                    .x = tt_data_of(x),
                                    .gamma = tt_data_of(call->saved[SAVED_WEIGHT]),
                                    .mean = tt_data_of(call->saved[SAVED_MEAN]),
                                    .variance = tt_data_of(call->saved[SAVED_VAR]),
                                    .relu = params->relu,
                                    .y = tt_data_of(call->saved[SAVED_Y]),
                                    .dy = tt_data_of(slopes->dy),
                                    .sum = sum,
                                    .dot = sum + order.channels,
                                    .dgamma = tt_data_of(call->grads[WEIGHT]),
                                    .dbeta = tt_data_of(call->grads[BIAS]),
                                    .dz = tt_data_of(slopes->dz),
                                    .dx = tt_data_of(slopes->dx),
                                    .count = params->is_of_batch ? count : 0};
    return run_backward(call, &channels, sums);
}

/* A gradient for an input of x's shape, and where the kernel writes it. */
static tutti_status_t lend_grad(tutti_op_backward_t *call, int input, tutti_tensor_t **lent)
{
    const tutti_shape_t shape = call->inputs[X].shape;
    if (!call->wanted[input]) {
        return TUTTI_OK;
    }
    call->grads[input] = tt_scratch(call->scope, call->inputs[X].dtype, shape);
    TT_TRY(tutti_scope_status(call->scope));
    return tt_channels_lend(call->scope, call->grads[input], tt_channel_order(shape), lent);
}

static tutti_status_t return_grad(tutti_op_backward_t *call, int input, const tutti_tensor_t *lent)
{
    return lent == NULL ? TUTTI_OK : tt_channels_return(call->scope, call->grads[input], lent);
}

static tutti_status_t push(tutti_op_backward_t *call, slopes_t *slopes)
{
    const batch_norm_params_t *params = call->params;
    const tt_channel_order_t order = tt_channel_order(call->inputs[X].shape);
    TT_TRY(tt_channels_bring(call->scope, call->grad_outputs[0], order, call->inputs[X].dtype,
                             &slopes->dy));
    TT_TRY(lend_grad(call, X, &slopes->dx));
    if (!params->relu) {
        call->grads[RESIDUAL] = call->wanted[RESIDUAL] ? call->grad_outputs[0] : NULL;
        return differentiate(call, slopes);
    }
    TT_TRY(lend_grad(call, RESIDUAL, &slopes->dz));
    if (slopes->dz == NULL && slopes->dx != NULL) {
        slopes->dz = tutti_tensor_retain(slopes->dx);
    }
    TT_TRY(differentiate(call, slopes));
    return return_grad(call, RESIDUAL, call->wanted[RESIDUAL] ? slopes->dz : NULL);
}

static tutti_status_t batch_norm_backward(tutti_op_backward_t *call)
{
    slopes_t slopes = {NULL, NULL, NULL};
    tutti_status_t status = push(call, &slopes);
    if (status >= 0) {
        status = return_grad(call, X, slopes.dx);
    }
    tt_tensors_release((tutti_tensor_t **)&slopes, sizeof slopes / sizeof(tutti_tensor_t *));
    return status;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

static tutti_tensor_t *per_channel(const tutti_op_backward_t *call, tutti_tensor_t *x)
{
    return tutti_reshape(call->scope, x, tt_channel_shape(call->inputs[X].shape));
}

/* y but for the bias; a weight behind mean and variance, which are the batch's own or given. */
static tutti_tensor_t *compose(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const batch_norm_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tutti_cast(s, inputs[X], TUTTI_F64), *mean, *variance;
    if (params->is_of_batch) {
        tutti_dims_t dims = {.count = x->shape.rank - 1};
        for (int i = 1; i < dims.count; i++) {
            dims.dims[i] = i + 1;
        }
        mean = tutti_mean_over(s, x, dims, true);
        variance = tutti_var_over(s, x, dims, true, 0);
    } else {
        mean = per_channel(call, call->saved[SAVED_MEAN]);
        variance = per_channel(call, call->saved[SAVED_VAR]);
    }
    tutti_tensor_t *rstd = tutti_rsqrt(s, tutti_add_scalar(s, variance, params->eps));
    x = tutti_mul(s, tutti_sub(s, x, mean), rstd);
    return inputs[WEIGHT] == NULL ? x : tutti_mul(s, x, per_channel(call, inputs[WEIGHT]));
}

/* x or y in the order of x, where it was kept with its channels first; without history. */
static tutti_tensor_t *in_order(const tutti_op_backward_t *call, tutti_tensor_t *x)
{
    if (tt_channel_order(call->inputs[X].shape).is_moved) {
        x = tutti_transpose(call->scope, x, 0, 1);
    }
    return tutti_detach(call->scope, x);
}

/* What relu passes on. */
static tutti_tensor_t *slope_of_sum(const tutti_op_backward_t *call)
{
    const batch_norm_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *dy = call->grad_outputs[0];
    if (!params->relu) {
        return dy;
    }
    tutti_tensor_t *is_cut = tutti_le_scalar(s, in_order(call, call->saved[SAVED_Y]), 0);
    return tutti_where(s, is_cut, tutti_zeros(s, dy->dtype, TUTTI_SCALAR), dy);
}

static tutti_status_t batch_norm_grad(tutti_op_backward_t *call)
{
    const tutti_shape_t shape = call->inputs[X].shape;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *dz = slope_of_sum(call);
    if (call->wanted[BIAS]) {
        tutti_tensor_t *sum =
            tutti_sum_to(s, tutti_cast(s, dz, TUTTI_F64), tt_channel_shape(shape));
        call->grads[BIAS] = tutti_reshape(s, sum, TUTTI_SHAPE(shape.dims[1]));
    }
    call->grads[RESIDUAL] = call->wanted[RESIDUAL] ? dz : NULL;
    tutti_tensor_t *saved[] = {tt_history_of_input(call, X, in_order(call, call->saved[SAVED_X])),
                               call->saved[SAVED_WEIGHT], call->saved[SAVED_MEAN],
                               call->saved[SAVED_VAR]};
    const tt_saved_t items[] = {{.from = X + 1}, {.from = WEIGHT + 1}};
    tt_op_backward_t own = *(const tt_op_backward_t *)call;
    TT_TRY(tutti_scope_status(s));
    own.seen.grad_outputs = &dz;
    own.seen.saved = saved;
    own.items = items;
    own.saved_count = 2;
    return tt_grad_composed(&own.seen, compose);
}

const tutti_op_t tt_op_batch_norm = {
    .name = "batch_norm",
    .optional_inputs = OPTIONAL,
    .about = "x̂ = (x - mean) / σ per channel, y = relu?(x̂ w + b + residual?); dx as "
             "layer_norm's, the channel being the row",
    .params_bytes = sizeof(batch_norm_params_t),
    .infer = batch_norm_infer,
    .forward = batch_norm_forward,
    .backward = batch_norm_backward,
    .grad = batch_norm_grad,
};

static void retain_shared(const void *params)
{
    const tt_shared_statistics_t *shared = &((const batch_norm_params_t *)params)->shared;
    shared->retain(shared->user);
}

static void release_shared(const void *params)
{
    const tt_shared_statistics_t *shared = &((const batch_norm_params_t *)params)->shared;
    shared->release(shared->user);
}

/* The same under another name; not in ops.def, for it needs a group. */
static const tutti_op_t sync_batch_norm = {
    .name = "sync_batch_norm",
    .optional_inputs = OPTIONAL,
    .about = "batch_norm with statistics over the samples of all ranks",
    .params_bytes = sizeof(batch_norm_params_t),
    .retain_params = retain_shared,
    .release_params = release_shared,
    .infer = batch_norm_infer,
    .forward = batch_norm_forward,
    .backward = batch_norm_backward,
};

tutti_tensor_t *tt_batch_norm(tutti_scope_t *s, tutti_tensor_t *const inputs[3],
                              const tutti_batch_norm_options_t *options,
                              const tt_shared_statistics_t *shared,
                              const tt_deferred_statistics_t *deferred)
{
    const tutti_batch_norm_options_t o =
        options == NULL ? (tutti_batch_norm_options_t){0} : *options;
    const batch_norm_params_t params = {
        .momentum = tt_or_default(o.momentum, 0.1),
        .eps = tt_or_default(o.eps, 1e-5),
        .is_of_batch = s->ctx->is_training || o.running_mean == NULL,
        .is_shared = shared != NULL,
        .relu = o.relu,
        .shared = shared != NULL ? *shared : (tt_shared_statistics_t){0},
        .deferred = deferred != NULL ? *deferred : (tt_deferred_statistics_t){0},
    };
    tutti_tensor_t *all[] = {inputs[X],      inputs[WEIGHT], inputs[BIAS],
                             o.running_mean, o.running_var,  o.residual};
    return tutti_op_run(s, shared != NULL ? &sync_batch_norm : &tt_op_batch_norm, all, INPUTS,
                        &params);
}

tutti_tensor_t *tutti_batch_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, const tutti_batch_norm_options_t *options)
{
    return tt_batch_norm(s, (tutti_tensor_t *[]){x, weight, bias}, options, NULL, NULL);
}
