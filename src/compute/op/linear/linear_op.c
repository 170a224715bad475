/* linear, linear_gelu: y = gelu?(x · Wᵀ + b).
 *
 *     x[rows, in] as it lies, if its rows are evenly spaced    dx = dz · W      [rows, in]
 *     W[out, in]                                               dW = dzᵀ · x     [out, in]
 *     b[out]                                                   db = Σ rows dz   [out]
 *
 * Under autocast x, W and b are rounded to the 16-bit dtype, once per call, and those copies are
 * what backward keeps; dx, dW and db of f32 inputs come straight from f32 sums.
 * Cost: one product forward, two backward. Source: textbook. */
#include <tutti/op_math.h>

#include "compute/autograd/adjoint.h"
#include "compute/autograd/cast.h"
#include "compute/autograd/history.h"
#include "compute/op/linear/dense.h"
#include "compute/op/linear/linear_parts.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/matmul/matmul.h"
#include "core/kernel/reduce/reduce.h"

enum { X = TT_LINEAR_X, WEIGHT = TT_LINEAR_WEIGHT, BIAS = TT_LINEAR_BIAS, INPUTS };

typedef tt_linear_params_t linear_params_t;

static tutti_status_t check_shapes(const tutti_op_call_t *call)
{
    const tutti_shape_t x = call->inputs[X]->shape, w = call->inputs[WEIGHT]->shape;
    const tutti_tensor_t *bias = call->inputs[BIAS];
    if (w.rank != 2) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "weight must be [out, in]");
    }
    if (x.rank < 1 || x.dims[x.rank - 1] != w.dims[1]) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the last size of x must be weight's in, %lld",
                             (long long)w.dims[1]);
    }
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dims[0] != w.dims[0])) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "bias must be [out], [%lld]",
                             (long long)w.dims[0]);
    }
    return TUTTI_OK;
}

tutti_status_t tt_linear_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(check_shapes(call));
    TT_TRY(tt_product_dtype(call, &outputs->dtype));
    outputs->shape = call->inputs[X]->shape;
    outputs->shape.dims[outputs->shape.rank - 1] = call->inputs[WEIGHT]->shape.dims[0];
    return TUTTI_OK;
}

tutti_status_t tt_linear_multiply(const tutti_op_call_t *call, tutti_tensor_t *const *in,
                                  tutti_tensor_t *pre)
{
    const linear_params_t *params = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){
                         .batch = 1,
                         .m = tt_row_count(y->shape),
                         .n = in[WEIGHT]->shape.dims[0],
                         .k = in[WEIGHT]->shape.dims[1],
                         .dtype = y->dtype,
                         .out_dtype = y->dtype,
                         .a = {.data = tt_tensor_data(in[X]), .ld = tt_row_stride(in[X])},
                         .b = {.data = tt_tensor_data(in[WEIGHT]),
                               .ld = tt_row_stride(in[WEIGHT]),
                               .transposed = true},
                         .c = tt_tensor_data(y),
                         .bias = tt_data_of(in[BIAS]),
                         .bias_dtype = y->dtype,
                         .epilogue = params->epilogue,
                         .pre = tt_data_of(pre),
                     });
}

static tutti_status_t compute(tutti_op_call_t *call, tutti_tensor_t **in, tutti_tensor_t **pre)
{
    const linear_params_t *params = call->params;
    const tutti_tensor_t *y = call->outputs[0];
    TT_TRY(tt_dense_rows(call->scope, call->inputs[X], y->dtype, &in[X]));
    TT_TRY(tt_dense_rows(call->scope, call->inputs[WEIGHT], y->dtype, &in[WEIGHT]));
    TT_TRY(tt_dense(call->scope, call->inputs[BIAS], y->dtype, &in[BIAS]));
    if (call->needs_grad && params->epilogue != TT_EPILOGUE_NONE) {
        TT_TRY(tt_tensor_new(call->scope->ctx->place.device, y->dtype, y->shape, false, pre));
    }
    TT_TRY(tt_linear_multiply(call, in, *pre));
    TT_TRY(tutti_op_save_copy(call, tutti_op_needs_grad(call, WEIGHT) ? in[X] : NULL, X));
    TT_TRY(tutti_op_save_copy(call, tutti_op_needs_grad(call, X) ? in[WEIGHT] : NULL, WEIGHT));
    return tutti_op_save(call, *pre);
}

