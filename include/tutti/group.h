/**
 * @file group.h
 * Process groups: ranks that call together, and what they can call.
 *
 * Example:
 *
 *     tutti_group_t *world;
 *     TUTTI_CHECK(tutti_init(NULL, &world)); // alone, or under a launcher
 *     tutti_tensor_t *x;
 *     TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(1024), &x));
 *     tutti_work_t *work;
 *     TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work)); // starts
 *     TUTTI_CHECK(tutti_work_wait(work, 0));                     // ends
 *     tutti_work_release(work);
 *     tutti_tensor_release(x);
 *     tutti_group_release(world);
 *
 * Every rank of a group makes the same calls in the same order. A call that is not the same is an
 * error on every rank, with both calls in its text; a rank that dies or does not come within the
 * deadline is an error that names it. After such an error the group is of no more use: every later
 * call returns it again.
 *
 * Tensors must be contiguous. Those that tutti_group_tensor() made lie in memory that the ranks of
 * a host share, so that peers read and write them in place; others work too, through copies.
 *
 * Unlike torch.distributed: every collective checks its arguments across ranks; a sum has the same
 * bits whatever algorithm, wire or leaf map; roots are group ranks.
 */
#ifndef TUTTI_GROUP_H
#define TUTTI_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/reduction.h>
#include <tutti/store.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks that call together; reference-counted; one thread at a time. */
typedef struct tutti_group tutti_group_t;

/** A call under way; reference-counted; the thread of its group. */
typedef struct tutti_work tutti_work_t;

typedef struct tutti_init_options {
    tutti_store_t *store; /**< borrowed; where the ranks meet. NULL: from the environment */
    int rank, world_size; /**< with a store or a url only; a world_size of 0 means 1 with a store,
                               and that the url says both otherwise */
    int64_t timeout_ms;   /**< of each call; 0: TUTTI_TIMEOUT_MS (10 minutes) */
    const char *name;     /**< of the group, in keys and messages; NULL: "world" */
    const char *url;      /**< "env://", "tcp://HOST:PORT?rank=R&world_size=W" or
                               "file:///PATH?rank=R&world_size=W"; NULL: env:// */
} tutti_init_options_t;

/**
 * Join the world: all ranks of the job.
 *
 * Without a store and a url the launcher's variables say who and where: those of torchrun and
 * `tutti run` (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or Open MPI's, PMI's (MPICH), or
 * Slurm's. Without them the world is this process alone. Rank 0 makes the store, unless the
 * launcher has made one; ranks of one host need no address, those of several need TUTTI_KEY_FILE:
 * see docs/guide/launching.md. A file may be left over from an earlier world, whatever became of
 * that.
 *
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller, to be released with tutti_group_release
 * @thread         any; blocks until every rank has come
 * @cost           one connection and one mapping for each other rank
 * @errors         ARG, TIMEOUT (names the ranks that did not come), IO, NOMEM, UNSUPPORTED (ranks
 *                 on other hosts)
 * @source         torch.distributed.init_process_group
 */
TUTTI_API tutti_status_t tutti_init(const tutti_init_options_t *options, tutti_group_t **out);

/** Share a group. @thread any @errors none */
TUTTI_API tutti_group_t *tutti_group_retain(tutti_group_t *group);
/** Leave a group; NULL is fine. Does not wait for others. @thread one at a time @errors none */
TUTTI_API void tutti_group_release(tutti_group_t *group);

/** This process's rank in the group. @thread any @errors none */
TUTTI_API int tutti_group_rank(const tutti_group_t *group);
/** Number of ranks. @thread any @errors none */
TUTTI_API int tutti_group_size(const tutti_group_t *group);
/** The group's name. @thread any @errors none */
TUTTI_API const char *tutti_group_name(const tutti_group_t *group);
/** The store the ranks met in, with the group's prefix; borrowed; NULL when alone without one.
 *  @thread any @errors none */
TUTTI_API tutti_store_t *tutti_group_store(const tutti_group_t *group);

/** Make all calls of all ranks fail with ABORTED, here and there. Does not wait.
 *  @thread one at a time @errors none */
TUTTI_API void tutti_group_abort(tutti_group_t *group);

/** A number that all ranks must agree on in every later call, such as the step: calls with
 *  different tags do not match. 0 at first. @thread one at a time @errors none */
TUTTI_API void tutti_group_set_tag(tutti_group_t *group, uint64_t tag);

/** Move the calls under way forward, without blocking. Waits do it too. @thread one at a time
 *  @errors none: a failure is kept by the works */
TUTTI_API void tutti_group_progress(tutti_group_t *group);

/**
 * A tensor of zeros in memory that the group's ranks share.
 *
 * @param out  owned by the caller; may outlive the group
 * @thread     one at a time
 * @cost       may add a segment to the heap: a few system calls; every rank maps it once
 * @errors     ARG, NOMEM
 */
TUTTI_API tutti_status_t tutti_group_tensor(tutti_group_t *group, tutti_dtype_t dtype,
                                            tutti_shape_t shape, tutti_tensor_t **out);

/** The same, uninitialised and owned by a scope. @thread the scope's @errors ARG, NOMEM, through
 *  the scope */
TUTTI_API tutti_tensor_t *tutti_group_empty(tutti_group_t *group, tutti_scope_t *s,
                                            tutti_dtype_t dtype, tutti_shape_t shape);

/* ---- calls ------------------------------------------------------------------------------------
 * Each starts and, when `work` is NULL, waits. Otherwise *work is owned by the caller, and the
 * tensors (retained by the work) must be left alone until it is done. Several may be under way. */

