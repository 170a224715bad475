/* The inside of a group and of a work, shared by the files of this folder.
 *
 * A public call becomes a request (what was asked for), which is checked and becomes a start (what
 * the backend gets, and what must be held meanwhile), which becomes a work. All groups made of
 * one world are a family: they share its wires, and waiting in one moves all of them forward.
 */
#ifndef TT_GROUP_IMPL_H
#define TT_GROUP_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/objects.h>
#include <tutti/prepared.h>

#include "comm/backend/backend.h"
#include "comm/group/family_stream.h"
#include "core/base/fork.h"
#include "core/base/profiler.h"
#include "core/base/ref.h"

/* A tensor that a call holds; whether it writes it. */
typedef struct {
    tutti_tensor_t *x;
    bool is_output;
} tt_held_t;

/* Memory in the shared heap for what is packed or scaled, what is copied there and back, and the
 * tensors of a list. Packs come from the group's list of free ones and go back to it. */
typedef struct tt_pack {
    struct tt_pack *next;
    void *memory;
    size_t bytes;
    tt_held_t *held;
    int held_count, capacity; /* of tensors, and of copies */
    tt_packed_t packed;
} tt_pack_t;

typedef enum {
    TT_WORK_CALL,
    TT_WORK_MESSAGE,
    TT_WORK_STREAMED, /* on tensors of a device */
    TT_WORK_BUNDLE,
    TT_WORK_KINDS
} tt_work_kind_t;

/* What a group and a work know of a prepared call. */
typedef struct tt_prepared_entry {
    LIST_ENTRY(tt_prepared_entry) of_group;
    tutti_group_t *group; /* NULL: it was released */
    tt_prepared_t *found; /* the backend's, or NULL */
    tutti_work_t *work;   /* of the last start, while it is under way */
} tt_prepared_entry_t;

/* A call or a message under way, or a bundle of them. Works come from the group's own lists, one
 * for each kind, and go back to them, so that calling allocates nothing in the steady state. */
struct tutti_work {
    tt_ref_t ref;
    tt_work_kind_t kind;
    tutti_group_t *group;            /* retained until the caller releases the work */
    tutti_work_t *next;              /* in the list of free ones, or of those under way */
    bool is_under_way;               /* in the group's list, with its tensors */
    bool is_released;                /* by its caller, who held the group for it */
    tt_op_t *op;                     /* behind the work, of its kind; NULL: a bundle */
    char *error;                     /* the text of a failure */
    tt_streamed_t *streamed;         /* held; of what is made by the family's stream, or NULL */
    tt_pack_t *pack;                 /* or NULL */
    tutti_custom_reduction_t custom; /* of a call that has one */
    tt_prepared_entry_t *prepared;   /* that it is a start of, or NULL */
    tutti_work_t **parts;            /* [part_count] of a bundle; owned; kept with the work */
    int part_count, part_capacity;
    tutti_work_t *self; /* what is no bundle is its own and only part */
    int tensor_count;
    tutti_tensor_t **tensors; /* behind the work; room for what its kind may hold */
    tt_profile_call_t profiled;
};

typedef struct {
    tt_ref_t ref;
    LIST_HEAD(, tutti_group) groups;
    tt_group_stream_t *stream;  /* of calls on tensors of devices; NULL: there was none */
    _Atomic uintptr_t waits_in; /* the thread that waits in a call; 0: none */
} tt_family_t;

typedef struct tt_coalesced tt_coalesced_t;

/* How many groups of a list of ranks there have been, so that each gets keys of its own. */
typedef struct {
    uint64_t list; /* a hash */
    uint64_t count;
    uint64_t refused; /* wrong lists of this rank, of which this may have been meant */
} tt_turn_t;

struct tutti_group {
    tt_ref_t ref;
    pid_t owner;    /* a forked child has no part in it */
    unsigned forks; /* as tt_forks was */
    int rank, size;
    char *name;
    uint32_t epoch;
    int64_t timeout_ms;
    tutti_store_t *store; /* with the group's prefix; NULL when alone */
    uint64_t tag;
    uint64_t calls;             /* begun so far, but for messages */
    uint64_t streamed_tag;      /* of the call that the family's stream makes */
    uint64_t barriers, shrinks; /* monitored ones, and attempts whose end is known, so far */
    uint32_t shrunk_to;         /* the epoch of the group that it has shrunk to; 0: none */
    tt_turn_t *turns;           /* of groups made of this one */
    int turn_count;
    uint64_t refused; /* lists of ranks that were wrong here, so far: others may have counted */

