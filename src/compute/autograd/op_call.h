/* A call of an operation (include/tutti/op.h), with what only the library sees of it. */
#ifndef TT_OP_CALL_H
#define TT_OP_CALL_H

#include <tutti/autograd.h>
#include <tutti/op.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

enum { TT_OP_OUTPUTS_MAX = 4, TT_OP_SAVED_MAX = 8 };

/* An operation may have any number of inputs; up to so many need no memory from the heap. */
enum { TT_OP_INPUTS_FEW = 16 };

typedef struct {
    tutti_op_call_t seen;
    int saved_count;
    tutti_tensor_t *saved[TT_OP_SAVED_MAX];
    bool is_leaf_saved[TT_OP_SAVED_MAX];
} tt_op_call_t;

static inline tt_op_call_t *tt_op_call_of(tutti_op_call_t *call)
{
    return (tt_op_call_t *)call;
}

#endif
