/* layer_norm, rms_norm: one forward and one backward for both, which differ in the kernel that is
 * called and in that rms_norm has no mean and no bias.
 *
 * Statistics and parameter gradients are f32 (f64 for f64). Under autocast y has the autocast
 * dtype, for the matrix product that follows; x, f32 or not, is kept as it is.
 * Cost: one pass in cache per row; keeps x, mean, rstd. Source: op_nn.h. */
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/linear/dense.h"
#include "compute/op/norm/norm_parts.h"
#include "compute/op/ops.h"
#include "core/base/default.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/norm/rows.h"

enum { X = TT_NORM_X, WEIGHT = TT_NORM_WEIGHT, BIAS = TT_NORM_BIAS, INPUTS = TT_NORM_INPUTS };
enum { SAVED_X, SAVED_WEIGHT, SAVED_MEAN, SAVED_RSTD };

typedef tt_norm_params_t norm_params_t;

/* How x falls apart into rows. */
static tt_rows_t rows_of(const norm_params_t *params, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tt_rows_t out = {dtype, 1, 1};
    for (int i = 0; i < shape.rank; i++) {
        *(i < shape.rank - params->row_rank ? &out.rows : &out.n) *= (size_t)shape.dims[i];
    }
    return out;
}

static tutti_status_t check_parameter(const tutti_op_call_t *call, int input)
{
    const norm_params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[X], *p = call->inputs[input];
    if (p == NULL) {
        return TUTTI_OK;
    }
    if (!tutti_dtype_is_float(p->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "weight and bias must be of a floating dtype");
    }
    bool fits = p->shape.rank == params->row_rank;
    for (int i = 0; fits && i < params->row_rank; i++) {
        fits = p->shape.dims[i] == x->shape.dims[x->shape.rank - params->row_rank + i];
    }
    return fits ? TUTTI_OK
                : tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                "weight and bias must have the shape of x's last dimensions");
}

tutti_status_t tt_norm_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const norm_params_t *params = call->params;
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    if (outputs->shape.rank < 1) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x needs at least one dimension");
    }
    if (params->row_rank < 1 || params->row_rank > outputs->shape.rank) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "x has no rows of %d dimensions",
                             params->row_rank);
    }
    if (!(params->eps >= 0)) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "eps must be at least 0, not %g", params->eps);
    }
    TT_TRY(check_parameter(call, WEIGHT));
    TT_TRY(check_parameter(call, BIAS));
    const tutti_dtype_t low = call->scope->ctx->autocast;
    if (low != TUTTI_F32 && outputs->dtype != TUTTI_F64) {
        outputs->dtype = low;
    }
    return TUTTI_OK;
}

/* What forward makes on its way: tensors alone. */
typedef struct {
    tutti_tensor_t *x, *weight, *bias, *y, *mean, *rstd;
} norm_parts_t;

static tutti_status_t make_parts(tutti_op_call_t *call, tt_rows_t shape, bool has_mean,
                                 norm_parts_t *p)
{
    const tutti_dtype_t accum = tt_accum_dtype(shape.dtype);
    const tutti_shape_t rows = TUTTI_SHAPE((int64_t)shape.rows);
    TT_TRY(tt_dense(call->scope, call->inputs[X], shape.dtype, &p->x));
    TT_TRY(tt_dense(call->scope, call->inputs[WEIGHT], accum, &p->weight));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], accum, &p->bias));
    if (call->outputs[0]->dtype == shape.dtype) {
        p->y = tutti_tensor_retain(call->outputs[0]);
    } else {
        TT_TRY(
            tt_tensor_new(call->scope->ctx->place.device, shape.dtype, p->x->shape, false, &p->y));
    }
    if (call->needs_grad && has_mean) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, accum, rows, false, &p->mean));
    }
    return call->needs_grad
               ? tt_tensor_new(call->scope->ctx->place.device, accum, rows, false, &p->rstd)
               : TUTTI_OK;
}

