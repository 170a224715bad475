/* linear_cross_entropy: a linear layer and its loss, whose logits are never whole in memory.
 *
 *     x[R, in], W[D·V, in], b[D·V]     R rows, V classes at each of D places: R·D losses
 *     a chunk of rows of x:
 *         logits[rows, D·V] = x · Wᵀ + b           seen as [rows·D, V]
 *         losses[rows·D]                           rows.h
 *         dlogits                                  in the logits' place; for the products of 16-bit
 *                                                  inputs, whose logits are f32, a copy in 16 bits
 *         dx[rows, in] = dlogits · W
 *         dW += dlogitsᵀ · x, db += Σ dlogits      in turns of 256 rows, in order
 *
 * One pass over chunks makes the losses and, where one number comes of them, their gradients for an
 * incoming one of 1, which backward multiplies with what has come in and with the mean's factor.
 * Where that is not finite, for no row weighs anything, the pass's rows have NaN but for those that
 * are ignored, and the factor is 0: so ignored rows have 0, as of cross_entropy.
 * Where each loss is wanted, backward makes the pass again, with what has come in for each.
 *
 * Bits: a row's logits, loss and dx depend on the row alone (matmul.h). Chunks are whole turns, so
 * that the sums of dW and db do not depend on the chunk's size either.
 * Cost: three products (of each loss five). Source: torch.nn.functional.linear_cross_entropy;
 * Wijmans et al., "Cut your losses in large-vocabulary language models" (2024). */
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/op_vocabulary.h>

#include "compute/autograd/compose.h"
#include "compute/op/linear/dense.h"
#include "compute/op/loss/head_pass.h"
#include "compute/op/loss/loss_reduction.h"
#include "compute/op/ops.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/reduce/reduce.h"

typedef tt_head_params_t params_t;
typedef tt_head_pass_t pass_t;

enum {
    X = TT_HEAD_X,
    WEIGHT = TT_HEAD_WEIGHT,
    BIAS = TT_HEAD_BIAS,
    TARGETS = TT_HEAD_TARGETS,
    CLASS_WEIGHT = TT_HEAD_CLASS_WEIGHT,
    INPUTS = TT_HEAD_INPUTS,
    LOSSES = TT_HEAD_LOSSES,
    MEAN = TT_HEAD_MEAN,
    TENSORS = TT_HEAD_TENSORS
};

/* Saved behind the inputs: their gradients, and the mean's factor. */
enum { GRADS = INPUTS, FACTOR = 2 * INPUTS };

/* ---- shapes ---------------------------------------------------------------------------------- */

static int64_t classes_of(tutti_shape_t weight)
{
    return weight.dims[weight.rank - 2];
}

/* How many classes there are at all places together. */
static int64_t outputs_of(tutti_shape_t weight)
{
    return tt_row_count(weight);
}

/* x's rows, and the places at each; with the classes behind them if is_whole. */
static tutti_shape_t logits_shape(tutti_shape_t x, tutti_shape_t weight, bool is_whole)
{
    tutti_shape_t shape = x;
    shape.rank--;
    for (int i = 0; i < weight.rank - 2 + (is_whole ? 1 : 0); i++) {
        shape.dims[shape.rank++] = weight.dims[i];
    }
    return shape;
}

static tutti_status_t check_linear(const tutti_op_call_t *call)
{
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[WEIGHT]->shape;
    const tutti_tensor_t *bias = call->inputs[BIAS];
    if (w.rank < 2 || x.rank < 1 || x.dims[x.rank - 1] != w.dims[w.rank - 1] ||
        x.rank + w.rank - 2 > TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "want x of [..., in] and a weight of [..., classes, in]");
    }
    tutti_shape_t outputs = w;
    outputs.rank--;
    if (bias != NULL && !tutti_shape_equal(bias->shape, outputs)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the bias must be the weight's [..., classes]");
    }
    return TUTTI_OK;
}

