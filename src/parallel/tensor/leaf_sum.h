/* A sum over the T shards of tensor parallelism, with the same bits on any number of ranks.
 *
 * Each rank makes the summands of its leaves one after another and adds them up as far as the
 * canonical tree allows; what is left, at most log2 T + 1 pieces, goes into one call. Of many rows
 * it does so with one chunk after another, so that a chunk travels while the next is made.
 *
 *     tt_leaf_sum_t sum = {.tp = tp, .s = s, .dtype = TUTTI_F32, .make = make, .user = &mine,
 *                          .rows = {.whole = shape}};
 *     TT_TRY(tt_leaf_sum_start(&sum, out));         // out: all of it, on every rank
 *     …                                             // while it travels
 *     TT_TRY(tt_leaf_sum_wait(&sum));               // also after a failed start
 */
#ifndef TT_LEAF_SUM_H
#define TT_LEAF_SUM_H

#include <tutti/collectives.h>
#include <tutti/context.h>

#include "core/tensor/tensor_impl.h"
#include "parallel/tensor/tp_sequence.h"
#include "parallel/tensor/tp_shards.h"

/* What is on its way. */
typedef struct {
    tutti_tensor_t *pieces[TUTTI_CONTRIBUTION_PIECES_MAX];
    int piece_count;
    tutti_work_t *work;
} tt_leaf_chunk_t;

typedef struct {
    const tt_tp_t *tp;
    tutti_scope_t *s;
    tutti_dtype_t dtype; /* of the summands: f32 or f64 */
    int64_t numel;       /* of a summand; of rows it is theirs */

    /* Rows of the sequence. Without is_packed every rank gets the whole sum; with it, its own part
     * of the sequence. chunks: 0, as many as pay. A shape of rank 0: none, numel is what counts. */
    tt_tp_rows_t rows;

    /* Write the summand of a leaf, [numel], or its rows of a chunk; what other leaves leave in it
     * may be anything. */
    tutti_status_t (*make)(void *user, int leaf, const tt_tp_rows_t *rows, tutti_tensor_t *into);
    void *user;

    /* Of the sum itself: */
    tt_leaf_chunk_t chunks[TT_TP_CHUNKS_MAX];
    tutti_tensor_t *spare;
    tutti_idle_t idle;
    bool is_idle_added;
} tt_leaf_sum_t;

/* out: contiguous, of the summands' dtype, or of 16 bits where that is f32 (rounded once). After a
 * failure the sum is over, and the group given up. */
tutti_status_t tt_leaf_sum_start(tt_leaf_sum_t *sum, tutti_tensor_t *out);

/* Until out has its values. Called once, whatever tt_leaf_sum_start() said. */
tutti_status_t tt_leaf_sum_wait(tt_leaf_sum_t *sum);

/* Both. */
tutti_status_t tt_leaf_sum(tt_leaf_sum_t *sum, tutti_tensor_t *out);

/* All T leaves are made here, and nothing is sent: for what every rank has. */
tutti_status_t tt_leaf_sum_here(tt_leaf_sum_t *sum, tutti_tensor_t *out);

#endif
