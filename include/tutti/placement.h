/**
 * @file placement.h
 * What the ranks of a group have of one tensor, and calls that change it, with gradients.
 *
 * Example:
 *
 *     // each rank has some rows; all are to have all of them
 *     const tutti_redistribution_t gather = {.from = tutti_shard(0), .to = tutti_replicate()};
 *     tutti_tensor_t *all = tutti_redistribute(s, x, world, &gather);
 *     // each rank has a summand of a product; all are to have the sum
 *     const tutti_redistribution_t add = {.from = tutti_partial(TUTTI_SUM),
 *                                         .to = tutti_replicate()};
 *     y = tutti_redistribute(s, y, world, &add);
 *
 * On the ranks of a group, such as tutti_mesh_group(mesh, "tp"), a tensor is
 *
 *     replicate    the same on every rank
 *     shard(d)     cut along dimension d; rank r has the rth part
 *     partial(op)  every rank has a tensor of the whole shape, and what is meant is their sum (op)
 *
 * and so is its gradient. Redistributing says both: from where to where the value goes, and how
 * the gradient of the result will lie. The gradient of x lies as x does, and is replicated where
 * x is partial.
 *
 *     from -> to             value            its gradient, when that of the result is
 *                                             as the result    partial
 *     shard(d) -> replicate  all_gather       slice            reduce_scatter
 *     partial -> replicate   all_reduce       identity         all_reduce
 *     partial -> shard(d)    reduce_scatter   all_gather
 *     shard(a) -> shard(b)   all_to_all       all_to_all
 *     replicate -> shard(d)  slice            all_gather
 *     replicate, the same    identity         identity         all_reduce
 *     replicate -> partial   zeros but on     identity         all_reduce
 *                            rank 0
 *     shard(d) -> partial    zeros around it  slice            reduce_scatter
 *
 * Megatron's f is replicate to replicate with a partial gradient, its g partial to replicate. A
 * gradient is partial where each rank computes on with other parts of something else, so that each
 * has a summand of it.
 *
 * What is partial becomes no other partial: that is no row. Parts may be uneven: they are those of
 * torch.chunk. Sums are canonical: the same bits on every rank, and over any wire.
 *
 * All ranks make these calls in the same order, forward and backward. One that fails in the call,
 * or is given a failed tensor, gives the group up, so that no other one waits for it; one that
 * fails elsewhere calls tutti_group_abort(), or ends.
 */
#ifndef TUTTI_PLACEMENT_H
#define TUTTI_PLACEMENT_H

#include <stdint.h>

#include <tutti/collectives.h>
#include <tutti/group.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tutti_placement_kind {
    TUTTI_PLACEMENT_REPLICATE, /**< the same on every rank */
    TUTTI_PLACEMENT_SHARD,     /**< cut along a dimension */
    TUTTI_PLACEMENT_PARTIAL    /**< to be reduced */
} tutti_placement_kind_t;

/** What the ranks have of a tensor. Zeros are replicate. */
typedef struct tutti_placement {
    tutti_placement_kind_t kind;
    int dim;              /**< of shard: counted from the end if negative */
    int64_t size;         /**< of shard: that of the whole dimension; 0: all parts are equal */
    int leaves;           /**< of shard: the dimension is cut into so many parts, as torch.chunk
                               does, of which rank r has floor(leaves r / ranks) and those behind
                               it, up to those of rank r + 1; 0: a part for each rank */
    tutti_reduction_t op; /**< of partial */
} tutti_placement_t;

/** The same on every rank. @thread any @errors none @source torch.distributed.tensor.Replicate */
TUTTI_API tutti_placement_t tutti_replicate(void);

/** Equal parts along a dimension. @thread any @errors none
 *  @source torch.distributed.tensor.Shard */
TUTTI_API tutti_placement_t tutti_shard(int dim);

/** Parts as torch.chunk's along a dimension whose size is `size` as a whole. @thread any
 *  @errors none */
TUTTI_API tutti_placement_t tutti_shard_of(int dim, int64_t size);

/** To be reduced: TUTTI_SUM, TUTTI_AVG, …. @thread any @errors none
 *  @source torch.distributed.tensor.Partial */
TUTTI_API tutti_placement_t tutti_partial(tutti_reduction_t op);

/**
 * The part of a dimension that a rank has.
 *
 * @param size   that of the whole dimension
 * @param rank   in [0, ranks)
 * @param begin  out: its first index
 * @param count  out: how many it has, which may be 0
 * @thread       any
 * @errors       ARG
 * @source       torch.chunk
 */
TUTTI_API tutti_status_t tutti_placement_part(const tutti_placement_t *shard, int64_t size,
                                              int ranks, int rank, int64_t *begin, int64_t *count);

/** "shard(1)", "partial(sum)" or "replicate", at most `bytes` of it. @return bytes of the whole
 *  text @thread any @errors none */
TUTTI_API size_t tutti_placement_describe(const tutti_placement_t *placement, char *text,
                                          size_t bytes);

/** How a tensor lies, how it shall lie, and how the gradient of the result will lie. */
typedef struct tutti_redistribution {
    tutti_placement_t from;
    tutti_placement_t to;
    tutti_placement_t grad; /**< replicate or partial(sum), unless `to` is shard, when it is that */
} tutti_redistribution_t;

/**
 * Place a tensor differently on the ranks of a group.
 *
 * Of any dtype that the calls take; only sums and averages have gradients. A shard whose size is
 * not given must be the same on every rank. Where nothing has to change, the result is a view of x.
 *
 * @param x   this rank's part; all of it where it is replicated or partial
 * @param how copied
 * @return    in scope s; the null tensor after a failure
 * @thread    the scope's, and the group's; waits, as the calls do
 * @cost      the calls in the table above; a copy more on each side of those for parts that do not
 *            lie side by side in memory (d not the first dimension of more than one)
 * @errors    through the scope: ARG (a dimension, a pair that is not in the table), SHAPE (a part
 *            that is not this rank's), DTYPE, UNSUPPORTED (a gradient of another reduction), NOMEM;
 *            PEER, TIMEOUT, MISMATCH, ABORTED
 * @source    torch.distributed.tensor.DTensor.redistribute; Shoeybi et al., "Megatron-LM" (2019)
 */
TUTTI_API tutti_tensor_t *tutti_redistribute(tutti_scope_t *s, tutti_tensor_t *x,
                                             tutti_group_t *group,
                                             const tutti_redistribution_t *how);

#ifdef __cplusplus
}
#endif

#endif