static tutti_status_t check_targets(const tutti_op_call_t *call)
{
    const tutti_tensor_t *targets = call->inputs[TARGETS], *weight = call->inputs[CLASS_WEIGHT];
    const tutti_shape_t w = call->inputs[WEIGHT]->shape;
    const tutti_dtype_t dtype = targets->dtype;
    if (!tt_head_is_probabilities(targets) && dtype != TUTTI_I64 && dtype != TUTTI_I32 &&
        dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE,
                             "the targets must be i64, i32 or u8, or probabilities");
    }
    if (!tutti_shape_equal(targets->shape, logits_shape(call->inputs[X]->shape, w,
                                                        tt_head_is_probabilities(targets)))) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the targets must have the shape of the logits, of classes without "
                             "the last size");
    }
    if (weight != NULL && (!tutti_dtype_is_float(weight->dtype) || weight->shape.rank != 1 ||
                           weight->numel != classes_of(w))) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want a floating weight for each class");
    }
    return TUTTI_OK;
}

static tutti_status_t linear_cross_entropy_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *params = call->params;
    TT_TRY(tt_loss_check(call->op->name, params->reduction));
    for (int i = X; i <= BIAS; i++) {
        if (call->inputs[i] != NULL && !tutti_dtype_is_float(call->inputs[i]->dtype)) {
            return tutti_op_fail(call, TUTTI_ERR_DTYPE, "x, weight and bias must be floating");
        }
    }
    TT_TRY(check_linear(call));
    TT_TRY(check_targets(call));
    outputs->dtype = tt_accum_dtype(tt_head_dtype(params, call->inputs));
    outputs->shape = params->reduction == TUTTI_LOSS_NONE
                         ? logits_shape(call->inputs[X]->shape, call->inputs[WEIGHT]->shape, false)
                         : TUTTI_SCALAR;
    return TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tt_exec_t *exec_of(const pass_t *p)
{
    return tt_scope_exec(p->s);
}

/* The targets' check, and what the sum of the losses is multiplied with. */
static tutti_status_t find_mean(pass_t *p)
{
    if (p->params->reduction == TUTTI_LOSS_MEAN) {
        TT_TRY(tt_head_new(p, MEAN, p->wide, TUTTI_SHAPE(3)));
    }
    tt_cross_entropy_t ce = tt_head_describe(p, 0, p->rows);
    ce.probs = tt_head_is_probabilities(p->at[TARGETS]) ? tt_tensor_data(p->at[TARGETS]) : NULL;
    ce.weight = tt_data_of(p->at[MEAN]);
    return tt_cross_entropy_weight(exec_of(p), &ce);
}

static tt_strided_t as_row(const tutti_tensor_t *x)
{
    return tt_strided_row(tt_tensor_data(x), x->dtype, x->numel);
}

/* One of the mean's three numbers. */
static tt_strided_t number_of(const tutti_tensor_t *mean, int64_t at)
{
    return tt_strided_row(tt_head_element(mean, at), mean->dtype, 1);
}

static tutti_status_t reduce_losses(const pass_t *p, const tutti_tensor_t *y)
{
    const tt_strided_t in = as_row(p->at[LOSSES]), out = as_row(y);
    TT_TRY(tt_reduce(exec_of(p), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in, 1u));
    if (p->at[MEAN] == NULL) {
        return TUTTI_OK;
    }
    const tt_strided_t factor = number_of(p->at[MEAN], 0);
    return tt_map_binary(exec_of(p), TT_BINARY_MUL, (tt_map_params_t){0}, &out, &out, &factor);
}

