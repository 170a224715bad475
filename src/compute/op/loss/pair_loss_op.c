/* mse_loss, smooth_l1_loss, l1_loss, huber_loss, bce, bce_with_logits, kl_div: one loss per element
 * of two tensors of one shape, then reduced. 16-bit inputs are computed in f32. Cost: one pass
 * forward, one backward; keeps x and y. Source: op_loss.h. */
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/linear/dense.h"
#include "compute/op/loss/loss_reduction.h"
#include "compute/op/ops.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/reduce/reduce.h"
#include "core/kernel/norm/rows.h"

typedef struct {
    tutti_loss_reduction_t reduction;
    bool divides_by_rows; /* a sum is divided by the first size */
    bool is_log;          /* kl_div: the target is a logarithm */
    double p, q;          /* of smooth_l1: where it becomes straight, a factor */
} pair_params_t;

static tutti_status_t pair_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const pair_params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0], *y = call->inputs[1];
    TT_TRY(tt_loss_check(call->op->name, params->reduction));
    if (!tutti_dtype_is_float(x->dtype) || !tutti_dtype_is_float(y->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "both inputs must be of a floating dtype");
    }
    if (!tutti_shape_equal(x->shape, y->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "both inputs must have the same shape");
    }
    outputs->dtype = tt_accum_dtype(tutti_op_promote(x->dtype, y->dtype));
    outputs->shape = params->reduction == TUTTI_LOSS_NONE ? x->shape : TUTTI_SCALAR;
    return TUTTI_OK;
}

static double element_weight(const pair_params_t *params, tutti_shape_t shape)
{
    if (params->divides_by_rows) {
        return 1 / (double)(shape.rank == 0 ? 1 : shape.dims[0]);
    }
    return params->reduction == TUTTI_LOSS_MEAN ? 1 / (double)tutti_shape_numel(shape) : 1;
}

static tutti_status_t reduce_losses(tutti_op_call_t *call, const tutti_tensor_t *losses)
{
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t in = tt_strided_row(tt_tensor_data(losses), y->dtype, losses->numel);
    const tt_strided_t out = tt_strided_row(tt_tensor_data(y), y->dtype, 1);
    TT_TRY(tt_reduce(exec, TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in, 1u));
    const tt_map_params_t scale = {.p = element_weight(call->params, losses->shape)};
    return tt_map_unary(exec, TT_UNARY_AFFINE, scale, &out, &out);
}

static tutti_status_t pair_forward(tutti_op_call_t *call, tt_binary_t kind)
{
    const pair_params_t *params = call->params;
    tutti_tensor_t *x = call->inputs[0], *losses = NULL;
    TT_TRY(tutti_op_save(call, x));
    TT_TRY(tutti_op_save(call, call->inputs[1]));
    if (params->reduction == TUTTI_LOSS_NONE) {
        losses = tutti_tensor_retain(call->outputs[0]);
    } else {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, call->outputs[0]->dtype, x->shape,
                             false, &losses));
    }
    const tt_strided_t out = tt_tensor_strided(losses), a = tt_tensor_strided(x),
                       b = tt_tensor_strided(call->inputs[1]);
    const tt_map_params_t map = {.p = params->p, .q = params->q};
    tutti_status_t status = tt_map_binary(tt_scope_exec(call->scope), kind, map, &out, &a, &b);
    if (status >= 0 && params->reduction != TUTTI_LOSS_NONE) {
        status = reduce_losses(call, losses);
    }
    tutti_tensor_release(losses);
    return status;
}

/* dy as it counts for each element: of the shape of the inputs. */
static tutti_tensor_t *element_grad(tutti_op_backward_t *call, double factor)
{
    tutti_tensor_t *dy = call->grad_outputs[0];
    const tutti_shape_t shape = call->inputs[0].shape;
    dy = tutti_mul_scalar(call->scope, dy, factor * element_weight(call->params, shape));
    return tutti_expand(call->scope, dy, shape);
}

static tutti_status_t mse_forward(tutti_op_call_t *call)
{
    return pair_forward(call, TT_BINARY_SQUARED_DIFFERENCE);
}

