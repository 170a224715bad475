/**
 * @file collectives.h
 * Calls that all ranks of a group make together, and how their contributions become one value.
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
 * Each starts and, when `work` is NULL, waits; group.h says what else can be done. The root is a
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
 * Tensors may lie on a device (devices.h), all of a call on the same one. Then the call returns at
 * once, as NCCL's: it begins when what was launched on the device before is done, and what is
 * launched later waits for it; where there is a work, only from tutti_work_wait() on. The groups of
 * one world make such calls in the order in which they were issued, so all ranks issue them in one
 * order. A failure is told by the work, by the next tutti_device_synchronize(), and by the next
 * call of the group on the host's memory, which waits for them; what is behind it is skipped. A
 * call on what the device failed to compute gives the group up: the others get an error that names
 * their call, this rank, and the device's failure.
 *
 * Unlike torch.distributed: uneven parts everywhere; gather and scatter take one tensor too.
 */
#ifndef TUTTI_COLLECTIVES_H
#define TUTTI_COLLECTIVES_H

#include <stdint.h>

#include <tutti/dtype.h>
#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reductions ------------------------------------------------------------------------------ */

/* How the contributions of several ranks become one value.
 *
 * Example:
 *
 *     printf("%s: %d ways to reduce\n", tutti_reduction_name(TUTTI_AVG), TUTTI_REDUCTION_COUNT);
 */

/**
 * Every reduction: X(identifier, name, what it does).
 *
 * Floats take SUM to MAX; integers all but AVG; bool PRODUCT (all), MIN (all), MAX (any) and
 * the bitwise ones. PREMUL_SUM is for floats, in calls that take a factor. 16-bit floats are
 * combined in f32 and rounded once. MIN and MAX give NaN when any contribution is NaN. Sums of
 * integers wrap around.
 *
 * MINLOC and MAXLOC, for floats, i32 and i64, combine pairs: element 2 i is a value, element 2 i +
 * 1 its index, of the same dtype (f32 holds integers up to 2^24 exactly, f64 up to 2^53, bf16
 * up to 2^8). Of equal values the lower index stays, so also of -0 and 0. A NaN is smaller than
 * everything in MINLOC and larger in MAXLOC; of several the one with the lowest index stays. Every
 * part that is reduced has whole pairs.
 */
#define TUTTI_REDUCTION_LIST(X)                                                                    \
    X(TUTTI_SUM, "sum", "the sum, in the canonical order")                                         \
    X(TUTTI_AVG, "avg", "the sum divided once by the number of contributions")                     \
    X(TUTTI_PRODUCT, "product", "the product, in the canonical order")                             \
    X(TUTTI_MIN, "min", "the smallest")                                                            \
    X(TUTTI_MAX, "max", "the largest")                                                             \
    X(TUTTI_BAND, "band", "bitwise and")                                                           \
    X(TUTTI_BOR, "bor", "bitwise or")                                                              \
    X(TUTTI_BXOR, "bxor", "bitwise exclusive or")                                                  \
    X(TUTTI_PREMUL_SUM, "premul_sum", "the sum of contributions times factors (collectives.h)")    \
    X(TUTTI_MINLOC, "minloc", "of pairs (value, index): the smallest value, with its index")       \
    X(TUTTI_MAXLOC, "maxloc", "of pairs (value, index): the largest value, with its index")        \
    X(TUTTI_CUSTOM, "custom", "a function of the program's own (tutti_custom_reduction_t)")

typedef enum tutti_reduction {
#define X(identifier, name, about) identifier,
    TUTTI_REDUCTION_LIST(X)
#undef X
        TUTTI_REDUCTION_COUNT
} tutti_reduction_t;

/**
 * Combine `count` elements: inout[i] becomes inout[i] combined with in[i]. inout holds what lower
 * ranks contributed, in what higher ones did. The two do not overlap.
 *
 * It is associative, and a pure function of the two: it is called for parts of a tensor, in any
 * order of parts, on any rank, and maybe again for the same ones. It runs in the thread of the
 * group, inside whatever call starts, tests or waits for something of that group or of one made of
 * the same world. It calls nothing of Tutti's and waits for nothing, as other ranks wait for it.
 *
 * @param dtype  of the tensor; f32 for 16-bit floats, which are rounded once, at the end
 * @param user   as it was given on this rank
 */
typedef void (*tutti_combine_fn_t)(void *inout, const void *in, int64_t count, tutti_dtype_t dtype,
                                   void *user);

/**
 * A reduction of the program's own; all but `combine` and `user` is the same on every rank. The
 * call that it is passed to copies it. What `combine` and `user` point to must be there until the
 * call is done; of a prepared call, until it is released and its last start is done.
 */
typedef struct tutti_custom_reduction {
    const char *name;           /**< 1 to 15 bytes; ranks that pass different ones get MISMATCH */
    tutti_combine_fn_t combine; /**< not NULL */
    void *user;                 /**< handed to combine */
    int width;                  /**< numbers of an element: 1, 2, 4, … 64; 0 means 1 */
    uint32_t dtypes;            /**< what it takes: 1u << TUTTI_F32 | …; 0: every dtype */
    bool commutes;              /**< a with b is b with a: algorithms that do not keep the order
                                     of ranks may be forced (TUTTI_ALGO); else they are not used */
} tutti_custom_reduction_t;