/* Gradients that the pass makes already, for one number that comes of it. */
static tutti_status_t make_grads(const tutti_op_call_t *call, pass_t *p)
{
    for (int i = X; i <= TARGETS; i++) {
        if (p->params->reduction != TUTTI_LOSS_NONE && tutti_op_needs_grad(call, i)) {
            TT_TRY(tt_tensor_new(p->s->ctx->place.device, p->wide, call->inputs[i]->shape, false,
                                 &p->grads[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t save(tutti_op_call_t *call, const pass_t *p)
{
    for (int i = 0; i < INPUTS; i++) {
        TT_TRY(tutti_op_save(call, call->inputs[i]));
    }
    for (int i = 0; i < INPUTS; i++) {
        TT_TRY(tutti_op_save(call, p->grads[i]));
    }
    return tutti_op_save(call, p->at[MEAN]);
}

static tutti_status_t compute(tutti_op_call_t *call, pass_t *p)
{
    const tutti_tensor_t *y = call->outputs[0];
    TT_TRY(tt_head_take(p, call->inputs));
    TT_TRY(make_grads(call, p));
    if (p->params->reduction == TUTTI_LOSS_NONE) {
        p->at[LOSSES] = tutti_tensor_retain(call->outputs[0]);
    } else {
        TT_TRY(tt_head_new(p, LOSSES, p->wide, TUTTI_SHAPE(p->rows * p->places)));
    }
    TT_TRY(find_mean(p));
    TT_TRY(tt_head_run(p));
    if (p->params->reduction != TUTTI_LOSS_NONE) {
        TT_TRY(reduce_losses(p, y));
    }
    return save(call, p);
}

static tutti_status_t linear_cross_entropy_forward(tutti_op_call_t *call)
{
    pass_t p = tt_head_pass(call->scope, call->params, call->inputs);
    const tutti_status_t status = compute(call, &p);
    tt_tensors_release(p.at, TENSORS);
    tt_tensors_release(p.grads, INPUTS);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tt_strided_t repeated(const tutti_tensor_t *number, int64_t n)
{
    tt_strided_t x = tt_strided_row(tt_tensor_data(number), number->dtype, n);
    x.strides[0] = 0;
    return x;
}

/* What has come in, times the mean's factor that the pass has left out. */
static tutti_status_t find_factor(const tutti_op_backward_t *call, tutti_tensor_t **out)
{
    tutti_tensor_t *factor = tt_scratch(call->scope, call->outputs[0].dtype, TUTTI_SCALAR);
    if (factor == NULL) {
        return tutti_scope_status(call->scope);
    }
    const tt_strided_t to = as_row(factor), dy = as_row(call->grad_outputs[0]);
    *out = factor;
    if (call->saved[FACTOR] == NULL) {
        return tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &to,
                            &dy);
    }
    const tt_strided_t mean = number_of(call->saved[FACTOR], 2);
    return tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_MUL, (tt_map_params_t){0}, &to, &dy,
                         &mean);
}

static tutti_status_t multiply_saved(tutti_op_backward_t *call)
{
    tutti_tensor_t *factor = NULL, *grad;
    TT_TRY(find_factor(call, &factor));
    for (int i = X; i <= TARGETS; i++) {
        const tutti_tensor_t *saved = call->saved[GRADS + i];
        if (!call->wanted[i] || saved == NULL) {
            continue;
        }
        TT_TRY(tt_new_grad(call, i, &grad));
        const tt_strided_t to = as_row(grad), from = as_row(saved),
                           by = repeated(factor, saved->numel);
        TT_TRY(tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_MUL, (tt_map_params_t){0}, &to,
                             &from, &by));
    }
    return TUTTI_OK;
}

/* The pass once more, with what has come in for each loss. */
static tutti_status_t run_again(tutti_op_backward_t *call, pass_t *p, tutti_tensor_t **dy)
{
    TT_TRY(tt_head_take(p, call->saved));
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], p->wide, dy));
    TT_TRY(tt_head_new(p, LOSSES, p->wide, TUTTI_SHAPE(p->rows * p->places)));
    p->scale = *dy;
    for (int i = X; i <= TARGETS; i++) {
        if (call->wanted[i]) {
            TT_TRY(tt_new_grad(call, i, &p->grads[i]));
        }
    }
    return tt_head_run(p);
}

static tutti_status_t linear_cross_entropy_backward(tutti_op_backward_t *call)
{
    const params_t *params = call->params;
    if (params->reduction != TUTTI_LOSS_NONE) {
        return multiply_saved(call);
    }
    pass_t p = tt_head_pass(call->scope, params, call->saved);
    tutti_tensor_t *dy = NULL;
    const tutti_status_t status = run_again(call, &p, &dy);
    tt_tensors_release(p.at, TENSORS);
    tutti_tensor_release(dy);
    return status;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

static tutti_tensor_t *compose(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const params_t *params = call->params;
    const tutti_shape_t w = inputs[WEIGHT]->shape;
    const int64_t outputs = outputs_of(w);
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *bias = inputs[BIAS];
    bias = bias == NULL ? NULL : tutti_reshape(s, bias, TUTTI_SHAPE(outputs));
    tutti_tensor_t *weight =
        tutti_reshape(s, inputs[WEIGHT], TUTTI_SHAPE(outputs, w.dims[w.rank - 1]));
    tutti_tensor_t *logits = tutti_linear(s, inputs[X], weight, bias);
    logits = tutti_reshape(s, logits, logits_shape(inputs[X]->shape, w, true));
    return tutti_cross_entropy_with(
        s, logits, inputs[TARGETS],
        &(tutti_cross_entropy_options_t){.reduction = params->reduction,
                                         .label_smoothing = params->label_smoothing,
                                         .has_ignore_index = true,
                                         .ignore_index = params->ignore_index,
                                         .weight = inputs[CLASS_WEIGHT]});
}

static tutti_status_t linear_cross_entropy_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose);
}

