/**
 * @file leaves.h
 * Reductions of more contributions than there are ranks, with the same bits for any number of
 * ranks.
 *
 * Example:
 *
 *     const int shards = 12, size = tutti_group_size(world); // 12 shards, on any number of ranks
 *     tutti_leaf_span_t spans[TUTTI_LEAF_PIECES_MAX];
 *     const int count =
 *         tutti_leaf_pieces(shards, shards * rank / size, shards * (rank + 1) / size, spans);
 *     tutti_tensor_t *pieces[TUTTI_LEAF_PIECES_MAX]; // the sum of the shards in spans[i]
 *     for (int i = 0; i < count; i++) {
 *         pieces[i] = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8));
 *     }
 *     TUTTI_CHECK(tutti_all_reduce_leaves(
 *         world, &(tutti_leaves_t){.count = shards, .pieces = pieces, .piece_count = count}, x,
 *         TUTTI_SUM, NULL));
 */
#ifndef TUTTI_LEAVES_H
#define TUTTI_LEAVES_H

#include <tutti/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * V contributions ("leaves") spread over the ranks, summed in the canonical order whatever the
 * spread. Rank r hosts leaves [first[r], first[r + 1]) and passes its pieces: the largest nodes of
 * the canonical tree inside that interval, each already summed, in order (tutti_leaf_pieces).
 */
typedef struct tutti_leaves {
    int count;                     /**< V, over all ranks; at least 1 */
    const int *first;              /**< [size + 1], equal on all ranks; NULL: floor(V r / size) */
    tutti_tensor_t *const *pieces; /**< [piece_count], all of one dtype, contiguous */
    int piece_count;               /**< may be 0 for a rank without leaves */
    tutti_dtype_t dtype;           /**< of the pieces, the same on every rank */
} tutti_leaves_t;

/** A node of the canonical tree: leaves [begin, end). */
typedef struct tutti_leaf_span {
    int begin, end;
} tutti_leaf_span_t;

enum { TUTTI_LEAF_PIECES_MAX = 62 };

/**
 * The pieces of leaves [begin, end) of `leaves`, in order.
 *
 * @param pieces  out, room for TUTTI_LEAF_PIECES_MAX; NULL only counts
 * @return        how many
 * @thread        any
 * @errors        none
 */
TUTTI_API int tutti_leaf_pieces(int leaves, int begin, int end, tutti_leaf_span_t *pieces);

/**
 * all_reduce of V leaves: x becomes their sum (or average, …), the same bits for any spread.
 *
 * @param leaves  borrowed until it returns; the pieces may share memory with each other
 * @param x       [any shape] out; may be a piece of its dtype, else it overlaps none. The pieces
 *                have as many elements, and x's dtype, or f32 when x is bf16 or f16 (then rounded
 *                once)
 * @thread        one at a time per group; returns at once if there is a work
 * @cost          as all_reduce, with every piece read once
 * @errors        as above; ARG for pieces that are not the interval's, or overlap x otherwise
 */
TUTTI_API tutti_status_t tutti_all_reduce_leaves(tutti_group_t *group, const tutti_leaves_t *leaves,
                                                 tutti_tensor_t *x, tutti_reduction_t op,
                                                 tutti_work_t **work);

/** reduce_scatter of V leaves: each piece has size × n elements, of which the output may be this
 *  rank's part. @thread one at a time per group
 *  @errors as all_reduce_leaves */
TUTTI_API tutti_status_t tutti_reduce_scatter_leaves(tutti_group_t *group,
                                                     const tutti_leaves_t *leaves,
                                                     tutti_tensor_t *output, tutti_reduction_t op,
                                                     tutti_work_t **work);

#ifdef __cplusplus
}
#endif

#endif