/**
 * Reduce x over the ranks of a group; every rank ends with the same bits in x.
 *
 * @param group  borrowed
 * @param x      [any shape], any dtype the reduction takes, contiguous, alike on every rank;
 *               changed in place
 * @param op     TUTTI_SUM, TUTTI_AVG, …
 * @param work   out, owned by the caller; NULL waits here
 * @thread       one at a time per group; returns at once
 * @cost         direct (one host): 2 flag hand-overs, each rank reads N and writes N bytes
 * @errors       SHAPE, DTYPE; through the work: PEER, TIMEOUT, MISMATCH, ABORTED
 * @source       torch.distributed.all_reduce
 */
TUTTI_API tutti_status_t tutti_all_reduce(tutti_group_t *group, tutti_tensor_t *x,
                                          tutti_reduction_t op, tutti_work_t **work);

/**
 * V contributions ("leaves") spread over the ranks, summed in the canonical order whatever the
 * spread. Rank r hosts leaves [first[r], first[r + 1]) and passes its pieces: the largest nodes of
 * the canonical tree inside that interval, each already summed, in order (tutti_leaf_pieces).
 */
typedef struct tutti_leaves {
    int count;                     /**< V, over all ranks; at least 1 */
    const int *first;              /**< [size + 1], alike on every rank; NULL: floor(V r / size) */
    tutti_tensor_t *const *pieces; /**< [piece_count], all of one dtype, contiguous */
    int piece_count;               /**< may be 0 for a rank without leaves */
    tutti_dtype_t dtype;           /**< of the pieces, alike on every rank */
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
 * @param leaves  borrowed until it returns
 * @param x       [any shape] out; may be a piece. The pieces have as many elements, and x's dtype,
 *                or f32 when x is bf16 or f16 (then rounded once)
 * @thread        one at a time per group; returns at once
 * @cost          as all_reduce, with every piece read once
 * @errors        ARG (pieces that are not the interval's), SHAPE, DTYPE; as all_reduce
 */
TUTTI_API tutti_status_t tutti_all_reduce_leaves(tutti_group_t *group, const tutti_leaves_t *leaves,
                                                 tutti_tensor_t *x, tutti_reduction_t op,
                                                 tutti_work_t **work);

/**
 * Reduce over the ranks and leave the rth part of the result on rank r.
 *
 * @param output  [n] elements
 * @param input   [size × n] elements, of the same dtype; may contain output as its rth part
 * @thread        one at a time per group; returns at once
 * @cost          direct: each rank reads N and writes N / size bytes
 * @errors        as all_reduce
 * @source        torch.distributed.reduce_scatter_tensor
 */
TUTTI_API tutti_status_t tutti_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                              tutti_tensor_t *input, tutti_reduction_t op,
                                              tutti_work_t **work);

/** reduce_scatter of V leaves: each piece has size × n elements. @thread one at a time per group
 *  @errors as all_reduce_leaves */
TUTTI_API tutti_status_t tutti_reduce_scatter_leaves(tutti_group_t *group,
                                                     const tutti_leaves_t *leaves,
                                                     tutti_tensor_t *output, tutti_reduction_t op,
                                                     tutti_work_t **work);

/**
 * Collect every rank's input, in the order of ranks.
 *
 * @param output  [size × n] elements
 * @param input   [n] elements, of the same dtype; may be the rth part of output
 * @thread        one at a time per group; returns at once
 * @cost          direct: each rank reads and writes N bytes
 * @errors        as all_reduce
 * @source        torch.distributed.all_gather_into_tensor
 */
TUTTI_API tutti_status_t tutti_all_gather(tutti_group_t *group, tutti_tensor_t *output,
                                          tutti_tensor_t *input, tutti_work_t **work);

/**
 * Copy x of one rank to all.
 *
 * @param x       [any shape], alike on every rank; changed on all but root
 * @param root    a rank of the group
 * @thread        one at a time per group; returns at once
 * @cost          direct: each rank but root reads and writes N bytes
 * @errors        ARG; as all_reduce
 * @source        torch.distributed.broadcast
 */
TUTTI_API tutti_status_t tutti_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                                         tutti_work_t **work);

/** Wait until every rank is here. @thread one at a time per group @cost one flag hand-over
 *  @errors as all_reduce @source torch.distributed.barrier */
TUTTI_API tutti_status_t tutti_barrier(tutti_group_t *group, tutti_work_t **work);

/* ---- works --------------------------------------------------------------------------------- */

/**
 * Wait until a call is done.
 *
 * @param timeout_ms  how long to wait here; 0: until the call's own deadline
 * @return            OK; PENDING when timeout_ms passed first (the call goes on); its failure
 * @thread            the group's
 * @errors            PEER, TIMEOUT, MISMATCH, ABORTED
 */
TUTTI_API tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms);

/** OK when done, PENDING while under way, or its failure; moves it forward. @thread the group's
 *  @errors as tutti_work_wait */
TUTTI_API tutti_status_t tutti_work_test(tutti_work_t *work);

/** Give the call up: aborts its group. Does not wait. @thread the group's @errors none */
TUTTI_API void tutti_work_abort(tutti_work_t *work);

/** The text of its failure, "" if it has none. @thread the group's @errors none */
TUTTI_API const char *tutti_work_error(const tutti_work_t *work);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_work_t *tutti_work_retain(tutti_work_t *work);

/** One owner fewer; NULL is fine. A call under way goes on. @thread the group's @errors none */
TUTTI_API void tutti_work_release(tutti_work_t *work);

#ifdef __cplusplus
}
#endif

#endif
