/* The gradient of broadcasting: sums over the dimensions that were added or repeated. */
#include "compute/autograd/op_call.h"
#include "core/kernel/reduce/reduce.h"

/* Which of the gradient's dimensions were repeated to get there from `shape`. */
static unsigned repeated_dims(tutti_shape_t wide, tutti_shape_t shape)
{
    const int added = wide.rank - shape.rank;
    unsigned dims = 0;
    for (int i = 0; i < wide.rank; i++) {
        if (i < added || (shape.dims[i - added] == 1 && wide.dims[i] != 1)) {
            dims |= 1u << i;
        }
    }
    return dims;
}

tutti_tensor_t *tutti_sum_to(tutti_scope_t *s, tutti_tensor_t *grad, tutti_shape_t shape)
{
    if (grad->status < 0 || tutti_shape_equal(grad->shape, shape)) {
        return grad;
    }
    tutti_tensor_t *sum = tutti_empty(s, grad->dtype, shape);
    if (sum->status < 0) {
        return sum;
    }
    const tt_strided_t x = tt_tensor_strided(grad);
    tt_strided_t out = {.data = tutti_tensor_data(sum), .dtype = sum->dtype, .rank = x.rank};
    const int added = x.rank - shape.rank; /* the new leading ones keep their stride of 0 */
    for (int i = 0; i < x.rank; i++) {
        out.shape[i] = i < added ? 1 : shape.dims[i - added];
        out.strides[i] = i < added ? 0 : sum->strides[i - added];
    }
    tt_reduce(tt_scope_pool(s), TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &x,
              repeated_dims(grad->shape, shape));
    return sum;
}