    tt_family_t *family;
    LIST_ENTRY(tutti_group) of_family;
    tutti_group_t *root; /* the world this group comes from, retained; NULL: it is one itself */
    int *root_ranks;     /* [size] in the world; NULL for a world */
    int local_rank;      /* of a world: among the ranks of this host; -1: not known */
    int local_size;      /* 0: not known */

    tutti_work_t *free_works[TT_WORK_KINDS];
    tutti_work_t *first, *last; /* under way, in order */
    tt_pack_t *free_packs;
    size_t *counts;             /* [2 size] of the call that is being started; NULL until needed */
    atomic_bool is_abort_asked; /* of the family's stream, which is in a call */
    bool has_abort_cause;       /* the first one that asked has said why */
    char abort_cause[TT_ERROR_TEXT_BYTES]; /* which the stream reads */
    bool is_coalescing;                    /* between coalesce_begin and _end */
    tt_coalesced_t *coalesce; /* the same; or of several calls that the family's stream makes */
    LIST_HEAD(, tt_prepared_entry) prepared; /* all there are */
    const tt_backend_ops_t *backend;
    _Alignas(16) unsigned char state[];
};

typedef struct {
    const char *name;
    int rank, size;
    tutti_store_t *store; /* retained by the group */
    uint32_t epoch;
    int64_t timeout_ms;
    const char *address;   /* of this rank, as others reach it; NULL: loopback */
    tutti_group_t *parent; /* or NULL: a world */
    const int *ranks;      /* [size] in the parent */
    void *peers;           /* of a simulated rank; NULL: the backend finds them */
    bool outlives;         /* the parent, which may have failed */
} tt_group_options_t;

tutti_status_t tt_group_create(const tt_group_options_t *options, tutti_group_t **out);

/* As tutti_group_release(), without waiting for calls on devices while others have it. */
void tt_group_let_go(tutti_group_t *group);

/* STATE in a child that was forked from the process that made the group. */
tutti_status_t tt_group_refuse_forked(const char *call, const tutti_group_t *group);

static inline bool tt_group_is_forked(const tutti_group_t *group)
{
    return group->forks != tt_forks;
}

static inline tutti_status_t tt_group_check_forked(const char *call, const tutti_group_t *group)
{
    return tt_group_is_forked(group) ? tt_group_refuse_forked(call, group) : TUTTI_OK;
}

/* It is in the group's list, from which the group's release takes it. */
void tt_group_add_prepared(tutti_group_t *group, tt_prepared_entry_t *entry, tt_prepared_t *found);
void tt_group_remove_prepared(tt_prepared_entry_t *entry);

/* ---- group_start.c: what has been checked ---- */

typedef struct {
    tt_call_t call;
    const tt_message_t *message;    /* instead of the call */
    tutti_tensor_t *const *tensors; /* borrowed; held while it is under way */
    int tensor_count;
    bool writes_first; /* of the tensors */
    tt_pack_t *pack;   /* taken over, also when it fails; or NULL */
} tt_start_t;

/* A start and what it points to. */
typedef struct {
    tt_start_t start;
    tt_message_t message;
    const void *pieces[TUTTI_CONTRIBUTION_PIECES_MAX];
    tutti_tensor_t *tensors[TUTTI_CONTRIBUTION_PIECES_MAX + 1];
} tt_described_t;

/* Start a call or a message; waits when out is NULL, unless calls are coalesced. */
tutti_status_t tt_group_start(tutti_group_t *group, tt_start_t *start, tutti_work_t **out);

/* A collective on memory that is no tensor's; waits. `like` says all but pieces and out. The memory
 * is free when this returns, also after a failure: an engine that may hold it (holds in backend.h)
 * works on copies. `out` may be the piece, in place. */
tutti_status_t tt_group_call_plain(tutti_group_t *group, const tt_call_t *like, tutti_bytes_t piece,
                                   tutti_buffer_t out);

/* ARG if it is negative; `zero` says what 0 means. */
static inline tutti_status_t tt_group_check_timeout(const char *call, int64_t timeout_ms,
                                                    const char *zero)
{
    return timeout_ms >= 0 ? TUTTI_OK
                           : TT_FAIL(TUTTI_ERR_ARG, "%s: timeout_ms is %lld; %s", call,
                                     (long long)timeout_ms, zero);
}

/* STATE while calls are coalesced: `call` cannot be; and in a forked child. */
tutti_status_t tt_group_check_callable(const tutti_group_t *group, const char *call);

