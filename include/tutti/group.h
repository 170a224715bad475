/**
 * @file group.h
 * Process groups: ranks that call together; meshes of them; works, which are calls under way.
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
 * Every rank of a group makes the same calls in the same order (collectives.h, messages.h). A call
 * that is not the same is an error on every rank, with both calls in its text; a rank that dies or
 * does not come within the deadline is an error that names it. After such an error the group is of
 * no more use: every later call returns it again; tutti_group_shrink() goes on without the dead.
 *
 * Ranks are those of the group that is passed, everywhere; tutti_group_translate() tells what a
 * rank is called in another group.
 *
 * A child made by fork() has no part in groups and stores. It may read tensors, and release what it
 * inherits, which takes nothing from its parent; its calls in the parent's groups, and its waits
 * for the parent's works, are STATE. One made by clone(2) itself or by _Fork() must not call, which
 * is not noticed; and it keeps the parent's connections as long as it lives: ranks of other hosts
 * hear of the parent's death at their deadline only.
 *
 * When a failed call returns, its memory is the caller's alone: no other rank reads or writes it
 * any more, not even one that comes late or was stopped in the middle. Pointers to it stay good.
 * The mpi engine cannot promise that for tensors, for MPI cannot take back what it has announced.
 * It may go on reading and writing a tensor of the failed call: the tensor's memory is kept until
 * MPI is done with it, even if the caller releases it, but what the caller writes there may be
 * written over. Memory that tutti_tensor_wrap() borrowed must stay for as long. Calls that carry
 * bytes (objects.h) work on copies over this engine: the caller's memory is free at once.
 *
 * The groups made of a world belong to one thread at a time, all together: a wait in one of them
 * moves the calls of the others forward too. A call while another thread waits is STATE.
 *
 * A call without its group, or without a place for its result, is ARG and says which argument is
 * NULL; what has no status does nothing then, or gives what it gives for "not known".
 *
 * Unlike torch.distributed: groups are made by their members alone, in any order that does not
 * wait in circles; every collective checks its arguments across ranks; a sum has the same bits
 * whatever algorithm, wire or leaf map.
 */
#ifndef TUTTI_GROUP_H
#define TUTTI_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>
#include <tutti/store.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks that call together; reference-counted; one thread at a time. */
typedef struct tutti_group tutti_group_t;

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
 * @thread         any; blocks until every rank has joined
 * @cost           one connection and one mapping for each other rank
 * @errors         ARG, TIMEOUT (names the ranks that did not come), IO, NOMEM, UNSUPPORTED (ranks
 *                 on other hosts)
 * @source         torch.distributed.init_process_group
 */
TUTTI_API tutti_status_t tutti_init(const tutti_init_options_t *options, tutti_group_t **out);

/** Share a group. @thread any @errors none */
TUTTI_API tutti_group_t *tutti_group_retain(tutti_group_t *group);
/** Leave a group; NULL is fine. Does not wait for others, but for this: a rank of this host whose
 *  message has been received, and which does not read the answer, is waited for, 1 s at most.
 *  @thread one at a time @errors none */
TUTTI_API void tutti_group_release(tutti_group_t *group);

/** This process's rank in the group; -1 for NULL. @thread any @errors none */
TUTTI_API int tutti_group_rank(const tutti_group_t *group);
/** Number of ranks; 0 for NULL. @thread any @errors none */
TUTTI_API int tutti_group_size(const tutti_group_t *group);

/**
 * This process's number among the ranks of its host, which chooses the device that it uses. It is
 * that of the world, in every group that is made of it.
 *
 * The launcher's word counts (LOCAL_RANK, or what Open MPI, PMI or Slurm say); without one, ranks
 * are counted whose host has the same boot id.
 *
 * @return  from 0 on; -1: the launcher says nothing, and the backend does not know either
 * @thread  any
 * @errors  none
 * @source  torch.distributed.get_node_local_rank
 */
TUTTI_API int tutti_group_local_rank(const tutti_group_t *group);
/** Number of the world's ranks on this rank's host; 0: not known. @thread any @errors none */
TUTTI_API int tutti_group_local_size(const tutti_group_t *group);

