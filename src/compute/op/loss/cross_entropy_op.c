/* cross_entropy: logits and targets to one loss, without the softmax in memory.
 *
 *     forward:   loss[r] = lse[r] - logits[r, target[r]], with what lse is made of kept (rows.h);
 *                then their sum, times 1/count (a number of the device)
 *     backward:  dlogits[r, :] = (softmax(logits[r, :]) - onehot) · dy · 1/count,
 *                from logits and what was kept
 *
 * Cost: one pass each way. Source: op_loss.h. */
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/linear/dense.h"
#include "compute/op/loss/class_loss.h"
#include "compute/op/loss/loss_reduction.h"
#include "compute/op/ops.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/reduce/reduce.h"
#include "core/kernel/norm/rows.h"

typedef struct {
    tutti_loss_reduction_t reduction;
    double label_smoothing;
    int64_t ignore_index;
} cross_entropy_params_t;

enum { LOGITS, TARGETS, MAX_SUM, WEIGHT, SAVED };

static tutti_status_t cross_entropy_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const cross_entropy_params_t *params = call->params;
    const tutti_tensor_t *logits = call->inputs[LOGITS], *targets = call->inputs[TARGETS];
    tutti_shape_t rows = logits->shape;
    TT_TRY(tt_loss_check(call->op->name, params->reduction));
    if (!tutti_dtype_is_float(logits->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the logits must be of a floating dtype");
    }
    if (targets->dtype != TUTTI_I64 && targets->dtype != TUTTI_I32 && targets->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the targets must be i64, i32 or u8");
    }
    rows.rank -= rows.rank > 0;
    if (logits->shape.rank == 0 || !tutti_shape_equal(rows, targets->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the targets must have the shape of the logits without the classes, "
                             "which come last");
    }
    outputs->dtype = tt_accum_dtype(logits->dtype);
    outputs->shape = params->reduction == TUTTI_LOSS_NONE ? rows : TUTTI_SCALAR;
    return TUTTI_OK;
}

/* The kernel's view of a call; losses and gradients are for the caller to fill in. */
static tt_cross_entropy_t describe(const cross_entropy_params_t *params,
                                   tutti_tensor_t *const *operands)
{
    const tutti_tensor_t *logits = operands[LOGITS];
    const int64_t n = logits->shape.dims[logits->shape.rank - 1];
    return (tt_cross_entropy_t){
        .shape = {logits->dtype, (size_t)tt_row_count(logits->shape), (size_t)n},
        .logits = tt_tensor_data(logits),
        .targets = tt_tensor_data(operands[TARGETS]),
        .ignore_index = params->ignore_index,
        .label_smoothing = params->label_smoothing,
        .max_sum = tt_tensor_data(operands[MAX_SUM]),
        .weight = tt_data_of(operands[WEIGHT]),
    };
}

static tt_strided_t as_row(const tutti_tensor_t *x, int64_t n)
{
    return tt_strided_row(tt_tensor_data(x), x->dtype, n);
}

/* Their sum, times the weight of a mean. */
static tutti_status_t reduce_losses(tutti_op_call_t *call, const tutti_tensor_t *losses,
                                    const tutti_tensor_t *weight)
{
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tt_strided_t in = as_row(losses, losses->numel), out = as_row(call->outputs[0], 1);
    TT_TRY(tt_reduce(exec, TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in, 1u));
    if (weight == NULL) {
        return TUTTI_OK;
    }
    const tt_strided_t factor = as_row(weight, 1);
    return tt_map_binary(exec, TT_BINARY_MUL, (tt_map_params_t){0}, &out, &out, &factor);
}

static tutti_status_t run_kernel(tutti_op_call_t *call, tutti_tensor_t *const *operands,
                                 tutti_tensor_t *losses)
{
    const cross_entropy_params_t *params = call->params;
    tt_cross_entropy_t ce = describe(params, operands);
    ce.loss = tt_tensor_data(losses);
    TT_TRY(tt_cross_entropy(tt_scope_exec(call->scope), &ce));
    if (params->reduction != TUTTI_LOSS_NONE) {
        TT_TRY(reduce_losses(call, losses, operands[WEIGHT]));
    }
    TT_TRY(tutti_op_save_copy(call, operands[LOGITS], LOGITS));
    TT_TRY(tutti_op_save_copy(call, operands[TARGETS], TARGETS));
    TT_TRY(tutti_op_save(call, operands[MAX_SUM]));
    return tutti_op_save(call, operands[WEIGHT]);
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **operands,
                              tutti_tensor_t **losses)
{
    tutti_tensor_t *logits = call->inputs[LOGITS], *targets = call->inputs[TARGETS];
    const cross_entropy_params_t *params = call->params;
    const tutti_dtype_t dtype = call->outputs[0]->dtype;
    TT_TRY(tt_dense(call->scope, logits, logits->dtype, &operands[LOGITS]));
    TT_TRY(tt_dense(call->scope, targets, TUTTI_I64, &operands[TARGETS]));
    tutti_shape_t pairs = logits->shape;
    pairs.dims[pairs.rank - 1] = 2;
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, dtype, pairs, false, &operands[MAX_SUM]));
    if (params->reduction == TUTTI_LOSS_MEAN) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, dtype, TUTTI_SCALAR, false,
                             &operands[WEIGHT]));
    }
    if (params->reduction == TUTTI_LOSS_NONE) {
        *losses = tutti_tensor_retain(call->outputs[0]);
    } else {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, dtype, targets->shape, false, losses));
    }
    return run_kernel(call, operands, *losses);
}