/** The short name, such as "avg"; "?" for an unknown value. @thread any @errors none */
TUTTI_API const char *tutti_reduction_name(tutti_reduction_t reduction);

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
 * TUTTI_CUSTOM combines by a function (collectives.h), always in the order of ranks, by the same
 * tree as a sum: equal bits on any layout. Every part that is reduced has whole elements of its
 * width.
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
 * waiting; those on tensors of a device start at its end, in order, as one call, all of them on one
 * device. Small all_reduces (at most 16 KiB) that follow each other, of one dtype and reduction,
 * are fused: their tensors do not overlap, else the later one is ARG.
 *
 * @thread  one at a time per group
 * @errors  STATE: it has begun already; NOMEM; of the calls: ARG (tensors in two places)
 * @source  torch.distributed._coalescing_manager
 */
TUTTI_API tutti_status_t tutti_coalesce_begin(tutti_group_t *group);

/** One work for all calls since tutti_coalesce_begin(). @param work out, owned by the caller; NULL
 *  waits @thread one at a time per group @errors STATE: it has not begun; those of the calls */
TUTTI_API tutti_status_t tutti_coalesce_end(tutti_group_t *group, tutti_work_t **work);

/* ---- more contributions than ranks ----------------------------------------------------------- */

/* Reductions of more contributions than there are ranks, with the same bits for any number of
 * ranks.
 *
 * Example:
 *
 *     const int shards = 12, size = tutti_group_size(world); // 12 shards, on any number of ranks
 *     tutti_contribution_span_t spans[TUTTI_CONTRIBUTION_PIECES_MAX];
 *     const int begin = shards * rank / size, end = shards * (rank + 1) / size;
 *     const int count = tutti_contribution_pieces(shards, begin, end, spans);
 *     tutti_tensor_t *pieces[TUTTI_CONTRIBUTION_PIECES_MAX]; // the sum of the shards in spans[i]
 *     for (int i = 0; i < count; i++) {
 *         pieces[i] = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8));
 *     }
 *     const tutti_contributions_t all = {
 *         .count = shards, .pieces = pieces, .piece_count = count};
 *     TUTTI_CHECK(tutti_all_reduce_contributions(world, &all, x, TUTTI_SUM, NULL));
 */

/**
 * V contributions ("leaves") spread over the ranks, summed in the canonical order whatever the
 * spread. Rank r hosts leaves [first[r], first[r + 1]) and passes its pieces: the largest nodes of
 * the canonical tree inside that interval, each already summed, in order
 * (tutti_contribution_pieces).
 */
typedef struct tutti_contributions {
    int count;                     /**< V, over all ranks; at least 1 */
    const int *first;              /**< [size + 1], equal on all ranks; NULL: floor(V r / size) */
    tutti_tensor_t *const *pieces; /**< [piece_count], all of one dtype, contiguous */
    int piece_count;               /**< may be 0 for a rank without leaves */
    tutti_dtype_t dtype;           /**< of the pieces, the same on every rank */
} tutti_contributions_t;

/** A node of the canonical tree: leaves [begin, end). */
typedef struct tutti_contribution_span {
    int begin, end;
} tutti_contribution_span_t;

enum { TUTTI_CONTRIBUTION_PIECES_MAX = 62 };

/**
 * The pieces of leaves [begin, end) of `leaves`, in order.
 *
 * @param pieces  out, room for TUTTI_CONTRIBUTION_PIECES_MAX; NULL only counts
 * @return        how many
 * @thread        any
 * @errors        none
 */
TUTTI_API int tutti_contribution_pieces(int leaves, int begin, int end,
                                        tutti_contribution_span_t *pieces);

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
TUTTI_API tutti_status_t tutti_all_reduce_contributions(tutti_group_t *group,
                                                        const tutti_contributions_t *leaves,
                                                        tutti_tensor_t *x, tutti_reduction_t op,
                                                        tutti_work_t **work);

/** reduce_scatter of V leaves: each piece has size × n elements, of which the output may be this
 *  rank's part. @thread one at a time per group
 *  @errors as all_reduce_contributions */
TUTTI_API tutti_status_t tutti_reduce_scatter_contributions(tutti_group_t *group,
                                                            const tutti_contributions_t *leaves,
                                                            tutti_tensor_t *output,
                                                            tutti_reduction_t op,
                                                            tutti_work_t **work);

/** The same where rank r's part is counts[r] rows. @param counts [size], equal on all ranks
 *  @thread one at a time per group @errors as all_reduce_contributions, reduce_scatter_uneven */
TUTTI_API tutti_status_t tutti_reduce_scatter_contributions_uneven(
    tutti_group_t *group, const tutti_contributions_t *leaves, tutti_tensor_t *output,
    const int64_t *counts, tutti_reduction_t op, tutti_work_t **work);

#ifdef __cplusplus
}
#endif

#endif