/** The group's name; "" for NULL. @thread any @errors none */
TUTTI_API const char *tutti_group_name(const tutti_group_t *group);
/** The store the ranks met in, with the group's prefix; borrowed; NULL when alone without one.
 *  @thread any @errors none */
TUTTI_API tutti_store_t *tutti_group_store(const tutti_group_t *group);

/** How many of this rank's calls so far gave sums whose bits depend on the number of ranks: sums of
 *  floats, made by an algorithm that is not canonical (diagnose.h) or by MPI itself. 0 means that
 *  all were the same as with any other layout. @thread one at a time @errors none */
TUTTI_API int64_t tutti_group_uncanonical_sums(const tutti_group_t *group);

/** How many bytes of values this rank's calls of a group have sent over wires so far: not what
 * ranks of a host read in each other's memory, and no headers. 0 also where the engine does not
 * know (MPI).
 *  @param call  "all_gather", as the calls of collectives.h are called, or "send": messages; NULL:
 *               all of them
 *  @thread one at a time @errors none; 0 for no such call */
TUTTI_API int64_t tutti_group_sent_bytes(const tutti_group_t *group, const char *call);

/** Make all calls of all ranks fail with ABORTED, here and there. Does not wait. Ranks of this host
 *  see it at once. Ranks of other hosts hear of it over the connections that they have made to
 *  this rank. One that connects later hears of it when this rank next waits or makes progress in
 *  any of its groups; if this rank never does, it waits until its deadline or the end of this
 *  process. tutti_last_error() stays what it was.
 *  @thread one at a time @errors none */
TUTTI_API void tutti_group_abort(tutti_group_t *group);

/** A number that all ranks must agree on in every call that is issued later, such as the step:
 *  calls with different tags do not match. 0 at first. @thread one at a time @errors none */
TUTTI_API void tutti_group_set_tag(tutti_group_t *group, uint64_t tag);

/** That number. @thread one at a time @errors none; 0 of no group */
TUTTI_API uint64_t tutti_group_tag(const tutti_group_t *group);

/** Move the calls under way forward, those of all groups of the same world, without blocking. Waits
 *  do it too, and calls on devices while they are made. @thread one at a time @errors none: a
 * failure is kept by the works */
TUTTI_API void tutti_group_progress(tutti_group_t *group);

/**
 * A tensor of zeros in memory that the group's ranks share.
 *
 * @param out  owned by the caller; may outlive the group
 * @thread     one at a time
 * @cost       the pages it needs, unless freed ones are there; may add a segment to the heap, which
 *             every rank maps once
 * @errors     ARG, NOMEM
 */
TUTTI_API tutti_status_t tutti_group_tensor(tutti_group_t *group, tutti_dtype_t dtype,
                                            tutti_shape_t shape, tutti_tensor_t **out);

/** The same, uninitialised and owned by a scope. @thread the scope's @errors ARG, NOMEM, through
 *  the scope */
TUTTI_API tutti_tensor_t *tutti_group_empty(tutti_group_t *group, tutti_scope_t *s,
                                            tutti_dtype_t dtype, tutti_shape_t shape);

/* ---- groups of some of the ranks ------------------------------------------------------------- */

typedef struct tutti_group_options {
    const char *name;   /**< for messages; NULL: the parent's name and the ranks */
    int64_t timeout_ms; /**< of making it, and of each call; 0: the parent's */
} tutti_group_options_t;

/**
 * A group of some ranks of `parent`. Its members make this call, with the same arguments; other
 * ranks do not.
 *
 * @param ranks    [count] ranks in the parent, each once; their order is that of the new ranks.
 *                 NULL: all of them, for another group of the same ranks
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller; it keeps the parent alive
 * @return         OK; TUTTI_NONMEMBER, and NULL in *out, for a rank that is not in the list
 * @thread         the parent's; blocks until all members have made it; other calls go on meanwhile
 * @cost           seven requests to the store for each member; no connection is made
 * @errors         ARG (a rank outside, or twice), TIMEOUT (names the members that did not come),
 *                 PEER (names those that died or left), ABORTED (the parent was, meanwhile), and
 *                 the failure of any member, as NOMEM (names it): all have the group or none has
 * @source         torch.distributed.new_group(use_local_synchronization=True)
 */
TUTTI_API tutti_status_t tutti_group_new(tutti_group_t *parent, const int *ranks, int count,
                                         const tutti_group_options_t *options, tutti_group_t **out);