/* The same, and as tt_group_settle(). */
tutti_status_t tt_group_check_free(tutti_group_t *group, const char *call);

/* While calls are coalesced: what was fused so far is started, for anything else begins. */
tutti_status_t tt_coalesce_flush(tutti_group_t *group);

/* ---- work.c ---- */

/* One work for several, with room for `count` at first. It takes works over, also when it fails. */
tutti_status_t tt_bundle_open(tutti_group_t *group, int count, tutti_work_t **out);
tutti_status_t tt_bundle_add(tutti_work_t *bundle, tutti_work_t *part);

/* A work of a call of the family's stream; NULL without memory, or if it was not pushed. */
tutti_work_t *tt_work_of_streamed(tutti_group_t *group, tt_streamed_t *call);
void tt_work_drop_streamed(tutti_work_t *work);

/* To the caller in *out; waited for and released if there is no `out`. */
tutti_status_t tt_bundle_hand_over(tutti_work_t *bundle, tutti_work_t **out);

/* Its caller waits for it from now on. A bundle is one work with one deadline: that of each of its
 * parts counts from here. */
void tt_work_begin_wait(tutti_work_t *work, int64_t now);

/* Whether it is under way, as far as is known: while the family's stream is in a call, nobody else
 * looks at works of the host. */
bool tt_work_is_pending(tutti_work_t *work);

/* What is under way of one on the host's memory, or NULL. */
tt_op_t *tt_work_pending(const tutti_work_t *work);

/* The same for the caller of a work; the text of a failure is recorded again. */
tutti_status_t tt_work_outcome(tutti_work_t *work);

/* ---- group_progress.c ---- */

/* Wait for an operation, moving the family forward. PENDING when the deadline came first. */
tutti_status_t tt_group_wait(tutti_group_t *group, tt_op_t *op, tt_deadline_t deadline);

/* Whether a group of the family has calls under way. */
bool tt_group_is_family_busy(const tutti_group_t *group);

/* Whether another one has. */
bool tt_group_is_family_waiting(const tutti_group_t *group);

/* A failure of this rank alone, with its text in tutti_last_error(), gives the group up: the others
 * get errors that name rank and text. */
void tt_group_fail(tutti_group_t *group, tutti_status_t status);

/* On the family's stream: until the event of a device is passed, moving the family forward. Errors:
 * ABORTED (this rank aborts the group meanwhile). */
tutti_status_t tt_group_await_device(tutti_group_t *group, tt_event_t event);

/* The same as tt_group_settle(), by a deadline. */
tutti_status_t tt_group_settle_by(tutti_group_t *group, tt_deadline_t deadline);

/* ---- group_works.c ---- */

/* Of a work that is done, with its outcome. */
void tt_work_tell_profile(tutti_work_t *work, tutti_status_t outcome);

/* If its beginning was profiled. */
static inline void tt_work_end_profile(tutti_work_t *work, tutti_status_t outcome)
{
    if (work->profiled.begin_ns != 0) {
        tt_work_tell_profile(work, outcome);
    }
}

/* While a thread waits for it. */
static inline bool tt_work_profile_wait(const tutti_work_t *work)
{
    return tt_profile_is_on() && work->part_count > 0 && work->parts[0]->profiled.begin_ns != 0 &&
           tt_profile_begin(TT_PROFILE_WAIT, work->parts[0]->profiled.name, 0);
}

/* Works that are done let their tensors go. */
void tt_group_reap(tutti_group_t *group);
void tt_group_free_works(tutti_group_t *group);

/* After an operation has failed: the engine may still touch its memory, or it is done with it. */
bool tt_group_is_held(tutti_group_t *group, const tt_op_t *op);

/* ---- group_pack.c ---- */

/* With room for so many tensors and copies. */
tutti_status_t tt_pack_take(tutti_group_t *group, size_t bytes, int capacity, tt_pack_t **out);
/* At least so much; memory that grows is new memory. */
tutti_status_t tt_pack_grow(tutti_group_t *group, tt_pack_t *pack, size_t bytes, int capacity);
void tt_pack_hold(tt_pack_t *pack, tutti_tensor_t *x, bool is_output);
void tt_pack_add(tt_pack_t *pack, tt_copy_t copy);

/* [size]; each gets its place in `memory`, NULL: they lie side by side. */
void tt_pack_hold_list(tt_pack_t *pack, tutti_tensor_t *const *list, int size, char *memory,
                       bool is_out);

/* Their versions say that they are other values from now on. */
void tt_pack_touch_outputs(const tt_pack_t *pack);

