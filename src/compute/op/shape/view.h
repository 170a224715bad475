/* What operations share that only look at their input in another way. */
#ifndef TT_VIEW_H
#define TT_VIEW_H

#include "compute/autograd/op_call.h"

/* A dimension counted from either end, as an index below rank; ARG says which there are. */
tutti_status_t tt_op_dim(const tutti_op_call_t *call, int dim, int rank, int *out);

/* Output i becomes a view of input 0. */
tutti_status_t tt_op_view(tutti_op_call_t *call, int i, tutti_shape_t shape, const int64_t *strides,
                          int64_t offset);

/* The result without dimension `dim`, or with one of this size inserted before it. */
tutti_shape_t tt_shape_without(tutti_shape_t shape, int dim);
tutti_shape_t tt_shape_with(tutti_shape_t shape, int dim, int64_t size);

/* The gradient of tutti_gather_along() as an operation: zeros of a shape, to which g is added at
 * the chosen places. */
tutti_tensor_t *tt_add_along(tutti_scope_t *s, tutti_tensor_t *g, tutti_shape_t x, int dim,
                             tutti_tensor_t *index);

#endif