/**
 * Ranks that pass one colour become a group, in the order of their keys (then of their ranks). A
 * collective of the parent.
 *
 * @param colour  at least 0; negative: this rank is in none of the groups
 * @param out     owned by the caller
 * @return        OK; TUTTI_NONMEMBER, and NULL in *out, for a negative colour
 * @thread        the parent's; blocks
 * @errors        as all_gather; as tutti_group_new; NOMEM, of any rank of the parent
 * @source        MPI_Comm_split
 */
TUTTI_API tutti_status_t tutti_group_split(tutti_group_t *parent, int colour, int key,
                                           tutti_group_t **out);

/**
 * Cut the ranks into groups of `size` consecutive ones; gives this rank's.
 *
 * @param size  divides the parent's
 * @param mine  out, owned by the caller
 * @thread      the parent's; blocks
 * @errors      ARG; as tutti_group_new
 * @source      torch.distributed.new_subgroups
 */
TUTTI_API tutti_status_t tutti_group_subgroups(tutti_group_t *parent, int size,
                                               tutti_group_t **mine);

/** What rank `rank` of `from` is called in `to`; -1 if it is not there, or they share no world.
 *  @thread the groups' @errors none */
TUTTI_API int tutti_group_translate(const tutti_group_t *from, int rank, const tutti_group_t *to);

/** How often the group has lost ranks: 0, and one more for each shrink. @thread any @errors none */
TUTTI_API uint32_t tutti_group_epoch(const tutti_group_t *group);

/* ---- after a failure ------------------------------------------------------------------------- */

typedef struct tutti_shrink_options {
    int64_t timeout_ms; /**< how long to wait for ranks that neither come nor are known to be dead;
                             0: 10 s */
} tutti_shrink_options_t;

/**
 * Go on without the ranks that are gone. Every survivor calls it after a call has failed; calls
 * still under way in the group end with ABORTED everywhere (it is revoked). Who is alive is agreed
 * on through the store: a rank that comes is, one that is known to be dead or does not come in time
 * is not. The survivors keep their order and become a group of the next epoch.
 *
 * A group shrinks once: after the next failure it is the new group that shrinks.
 *
 * Tensors of the old group stay what they are, and work in the new one. What they hold after the
 * failed call is up to the caller. Growing again is a new world at the next epoch: the ranks meet
 * in tutti_init() under a name that has the epoch in it.
 *
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller
 * @thread         the group's; blocks
 * @cost           a few requests to the store for each survivor
 * @errors         PEER (the store is gone with the rank that served it: `tutti run` keeps it in the
 *                 launcher; or the others went on without this rank), TIMEOUT, STATE (it has shrunk
 *                 already), UNSUPPORTED (a backend that does not outlive ranks; a group that has no
 *                 store)
 * @source         ULFM: MPI_Comm_revoke, MPI_Comm_agree, MPI_Comm_shrink
 */
TUTTI_API tutti_status_t tutti_group_shrink(tutti_group_t *group,
                                            const tutti_shrink_options_t *options,
                                            tutti_group_t **out);

/* ---- meshes ---------------------------------------------------------------------------------- */

/* A mesh: the ranks of a group laid out in rows and columns (and more), with a group for each.
 *
 * Example:
 *
 *     tutti_mesh_t *mesh; // 8 ranks as 2 × 4: ranks 0-3 are the first row
 *     TUTTI_CHECK(tutti_mesh_create(world, 2, (const int[]){2, 4}, (const char *[]){"dp", "tp"},
 *                                   &mesh));
 *     tutti_group_t *row = tutti_mesh_group(mesh, "tp");    // 4 ranks: those with my "dp"
 *     tutti_group_t *column = tutti_mesh_group(mesh, "dp"); // 2 ranks: those with my "tp"
 *     TUTTI_CHECK(tutti_all_reduce(row, x, TUTTI_SUM, NULL));
 *     TUTTI_CHECK(tutti_barrier(column, NULL));
 *     tutti_mesh_release(mesh);
 *
 * Rank r of the group stands at the coordinates of the rth element of a row-major array of the
 * mesh's shape. Unlike torch's DeviceMesh: a dimension always has a name, a slice may be sliced
 * again, and no assumption is made about hosts.
 */