static tutti_status_t linear_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *in[INPUTS] = {NULL}, *pre = NULL;
    const tutti_status_t status = compute(call, in, &pre);
    tt_tensors_release(in, INPUTS);
    tutti_tensor_release(pre);
    return status;
}

/* ---- backward: dz [rows, out] is contiguous and of the dtype of y ---------------------------- */

tutti_status_t tt_linear_push_x(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    const tutti_tensor_t *w = call->saved[WEIGHT];
    tutti_tensor_t *dx;
    TT_TRY(tt_new_grad(call, X, &dx));
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){
                         .batch = 1,
                         .m = tt_row_count(dx->shape),
                         .n = w->shape.dims[1],
                         .k = w->shape.dims[0],
                         .dtype = dz->dtype,
                         .out_dtype = dx->dtype,
                         .a = {.data = tt_tensor_data(dz)},
                         .b = {.data = tt_tensor_data(w), .ld = tt_row_stride(w)},
                         .c = tt_tensor_data(dx),
                     });
}

tutti_status_t tt_linear_push_weight(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    const tutti_tensor_t *x = call->saved[X];
    tutti_tensor_t *dw;
    TT_TRY(tt_new_grad(call, WEIGHT, &dw));
    return tt_matmul(tt_scope_exec(call->scope),
                     &(tt_matmul_t){
                         .batch = 1,
                         .m = dw->shape.dims[0],
                         .n = dw->shape.dims[1],
                         .k = tt_row_count(x->shape),
                         .dtype = dz->dtype,
                         .out_dtype = dw->dtype,
                         .a = {.data = tt_tensor_data(dz), .transposed = true},
                         .b = {.data = tt_tensor_data(x), .ld = tt_row_stride(x)},
                         .c = tt_tensor_data(dw),
                     });
}

tutti_status_t tt_linear_push_bias(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    tutti_tensor_t *db;
    TT_TRY(tt_new_grad(call, BIAS, &db));
    const int64_t n = db->shape.dims[0];
    const tt_strided_t in =
        tt_strided_rows(tt_tensor_data(dz), dz->dtype, tt_row_count(dz->shape), n);
    const tt_strided_t out = tt_strided_rows(tt_tensor_data(db), db->dtype, 1, n);
    return tt_reduce(tt_scope_exec(call->scope), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in,
                     1u);
}

/* dz = dy · gelu'(pre); dy itself without gelu. */
tutti_status_t tt_linear_dz(tutti_op_backward_t *call, tutti_tensor_t **out)
{
    const linear_params_t *params = call->params;
    tutti_tensor_t *dy = call->grad_outputs[0], *pre = call->saved[2];
    if (params->epilogue == TT_EPILOGUE_NONE) {
        return tt_dense(call->scope, dy, call->outputs[0].dtype, out);
    }
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, pre->dtype, pre->shape, false, out));
    const tt_strided_t to = tt_tensor_strided(*out), a = tt_tensor_strided(dy),
                       b = tt_tensor_strided(pre);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope),
                         params->epilogue == TT_EPILOGUE_GELU_ERF ? TT_BINARY_GELU_BACKWARD
                                                                  : TT_BINARY_GELU_TANH_BACKWARD,
                         (tt_map_params_t){0}, &to, &a, &b));
    return TUTTI_OK;
}

