/* Casting, the one operation that the engine itself needs (autocast, gradients of mixed types). */
#ifndef TT_CAST_H
#define TT_CAST_H

#include "compute/autograd/op_call.h"

/* x in another dtype; x itself if it has it already. The gradient is cast back. */
tutti_tensor_t *tt_cast(tutti_scope_t *s, tutti_tensor_t *x, tutti_dtype_t dtype);

extern const tutti_op_t tt_op_cast;

#endif
