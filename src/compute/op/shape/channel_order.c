/* Channels first where segments are short: one strided copy each way. */
#include "compute/op/shape/channel_order.h"

#include "compute/op/linear/dense.h"
#include "core/kernel/elementwise/map.h"

enum { SHORT = 16 }; /* elements of a segment, a vector's worth */

tt_channel_order_t tt_channel_order(tutti_shape_t shape)
{
    tt_channel_order_t order = {(size_t)shape.dims[0], (size_t)shape.dims[1], 1, false};
    for (int i = 2; i < shape.rank; i++) {
        order.n *= (size_t)shape.dims[i];
    }
    if (order.n < SHORT && order.batch > 1) {
        order.n *= order.batch;
        order.batch = 1;
        order.is_moved = true;
    }
    return order;
}

tutti_shape_t tt_channel_shape(tutti_shape_t x)
{
    tutti_shape_t shape = {.rank = x.rank - 1, .dims = {x.dims[1]}};
    for (int i = 1; i < shape.rank; i++) {
        shape.dims[i] = 1;
    }
    return shape;
}

/* The same memory with its first two dimensions exchanged. */
static tt_strided_t exchanged(const tutti_tensor_t *x)
{
    tt_strided_t view = tt_tensor_strided(x);
    const int64_t size = view.shape[0], stride = view.strides[0];
    view.shape[0] = view.shape[1];
    view.strides[0] = view.strides[1];
    view.shape[1] = size;
    view.strides[1] = stride;
    return view;
}

static tutti_shape_t exchanged_shape(const tutti_tensor_t *x)
{
    tutti_shape_t shape = x->shape;
    shape.dims[0] = x->shape.dims[1];
    shape.dims[1] = x->shape.dims[0];
    return shape;
}

tutti_status_t tt_channels_check(const tutti_op_call_t *call, int input, const char *names)
{
    const tutti_tensor_t *x = call->inputs[0], *p = call->inputs[input];
    if (p != NULL && !tutti_dtype_is_float(p->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "%s must be of a floating dtype", names);
    }
    if (p != NULL && (p->shape.rank != 1 || p->shape.dims[0] != x->shape.dims[1])) {
        return tutti_op_fail(
            call, TUTTI_ERR_SHAPE,
            "%s must be [C], one number for each of the %lld channels of x [N, C, ...]", names,
            (long long)x->shape.dims[1]);
    }
    return TUTTI_OK;
}

tutti_status_t tt_channels_bring(tutti_scope_t *s, tutti_tensor_t *x, tt_channel_order_t order,
                                 tutti_dtype_t dtype, tutti_tensor_t **out)
{
    if (!order.is_moved) {
        return tt_dense(s, x, dtype, out);
    }
    const tt_strided_t from = exchanged(x);
    return tt_dense_copy(s, &from, exchanged_shape(x), dtype, out);
}

tutti_status_t tt_channels_lend(tutti_scope_t *s, tutti_tensor_t *y, tt_channel_order_t order,
                                tutti_tensor_t **out)
{
    if (!order.is_moved) {
        *out = tutti_tensor_retain(y);
        return TUTTI_OK;
    }
    return tt_tensor_new(s->ctx->place.device, y->dtype, exchanged_shape(y), false, out);
}

tutti_status_t tt_channels_return(tutti_scope_t *s, tutti_tensor_t *y, const tutti_tensor_t *lent)
{
    if (lent != y) {
        const tt_strided_t to = exchanged(y), from = tt_tensor_strided(lent);
        return tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
    }
    return TUTTI_OK;
}
