/* The pass over chunks of rows that makes losses of a linear layer, and their gradients
 * (linear_cross_entropy_op.c says how). */
#ifndef TT_HEAD_PASS_H
#define TT_HEAD_PASS_H

#include <tutti/op_loss.h>

#include "compute/autograd/op_call.h"
#include "core/kernel/norm/rows.h"

typedef struct {
    tutti_loss_reduction_t reduction;
    double label_smoothing;
    int64_t ignore_index;
    int64_t chunk;
    tutti_dtype_t autocast; /* that of the call, also when backward makes the pass again */
} tt_head_params_t;

/* The inputs of the operation, as kernels want them; then what a pass needs beside them. */
enum {
    TT_HEAD_X,
    TT_HEAD_WEIGHT,
    TT_HEAD_BIAS,
    TT_HEAD_TARGETS,
    TT_HEAD_CLASS_WEIGHT,
    TT_HEAD_INPUTS,
    TT_HEAD_LOGITS = TT_HEAD_INPUTS,
    TT_HEAD_DLOGITS,
    TT_HEAD_MAX_SUM,
    TT_HEAD_PROBS,
    TT_HEAD_PART,
    TT_HEAD_LOSSES, /* [rows · places], to be given */
    TT_HEAD_MEAN,   /* [3], as of tt_cross_entropy_weight(); of a mean */
    TT_HEAD_TENSORS
};

typedef struct {
    tutti_scope_t *s;
    const tt_head_params_t *params;
    tutti_dtype_t dtype, wide; /* of the products; of logits, losses and gradients */
    int64_t rows, in, places, classes, chunk;
    tutti_tensor_t *at[TT_HEAD_TENSORS];   /* owned */
    tutti_tensor_t *grads[TT_HEAD_INPUTS]; /* wide; NULL: not wanted */
    const tutti_tensor_t *scale;           /* for each loss, wide; NULL: 1, or the mean's */
} tt_head_pass_t;

/* What the products are computed in. */
tutti_dtype_t tt_head_dtype(const tt_head_params_t *params, tutti_tensor_t *const *inputs);

static inline bool tt_head_is_probabilities(const tutti_tensor_t *targets)
{
    return tutti_dtype_is_float(targets->dtype);
}

/* A pass over checked inputs, without tensors; and its operands. at[] is to be released. */
tt_head_pass_t tt_head_pass(tutti_scope_t *s, const tt_head_params_t *params,
                            tutti_tensor_t *const *inputs);
tutti_status_t tt_head_take(tt_head_pass_t *p, tutti_tensor_t *const *inputs);

/* Element `at` of a contiguous tensor; NULL: it is missing. */
static inline void *tt_head_element(const tutti_tensor_t *x, int64_t at)
{
    return x == NULL ? NULL : (char *)tt_tensor_data(x) + (size_t)at * tutti_dtype_bytes(x->dtype);
}

/* A new tensor in the pass's place `at`. */
tutti_status_t tt_head_new(tt_head_pass_t *p, int at, tutti_dtype_t dtype, tutti_shape_t shape);

/* The kernel's view of some rows, without probabilities. */
tt_cross_entropy_t tt_head_describe(const tt_head_pass_t *p, int64_t first, int64_t rows);

/* All losses, and what grads[] want. */
tutti_status_t tt_head_run(tt_head_pass_t *p);

#endif
