/**
 * @file prepared.h
 * Prepared calls: the same call, made again and again.
 *
 * Example:
 *
 *     tutti_prepared_t *sum;
 *     TUTTI_CHECK(tutti_prepare_all_reduce(world, x, TUTTI_SUM, &sum)); // once
 *     for (int step = 0; step < 3; step++) {
 *         tutti_work_t *work;
 *         TUTTI_CHECK(tutti_prepared_start(sum, &work)); // in each step
 *         TUTTI_CHECK(tutti_work_wait(work, 0));
 *         tutti_work_release(work);
 *     }
 *     tutti_prepared_release(sum);
 *
 * Preparing checks the arguments and plans the call. It tells other ranks nothing: each rank may
 * prepare or not, and a prepared call on one rank matches a plain one on another. Starting makes
 * the call: it takes its place in the order of the group's calls, with the group's tag and the
 * caller's line of that moment, and fails as a plain call fails, for example with the failure that
 * the group already has. It allocates nothing.
 *
 * On tensors of a device it is kept with its arguments, which are checked at each start; it may be
 * started again while the last start is under way, for such calls come in order.
 *
 * A prepared call holds its tensors, but not its group: it is of no more use once the group has
 * been released, and can only be released. A call that has been started goes on when its prepared
 * call is rebound or released; a prepared call can be started again when the work of its last start
 * has been found done. Between tutti_coalesce_begin() and _end() it cannot be started;
 * tutti_prepared_start_all() makes one work of several.
 *
 * Source: MPI 4.0, persistent collective operations.
 */
#ifndef TUTTI_PREPARED_H
#define TUTTI_PREPARED_H

#include <tutti/collectives.h>
#include <tutti/messages.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A call that can be made again and again; owned by its maker; the thread of its group. */
typedef struct tutti_prepared tutti_prepared_t;

/* ---- starting -------------------------------------------------------------------------------- */

/**
 * Make the call.
 *
 * @param work  out, owned by the caller; NULL waits here
 * @thread      the group's; returns at once if there is a work
 * @cost        that of the plain call, without its checks
 * @errors      STATE: its group was released; it is under way; calls are coalesced; a tensor is
 *              empty or has other memory than when it was prepared. Then those of the plain call
 * @source      MPI_Start
 */
TUTTI_API tutti_status_t tutti_prepared_start(tutti_prepared_t *prepared, tutti_work_t **work);

/**
 * Start several calls of one group in order. Other ranks may start the same calls one by one.
 *
 * @param prepared  [count], each once; borrowed until it returns
 * @param work      out, owned by the caller: one work for all; NULL waits for all
 * @thread          the group's; returns at once if there is a work
 * @errors          ARG: none, one twice, calls of two groups; as tutti_prepared_start (none has
 *                  started then); the failure of a call that could not start (those before it have)
 * @source          MPI_Startall
 */
TUTTI_API tutti_status_t tutti_prepared_start_all(tutti_prepared_t *const *prepared, int count,
                                                  tutti_work_t **work);

/**
 * From the next start on use another tensor. For calls of one tensor: all_reduce, reduce,
 * scan, exscan, broadcast, send, recv.
 *
 * @param x  of the same shape and dtype as the tensor that it replaces, contiguous; held
 * @thread   the group's
 * @errors   SHAPE, DTYPE: another shape or dtype; ARG: the call has no tensor (barrier), an output
 *           and an input, or a list or leaves, of which no tensor can be replaced; STATE: its group
 *           was released
 */
TUTTI_API tutti_status_t tutti_prepared_rebind(tutti_prepared_t *prepared, tutti_tensor_t *x);

/** The same for calls with an output and an input: reduce_scatter, all_gather, gather, scatter,
 *  all_to_all. NULL where the call has none on this rank. @thread the group's
 *  @errors as tutti_prepared_rebind */
TUTTI_API tutti_status_t tutti_prepared_rebind_pair(tutti_prepared_t *prepared,
                                                    tutti_tensor_t *output, tutti_tensor_t *input);

/** Lets go of the tensors; NULL is fine. A call under way goes on. @thread the group's
 *  @errors none */
TUTTI_API void tutti_prepared_release(tutti_prepared_t *prepared);

/* ---- preparing: each as the call of its name, whose arguments and errors it has -------------- */