const tutti_op_t tt_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .about = "cross_entropy of x Wᵀ + b, in chunks of rows; dx = dz W, dW = dzᵀ x, db = Σ dz",
    .optional_inputs = 1 << BIAS | 1 << CLASS_WEIGHT,
    .params_bytes = sizeof(params_t),
    .infer = linear_cross_entropy_infer,
    .forward = linear_cross_entropy_forward,
    .backward = linear_cross_entropy_backward,
    .grad = linear_cross_entropy_grad,
};

static tutti_status_t check_options(const tutti_linear_cross_entropy_options_t *o,
                                    const tutti_tensor_t *targets)
{
    const double smoothing = o->loss.label_smoothing;
    if (!(smoothing >= 0 && smoothing <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "linear_cross_entropy: label_smoothing must be in [0, 1], not %g",
                       smoothing);
    }
    if (o->loss.has_ignore_index && tutti_tensor_status(targets) >= 0 &&
        tt_head_is_probabilities(targets)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "linear_cross_entropy: ignore_index is of classes, not of probabilities");
    }
    return o->chunk >= 0 ? TUTTI_OK
                         : TT_FAIL(TUTTI_ERR_ARG,
                                   "linear_cross_entropy: a chunk of %lld rows: want at least 1, "
                                   "or 0",
                                   (long long)o->chunk);
}

tutti_tensor_t *tutti_linear_cross_entropy(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *weight, tutti_tensor_t *targets,
                                           const tutti_linear_cross_entropy_options_t *options)
{
    const tutti_linear_cross_entropy_options_t o =
        options == NULL ? (tutti_linear_cross_entropy_options_t){.chunk = 0} : *options;
    const tutti_status_t status = check_options(&o, targets);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const params_t params = {
        .reduction = o.loss.reduction,
        .label_smoothing = o.loss.label_smoothing,
        .ignore_index = o.loss.has_ignore_index ? o.loss.ignore_index : -100,
        .chunk = o.chunk,
        .autocast = s->ctx->autocast,
    };
    tutti_tensor_t *inputs[INPUTS] = {x, weight, o.bias, targets, o.loss.weight};
    return tutti_op_run(s, &tt_op_linear_cross_entropy, inputs, INPUTS, &params);
}