static tutti_status_t compute(tutti_op_call_t *call, bool is_layer_norm, norm_parts_t *p)
{
    const norm_params_t *params = call->params;
    const tt_rows_t shape = rows_of(params, call->inputs[X]->dtype, call->inputs[X]->shape);
    TT_TRY(make_parts(call, shape, is_layer_norm, p));
    const tt_norm_t norm = {.shape = shape,
                            .eps = params->eps,
                            .x = tt_data_of(p->x),
                            .gamma = tt_data_of(p->weight),
                            .beta = tt_data_of(p->bias),
                            .y = tt_data_of(p->y),
                            .mean = tt_data_of(p->mean),
                            .rstd = tt_data_of(p->rstd)};
    TT_TRY((is_layer_norm ? tt_layer_norm : tt_rms_norm)(tt_scope_exec(call->scope), &norm));
    if (p->y->dtype != call->outputs[0]->dtype) {
        TT_TRY(tutti_tensor_copy(call->outputs[0], p->y));
    }
    TT_TRY(tutti_op_save_copy(call, p->x, X));
    TT_TRY(tutti_op_save_copy(call, p->weight, WEIGHT));
    TT_TRY(tutti_op_save(call, p->mean));
    return tutti_op_save(call, p->rstd);
}

tutti_status_t tt_norm_forward(tutti_op_call_t *call, bool is_layer_norm)
{
    norm_parts_t parts = {0};
    const tutti_status_t status = compute(call, is_layer_norm, &parts);
    tt_tensors_release((tutti_tensor_t **)&parts, sizeof parts / sizeof(tutti_tensor_t *));
    return status;
}

static tutti_status_t new_grads(tutti_op_backward_t *call, tutti_dtype_t accum)
{
    tutti_scope_t *s = call->scope;
    const tutti_tensor_t *x = call->saved[SAVED_X];
    const int inputs = call->input_count;
    for (int i = 0; i < inputs; i++) {
        if (call->wanted[i]) {
            call->grads[i] = i == X ? tt_scratch(s, x->dtype, x->shape)
                                    : tt_scratch(s, accum, call->inputs[i].shape);
        }
    }
    return tutti_scope_status(s);
}

tt_norm_t tt_norm_of(const tutti_op_backward_t *call, const tutti_tensor_t *dy)
{
    const norm_params_t *params = call->params;
    const tutti_tensor_t *x = call->saved[SAVED_X];
    return (tt_norm_t){.shape = rows_of(params, x->dtype, x->shape),
                       .eps = params->eps,
                       .x = tt_data_of(x),
                       .gamma = tt_data_of(call->saved[SAVED_WEIGHT]),
                       .mean = tt_data_of(call->saved[SAVED_MEAN]),
                       .rstd = tt_data_of(call->saved[SAVED_RSTD]),
                       .dy = tt_data_of(dy)};
}

static tutti_status_t run_backward(tutti_op_backward_t *call, bool is_layer_norm)
{
    const tutti_tensor_t *x = call->saved[SAVED_X];
    tutti_tensor_t *dy;
    TT_TRY(new_grads(call, tt_accum_dtype(x->dtype)));
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], x->dtype, &dy));
    tt_norm_t norm = tt_norm_of(call, dy);
    norm.dx = tt_data_of(call->grads[X]);
    norm.dgamma = tt_data_of(call->grads[WEIGHT]);
    norm.dbeta = is_layer_norm ? tt_data_of(call->grads[BIAS]) : NULL;
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tutti_status_t status =
        is_layer_norm ? tt_layer_norm_backward(exec, &norm) : tt_rms_norm_backward(exec, &norm);
    tutti_tensor_release(dy);
    return status;
}

static tutti_status_t layer_norm_forward(tutti_op_call_t *call)
{
    return tt_norm_forward(call, true);
}

static tutti_status_t layer_norm_backward(tutti_op_backward_t *call)
{
    return run_backward(call, true);
}

static tutti_status_t rms_norm_forward(tutti_op_call_t *call)
{
    return tt_norm_forward(call, false);
}

static tutti_status_t rms_norm_backward(tutti_op_backward_t *call)
{
    return run_backward(call, false);
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

/* The dimensions that make a row. */
static tutti_dims_t row_dims(const norm_params_t *params)
{
    tutti_dims_t dims = {.count = params->row_rank};
    for (int i = 0; i < dims.count; i++) {
        dims.dims[i] = -1 - i;
    }
    return dims;
}

/* y but for the bias; x is centered where that is to be done. */
static tutti_tensor_t *scale_rows(const tutti_op_backward_t *call, tutti_tensor_t *x,
                                  tutti_tensor_t *weight)
{
    const norm_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *square = tutti_mean_over(s, tutti_square(s, x), row_dims(params), true);
    x = tutti_mul(s, x, tutti_rsqrt(s, tutti_add_scalar(s, square, params->eps)));
    return weight == NULL ? x : tutti_mul(s, x, weight);
}

static tutti_tensor_t *compose_layer_norm(const tutti_op_backward_t *call,
                                          tutti_tensor_t *const *inputs)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tt_wide(s, inputs[X]);
    x = tutti_sub(s, x, tutti_mean_over(s, x, row_dims(call->params), true));
    return scale_rows(call, x, inputs[WEIGHT]);
}