static tutti_status_t cross_entropy_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *operands[SAVED] = {NULL}, *losses = NULL;
    const tutti_status_t status = compute(call, operands, &losses);
    tt_tensors_release(operands, SAVED);
    tutti_tensor_release(losses);
    return status;
}

static tutti_status_t cross_entropy_backward(tutti_op_backward_t *call)
{
    const cross_entropy_params_t *params = call->params;
    const tutti_tensor_t *logits = call->saved[LOGITS];
    tutti_tensor_t *dy, *dlogits = tt_scratch(call->scope, logits->dtype, logits->shape);
    if (dlogits == NULL) {
        return tutti_scope_status(call->scope);
    }
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], call->outputs[0].dtype, &dy));
    tt_cross_entropy_t ce = describe(params, call->saved);
    ce.dlogits = tt_tensor_data(dlogits);
    ce.scale = tt_tensor_data(dy);
    ce.scale_is_shared = params->reduction != TUTTI_LOSS_NONE;
    const tutti_status_t status = tt_cross_entropy_backward(tt_scope_exec(call->scope), &ce);
    tutti_tensor_release(dy);
    call->grads[LOGITS] = dlogits;
    return status;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

/* -Σ q log softmax, q the target's share, 1 - smoothing more for itself than smoothing / classes */
static tutti_tensor_t *compose(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const cross_entropy_params_t *params = call->params;
    const double smoothing = params->label_smoothing;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *targets = inputs[TARGETS];
    tutti_tensor_t *logs = tutti_log_softmax(s, tt_wide(s, inputs[LOGITS]), -1);
    tutti_tensor_t *is_ignored = tutti_eq_scalar(s, targets, (double)params->ignore_index);
    tutti_tensor_t *index = tutti_unsqueeze(s, tutti_masked_fill(s, targets, is_ignored, 0), -1);
    tutti_tensor_t *own = tutti_squeeze(s, tutti_gather_along(s, logs, -1, index), -1);
    tutti_tensor_t *all = tutti_mean_over(s, logs, TUTTI_DIMS(-1), false);
    tutti_tensor_t *losses =
        tutti_add(s, tutti_mul_scalar(s, own, smoothing - 1), tutti_mul_scalar(s, all, -smoothing));
    losses = tutti_masked_fill(s, losses, is_ignored, 0);
    if (params->reduction == TUTTI_LOSS_NONE) {
        return losses;
    }
    tutti_tensor_t *sum = tutti_sum(s, losses);
    const bool is_mean = params->reduction == TUTTI_LOSS_MEAN && losses->numel > 0;
    return is_mean ? tutti_mul(s, sum, call->saved[WEIGHT]) : sum;
}

static tutti_status_t cross_entropy_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose);
}

const tutti_op_t tt_op_cross_entropy = {
    .name = "cross_entropy",
    .about = "-log softmax(logits)[target]; dlogits = (softmax - onehot) dy / rows",
    .params_bytes = sizeof(cross_entropy_params_t),
    .infer = cross_entropy_infer,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .grad = cross_entropy_grad,
};

tutti_tensor_t *tutti_cross_entropy_with(tutti_scope_t *s, tutti_tensor_t *logits,
                                         tutti_tensor_t *targets,
                                         const tutti_cross_entropy_options_t *options)
{
    const tutti_cross_entropy_options_t o =
        options == NULL ? (tutti_cross_entropy_options_t){.weight = NULL} : *options;
    if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                           "cross_entropy: label_smoothing must be in [0, 1], "
                                           "not %g",
                                           o.label_smoothing));
    }
    if (tutti_tensor_status(logits) >= 0 && tutti_tensor_status(targets) >= 0 &&
        (o.weight != NULL || tutti_dtype_is_float(targets->dtype))) {
        return tt_cross_entropy_composed(s, logits, targets, &o);
    }
    const cross_entropy_params_t params = {
        .reduction = o.reduction,
        .label_smoothing = o.label_smoothing,
        .ignore_index = o.has_ignore_index ? o.ignore_index : -100,
    };
    return tutti_op_run(s, &tt_op_cross_entropy, (tutti_tensor_t *[]){logits, targets}, 2, &params);
}

tutti_tensor_t *tutti_cross_entropy(tutti_scope_t *s, tutti_tensor_t *logits,
                                    tutti_tensor_t *targets)
{
    return tutti_cross_entropy_with(s, logits, targets, NULL);
}
