/* Bringing operands into one dtype and order. A copy is one pass; most operands need none. */
#include "compute/op/linear/dense.h"

#include "core/kernel/elementwise/map.h"

tutti_status_t tt_dense_copy(tutti_scope_t *s, const tt_strided_t *x, tutti_shape_t shape,
                             tutti_dtype_t dtype, tutti_tensor_t **out)
{
    tutti_tensor_t *copy;
    TT_TRY(tt_tensor_new(s->ctx->place.device, dtype, shape, false, &copy));
    const tt_strided_t to = tt_tensor_strided(copy);
    const tutti_status_t status =
        tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &to, x);
    if (status < 0) {
        tutti_tensor_release(copy);
        return status;
    }
    *out = copy;
    return TUTTI_OK;
}

static tutti_status_t copy_as(tutti_scope_t *s, const tutti_tensor_t *x, tutti_dtype_t dtype,
                              tutti_tensor_t **out)
{
    const tt_strided_t from = tt_tensor_strided(x);
    return tt_dense_copy(s, &from, x->shape, dtype, out);
}

tutti_status_t tt_dense(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype,
                        tutti_tensor_t **out)
{
    if (x == NULL || (x->dtype == dtype && tutti_tensor_is_contiguous(x))) {
        *out = x == NULL ? NULL : tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    return copy_as(s, x, dtype, out);
}

tutti_status_t tt_dense_rows(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype,
                             tutti_tensor_t **out)
{
    if (x->dtype == dtype && tt_row_stride(x) >= 0) {
        *out = tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    return copy_as(s, x, dtype, out);
}

int64_t tt_row_stride(const tutti_tensor_t *x)
{
    const int last = x->shape.rank - 1;
    const int64_t n = last < 0 ? 1 : x->shape.dims[last];
    if (last >= 0 && n > 1 && x->strides[last] != 1) {
        return -1;
    }
    int64_t stride = -1, expected = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (x->shape.dims[i] == 1) {
            continue;
        }
        if (stride < 0) {
            stride = expected = x->strides[i];
        } else if (x->strides[i] != expected) {
            return -1;
        }
        expected *= x->shape.dims[i];
    }
    return stride < 0 ? n : stride >= n ? stride : -1;
}

int64_t tt_row_count(tutti_shape_t shape)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape.rank; i++) {
        rows *= shape.dims[i];
    }
    return rows;
}

tutti_status_t tt_product_dtype(const tutti_op_call_t *call, tutti_dtype_t *out)
{
    tutti_dtype_t dtype = call->inputs[0]->dtype;
    for (int i = 0; i < call->input_count; i++) {
        if (call->inputs[i] == NULL) {
            continue;
        }
        if (!tutti_dtype_is_float(call->inputs[i]->dtype)) {
            return tutti_op_fail(
                call, TUTTI_ERR_DTYPE,
                "input %d must be of a floating dtype, which tutti_cast() gives it", i);
        }
        dtype = tutti_op_promote(dtype, call->inputs[i]->dtype);
    }
    const tutti_dtype_t low = call->scope->ctx->autocast;
    *out = low != TUTTI_F32 && dtype != TUTTI_F64 ? low : dtype;
    return TUTTI_OK;
}

tutti_tensor_t *tt_scratch(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x = NULL;
    const tutti_status_t status = tt_tensor_new(s->ctx->place.device, dtype, shape, false, &x);
    x = tt_scope_adopt(s, status, x);
    return x->status < 0 ? NULL : x;
}

tutti_dtype_t tt_grad_dtype(const tutti_op_backward_t *call, int input)
{
    const tutti_dtype_t dtype = call->outputs[0].dtype;
    return dtype != TUTTI_F64 && call->inputs[input].dtype == TUTTI_F32 ? TUTTI_F32 : dtype;
}

tutti_status_t tt_new_grad(tutti_op_backward_t *call, int input, tutti_tensor_t **out)
{
    *out = tt_scratch(call->scope, tt_grad_dtype(call, input), call->inputs[input].shape);
    call->grads[input] = *out;
    return *out == NULL ? tutti_scope_status(call->scope) : TUTTI_OK;
}

tutti_status_t tt_forward_in_parts(tutti_op_call_t *call, tt_compute_fn_t compute, size_t count)
{
    tutti_tensor_t *parts[6] = {NULL};
    TT_ASSERT(count <= sizeof parts / sizeof *parts);
    const tutti_status_t status = compute(call, parts);
    tt_tensors_release(parts, count);
    return status;
}
