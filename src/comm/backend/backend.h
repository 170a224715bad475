/* Backends: engines that carry out collectives and messages for a group. The group checks
 * arguments, keeps works and texts; the backend moves bytes. One thread at a time uses a backend's
 * group.
 *
 * Adding a backend: one file with a tt_backend_ops_t, one line in backends.def. A backend in a
 * plug-in (mpi) has a stub there, which loads it when it is asked for.
 */
#ifndef TT_BACKEND_H
#define TT_BACKEND_H

#include <tutti/store.h>

#include "comm/coll/coll.h"
#include "core/device/device.h"

typedef struct {
    const char *name; /* of the group; copied */
    int rank, size;
    tutti_store_t *store; /* borrowed, with the group's prefix; NULL for a group of one */
    uint32_t epoch;
    int64_t timeout_ms;
    void *parent;            /* state of the group this one is part of, or NULL */
    const int *parent_ranks; /* [size] the members' ranks in the parent */
    /* For an engine that waits in open: moves the calls of the parent's family forward, and fails
     * if the parent or another member has. NULL: there is no parent. */
    tutti_status_t (*look)(void *user);
    void *look_user;
    const char *address; /* of this rank, as others reach it; NULL: loopback */
    void *peers;         /* for simulated ranks: tt_peers_t to use (retained); NULL: join */
} tt_backend_options_t;

typedef struct {
    const char *name, *about;
    size_t state_bytes;

    /* This process's rank in the world and the world's size, for engines that know it without the
     * launcher's variables and need no store; else NULL. */
    tutti_status_t (*world)(int *rank, int *size);

    /* Blocks until the ranks it must meet have come or timeout_ms is over. Only the members of a
     * group call it. On failure nothing is left to close. */
    tutti_status_t (*open)(void *state, const tt_backend_options_t *options);

    /* Every member has come back from `open`: remove what `rank` put into the store for it. NULL:
     * it put nothing there. */
    tutti_status_t (*forget)(tutti_store_t *store, int rank);

    /* Leaves; calls under way are given up. Does not wait. */
    void (*close)(void *state);

    /* Begin a collective. `run` must stay where it is until its status is not PENDING. Does not
     * block. Errors: those of the group, and what is found before anything is sent (NOMEM, ARG,
     * UNSUPPORTED). */
    tutti_status_t (*start)(void *state, const tt_call_t *call, tt_run_t *run);

    /* Find out what depends on the descriptor of a call alone, for call->prepared of those that are
     * started with it. Tells others nothing. The caller has it until unprepare, before close.
     * NULL: start looks at every call again. */
    tutti_status_t (*prepare)(void *state, const tt_call_t *call, tt_prepared_t **prepared);
    void (*unprepare)(tt_prepared_t *prepared);

    /* Begin to send, receive or probe for a message; as start. When a receive is done, op->source
     * and op->tag say which rank sent it. Messages of two ranks with one tag keep their order;
     * collectives under way neither wait for messages nor hold them up. */
    tutti_status_t (*start_message)(void *state, const tt_message_t *message, tt_message_op_t *op);

    /* Look for a message as a probe does, without waiting: OK, with what a probe that is done has
     * in *op, which is no operation under way; PENDING: there is none. A backend that does not know
     * the dtype of a message says U8, and so many bytes. */
    tutti_status_t (*iprobe)(void *state, const tt_message_t *message, tt_message_op_t *op);

    /* Move everything forward; does not block. */
    void (*progress)(void *state);

    /* Whether something is on its way out that no operation waits for any more, and another rank
     * does: progress is needed. NULL: it never is. */
    bool (*is_busy)(const void *state);

    /* OK, PENDING, or the failure, with its text recorded; does not block. */
    tutti_status_t (*test)(void *state, tt_op_t *op);

    /* The same after waiting until the deadline at most. */
    tutti_status_t (*wait)(void *state, tt_op_t *op, tt_deadline_t deadline);

    /* Wait for several operations, until what is waited for is over, or the deadline. */
    void (*wait_until)(void *state, const tt_until_t *until, tt_deadline_t deadline);

    /* Whether the engine may still touch the memory of an operation that failed: then it must
     * not be used again. It may be asked until it says no; what is held when the group closes stays
     * so. NULL: it never does, once the failure is known. */
    bool (*holds)(void *state, const tt_op_t *op);

    /* Give the group up on all ranks, which are told the cause where there is a way; it may be "".
     */
    void (*abort)(void *state, const char *cause);

    /* The same for a failure of this rank alone, with its text in tutti_last_error(): the others
     * get errors that name this rank, and the text. NULL: they know no more than after abort. */
    void (*fail)(void *state, tutti_status_t status);

    /* The device whose memory peers reach in place; borrowed. */
    tt_device_t *(*memory)(void *state);

    /* Whether a rank is known to have died or left; may connect to it to find out. NULL: the
     * backend does not outlive its ranks.
     */
    bool (*is_gone)(void *state, int rank);

    /* This rank's number among the ranks of its machine, and how many they are. NULL: it does not
     * know. */
    void (*locate)(void *state, int *local_rank, int *local_size);

    /* How many calls so far gave sums that are not canonical; NULL: none ever does. */
    int64_t (*uncanonical_sums)(const void *state);

    /* Values that calls of a kind, and messages, have sent over wires so far; NULL: it does not
     * know.
     */
    int64_t (*sent_bytes)(const void *state, tt_collective_t collective);
    int64_t (*sent_message_bytes)(const void *state);

    /* Write the last calls of the world's groups into a file, as docs/formats/dump.md says. */
    tutti_status_t (*dump)(void *state, const char *path);

    /* OK, or the failure after which the group is of no use, with its text recorded; also when only
     * another rank has seen it so far. */
    tutti_status_t (*status)(void *state);
} tt_backend_ops_t;

/* Every backend there is; the end is NULL. */
extern const tt_backend_ops_t *const tt_backends[];

/* The backend that TUTTI_BACKEND names for tensors of the CPU: one name, or one for each device, as
 * in "cpu:native,cuda:nccl". Errors: ARG (names what there is), UNSUPPORTED (cuda). */
tutti_status_t tt_backend_choose(const tt_backend_ops_t **out);

#define X(name) extern const tt_backend_ops_t tt_backend_##name;
#include "comm/backend/backends.def"
#undef X

#endif
