/* A sum over the T shards of tensor parallelism, with the same bits on any number of ranks.
 *
 * Each rank makes the summands of its leaves one after another and adds them up as far as the
 * canonical tree allows; what is left, at most log2 T + 1 pieces, goes into one call.
 *
 *     tt_leaf_sum_t sum = {.tp = tp, .s = s, .dtype = TUTTI_F32, .make = make, .user = &mine};
 *     TT_TRY(tt_leaf_sum_start(&sum, out, NULL));   // out: all of it, on every rank
 *     …                                             // while it travels
 *     TT_TRY(tt_leaf_sum_wait(&sum));               // also after a failed start
 */
#ifndef TT_LEAF_SUM_H
#define TT_LEAF_SUM_H

#include <tutti/collectives.h>
#include <tutti/context.h>

#include "core/tensor/tensor_impl.h"
#include "parallel/tensor/tp_shards.h"

typedef struct {
    const tt_tp_t *tp;
    tutti_scope_t *s;
    tutti_dtype_t dtype; /* of the summands: f32 or f64 */
    int64_t numel;       /* of a summand */

    /* Write the summand of a leaf, [numel]; what other leaves leave in it may be anything. */
    tutti_status_t (*make)(void *user, int leaf, tutti_tensor_t *into);
    void *user;

    /* Of the sum itself: */
    tutti_tensor_t *pieces[TUTTI_CONTRIBUTION_PIECES_MAX], *spare;
    int piece_count;
    tutti_work_t *work;
    tutti_idle_t idle;
    bool is_idle_added;
} tt_leaf_sum_t;

/* out: contiguous, of the summands' dtype, or of 16 bits where that is f32 (rounded once). parts:
 * NULL, and it is the whole sum; or [ranks] elements of each rank, and it is this rank's row of
 * these. After a failure the sum is over, and the group given up. */
tutti_status_t tt_leaf_sum_start(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts);

/* Until out has its values. Called once, whatever tt_leaf_sum_start() said. */
tutti_status_t tt_leaf_sum_wait(tt_leaf_sum_t *sum);

/* Both. */
tutti_status_t tt_leaf_sum(tt_leaf_sum_t *sum, tutti_tensor_t *out, const int64_t *parts);

/* All T leaves are made here, and nothing is sent: for what every rank has. */
tutti_status_t tt_leaf_sum_here(tt_leaf_sum_t *sum, tutti_tensor_t *out);

#endif