static tutti_status_t mse_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *difference =
        tutti_sub(s, tutti_cast(s, call->saved[0], call->outputs[0].dtype), call->saved[1]);
    if (call->wanted[0]) {
        call->grads[0] = tutti_mul(s, difference, element_grad(call, 2));
    }
    if (call->wanted[1]) {
        call->grads[1] = tutti_mul(s, difference, element_grad(call, -2));
    }
    return tutti_scope_status(s);
}

static tutti_status_t bce_forward(tutti_op_call_t *call)
{
    return pair_forward(call, TT_BINARY_BCE);
}

/* dx, by a kernel of dy, x and y. */
static tutti_status_t push_to_x(tutti_op_backward_t *call, tt_ternary_t kind, tutti_tensor_t *dy)
{
    const pair_params_t *params = call->params;
    tutti_tensor_t *dx = tt_scratch(call->scope, call->outputs[0].dtype, call->inputs[0].shape);
    TT_TRY(tutti_scope_status(call->scope));
    const tt_strided_t out = tt_tensor_strided(dx), a = tt_tensor_strided(dy),
                       b = tt_tensor_strided(call->saved[0]), c = tt_tensor_strided(call->saved[1]);
    const tt_map_params_t map = {.p = params->p, .q = params->q};
    TT_TRY(tt_map_ternary(tt_scope_exec(call->scope), kind, map, &out, &a, &b, &c));
    call->grads[0] = dx;
    return TUTTI_OK;
}

static tutti_status_t bce_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->saved[0], *dy = element_grad(call, 1);
    TT_TRY(dy->status);
    if (call->wanted[0]) {
        TT_TRY(push_to_x(call, TT_TERNARY_BCE_BACKWARD, dy));
    }
    if (call->wanted[1]) {
        call->grads[1] = tutti_neg(s, tutti_mul(s, dy, x));
    }
    return tutti_scope_status(s);
}

static tutti_status_t bce_loss_forward(tutti_op_call_t *call)
{
    return pair_forward(call, TT_BINARY_BCE_LOSS);
}

/* The logarithm, at least -100; where it is bounded its slope is 0, and not 0 times infinity. */
static tutti_tensor_t *bounded_log(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *is_low = tutti_le_scalar(s, tutti_log(s, x), -100);
    return tutti_masked_fill(s, tutti_log(s, tutti_masked_fill(s, x, is_low, 1)), is_low, -100);
}

/* To the target: log(1 - x) - log x. */
static tutti_tensor_t *bce_loss_to_target(const tutti_op_backward_t *call, tutti_tensor_t *x,
                                          tutti_tensor_t *dy)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *no = bounded_log(s, tutti_scalar_sub(s, 1, x)), *yes = bounded_log(s, x);
    return tutti_mul(s, tutti_sub(s, no, yes), dy);
}

static tutti_status_t bce_loss_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dy = element_grad(call, 1);
    TT_TRY(dy->status);
    if (call->wanted[0]) {
        TT_TRY(push_to_x(call, TT_TERNARY_BCE_LOSS_BACKWARD, dy));
    }
    if (call->wanted[1]) {
        call->grads[1] = bce_loss_to_target(call, tt_wide(call->scope, call->saved[0]), dy);
    }
    return tutti_scope_status(call->scope);
}

static tutti_status_t bce_loss_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, call->saved[0]), *dy = element_grad(call, 1);
    if (call->wanted[0]) {
        tutti_tensor_t *spread = tutti_mul(s, x, tutti_scalar_sub(s, 1, x));
        spread = tutti_clamp(s, spread, 1e-12, (double)INFINITY);
        tutti_tensor_t *away = tutti_sub(s, x, tt_wide(s, call->saved[1]));
        call->grads[0] = tutti_div(s, tutti_mul(s, dy, away), spread);
    }
    if (call->wanted[1]) {
        call->grads[1] = bce_loss_to_target(call, x, dy);
    }
    return tutti_scope_status(s);
}

static tutti_status_t smooth_l1_forward(tutti_op_call_t *call)
{
    return pair_forward(call, TT_BINARY_SMOOTH_L1);
}

