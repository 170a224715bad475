/* Spreads: tensors that are parts of a whole which several ranks have, cut along a dimension.
 *
 *     whole             [6, 4]   rows 0 1 2 | 3 4 5: two parts, each cut in three
 *     this rank's       [2, 4]   rows 1 and 4: two runs, one behind the other
 *
 * Who cuts a tensor hangs a spread on it. Checkpoints, clipping and digests find it there.
 */
#ifndef TT_SPREAD_H
#define TT_SPREAD_H

#include <tutti/tensor.h>

#include "core/base/fail.h"
#include "core/base/ref.h"

enum { TT_SPREAD_RUNS_MAX = 8 };

/* Indices [first, first + count) of a dimension. */
typedef struct {
    int64_t first, count;
} tt_spread_run_t;

typedef struct tt_spread tt_spread_t;

/* Who cuts tensors; `ranks` says which of them are asked together. All ranks make the same calls in
 * the same order. */
typedef struct {
    void (*free)(tt_spread_t *spread); /* when nobody has it any more */

    /* This rank's leaf `leaf`, as runs of its part: returns how many. */
    int (*leaf_runs)(const tt_spread_t *spread, int leaf, tt_spread_run_t *runs);

    /* How this rank has fared; the same failure on all ranks, whoever has it. */
    tutti_status_t (*agree)(tt_spread_t *spread, tutti_status_t status);

    /* What the first of the ranks gives, into `first`, for each to compare its own with. */
    tutti_status_t (*hear_first)(tt_spread_t *spread, const void *mine, size_t bytes, void *first);

    /* Numbers of all ranks, each of which is 0 on all ranks but one. */
    tutti_status_t (*sum)(tt_spread_t *spread, double *numbers, size_t count);

    /* This rank cannot go on: no other one waits for it from now on. */
    void (*give_up)(tt_spread_t *spread);
} tt_spread_ops_t;

struct tt_spread {
    tt_ref_t ref;
    const tt_spread_ops_t *ops;
    const void *ranks;
    tutti_shape_t whole;
    int dim;
    int leaves, leaf_begin, leaf_end; /* all there are, on any number of ranks; this rank's */
    int run_count;
    tt_spread_run_t runs[TT_SPREAD_RUNS_MAX]; /* of this rank, in the whole */
};

/* A tensor is spread so (NULL: no more); the spread is shared. */
void tt_tensor_set_spread(tutti_tensor_t *x, tt_spread_t *spread);

void tt_spread_release(tt_spread_t *spread);

#endif
