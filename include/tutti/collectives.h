/**
 * @file collectives.h
 * Calls that all ranks of a group make together.
 *
 * Example:
 *
 *     tutti_work_t *work;
 *     TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work)); // starts
 *     TUTTI_CHECK(tutti_work_wait(work, 0));                     // ends
 *     tutti_work_release(work);
 *     TUTTI_CHECK(tutti_broadcast(world, y, 0, NULL)); // starts and ends
 *     TUTTI_CHECK(tutti_exscan(world, x, TUTTI_SUM, NULL)); // the sum over the ranks before this
 *
 * Each starts and, when `work` is NULL, waits; work.h says what else can be done. The root is a
 * rank of the group. Tensors must be contiguous and on one call of one dtype. Those that
 * tutti_group_tensor() made lie in memory that the ranks of a host share, so that peers read and
 * write them in place; others work too, through copies.
 *
 * Most calls have three forms:
 *
 *     all_gather         all parts have as many elements; one tensor has all of them in order, in
 *                        any shape that has that many
 *     all_gather_uneven  counts[r] is the number of rows that are rank r's part: the tensor of all
 *                        parts is cut along its first dimension. Every rank passes the same counts
 *     all_gather_list    a tensor for each part. No copy is made when they lie side by side in one
 *                        storage, in order; otherwise they are packed
 *
 * What only the root has is NULL on the others. Input and output do not overlap, but where it says
 * so; nor do the outputs of a list, while inputs may share memory. Calls of one group that are
 * under way together may have tensors in common: each finds there what those before it have left.
 * Errors of all of them: ARG (a rank, a count, a missing tensor), SHAPE, DTYPE, NOMEM; through the
 * work: PEER, TIMEOUT, MISMATCH, ABORTED.
 *
 * Unlike torch.distributed: uneven parts everywhere; gather and scatter take one tensor too.
 */
#ifndef TUTTI_COLLECTIVES_H
#define TUTTI_COLLECTIVES_H

#include <tutti/group.h>
#include <tutti/reduction.h>
#include <tutti/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reductions ------------------------------------------------------------------------------ */

/**
 * Reduce x over the ranks of a group; every rank ends with the same bits in x.
 *
 * @param group  borrowed
 * @param x      [any shape], any dtype the reduction takes, equal on all ranks; changed in place
 * @param op     TUTTI_SUM, TUTTI_AVG, …
 * @param work   out, owned by the caller; NULL waits here
 * @thread       one at a time per group; returns at once if there is a work
 * @cost         direct (one host): 2 flag hand-overs, each rank reads N and writes N bytes
 * @errors       as above
 * @source       torch.distributed.all_reduce
 */
TUTTI_API tutti_status_t tutti_all_reduce(tutti_group_t *group, tutti_tensor_t *x,
                                          tutti_reduction_t op, tutti_work_t **work);

/**
 * The same on the root alone; x of the others is only read.
 *
 * @thread  one at a time per group; returns at once if there is a work
 * @errors  as above
 * @source  torch.distributed.reduce
 */
TUTTI_API tutti_status_t tutti_reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                      int root, tutti_work_t **work);

/**
 * Reduce over the ranks and leave the rth part of the result on rank r.
 *
 * @param output  [n] elements
 * @param input   [size × n] elements, of the same dtype; may contain output as its rth part
 * @thread        one at a time per group; returns at once if there is a work
 * @cost          direct: each rank reads N and writes N / size bytes
 * @errors        as above
 * @source        torch.distributed.reduce_scatter_tensor
 */
TUTTI_API tutti_status_t tutti_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                              tutti_tensor_t *input, tutti_reduction_t op,
                                              tutti_work_t **work);

/** Parts of counts[r] rows of the input. @param counts [size], borrowed until it returns
 *  @thread one at a time per group; returns at once if there is a work @errors as above */