static tutti_status_t push(tutti_op_backward_t *call, const tutti_tensor_t *dz)
{
    if (call->wanted[BIAS]) {
        TT_TRY(tt_linear_push_bias(call, dz));
    }
    if (call->wanted[WEIGHT]) {
        TT_TRY(tt_linear_push_weight(call, dz));
    }
    return call->wanted[X] ? tt_linear_push_x(call, dz) : TUTTI_OK;
}

static tutti_status_t linear_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dz = NULL;
    tutti_status_t status = tt_linear_dz(call, &dz);
    if (status >= 0) {
        status = push(call, dz);
    }
    tutti_tensor_release(dz);
    return status;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

static tutti_status_t linear_grad(tutti_op_backward_t *call)
{
    for (int i = X; i <= WEIGHT; i++) {
        call->grads[i] = call->wanted[i] ? tt_adjoint(call, i) : NULL;
    }
    if (call->wanted[BIAS]) {
        tutti_tensor_t *dy = tt_cast(call->scope, call->grad_outputs[0], tt_grad_dtype(call, BIAS));
        call->grads[BIAS] = tutti_sum_to(call->scope, dy, call->inputs[BIAS].shape);
    }
    return TUTTI_OK;
}

/* As linear, whose result is what gelu was given. */
static tutti_status_t linear_gelu_grad(tutti_op_backward_t *call)
{
    const linear_params_t *params = call->params, plain = {TT_EPILOGUE_NONE};
    const bool is_erf = params->epilogue == TT_EPILOGUE_GELU_ERF;
    tutti_tensor_t *pre = tt_history_of_result(call, 2, &tt_op_linear, &plain);
    tutti_tensor_t *dz = tt_gelu_grad(call->scope, call->grad_outputs[0], pre,
                                      is_erf ? TUTTI_GELU_ERF : TUTTI_GELU_TANH);
    TT_TRY(tutti_scope_status(call->scope));
    dz = tt_cast(call->scope, dz, pre->dtype);
    tt_op_backward_t linear = *(const tt_op_backward_t *)call;
    linear.seen.op = &tt_op_linear;
    linear.seen.params = &plain;
    linear.seen.grad_outputs = &dz;
    linear.saved_count = 2;
    return linear_grad(&linear.seen);
}

const tutti_op_t tt_op_linear = {
    .name = "linear",
    .optional_inputs = 1 << BIAS,
    .about = "y = x Wᵀ + b; dx = dy W, dW = dyᵀ x, db = Σ dy",
    .params_bytes = sizeof(linear_params_t),
    .infer = tt_linear_infer,
    .forward = linear_forward,
    .backward = linear_backward,
    .grad = linear_grad,
};

const tutti_op_t tt_op_linear_gelu = {
    .name = "linear_gelu",
    .optional_inputs = 1 << BIAS,
    .about = "y = gelu(z), z = x Wᵀ + b; dz = dy gelu'(z), then as linear",
    .params_bytes = sizeof(linear_params_t),
    .infer = tt_linear_infer,
    .forward = linear_forward,
    .backward = linear_backward,
    .grad = linear_gelu_grad,
};

tutti_tensor_t *tutti_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                             tutti_tensor_t *bias)
{
    const linear_params_t params = {TT_EPILOGUE_NONE};
    return tutti_op_run(s, &tt_op_linear, (tutti_tensor_t *[]){x, weight, bias}, INPUTS, &params);
}

tutti_tensor_t *tutti_linear_gelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                  tutti_tensor_t *bias, tutti_gelu_t formula)
{
    if (formula != TUTTI_GELU_ERF && formula != TUTTI_GELU_TANH) {
        return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                           "linear_gelu: the formula is TUTTI_GELU_ERF or "
                                           "TUTTI_GELU_TANH, not %d",
                                           (int)formula));
    }
    const linear_params_t params = {formula == TUTTI_GELU_ERF ? TT_EPILOGUE_GELU_ERF
                                                              : TT_EPILOGUE_GELU_TANH};
    return tutti_op_run(s, &tt_op_linear_gelu, (tutti_tensor_t *[]){x, weight, bias}, INPUTS,
                        &params);
}