/** Ranks in rows and columns; reference-counted; the thread of its group. */
typedef struct tutti_mesh tutti_mesh_t;

enum { TUTTI_MESH_DIMS_MAX = 8 };

/**
 * Lay out the ranks of a group. Every rank of it makes this call, with the same arguments.
 *
 * @param group  retained
 * @param dims   1 to TUTTI_MESH_DIMS_MAX
 * @param shape  [dims] sizes; their product is the group's size
 * @param names  [dims] different from each other and not empty; copied
 * @param out    owned by the caller
 * @thread       the group's; blocks until the members of each of this rank's groups have made it
 * @cost         a group for each dimension
 * @errors       ARG; as tutti_group_new
 * @source       torch.distributed.device_mesh.init_device_mesh
 */
TUTTI_API tutti_status_t tutti_mesh_create(tutti_group_t *group, int dims, const int *shape,
                                           const char *const *names, tutti_mesh_t **out);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_mesh_t *tutti_mesh_retain(tutti_mesh_t *mesh);
/** One owner fewer; NULL is fine. @thread the group's @errors none */
TUTTI_API void tutti_mesh_release(tutti_mesh_t *mesh);

/** Number of dimensions. @thread any @errors none */
TUTTI_API int tutti_mesh_dims(const tutti_mesh_t *mesh);
/** Name of a dimension; NULL outside. @thread any @errors none */
TUTTI_API const char *tutti_mesh_name(const tutti_mesh_t *mesh, int dim);
/** Index of the dimension of this name; -1 if there is none. @thread any @errors none */
TUTTI_API int tutti_mesh_dim(const tutti_mesh_t *mesh, const char *name);
/** Ranks along a dimension; 0 if there is none of this name. @thread any @errors none */
TUTTI_API int tutti_mesh_size(const tutti_mesh_t *mesh, const char *name);
/** Where this rank stands along a dimension; -1 if there is none of this name. @thread any
 *  @errors none */
TUTTI_API int tutti_mesh_coordinate(const tutti_mesh_t *mesh, const char *name);
/** The rank, in the group that was laid out, at coordinates [dims] of this mesh; what the mesh was
 *  sliced off stays at this rank's own. -1 outside. @thread any @errors none */
TUTTI_API int tutti_mesh_rank_at(const tutti_mesh_t *mesh, const int *coordinates);

/** The ranks that differ from this one along that dimension alone, in its order; borrowed. NULL if
 *  there is none of this name. @thread the group's @errors none */
TUTTI_API tutti_group_t *tutti_mesh_group(const tutti_mesh_t *mesh, const char *name);

/**
 * Some dimensions of a mesh, in the order given: this rank's rows, columns, planes. Makes no group.
 *
 * @param names  [count] dimensions of the mesh, each once
 * @param out    owned by the caller
 * @thread       the group's
 * @errors       NOT_FOUND (lists the names there are), ARG, NOMEM
 * @source       DeviceMesh["dp", "tp"]
 */
TUTTI_API tutti_status_t tutti_mesh_slice(tutti_mesh_t *mesh, const char *const *names, int count,
                                          tutti_mesh_t **out);

/**
 * A mesh of one dimension instead of several: all ranks that differ from this one along those
 * alone, the last named fastest. Its members make this call, with the same arguments.
 *
 * @param names  [count] dimensions of the mesh, each once
 * @param name   of the new dimension; not one of the mesh's
 * @param out    owned by the caller
 * @thread       the group's; blocks
 * @cost         a group
 * @errors       NOT_FOUND, ARG; as tutti_group_new
 * @source       DeviceMesh._flatten
 */
TUTTI_API tutti_status_t tutti_mesh_flatten(tutti_mesh_t *mesh, const char *const *names, int count,
                                            const char *name, tutti_mesh_t **out);

/* ---- works ----------------------------------------------------------------------------------- */