TUTTI_API tutti_status_t tutti_reduce_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                     tutti_tensor_t *input, const int64_t *counts,
                                                     tutti_reduction_t op, tutti_work_t **work);

/** Parts of any sizes, the same on every rank. @param inputs [size], borrowed until it returns
 *  @thread one at a time per group; returns at once if there is a work @errors as above
 *  @source torch.distributed.reduce_scatter */
TUTTI_API tutti_status_t tutti_reduce_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                                   tutti_tensor_t *const *inputs,
                                                   tutti_reduction_t op, tutti_work_t **work);

/**
 * Reduce over the ranks before this one and itself: rank r's x becomes the reduction of what ranks
 * 0 to r passed. It has the bits of an all_reduce over a group of these ranks alone; so the last
 * rank's x has those of an all_reduce. TUTTI_AVG divides by r + 1.
 *
 * @param x  [any shape], any dtype the reduction takes, the same on every rank; changed in place
 * @thread   one at a time per group; returns at once if there is a work
 * @cost     flag (small, one host): one hand-over. prefix (one host): each rank reads and writes
 *           slices of N / size bytes, about size² / 2 and size of them; over several hosts each
 *           sends what it does in an all_reduce, 16-bit floats once as f32
 * @errors   as above
 * @source   MPI_Scan
 */
TUTTI_API tutti_status_t tutti_scan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                    tutti_work_t **work);

/**
 * Reduce over the ranks before this one: rank r's x becomes the reduction of what ranks 0 to r - 1
 * passed, with the bits of an all_reduce over a group of these. No rank is before rank 0: its x
 * stays as it is. TUTTI_AVG divides by r.
 *
 * @param x  [any shape], any dtype the reduction takes, the same on every rank; changed in place on
 *           all but rank 0
 * @thread   one at a time per group; returns at once if there is a work
 * @cost     as scan
 * @errors   as above
 * @source   MPI_Exscan (where rank 0's result is undefined)
 */
TUTTI_API tutti_status_t tutti_exscan(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                      tutti_work_t **work);

/** What TUTTI_PREMUL_SUM and TUTTI_CUSTOM need. */
typedef struct tutti_reduce_options {
    const double *factor; /**< of this rank's contribution; other ranks may have others, 0 too */
    int root;             /**< of a reduce */
    const tutti_custom_reduction_t *custom; /**< of TUTTI_CUSTOM */
} tutti_reduce_options_t;

/**
 * all_reduce with options. TUTTI_PREMUL_SUM multiplies what each rank contributes by its factor,
 * then adds. Floats only; 16-bit ones are multiplied in f32 and rounded once, after the sum.
 * TUTTI_CUSTOM combines by a function (reduction.h), always in the order of ranks, by the same tree
 * as a sum: equal bits on any layout. Every part that is reduced has whole elements of its width.
 *
 * @param options  borrowed until it returns; NULL for none
 * @thread         one at a time per group; returns at once if there is a work
 * @cost           as all_reduce, with a pass over the contribution before
 * @errors         as above; ARG for TUTTI_PREMUL_SUM without a factor, or TUTTI_CUSTOM without a
 *                 function; DTYPE for one that it does not take
 * @source         ncclRedOpCreatePreMulSum; MPI_Op_create
 */
TUTTI_API tutti_status_t tutti_all_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                               tutti_reduction_t op,
                                               const tutti_reduce_options_t *options,
                                               tutti_work_t **work);

/** reduce with options; they say the root. @thread one at a time per group; returns at once if
 *  there is a work @errors as all_reduce_with */
TUTTI_API tutti_status_t tutti_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                           tutti_reduction_t op,
                                           const tutti_reduce_options_t *options,
                                           tutti_work_t **work);

/** reduce_scatter with options. @thread one at a time per group; returns at once if there is a work
 *  @errors as all_reduce_with */
TUTTI_API tutti_status_t tutti_reduce_scatter_with(tutti_group_t *group, tutti_tensor_t *output,
                                                   tutti_tensor_t *input, tutti_reduction_t op,
                                                   const tutti_reduce_options_t *options,
                                                   tutti_work_t **work);

