/* Slices: tensors whose elements are dealt out to several ranks, of which each steps its own
 * (decision 0028).
 *
 *     parameter        [4, 6]          as everybody computes with it, and knows it by name
 *       slice->values  [8], part 9     elements 9 to 16 of it, row-major: this rank's
 *       slice->grad    [8], part 9     their gradient
 *       moments        [8], part 9
 *
 * Who deals them out, the slicer, hangs a slice on each of its tensors, and takes it away before it
 * goes. Optimizers, clipping and checkpoints find it there, and ask the slicer for what they must
 * know of other ranks' slices; they know nothing of groups.
 */
#ifndef TT_SLICE_H
#define TT_SLICE_H

#include <tutti/tensor.h>

#include "core/base/fail.h"

/* A tensor is a row of elements of another one, from `first` on. */
typedef struct tt_tensor_part {
    tutti_shape_t whole;
    int64_t first;
} tt_tensor_part_t;

/* All ranks make the same calls in the same order. */
typedef struct tt_slicer tt_slicer_t;
struct tt_slicer {
    /* How this rank has fared; the same failure on all ranks, whoever has it. */
    tutti_status_t (*agree)(tt_slicer_t *slicer, tutti_status_t status);

    /* Numbers of all ranks, each of which is 0 on all ranks but one. */
    tutti_status_t (*sum)(tt_slicer_t *slicer, double *numbers, size_t count);

    /* Slices will be written on all ranks: returns when no rank reads the tensors, until stepped,
     * which is called also where this has failed.
     * Errors: those after which ranks cannot go on together. */
    tutti_status_t (*begin)(tt_slicer_t *slicer);

    /* Slices have been written; how that went on this rank. As agree. */
    tutti_status_t (*stepped)(tt_slicer_t *slicer, tutti_status_t status);

    bool deals_wholes; /* a tensor is one rank's as a whole */

    /* Who deals out further what is whole on this rank, to ranks that have the same of it: asked
     * first in each call. NULL: nobody. */
    tt_slicer_t *inner;
};

/* Of a tensor, on this rank; may be empty. */
typedef struct tt_tensor_slice tt_tensor_slice_t;
struct tt_tensor_slice {
    tt_slicer_t *slicer;      /* the outermost, so that all tensors have one on all ranks */
    tutti_tensor_t *values;   /* a part of the tensor, of its dtype */
    tutti_tensor_t *grad;     /* the same part; NULL: none came */
    tt_tensor_slice_t *outer; /* that hung there before, of the whole; NULL: none */
};

/* Hang a slice on x: within the one that hangs there, which has all of x. And take it away.
 * Errors: STATE (who deals out x has another inner one already). */
tutti_status_t tt_slice_hang(tutti_tensor_t *x, tt_tensor_slice_t *slice, tt_slicer_t *slicer);
void tt_slice_take(tutti_tensor_t *x, tt_tensor_slice_t *slice);

/* Whether another rank has all of x, and steps it. */
bool tt_slice_is_elsewhere(const tutti_tensor_t *x);

/* x is elements of a tensor of that shape, from `first` on. Errors: NOMEM. */
tutti_status_t tt_tensor_set_part(tutti_tensor_t *x, tutti_shape_t whole, int64_t first);

#endif
