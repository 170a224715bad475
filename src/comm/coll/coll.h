/* Collectives and messages of one group over the wires of this project: starting, moving forward,
 * waiting.
 *
 * A call gets the next sequence number and is shown in a flag slot at once; calls are then carried
 * out one after the other, each in these states:
 *
 *     QUEUED     no slot is free yet
 *     SHOWN      the slot is written; waiting for the slots of the mates (ranks of this host)
 *     RUNNING    the mates have come and agree: the plan is carried out
 *     POSTED     this rank is done; waiting until the mates are done with its memory
 *
 * Ranks of other hosts meet in the frames of the plan's messages, which carry the call's sign.
 * Messages between two ranks (tt_coll_start_message) are not queued with the calls: p2p.h.
 *
 * Every call is prepared: what depends on its descriptor alone is found out once and kept
 * (coll_prepared.c). Small calls and large ones go through the same states and differ in their
 * executor: a plan of one round whose pieces lie in the flags needs no books (coll_small.c).
 *
 * An object belongs to one rank and is used by one thread at a time. In the steady state (shapes
 * seen before, memory in the heap) a call allocates nothing and makes no system call.
 */
#ifndef TT_COLL_H
#define TT_COLL_H

#include <tutti/dtype.h>
#include <tutti/reduction.h>

#include "comm/coll/flags.h"
#include "comm/coll/operation.h"
#include "comm/coll/plan.h"
#include "comm/coll/rules.h"
#include "comm/wire/peers.h"

typedef struct tt_coll tt_coll_t;
typedef struct tt_prepared tt_prepared_t;

/* A call: its descriptor, then what may differ from one call to the next that is otherwise like it.
 */
typedef struct {
    tt_collective_t collective;
    tutti_reduction_t reduction;
    tutti_dtype_t dtype, out_dtype; /* of the pieces; of out */
    size_t count;                   /* elements of a part, as in collectives.def */
    /* As in tt_plan_request_t; NULL or [size], borrowed until start returns. */
    const size_t *counts, *recv_counts;
    int root;
    int leaves;       /* 0: one for each rank */
    const int *first; /* [size + 1] or NULL; borrowed until start returns */
    int piece_count;
    const void *const *pieces;
    void *out;
    uint64_t tag;
    const void *site;        /* an address in the code that made the call; NULL: not known */
    tt_prepared_t *prepared; /* of a call with this descriptor; NULL: it is looked up */
    bool is_awaited;         /* its caller waits for it: it may take a moment to start */
} tt_call_t;

/* Whether another order of adding up may give other bits. */
static inline bool tt_call_depends_on_order(const tt_call_t *call)
{
    return tt_collective_reduces(call->collective) && tutti_dtype_is_float(call->dtype) &&
           call->reduction != TUTTI_MIN && call->reduction != TUTTI_MAX;
}

typedef struct tt_cached_plan tt_cached_plan_t;

typedef enum { TT_RUN_QUEUED, TT_RUN_SHOWN, TT_RUN_RUNNING, TT_RUN_POSTED } tt_run_state_t;

/* A collective call under way. The memory is the caller's and must stay until it has a status. */
typedef struct tt_run {
    tt_op_t op;
    struct tt_run *next;
    tt_run_state_t state;
    uint64_t sequence, fingerprint;
    tt_call_t call;
    const void *pieces[TT_TREE_DEPTH_MAX];
    const tt_cached_plan_t *plan; /* of the prepared call */
    tt_prepared_t *prepared;      /* of which it is a user */
    int arrived;                  /* so many mates are known to have come */
    int round;
} tt_run_t;

static inline tt_run_t *tt_run_of(tt_op_t *op)
{
    return op->kind == TT_OP_CALL ? (tt_run_t *)(void *)op : NULL;
}

/* Where ranks that wait for long say so, for those of other hosts: small values by kind and rank. A
 * call takes a fraction of a second at most. */
typedef struct {
    /* Over what was there. */
    tutti_status_t (*put)(void *user, const char *what, int rank, const void *value, size_t bytes);
    /* END: there is none, or more than `capacity`. */
    tutti_status_t (*get)(void *user, const char *what, int rank, void *value, size_t capacity,
                          size_t *bytes);
    void *user;
} tt_board_t;