/** scan with options. @thread one at a time per group; returns at once if there is a work
 *  @errors as all_reduce_with */
TUTTI_API tutti_status_t tutti_scan_with(tutti_group_t *group, tutti_tensor_t *x,
                                         tutti_reduction_t op,
                                         const tutti_reduce_options_t *options,
                                         tutti_work_t **work);

/** exscan with options. @thread one at a time per group; returns at once if there is a work
 *  @errors as all_reduce_with */
TUTTI_API tutti_status_t tutti_exscan_with(tutti_group_t *group, tutti_tensor_t *x,
                                           tutti_reduction_t op,
                                           const tutti_reduce_options_t *options,
                                           tutti_work_t **work);

/* ---- copies ---------------------------------------------------------------------------------- */

/**
 * Copy x of one rank to all.
 *
 * @param x       [any shape], the same on every rank; changed on all but root
 * @thread        one at a time per group; returns at once if there is a work
 * @cost          direct: each rank but root reads and writes N bytes
 * @errors        as above
 * @source        torch.distributed.broadcast
 */
TUTTI_API tutti_status_t tutti_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                                         tutti_work_t **work);

/**
 * Collect every rank's input, in the order of ranks.
 *
 * @param output  [size × n] elements
 * @param input   [n] elements, of the same dtype; may be the rth part of output
 * @thread        one at a time per group; returns at once if there is a work
 * @cost          direct: each rank reads and writes N bytes
 * @errors        as above
 * @source        torch.distributed.all_gather_into_tensor
 */
TUTTI_API tutti_status_t tutti_all_gather(tutti_group_t *group, tutti_tensor_t *output,
                                          tutti_tensor_t *input, tutti_work_t **work);

/** Rank r has counts[r] rows. @thread one at a time per group; returns at once if there is a work
 *  @errors as above */
TUTTI_API tutti_status_t tutti_all_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                 tutti_tensor_t *input, const int64_t *counts,
                                                 tutti_work_t **work);

/** outputs[r] becomes rank r's input; of any sizes, the same on every rank. @thread one at a time
 * per group; returns at once if there is a work @errors as above @source
 * torch.distributed.all_gather
 */
TUTTI_API tutti_status_t tutti_all_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                               tutti_tensor_t *input, tutti_work_t **work);

/**
 * Collect every rank's input on the root.
 *
 * @param output  [size × n] elements on the root, NULL elsewhere
 * @param input   [n] elements; may be the root's part of its output
 * @thread        one at a time per group; returns at once if there is a work
 * @errors        as above
 * @source        torch.distributed.gather
 */
TUTTI_API tutti_status_t tutti_gather(tutti_group_t *group, tutti_tensor_t *output,
                                      tutti_tensor_t *input, int root, tutti_work_t **work);

/** Rank r has counts[r] rows. @thread one at a time per group; returns at once if there is a work
 *  @errors as above */
TUTTI_API tutti_status_t tutti_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                             tutti_tensor_t *input, const int64_t *counts, int root,
                                             tutti_work_t **work);

/** outputs[r] on the root becomes rank r's input; all have one size. @thread one at a time per
 *  group; returns at once if there is a work @errors as above */
TUTTI_API tutti_status_t tutti_gather_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                           tutti_tensor_t *input, int root, tutti_work_t **work);

/**
 * Give every rank its part of what the root has.
 *
 * @param output  [n] elements; may be the root's part of its input
 * @param input   [size × n] elements on the root, NULL elsewhere
 * @thread        one at a time per group; returns at once if there is a work
 * @errors        as above
 * @source        torch.distributed.scatter
 */
TUTTI_API tutti_status_t tutti_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                       tutti_tensor_t *input, int root, tutti_work_t **work);

/** Rank r gets counts[r] rows. @thread one at a time per group; returns at once if there is a work
 *  @errors as above */
