/* What reductions share. */
#ifndef TT_REDUCE_OP_H
#define TT_REDUCE_OP_H

#include "compute/autograd/op_call.h"

/* A shape with the dims of a mask reduced to size 1. */
tutti_shape_t tt_shape_reduced(tutti_shape_t shape, unsigned dims);

/* The same without those dims. */
tutti_shape_t tt_shape_dropped(tutti_shape_t shape, unsigned dims);

/* A contiguous tensor of as many elements as `shape`, as a kernel sees it in that shape. */
tt_strided_t tt_strided_reduced(const tutti_tensor_t *x, tutti_shape_t shape);

#endif