/* For the call; NULL: there are none. */
static inline const tt_packed_t *tt_pack_copies(const tt_pack_t *pack)
{
    return pack != NULL && pack->packed.count > 0 ? &pack->packed : NULL;
}

/* The call is done: the tensors go, and the pack comes back to the group. */
void tt_pack_give_back(tutti_group_t *group, tt_pack_t *pack);
void tt_pack_free_all(tutti_group_t *group);

/* ---- group_request.c ---- */

/* What a public call asks for: a message, or a collective, of which a buffer is one tensor, or a
 * list of [size]. */
typedef struct {
    const tutti_transfer_t *transfer; /* the message; nothing else is said of it */
    tt_collective_t collective;
    tutti_reduction_t op;
    int root;
    bool is_in_place; /* input and output are x */
    bool is_list, is_uneven, is_leaves;
    tutti_tensor_t *input, *output;
    tutti_tensor_t *const *inputs, *const *outputs;
    const int64_t *input_counts, *output_counts; /* [size] rows of what is cut unevenly */
    const tutti_contributions_t *leaves;         /* instead of the input */
    const double *factor;
    const tutti_custom_reduction_t *custom;
    const void *site;
    tt_prepared_t *prepared; /* of such a call, or NULL */
    size_t *counts;          /* [2 size] room for the check; NULL: the group's */
} tt_request_t;

tutti_status_t tt_group_request(tutti_group_t *group, const tt_request_t *request,
                                tutti_work_t **work);

/* The same checks; what the call is, but for lists and scaled contributions, which are packed when
 * it starts. Its counts are the group's, until the next request. */
tutti_status_t tt_group_describe(tutti_group_t *group, const tt_request_t *request,
                                 tt_described_t *out);

/* ---- group_stream.c: calls on tensors of a device ---- */

/* Whether one of its tensors is a device's. */
bool tt_request_is_on_device(const tutti_group_t *group, const tt_request_t *request);

/* Checked here; made by the family's stream, behind what was launched on the device so far. What
 * will be launched waits for it: from now on, or from when somebody waits for the work. Errors: as
 * of the call; ARG (tensors in two places). */
tutti_status_t tt_group_stream_call(tutti_group_t *group, const tt_request_t *request,
                                    tutti_work_t **work);

/* The checks alone. */
tutti_status_t tt_group_stream_check(tutti_group_t *group, const tt_request_t *request);

/* Several calls that start together, and are one: made, with their checks; begun; dropped by
 * tt_streamed_free(). Small all_reduces are fused as coalesced ones are, if the others' are. */
tutti_status_t tt_group_stream_open(tutti_group_t *group, const char *name, bool fuses,
                                    tt_streamed_t **out);
tutti_status_t tt_group_stream_add(tt_streamed_t *calls, const tt_request_t *request);
/* Takes them over. */
tutti_status_t tt_group_stream_start(tt_streamed_t *calls, tutti_work_t **work);

/* Whether the family is the caller's by the deadline (0: now), as one thread at a time uses it: its
 * stream has nothing to do, or is the caller. It stays the caller's until that issues a call on a
 * device. */
static inline bool tt_group_has_family(const tutti_group_t *group, tt_deadline_t deadline)
{
    return __builtin_expect(group->family->stream == NULL, 1) ||
           tt_stream_pass(group->family->stream, deadline);
}

/* Until the family is the caller's. Errors: TIMEOUT, when the group's deadline passes first; it is
 * given up then, for the others are on their way into a call that this rank cannot make. */
static inline tutti_status_t tt_group_settle(tutti_group_t *group)
{
    return __builtin_expect(group->family->stream == NULL, 1)
               ? TUTTI_OK
               : tt_group_settle_by(group, tt_deadline_in_ms(group->timeout_ms));
}

/* The number that calls have which start now. */
static inline uint64_t tt_group_tag(const tutti_group_t *group)
{
    const tt_group_stream_t *stream = group->family->stream;
    return __builtin_expect(stream != NULL, 0) && tt_group_stream_is_inside(stream)
               ? group->streamed_tag
               : group->tag;
}

/* Room for counts of parts, [2 size], unless there is some: the group's, until the next request. */
tutti_status_t tt_group_take_counts(tutti_group_t *group, size_t **counts);

/* ---- group_leaves.c ---- */

/* This rank's pieces are as many as its leaves want. */
tutti_status_t tt_group_check_leaves(const char *name, const tutti_group_t *group,
                                     const tutti_contributions_t *leaves);

