/* A call of an operation (include/tutti/op.h), with what only the library sees of it. */
#ifndef TT_OP_CALL_H
#define TT_OP_CALL_H

#include <tutti/autograd.h>

#include "compute/autograd/saved.h"
#include "core/base/fail.h"

/* There may be any number of each; up to so many need no memory from the heap. */
enum { TT_OP_INPUTS_FEW = 16, TT_OP_OUTPUTS_FEW = 4, TT_OP_SAVED_FEW = 8 };

typedef struct {
    tutti_op_call_t seen;
    tutti_tensor_t *const *given; /* the inputs before autocast */
    tutti_tensor_t **made;        /* [output_count] the outputs */
    tutti_spec_t *specs;          /* [output_count] what `infer` says */
    bool *is_constant;            /* [output_count] they have no gradient; NULL: they have */
    tt_saved_t *saved;            /* [saved_count], with room for saved_capacity */
    bool is_recorded;             /* gradients are enabled */
    int saved_count, saved_capacity;
    tt_saved_t *saved_heap; /* the same, where it is from the heap */
} tt_op_call_t;

/* A call of backward or `grad`. */
typedef struct {
    tutti_op_backward_t seen;
    const tt_saved_t *items; /* [saved_count] of the node; their tensors are seen.saved */
    int saved_count;
    const tt_node_t *node;
} tt_op_backward_t;

/* Where the operations of the library put an output that they make. */
static inline tutti_tensor_t **tt_op_output(tutti_op_call_t *call, int i)
{
    return &((tt_op_call_t *)call)->made[i];
}

static inline tt_op_call_t *tt_op_call_of(tutti_op_call_t *call)
{
    return (tt_op_call_t *)call;
}

#endif