static tutti_tensor_t *compose_rms_norm(const tutti_op_backward_t *call,
                                        tutti_tensor_t *const *inputs)
{
    return scale_rows(call, tt_wide(call->scope, inputs[X]), inputs[WEIGHT]);
}

static tutti_status_t layer_norm_grad(tutti_op_backward_t *call)
{
    if (call->wanted[BIAS]) {
        tutti_tensor_t *dy = tt_wide(call->scope, call->grad_outputs[0]);
        call->grads[BIAS] = tutti_sum_to(call->scope, dy, call->inputs[BIAS].shape);
    }
    return tt_grad_composed(call, compose_layer_norm);
}

static tutti_status_t rms_norm_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_rms_norm);
}

const tutti_op_t tt_op_layer_norm = {
    .name = "layer_norm",
    .optional_inputs = 1 << WEIGHT | 1 << BIAS,
    .about = "x̂ = (x - mean) / σ, y = x̂ w + b; dx = (g - mean(g) - x̂ mean(g x̂)) / σ, g = dy w",
    .params_bytes = sizeof(norm_params_t),
    .infer = tt_norm_infer,
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
    .grad = layer_norm_grad,
};

const tutti_op_t tt_op_rms_norm = {
    .name = "rms_norm",
    .optional_inputs = 1 << WEIGHT | 1 << BIAS,
    .about = "r = 1/√(mean(x²) + eps), y = x r w; dx = r (g - x r² mean(g x)), g = dy w",
    .params_bytes = sizeof(norm_params_t),
    .infer = tt_norm_infer,
    .forward = rms_norm_forward,
    .backward = rms_norm_backward,
    .grad = rms_norm_grad,
};

static int row_rank(const tutti_tensor_t *weight, const tutti_tensor_t *bias)
{
    const tutti_tensor_t *p = weight != NULL ? weight : bias;
    return p == NULL || p->shape.rank == 0 ? 1 : p->shape.rank;
}

tt_norm_params_t tt_layer_norm_params(const tutti_tensor_t *weight, const tutti_tensor_t *bias,
                                      double eps)
{
    return (norm_params_t){tt_or_default(eps, 1e-5), row_rank(weight, bias)};
}

tt_norm_params_t tt_rms_norm_params(const tutti_tensor_t *weight, double eps)
{
    return (norm_params_t){tt_or_default(eps, 1.1920929e-7), row_rank(weight, NULL)};
}

static void choose_rows(norm_params_t *params, const tutti_row_norm_options_t *options)
{
    if (options != NULL && options->row_dims != 0) {
        params->row_rank = options->row_dims;
    }
}

tutti_tensor_t *tutti_layer_norm_with(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                      tutti_tensor_t *bias, const tutti_row_norm_options_t *options)
{
    norm_params_t params = tt_layer_norm_params(weight, bias, options == NULL ? 0 : options->eps);
    choose_rows(&params, options);
    return tutti_op_run(s, &tt_op_layer_norm, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}

tutti_tensor_t *tutti_rms_norm_with(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                    const tutti_row_norm_options_t *options)
{
    norm_params_t params = tt_rms_norm_params(weight, options == NULL ? 0 : options->eps);
    choose_rows(&params, options);
    return tutti_op_run(s, &tt_op_rms_norm, (tutti_tensor_t *[]){x, weight, NULL}, INPUTS, &params);
}

tutti_tensor_t *tutti_layer_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                 tutti_tensor_t *bias, double eps)
{
    return tutti_layer_norm_with(s, x, weight, bias, &(tutti_row_norm_options_t){.eps = eps});
}

tutti_tensor_t *tutti_rms_norm(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                               double eps)
{
    return tutti_rms_norm_with(s, x, weight, &(tutti_row_norm_options_t){.eps = eps});
}