tutti_status_t tt_group_reduce_leaves(tutti_group_t *group, const tt_request_t *request,
                                      tutti_work_t **work);
tutti_status_t tt_group_describe_leaves(tutti_group_t *group, const tt_request_t *request,
                                        tt_described_t *out);

/* ---- group_prepared.c ---- */

tutti_status_t tt_group_prepare(tutti_group_t *group, const tt_request_t *request,
                                tutti_prepared_t **out);

/* ARG, SHAPE, or the failure of a null tensor. */
tutti_status_t tt_group_check_tensor(const char *call, const char *name, const tutti_tensor_t *x);

/* Of contiguous tensors. */
static inline bool tt_tensors_overlap(const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    const size_t a_bytes = tutti_tensor_bytes(a), b_bytes = tutti_tensor_bytes(b);
    const char *x = tutti_tensor_data(a), *y = tutti_tensor_data(b);
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* ARG: two outputs of a list have memory in common. */
tutti_status_t tt_group_check_apart(const tutti_group_t *group, const char *call,
                                    tutti_tensor_t *const *outputs);
tutti_status_t tt_group_check_root(const tutti_group_t *group, const char *call, int root);

/* ---- group_messages.c ---- */

/* A send or a receive, made at `site`. */
tutti_status_t tt_group_start_transfer(tutti_group_t *group, const tutti_transfer_t *transfer,
                                       const void *site, tutti_work_t **work);
tutti_status_t tt_group_describe_transfer(const tutti_group_t *group,
                                          const tutti_transfer_t *transfer, const void *site,
                                          tt_described_t *out);

/* Several, on the host's memory. */
tutti_status_t tt_group_start_batch(tutti_group_t *group, const tutti_transfer_t *transfers,
                                    int count, const void *site, tutti_work_t **work);

/* ---- coalesce_take.c ---- */

/* Calls that start from now on become one work; and its end, which waits if there is no `work`. A
 * failure so far is what it returns. */
tutti_status_t tt_coalesce_open(tutti_group_t *group);
tutti_status_t tt_coalesce_close(tutti_group_t *group, tutti_status_t status, tutti_work_t **work);

/* An all_reduce that may be fused with its neighbours: true when it was taken. */
bool tt_coalesce_take(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                      const void *site, tutti_status_t *status);

/* ---- group_meet.c: meeting in the store ---- */

/* Where the members of a new group meet when they have made it, in its store. Who still waits for
 * others to make it stops when there is a verdict. */
#define TT_MEET_STAND "stand"
#define TT_MEET_VERDICT "verdict"

/* Ranks of a group that meet. */
typedef struct {
    tutti_group_t *group; /* whose family's calls are moved forward meanwhile */
    tutti_store_t *store; /* borrowed */
    const int *ranks;     /* [size] in the group; NULL: from `first` on */
    int first, rank, size;
    int64_t timeout_ms;
    bool heeds;          /* it is over when the group has failed, or any rank fails in it */
    tutti_status_t mine; /* below 0: a failure of this rank, whose text is recorded. It does not
                          * take part; unless a verdict stands already, its failure is that */
    bool is_complete;    /* out: all were there */
    bool has_lost;       /* out: those that have not come are gone rather than late */
    bool is_late;        /* out: this rank is one of those */

    /* out: none was there, for one has failed: which, with what, and why */
    tutti_status_t failure;
    int failed;
    char cause[TT_ERROR_TEXT_BYTES];
} tt_meet_t;

/* Waits until all ranks have come, all that are not gone, one has failed, or the time is up; then
 * all that came hear the same: who of them was there (in `came`, [size]; NULL: of no interest to
 * one that has failed). `place` is a prefix of this meeting's own in the store. Errors: those of
 * the store. Where they heed the group, such a failure is the outcome for all; and if the store
 * does not take it, the group has failed. */
tutti_status_t tt_group_meet(tt_meet_t *meet, const char *place, bool *came);

/* The same where all must come, to `what`; else PEER or TIMEOUT, which name the others, or the
 * failure of one, which they return as tt_group_agree() does. */
tutti_status_t tt_group_meet_all(tt_meet_t *meet, const char *place, const char *what);

/* Whether a rank has come to a meeting, or has failed there. Waits for one, but for a rank with a
 * failure of its own, which looks once; takes no part. Errors: those of the store, the group's. */
tutti_status_t tt_group_meet_has_begun(const tt_meet_t *meet, const char *place, bool *begun);

/* "1, 3, 5 and 12 more" */
void tt_ranks_print(const bool *chosen, bool value, int size, char *text, size_t bytes);

#endif