TUTTI_API tutti_status_t tutti_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                              tutti_tensor_t *input, const int64_t *counts,
                                              int root, tutti_work_t **work);

/** Rank r gets inputs[r] of the root; all have one size. @thread one at a time per group; returns
 *  at once if there is a work @errors as above */
TUTTI_API tutti_status_t tutti_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                            tutti_tensor_t *const *inputs, int root,
                                            tutti_work_t **work);

/**
 * Give the rth part of the input to rank r: a transposition over the ranks.
 *
 * @param output  [size × n] elements; part r comes from rank r
 * @param input   [size × n] elements
 * @thread        one at a time per group; returns at once if there is a work
 * @cost          direct: each rank reads and writes N bytes
 * @errors        as above
 * @source        torch.distributed.all_to_all_single
 */
TUTTI_API tutti_status_t tutti_all_to_all(tutti_group_t *group, tutti_tensor_t *output,
                                          tutti_tensor_t *input, tutti_work_t **work);

/** input_counts[r] rows go to rank r, output_counts[r] rows come from it: there it must be as many,
 *  else both get MISMATCH. (The mpi backend notices only more rows than are wanted, unless none
 *  are.) @thread one at a time per group; returns at once if there is a work
 *  @cost between hosts a message to every rank, also of no rows @errors as above
 *  @source torch.distributed.all_to_all_single, with its splits */
TUTTI_API tutti_status_t tutti_all_to_all_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                 const int64_t *output_counts,
                                                 tutti_tensor_t *input, const int64_t *input_counts,
                                                 tutti_work_t **work);

/** outputs[r] here becomes what rank r has as inputs[this rank]. @thread one at a time per group;
 *  returns at once if there is a work @errors as above @source torch.distributed.all_to_all */
TUTTI_API tutti_status_t tutti_all_to_all_list(tutti_group_t *group, tutti_tensor_t *const *outputs,
                                               tutti_tensor_t *const *inputs, tutti_work_t **work);

/** Wait until every rank is here. @thread one at a time per group @cost one flag hand-over
 *  @errors as above @source torch.distributed.barrier */
TUTTI_API tutti_status_t tutti_barrier(tutti_group_t *group, tutti_work_t **work);

/**
 * A barrier through the store that leaves the group usable when ranks are missing: every rank that
 * came hears OK, or every one of them the same list of all that did not.
 *
 * @param timeout_ms  0: the group's
 * @thread            one at a time per group; blocks, moving calls forward meanwhile
 * @cost              a few requests to the store for each rank
 * @errors            TIMEOUT (names every missing rank; who comes later hears it too), PEER (all
 *                    that are missing have died or left), ABORTED (the group was, meanwhile),
 *                    UNSUPPORTED (a group of several ranks without a store), those of the store
 * @source            torch.distributed.monitored_barrier(wait_all_ranks=True)
 */
TUTTI_API tutti_status_t tutti_monitored_barrier(tutti_group_t *group, int64_t timeout_ms);

/* ---- several calls as one -------------------------------------------------------------------- */

/**
 * From here to tutti_coalesce_end() calls of the group (with NULL for their works) start without
 * waiting. Small all_reduces (at most 16 KiB) that follow each other, of one dtype and reduction,
 * are fused: their tensors do not overlap, else the later one is ARG.
 *
 * @thread  one at a time per group
 * @errors  STATE: it has begun already; NOMEM
 * @source  torch.distributed._coalescing_manager
 */
TUTTI_API tutti_status_t tutti_coalesce_begin(tutti_group_t *group);

/** One work for all calls since tutti_coalesce_begin(). @param work out, owned by the caller; NULL
 *  waits @thread one at a time per group @errors STATE: it has not begun; those of the calls */
TUTTI_API tutti_status_t tutti_coalesce_end(tutti_group_t *group, tutti_work_t **work);

#ifdef __cplusplus
}
#endif

#endif