static tutti_status_t smooth_l1_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dy = element_grad(call, 1);
    TT_TRY(dy->status);
    TT_TRY(push_to_x(call, TT_TERNARY_SMOOTH_L1_BACKWARD, dy));
    if (call->wanted[1]) {
        call->grads[1] = tutti_neg(call->scope, call->grads[0]);
    }
    call->grads[0] = call->wanted[0] ? call->grads[0] : NULL;
    return tutti_scope_status(call->scope);
}

/* ---- gradients, recorded --------------------------------------------------------------------- */

/* The losses of all elements, reduced. */
static tutti_tensor_t *reduce_composed(const tutti_op_backward_t *call, tutti_tensor_t *losses)
{
    const pair_params_t *params = call->params;
    const double weight = element_weight(params, call->inputs[0].shape);
    return params->reduction == TUTTI_LOSS_NONE
               ? losses
               : tutti_mul_scalar(call->scope, tutti_sum(call->scope, losses), weight);
}

static tutti_status_t bce_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, call->saved[0]), *dy = element_grad(call, 1);
    if (call->wanted[0]) {
        tutti_tensor_t *y = tt_wide(s, call->saved[1]);
        call->grads[0] = tutti_mul(s, dy, tutti_sub(s, tutti_sigmoid(s, x), y));
    }
    if (call->wanted[1]) {
        call->grads[1] = tutti_neg(s, tutti_mul(s, dy, x));
    }
    return tutti_scope_status(s);
}

/* q d²/2p, d = |x - y|, but q (d - p/2) from d = p on. Where x is y, |x - y| has no slope, but what
 * is squared has one. */
static tutti_tensor_t *compose_smooth_l1(const tutti_op_backward_t *call,
                                         tutti_tensor_t *const *inputs)
{
    const pair_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *difference = tutti_sub(s, tt_wide(s, inputs[0]), tt_wide(s, inputs[1]));
    tutti_tensor_t *d = tutti_abs(s, difference);
    tutti_tensor_t *straight =
        tutti_mul_scalar(s, tutti_sub_scalar(s, d, params->p / 2), params->q);
    if (params->p > 0) {
        tutti_tensor_t *is_far = tutti_ge_scalar(s, d, params->p);
        /* 0 times infinity is NaN */
        tutti_tensor_t *near = tutti_masked_fill(s, difference, is_far, 0);
        tutti_tensor_t *bent =
            tutti_mul_scalar(s, tutti_square(s, near), params->q / (2 * params->p));
        straight = tutti_where(s, is_far, straight, bent);
    }
    return reduce_composed(call, straight);
}

static tutti_status_t smooth_l1_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_smooth_l1);
}

static tutti_status_t kl_div_forward(tutti_op_call_t *call)
{
    const pair_params_t *params = call->params;
    return pair_forward(call, params->is_log ? TT_BINARY_KL_DIV_LOG : TT_BINARY_KL_DIV);
}

/* The target as a probability p and log p: dx = -p dy, and log p - x + 1 times dy to p. */
static tutti_status_t kl_div_backward(tutti_op_backward_t *call)
{
    const pair_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    tutti_tensor_t *x = tutti_cast(s, call->saved[0], dtype), *dy = element_grad(call, 1);
    tutti_tensor_t *target = tutti_cast(s, call->saved[1], dtype);
    tutti_tensor_t *p = params->is_log ? tutti_exp(s, target) : target;
    if (call->wanted[0]) {
        call->grads[0] = tutti_neg(s, tutti_mul(s, p, dy));
    }
    if (call->wanted[1]) {
        tutti_tensor_t *is_zero = tutti_eq_scalar(s, p, 0);
        /* Of no probability 0 is not taken the logarithm: its slope would be NaN times 0. */
        tutti_tensor_t *log_p =
            params->is_log ? target : tutti_log(s, tutti_masked_fill(s, target, is_zero, 1));
        tutti_tensor_t *slope = tutti_add_scalar(s, tutti_sub(s, log_p, x), 1);
        slope = params->is_log ? tutti_mul(s, slope, p) : tutti_masked_fill(s, slope, is_zero, 0);
        call->grads[1] = tutti_mul(s, slope, dy);
    }
    return tutti_scope_status(s);
}

const tutti_op_t tt_op_mse_loss = {
    .name = "mse_loss",
    .about = "(x - y)²; dx = 2 (x - y) dy, dy' = -dx",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = mse_forward,
    .backward = mse_backward,
    .grad = mse_backward,
};

