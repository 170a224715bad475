/* Operands as the kernels of this folder want them: of one dtype, with rows that lie in order.
 * What fits already is shared, not copied. The tensors given out are owned by the caller. */
#ifndef TT_DENSE_H
#define TT_DENSE_H

#include "compute/autograd/op_call.h"

/* x contiguous and of a dtype: x itself, retained, or a copy without history. NULL gives NULL. */
tutti_status_t tt_dense(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype,
                        tutti_tensor_t **out);

/* The same, but rows (the last dimension) may be any one distance apart: see tt_row_stride(). */
tutti_status_t tt_dense_rows(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype,
                             tutti_tensor_t **out);

/* A contiguous copy of a view whose sizes are those of a shape. */
tutti_status_t tt_dense_copy(tutti_scope_t *s, const tt_strided_t *x, tutti_shape_t shape,
                             tutti_dtype_t dtype, tutti_tensor_t **out);

/* Elements from one row to the next where x is seen as a matrix of all its rows; -1 if there is
 * no such number. */
int64_t tt_row_stride(const tutti_tensor_t *x);

/* Number of rows: the product of all sizes but the last. */
int64_t tt_row_count(tutti_shape_t shape);

/* What matrix products are computed in: the promoted dtype of the inputs, or autocast's. DTYPE
 * unless all are floating. */
tutti_status_t tt_product_dtype(const tutti_op_call_t *call, tutti_dtype_t *out);

/* For kernels: NULL for a tensor that is missing. */
static inline void *tt_data_of(const tutti_tensor_t *x)
{
    return x == NULL ? NULL : tt_tensor_data(x);
}

/* The dtype of an input's gradient: f32 where the input was f32 before autocast, so that it is not
 * rounded on the way; and memory for it, which call->grads has, too. */
tutti_dtype_t tt_grad_dtype(const tutti_op_backward_t *call, int input);
tutti_status_t tt_new_grad(tutti_op_backward_t *call, int input, tutti_tensor_t **out);

/* A forward that makes `count` tensors on its way, 6 at most: `compute` finds them NULL, and what
 * it leaves is released. */
typedef tutti_status_t (*tt_compute_fn_t)(tutti_op_call_t *call, tutti_tensor_t **parts);
tutti_status_t tt_forward_in_parts(tutti_op_call_t *call, tt_compute_fn_t compute, size_t count);

/* A new tensor in a scope, without history; NULL after a failure, which the scope then keeps. */
tutti_tensor_t *tt_scratch(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape);

#endif
