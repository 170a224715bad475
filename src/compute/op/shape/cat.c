/* Tensors put together: cat and stack.
 *
 * Each input is copied into its part of the result; backward gives each input the view of its
 * part of the gradient.
 */
#include <tutti/op_shape.h>

#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/view.h"

/* Whether two shapes are equal but for dimension `dim`. */
static bool is_alike(tutti_shape_t a, tutti_shape_t b, int dim)
{
    if (a.rank != b.rank) {
        return false;
    }
    a.dims[dim] = b.dims[dim];
    return tutti_shape_equal(a, b);
}

static tutti_status_t cat_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    int dim;
    TT_TRY(tutti_op_infer_same(call, outputs));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, outputs->shape.rank, &dim));
    for (int i = 1; i < call->input_count; i++) {
        const tutti_tensor_t *x = call->inputs[i];
        if (!is_alike(x->shape, outputs->shape, dim)) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                 "sizes must be equal but for dimension %d, which input %d breaks",
                                 dim, i);
        }
        if (__builtin_add_overflow(outputs->shape.dims[dim], x->shape.dims[dim],
                                   &outputs->shape.dims[dim])) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE, "too many elements along dimension %d",
                                 dim);
        }
        outputs->dtype = tutti_op_promote(outputs->dtype, x->dtype);
    }
    return tt_shape_check(outputs->dtype, outputs->shape);
}

/* The part of y from index `start` of a dimension on, of a shape, as a kernel sees it. */
static tt_strided_t part_of(const tutti_tensor_t *y, int dim, int64_t start, int64_t length)
{
    tt_strided_t part = tt_tensor_strided(y);
    part.data =
        (char *)part.data + start * part.strides[dim] * (int64_t)tutti_dtype_bytes(y->dtype);
    part.shape[dim] = length;
    return part;
}

static tutti_status_t cat_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, y->shape.rank);
    int64_t start = 0;
    for (int i = 0; i < call->input_count; i++) {
        const tt_strided_t x = tt_tensor_strided(call->inputs[i]);
        const tt_strided_t out = part_of(y, dim, start, x.shape[dim]);
        TT_TRY(tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out,
                            &x));
        start += x.shape[dim];
    }
    return TUTTI_OK;
}

static tutti_status_t cat_backward(tutti_op_backward_t *call)
{
    const int dim = tt_dim_index(*(const int *)call->params, call->inputs[0].shape.rank);
    int64_t start = 0;
    for (int i = 0; i < call->input_count; i++) {
        const int64_t size = call->inputs[i].shape.dims[dim];
        if (call->wanted[i]) {
            call->grads[i] = tutti_narrow(call->scope, call->grad_outputs[0], dim, start, size);
        }
        start += size;
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_cat = {
    .name = "cat",
    .about = "tensors one behind the other; each gradient is a slice of dy",
    .params_bytes = sizeof(int),
    .infer = cat_infer,
    .forward = cat_forward,
    .backward = cat_backward,
    .grad = cat_backward,
};

static tutti_status_t stack_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    int dim;
    TT_TRY(tutti_op_infer_same(call, outputs));
    TT_TRY(tt_op_dim(call, *(const int *)call->params, outputs->shape.rank + 1, &dim));
    if (outputs->shape.rank == TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "a tensor has at most %d dimensions",
                             TUTTI_RANK_MAX);
    }
    for (int i = 1; i < call->input_count; i++) {
        if (!tutti_shape_equal(call->inputs[i]->shape, outputs->shape)) {
            return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                 "shapes must be equal; input %d breaks this", i);
        }
        outputs->dtype = tutti_op_promote(outputs->dtype, call->inputs[i]->dtype);
    }
    outputs->shape = tt_shape_with(outputs->shape, dim, call->input_count);
    return tt_shape_check(outputs->dtype, outputs->shape);
}

static tutti_status_t stack_forward(tutti_op_call_t *call)
{
    const tutti_tensor_t *y = call->outputs[0];
    const int dim = tt_dim_index(*(const int *)call->params, y->shape.rank);
    for (int i = 0; i < call->input_count && y->numel > 0; i++) {
        const tt_strided_t out = part_of(y, dim, i, 1);
        tt_strided_t x = out;
        x.data = tt_tensor_data(call->inputs[i]);
        x.dtype = call->inputs[i]->dtype;
        for (int k = 0; k < x.rank; k++) {
            x.strides[k] = k == dim ? 0 : call->inputs[i]->strides[k < dim ? k : k - 1];
        }
        TT_TRY(tt_map_unary(tt_scope_exec(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &out,
                            &x));
    }
    return TUTTI_OK;
}

static tutti_status_t stack_backward(tutti_op_backward_t *call)
{
    const int dim = tt_dim_index(*(const int *)call->params, call->outputs[0].shape.rank);
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i]) {
            call->grads[i] = tutti_select(call->scope, call->grad_outputs[0], dim, i);
        }
    }
    return TUTTI_OK;
}

const tutti_op_t tt_op_stack = {
    .name = "stack",
    .about = "tensors along a new dimension; each gradient is its part of dy",
    .params_bytes = sizeof(int),
    .infer = stack_infer,
    .forward = stack_forward,
    .backward = stack_backward,
    .grad = stack_backward,
};

static tutti_tensor_t *nothing_given(tutti_scope_t *s, const char *op)
{
    return tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG, "%s: no tensors given", op));
}

tutti_tensor_t *tutti_cat(tutti_scope_t *s, tutti_tensor_t *const *tensors, int count, int dim)
{
    return count <= 0 ? nothing_given(s, "cat") : tutti_op_run(s, &tt_op_cat, tensors, count, &dim);
}

tutti_tensor_t *tutti_stack(tutti_scope_t *s, tutti_tensor_t *const *tensors, int count, int dim)
{
    return count <= 0 ? nothing_given(s, "stack")
                      : tutti_op_run(s, &tt_op_stack, tensors, count, &dim);
}