const tutti_op_t tt_op_bce_with_logits = {
    .name = "bce_with_logits",
    .about = "max(x, 0) - x y + log(1 + exp(-|x|)); dx = (sigmoid(x) - y) dy, dy' = -x dy",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = bce_forward,
    .backward = bce_backward,
    .grad = bce_grad,
};

const tutti_op_t tt_op_bce_loss = {
    .name = "bce_loss",
    .about =
        "-(y log x + (1 - y) log(1 - x)); dx = (x - y) / (x (1 - x)) dy, dy' = log((1 - x)/x) dy",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = bce_loss_forward,
    .backward = bce_loss_backward,
    .grad = bce_loss_grad,
};

const tutti_op_t tt_op_l1_loss = {
    .name = "l1_loss",
    .about = "|x - y|; dx = dy sign(x - y), dy' = -dx",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = smooth_l1_forward,
    .backward = smooth_l1_backward,
    .grad = smooth_l1_grad,
};

const tutti_op_t tt_op_smooth_l1_loss = {
    .name = "smooth_l1_loss",
    .about =
        "d²/2β, d = |x - y|, but d - β/2 from β on; dx = dy min(d/β, 1) sign(x - y), dy' = -dx",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = smooth_l1_forward,
    .backward = smooth_l1_backward,
    .grad = smooth_l1_grad,
};

const tutti_op_t tt_op_huber_loss = {
    .name = "huber_loss",
    .about = "d²/2, d = |x - y|, but δ (d - δ/2) from δ on; dx = dy min(d, δ) sign(x - y), dy' = "
             "-dx",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = smooth_l1_forward,
    .backward = smooth_l1_backward,
    .grad = smooth_l1_grad,
};

const tutti_op_t tt_op_kl_div = {
    .name = "kl_div",
    .about = "p (log p - x); dx = -p dy, dp = (log p - x + 1) dy",
    .params_bytes = sizeof(pair_params_t),
    .infer = pair_infer,
    .forward = kl_div_forward,
    .backward = kl_div_backward,
    .grad = kl_div_backward,
};

tutti_tensor_t *tutti_mse_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                               tutti_loss_reduction_t reduction)
{
    const pair_params_t params = {.reduction = reduction};
    return tutti_op_run(s, &tt_op_mse_loss, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_bce_with_logits(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                      tutti_loss_reduction_t reduction)
{
    const pair_params_t params = {.reduction = reduction};
    return tutti_op_run(s, &tt_op_bce_with_logits, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_bce_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                               tutti_loss_reduction_t reduction)
{
    const pair_params_t params = {.reduction = reduction};
    return tutti_op_run(s, &tt_op_bce_loss, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_l1_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                              tutti_loss_reduction_t reduction)
{
    const pair_params_t params = {.reduction = reduction, .q = 1};
    return tutti_op_run(s, &tt_op_l1_loss, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_smooth_l1_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                     double beta, tutti_loss_reduction_t reduction)
{
    if (!(beta >= 0)) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "smooth_l1_loss: beta must be at least 0, not %g", beta));
    }
    const pair_params_t params = {.reduction = reduction, .p = beta, .q = 1};
    return tutti_op_run(s, &tt_op_smooth_l1_loss, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_huber_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                 double delta, tutti_loss_reduction_t reduction)
{
    if (!(delta > 0)) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "huber_loss: delta must be positive, not %g", delta));
    }
    const pair_params_t params = {.reduction = reduction, .p = delta, .q = delta};
    return tutti_op_run(s, &tt_op_huber_loss, (tutti_tensor_t *[]){x, y}, 2, &params);
}

tutti_tensor_t *tutti_kl_div(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *target,
                             const tutti_kl_div_options_t *options)
{
    const tutti_kl_div_options_t o = options == NULL ? (tutti_kl_div_options_t){0} : *options;
    const pair_params_t params = {.reduction = o.batch_mean ? TUTTI_LOSS_SUM : o.reduction,
                                  .divides_by_rows = o.batch_mean,
                                  .is_log = o.log_target};
    return tutti_op_run(s, &tt_op_kl_div, (tutti_tensor_t *[]){x, target}, 2, &params);
}
