/* prelu, glu: activations of two operands. prelu's weight is broadcast over the channels; glu's
 * operands are the halves of one tensor, read where they lie. */
#include <tutti/op_activation.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/view.h"

/* ---- prelu: x, and a weight that is broadcast to it ------------------------------------------ */

static tutti_status_t prelu_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *x = call->inputs[0], *weight = call->inputs[1];
    if (!tutti_dtype_is_float(x->dtype) || !tutti_dtype_is_float(weight->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "both inputs must be of a floating dtype");
    }
    TT_TRY(tutti_op_infer_broadcast(call, outputs));
    if (!tutti_shape_equal(outputs->shape, x->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "the weight is larger than the input");
    }
    outputs->dtype = x->dtype;
    return TUTTI_OK;
}

static tutti_status_t prelu_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const tt_strided_t out = tt_tensor_strided(y), x = tt_tensor_strided(call->inputs[0]),
                       weight = tt_tensor_strided_as(call->inputs[1], y->shape);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_PRELU, (tt_map_params_t){0}, &out,
                         &x, &weight));
    TT_TRY(tutti_op_save(call, call->inputs[0]));
    return tutti_op_save(call, call->inputs[1]);
}

static tutti_status_t prelu_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = call->grad_outputs[0], *x = call->saved[0], *weight = call->saved[1];
    tt_map_to_t to = {call->inputs[0].dtype, call->inputs[0].shape, {0, 0}};
    if (call->wanted[0]) {
        call->grads[0] =
            tt_new_ternary(s, TT_TERNARY_PRELU_BACKWARD, to, (tutti_tensor_t *[]){g, x, weight});
    }
    if (call->wanted[1]) {
        to.dtype = tt_sum_dtype(to.dtype);
        tutti_tensor_t *each = tt_new_binary(s, TT_BINARY_PRELU_BACKWARD_WEIGHT, to, g, x);
        call->grads[1] = tutti_sum_to(s, each, call->inputs[1].shape);
    }
    return tutti_scope_status(s);
}

static tutti_status_t prelu_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *g = tt_wide(s, call->grad_outputs[0]), *x = tt_wide(s, call->saved[0]),
                   *weight = tt_wide(s, call->saved[1]);
    tutti_tensor_t *is_above = tutti_gt_scalar(s, x, 0);
    if (call->wanted[0]) {
        call->grads[0] = tutti_where(s, is_above, g, tutti_mul(s, g, weight));
    }
    if (call->wanted[1]) {
        tutti_tensor_t *each = tutti_masked_fill(s, tutti_mul(s, g, x), is_above, 0);
        call->grads[1] = tutti_sum_to(s, each, call->inputs[1].shape);
    }
    return tutti_scope_status(s);
}

const tutti_op_t tt_op_prelu = {
    .name = "prelu",
    .about = "y = x, below 0 w x; dx = dy, below 0 w dy, and dw = Σ dy x below 0",
    .infer = prelu_infer,
    .forward = prelu_forward,
    .backward = prelu_backward,
    .grad = prelu_grad,
};

/* A weight of each channel stands beside dimension 1. */
tutti_tensor_t *tutti_prelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight)
{
    const int64_t count = tutti_tensor_numel(weight);
    const int rank = tutti_tensor_rank(x);
    if (tutti_tensor_status(x) >= 0 && tutti_tensor_status(weight) >= 0) {
        if (tutti_tensor_rank(weight) > 1 ||
            (count != 1 && (rank < 2 || tutti_tensor_dim(x, 1) != count))) {
            return tutti_scope_fail(
                s, TT_FAIL(TUTTI_ERR_SHAPE,
                           "prelu: want one weight, or one for each of the %lld channels in "
                           "dimension 1, not %lld",
                           (long long)(rank < 2 ? 1 : tutti_tensor_dim(x, 1)), (long long)count));
        }
        tutti_shape_t shape = {.rank = rank};
        for (int i = 0; i < rank; i++) {
            shape.dims[i] = i == 1 ? count : 1;
        }
        weight = tutti_reshape(s, weight, rank < 2 ? tutti_tensor_shape(weight) : shape);
        weight = rank == 0 ? tutti_reshape(s, weight, TUTTI_SCALAR) : weight;
    }
    return tutti_op_run(s, &tt_op_prelu, (tutti_tensor_t *[]){x, weight}, 2, NULL);
}

/* ---- glu ------------------------------------------------------------------------------------- */

static tutti_status_t glu_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    int dim;
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, outputs->shape.rank, &dim));
    if (outputs->shape.dims[dim] % 2 != 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "dimension %d has no halves", dim);
    }
    outputs->shape.dims[dim] /= 2;
    return TUTTI_OK;
}

/* The first or the second half. */
static tt_strided_t half_of(const tutti_tensor_t *x, int dim, int which)
{
    tt_strided_t half = tt_tensor_strided(x);
    half.shape[dim] /= 2;
    if (which == 1) {
        half.data = (char *)half.data +
                    half.shape[dim] * half.strides[dim] * (int64_t)tutti_dtype_bytes(half.dtype);
    }
    return half;
}

static tutti_status_t glu_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *x = call->inputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, x->shape.rank);
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]), a = half_of(x, dim, 0),
                       b = half_of(x, dim, 1);
    TT_TRY(tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_GLU, (tt_map_params_t){0}, &out, &a,
                         &b));
    return tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t glu_backward(tutti_op_backward_t *call)
{
    const tutti_tensor_t *x = call->saved[0];
    const int dim = tt_dim_index(*(const int *)call->params, x->shape.rank);
    tutti_tensor_t *dx = tutti_empty(call->scope, x->dtype, x->shape);
    TT_TRY(dx->status);
    tt_exec_t *exec = tt_scope_exec(call->scope);
    const tt_strided_t g = tt_tensor_strided(call->grad_outputs[0]), a = half_of(x, dim, 0),
                       b = half_of(x, dim, 1), da = half_of(dx, dim, 0), db = half_of(dx, dim, 1);
    call->grads[0] = dx;
    TT_TRY(tt_map_binary(exec, TT_BINARY_GLU, (tt_map_params_t){0}, &da, &g, &b));
    return tt_map_ternary(exec, TT_TERNARY_GLU_BACKWARD_GATE, (tt_map_params_t){0}, &db, &g, &a,
                          &b);
}

static tutti_status_t glu_grad(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    const int dim = *(const int *)call->params;
    tutti_tensor_t *g = tt_wide(s, call->grad_outputs[0]), *half[2];
    tutti_split(s, tt_wide(s, call->saved[0]), dim, 2, half);
    tutti_tensor_t *gate = tutti_sigmoid(s, half[1]);
    tutti_tensor_t *slope = tutti_mul(s, gate, tutti_scalar_sub(s, 1, gate));
    tutti_tensor_t *parts[2] = {tutti_mul(s, g, gate),
                                tutti_mul(s, tutti_mul(s, g, half[0]), slope)};
    call->grads[0] = tutti_cat(s, parts, 2, dim);
    return tutti_scope_status(s);
}

const tutti_op_t tt_op_glu = {
    .name = "glu",
    .about = "y = a σ(b) of halves a and b; da = dy σ(b), db = dy a σ(b) (1 - σ(b))",
    .params_bytes = sizeof(int),
    .infer = glu_infer,
    .forward = glu_forward,
    .backward = glu_backward,
    .grad = glu_grad,
};

tutti_tensor_t *tutti_glu(tutti_scope_t *s, tutti_tensor_t *x, int dim)
{
    return tutti_op_run(s, &tt_op_glu, &x, 1, &dim);
}