/* Works: calls under way.
 *
 * Example:
 *
 *     tutti_work_t *work;
 *     TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work)); // starts, and returns at once
 *     while (tutti_work_test(work) == TUTTI_PENDING) {
 *         puts("something useful meanwhile");
 *     }
 *     TUTTI_CHECK(tutti_work_wait(work, 0)); // its outcome
 *     tutti_work_release(work);
 *
 * A call that is given a place for a work starts and returns; the work is owned by the caller and
 * holds the tensors of the call, which must be left alone until it is done. Several may be under
 * way in a group. A work that is released early goes on. Where NULL is passed instead, the call
 * waits until it is done.
 *
 * A work of tensors of a device (devices.h) is a point in the order of the device's work, as a
 * CUDA event is: the call is made behind what was launched before, and what is launched behind
 * tutti_work_wait() comes behind the call. Neither waits on the host. One that is released without
 * a wait makes the device wait there, so that memory which is used again is never the call's.
 * tutti_work_test() and tutti_work_wait_any() look at whether the call has been made. Calls on the
 * host's memory come behind those on devices, and wait for them until the group's deadline; while
 * one is being made, works on the host's memory are PENDING.
 *
 * The group's timeout is that of one work. It counts from the first wait: for a message
 * (messages.h) and for a work of several calls from the first wait for this work, so that the calls
 * in it have one deadline together; for a collective from when somebody waits in its group and the
 * calls before it are done.
 */

/** A call under way; reference-counted; the thread of its group. */
typedef struct tutti_work tutti_work_t;

/**
 * Wait until a call is done. On tensors of a device: what is launched there from now on waits, and
 * the host does not; OK unless a failure is known by now. Later ones are told by
 * tutti_device_synchronize() and by the work.
 *
 * @param timeout_ms  how long to wait here; 0: until the call's own deadline
 * @return            OK; PENDING when timeout_ms passed first (the call goes on); its failure
 * @thread            the group's
 * @errors            PEER, TIMEOUT (also of calls on devices in front of it), MISMATCH, ABORTED
 */
TUTTI_API tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms);

/** OK when done, PENDING while under way, or its failure; moves it forward. @thread the group's
 *  @errors as tutti_work_wait */
TUTTI_API tutti_status_t tutti_work_test(tutti_work_t *work);

/**
 * Wait until one of several calls is done.
 *
 * @param works  [count], borrowed; of any groups of this thread; NULL entries are passed over, so
 *               that a work that has been dealt with can be set to NULL
 * @param index  out, also when that call failed: the first work that is done; -1: all are NULL
 * @return       OK or the failure of that call; END when there are no works
 * @thread       the groups'. The deadlines of messages among them count from now on, or earlier;
 *               a deadline that passes ends a call of its group, and so this wait
 * @cost         one look at each work whenever something has moved
 * @errors       ARG; as tutti_work_wait
 * @source       MPI_Waitany
 */
TUTTI_API tutti_status_t tutti_work_wait_any(tutti_work_t *const *works, int count, int *index);

/**
 * Wait until all of several calls are done, also when some fail. For those on tensors of a device
 * their device waits, as in tutti_work_wait().
 *
 * @param works  [count], as for tutti_work_wait_any
 * @return       OK, also when there are no works; or the first failure in the order of the works
 * @thread       the groups', as for tutti_work_wait_any
 * @errors       ARG; as tutti_work_wait
 * @source       MPI_Waitall
 */
TUTTI_API tutti_status_t tutti_work_wait_all(tutti_work_t *const *works, int count);

/** Whether it has ended, well or not, as far as is known: moves nothing. NULL has. @thread the
 * group's
 *  @errors none */
TUTTI_API bool tutti_work_is_done(const tutti_work_t *work);

/** Give the call up: aborts its group. Does not wait. @thread the group's @errors none */
TUTTI_API void tutti_work_abort(tutti_work_t *work);

/** The text of its failure, "" if it has none. @thread the group's @errors none */
TUTTI_API const char *tutti_work_error(const tutti_work_t *work);

/** Who sent what a receive that is done has received; -1 for other works. @thread the group's
 *  @errors none */
TUTTI_API int tutti_work_source(const tutti_work_t *work);

/** With which tag; -1 for other works. @thread the group's @errors none */
TUTTI_API int tutti_work_tag(const tutti_work_t *work);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_work_t *tutti_work_retain(tutti_work_t *work);

/** One owner fewer; NULL is fine. A call under way goes on. @thread the group's @errors none */
TUTTI_API void tutti_work_release(tutti_work_t *work);

#ifdef __cplusplus
}
#endif

#endif