/** tutti_all_reduce() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_reduce(tutti_group_t *group, tutti_tensor_t *x,
                                                  tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_all_reduce_with() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                                       tutti_reduction_t op,
                                                       const tutti_reduce_options_t *options,
                                                       tutti_prepared_t **out);

/** tutti_all_reduce_contributions() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_reduce_contributions(tutti_group_t *group,
                                                                const tutti_contributions_t *leaves,
                                                                tutti_tensor_t *x,
                                                                tutti_reduction_t op,
                                                                tutti_prepared_t **out);

/** tutti_reduce() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce(tutti_group_t *group, tutti_tensor_t *x,
                                              tutti_reduction_t op, int root,
                                              tutti_prepared_t **out);

/** tutti_reduce_with() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_with(tutti_group_t *group, tutti_tensor_t *x,
                                                   tutti_reduction_t op,
                                                   const tutti_reduce_options_t *options,
                                                   tutti_prepared_t **out);

/** tutti_reduce_scatter() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                                      tutti_tensor_t *input, tutti_reduction_t op,
                                                      tutti_prepared_t **out);

/** tutti_reduce_scatter_with(); `options` are copied @thread the group's @errors those of the call;
 *  NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter_with(
    tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input, tutti_reduction_t op,
    const tutti_reduce_options_t *options, tutti_prepared_t **out);

/** tutti_reduce_scatter_uneven() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter_uneven(
    tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input, const int64_t *counts,
    tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_reduce_scatter_list() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter_list(tutti_group_t *group,
                                                           tutti_tensor_t *output,
                                                           tutti_tensor_t *const *inputs,
                                                           tutti_reduction_t op,
                                                           tutti_prepared_t **out);

/** tutti_reduce_scatter_contributions() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter_contributions(
    tutti_group_t *group, const tutti_contributions_t *leaves, tutti_tensor_t *output,
    tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_reduce_scatter_contributions_uneven() @thread the group's @errors those of the call; NOMEM
 */
TUTTI_API tutti_status_t tutti_prepare_reduce_scatter_contributions_uneven(
    tutti_group_t *group, const tutti_contributions_t *leaves, tutti_tensor_t *output,
    const int64_t *counts, tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_scan() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_scan(tutti_group_t *group, tutti_tensor_t *x,
                                            tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_exscan() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_exscan(tutti_group_t *group, tutti_tensor_t *x,
                                              tutti_reduction_t op, tutti_prepared_t **out);

/** tutti_scan_with() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_scan_with(tutti_group_t *group, tutti_tensor_t *x,
                                                 tutti_reduction_t op,
                                                 const tutti_reduce_options_t *options,
                                                 tutti_prepared_t **out);

/** tutti_exscan_with() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_exscan_with(tutti_group_t *group, tutti_tensor_t *x,
                                                   tutti_reduction_t op,
                                                   const tutti_reduce_options_t *options,
                                                   tutti_prepared_t **out);

/** tutti_broadcast() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                                                 tutti_prepared_t **out);

/** tutti_all_gather() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_gather(tutti_group_t *group, tutti_tensor_t *output,
                                                  tutti_tensor_t *input, tutti_prepared_t **out);

/** tutti_all_gather_uneven() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_gather_uneven(tutti_group_t *group,
                                                         tutti_tensor_t *output,
                                                         tutti_tensor_t *input,
                                                         const int64_t *counts,
                                                         tutti_prepared_t **out);

/** tutti_all_gather_list() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_gather_list(tutti_group_t *group,
                                                       tutti_tensor_t *const *outputs,
                                                       tutti_tensor_t *input,
                                                       tutti_prepared_t **out);

/** tutti_gather() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_gather(tutti_group_t *group, tutti_tensor_t *output,
                                              tutti_tensor_t *input, int root,
                                              tutti_prepared_t **out);

/** tutti_gather_uneven() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_gather_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                     tutti_tensor_t *input, const int64_t *counts,
                                                     int root, tutti_prepared_t **out);

/** tutti_gather_list() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_gather_list(tutti_group_t *group,
                                                   tutti_tensor_t *const *outputs,
                                                   tutti_tensor_t *input, int root,
                                                   tutti_prepared_t **out);

/** tutti_scatter() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                               tutti_tensor_t *input, int root,
                                               tutti_prepared_t **out);

/** tutti_scatter_uneven() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_scatter_uneven(tutti_group_t *group, tutti_tensor_t *output,
                                                      tutti_tensor_t *input, const int64_t *counts,
                                                      int root, tutti_prepared_t **out);

/** tutti_scatter_list() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_scatter_list(tutti_group_t *group, tutti_tensor_t *output,
                                                    tutti_tensor_t *const *inputs, int root,
                                                    tutti_prepared_t **out);

/** tutti_all_to_all() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_to_all(tutti_group_t *group, tutti_tensor_t *output,
                                                  tutti_tensor_t *input, tutti_prepared_t **out);

/** tutti_all_to_all_uneven() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_to_all_uneven(
    tutti_group_t *group, tutti_tensor_t *output, const int64_t *output_counts,
    tutti_tensor_t *input, const int64_t *input_counts, tutti_prepared_t **out);

/** tutti_all_to_all_list() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_all_to_all_list(tutti_group_t *group,
                                                       tutti_tensor_t *const *outputs,
                                                       tutti_tensor_t *const *inputs,
                                                       tutti_prepared_t **out);

/** tutti_barrier() @thread the group's @errors NOMEM */
TUTTI_API tutti_status_t tutti_prepare_barrier(tutti_group_t *group, tutti_prepared_t **out);

/** tutti_send() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_send(tutti_group_t *group, tutti_tensor_t *x, int to,
                                            int tag, tutti_prepared_t **out);

/** tutti_recv() @thread the group's @errors those of the call; NOMEM */
TUTTI_API tutti_status_t tutti_prepare_recv(tutti_group_t *group, tutti_tensor_t *x, int from,
                                            int tag, tutti_prepared_t **out);

#ifdef __cplusplus
}
#endif

#endif
