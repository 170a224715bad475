/* Casting, the one operation that the engine itself needs (autocast, gradients of mixed types). */
#ifndef TT_CAST_H
#define TT_CAST_H

#include "compute/autograd/op_call.h"

/* x in another dtype; x itself if it has it already. The gradient is cast back. */
tutti_tensor_t *tt_cast(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype);

/* A gradient in the dtype that it is delivered in. One of f16 may overflow: no anomaly. */
tutti_tensor_t *tt_cast_grad(tutti_scope_t *s, tutti_tensor_t *grad, tutti_dtype_t dtype);

extern const tutti_op_t tt_op_cast;

#endif