typedef struct {
    int rank, size;
    tt_peers_t *peers;     /* retained */
    const int *peer_ranks; /* [size] their ranks in peers; NULL: the same numbers */
    const char *name;      /* of the group, for messages; borrowed */
    uint64_t group;        /* a number that names the group in fingerprints */
    uint32_t epoch;
    int64_t timeout_ms; /* of each call */
    int64_t report_ms;  /* a wait of this length is logged; 0: 30 s */
    tt_coll_t *world;  /* whose ranks peer_ranks are; outlives this group; NULL: it is one itself */
    tt_board_t board;  /* of this group; may be empty */
    const char *rules; /* which algorithms (rules.h); NULL: the built-in choice */
} tt_coll_options_t;

/* Allocates the flag block; the place must reach the mates of the group, and theirs must come here
 * with tt_coll_connect, before the first call. Ranks of other hosts need nothing. */
tutti_status_t tt_coll_create(const tt_coll_options_t *options, tt_coll_t **out);
bool tt_coll_is_mate(const tt_coll_t *coll, int rank);
bool tt_coll_has_mates(const tt_coll_t *coll);
tt_place_t tt_coll_place(const tt_coll_t *coll);
tutti_status_t tt_coll_connect(tt_coll_t *coll, int rank, tt_place_t place);

/* Leaves the group; runs under way are given up. */
void tt_coll_release(tt_coll_t *coll);

/* run->status: PENDING, or OK when it is done already. Errors are those found before anything is
 * shown to others (ARG, DTYPE, NOMEM), or the failure that the group already has. */
tutti_status_t tt_coll_start(tt_coll_t *coll, const tt_call_t *call, tt_run_t *run);
tutti_status_t tt_coll_start_message(tt_coll_t *coll, const tt_message_t *message,
                                     tt_message_op_t *op);

/* What tt_coll_start finds out about a call before it tells others, for calls with this descriptor:
 * fingerprint, plan, executor. Nothing is told to others. Errors: ARG, UNSUPPORTED, NOMEM. */
tutti_status_t tt_coll_prepare(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out);
void tt_prepared_release(tt_prepared_t *prepared); /* before the group; NULL is fine */

/* Look for a message without waiting, and leave it where it is: OK, with source, tag, dtype and
 * count in *op, which is no operation under way; PENDING: there is none. */
tutti_status_t tt_coll_iprobe(tt_coll_t *coll, const tt_message_t *message, tt_message_op_t *op);

/* Move all calls forward without blocking. */
void tt_coll_progress(tt_coll_t *coll);

/* PENDING, OK or the failure; looks for dead and late ranks now and then. */
tutti_status_t tt_coll_test(tt_coll_t *coll, tt_op_t *op);

/* The same, but waits: until the operation's end or `deadline` (then PENDING). */
tutti_status_t tt_coll_wait(tt_coll_t *coll, tt_op_t *op, tt_deadline_t deadline);

/* Waits for something else: for one of several operations, say. */
void tt_coll_wait_until(tt_coll_t *coll, const tt_until_t *until, tt_deadline_t deadline);

/* Give the group up, here and on all ranks. */
void tt_coll_abort(tt_coll_t *coll);

/* Whether a rank is known to have died, or to have left the group or the job. Connects to a rank of
 * another host, so that it is known soon. */
bool tt_coll_is_gone(tt_coll_t *coll, int rank);

/* The group fails if another rank is known to have given it up. Calls that wait see that anyway. */
void tt_coll_listen(tt_coll_t *coll);

/* The first failure of the group and its text; OK and "". */
tutti_status_t tt_coll_status(const tt_coll_t *coll);
const char *tt_coll_error(const tt_coll_t *coll);

/* Write the recorders of all groups of the world as JSON. Errors: IO, NOMEM. */
tutti_status_t tt_coll_dump(tt_coll_t *coll, const char *path);

/* ---- for what measures it ---- */

/* The algorithm of the last call that was carried out; NULL: there was none. */
const tt_algorithm_t *tt_coll_last_algorithm(const tt_coll_t *coll);

/* Calls so far whose bits depended on the order, and were not made in the canonical one. */
int64_t tt_coll_uncanonical_sums(const tt_coll_t *coll);

/* What its calls travel over: "self", "shm", "tcp", "shm+tcp". */
const char *tt_coll_wires(const tt_coll_t *coll);

/* The rules that choose from the next call on; every rank changes them between the same calls. */
tt_coll_rules_t *tt_coll_change_rules(tt_coll_t *coll);

#endif
