/* A call, a call under way, and what a group is made with: what the executor, messages, diagnosis
 * and the engine (coll.h) have in common.
 */
#ifndef TT_CALL_H
#define TT_CALL_H

#include <tutti/collectives.h>
#include <tutti/dtype.h>

#include "comm/exec/flags.h"
#include "comm/exec/operation.h"
#include "comm/plan/plan.h"
#include "comm/algorithm/rules.h"
#include "comm/wire/peers.h"

typedef struct tt_coll tt_coll_t;
typedef struct tt_prepared tt_prepared_t;

/* Bytes of the caller's and their place in a call's own memory: the call's piece or out are there.
 * They are copied in before the call begins, and out when it is done. */
typedef struct {
    void *memory, *packed;
    size_t bytes; /* of memory */
    bool is_in, is_out, is_scaled;
    double factor; /* of what is scaled, on the way in; packed has tt_combine_dtype(dtype) */
    tutti_dtype_t dtype;
} tt_copy_t;

typedef struct {
    tt_copy_t *copies;
    int count;
} tt_packed_t;

/* A call: its descriptor, then what may differ from one call to the next that is otherwise like it.
 */
typedef struct {
    tt_collective_t collective;
    tutti_reduction_t reduction;
    const tutti_custom_reduction_t *custom; /* of TUTTI_CUSTOM; there until the call is done, but
                                               for its name: until start returns */
    tutti_dtype_t dtype, out_dtype;         /* of the pieces; of out */
    size_t count;                           /* elements of a part, as in collectives.def */
    /* As in tt_plan_request_t; NULL or [size], borrowed until start returns. */
    const size_t *counts, *recv_counts;
    int root;
    int leaves;       /* 0: one for each rank */
    const int *first; /* [size + 1] or NULL; borrowed until start returns */
    int piece_count;
    const void *const *pieces;
    void *out;
    const tt_packed_t *packed; /* there until the call is done; NULL: nothing is copied */
    uint64_t tag;
    const void *site;        /* an address in the code that made the call; NULL: not known */
    tt_prepared_t *prepared; /* of a call with this descriptor; NULL: it is looked up */
    bool is_awaited;         /* its caller waits for it: it may take a moment to start */
} tt_call_t;

/* Whether another order of adding up may give other bits. */
static inline bool tt_call_depends_on_order(const tt_call_t *call)
{
    const tutti_reduction_t op = call->reduction;
    const bool chooses =
        op == TUTTI_MIN || op == TUTTI_MAX || op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
    return tt_collective_reduces(call->collective) &&
           (op == TUTTI_CUSTOM || (tutti_dtype_is_float(call->dtype) && !chooses));
}

typedef struct tt_cached_plan tt_cached_plan_t;

typedef enum { TT_RUN_QUEUED, TT_RUN_POSTED, TT_RUN_RUNNING, TT_RUN_FINISHING } tt_run_state_t;

/* A collective call under way. The memory is the caller's and must stay until it has a status. */
typedef struct tt_run {
    tt_op_t op;
    struct tt_run *next;
    tt_run_state_t state;
    uint64_t sequence, fingerprint;
    tt_call_t call;
    const void *pieces[TT_TREE_DEPTH_MAX];
    size_t piece_bytes, out_bytes; /* of each piece; of out */
    const tt_cached_plan_t *plan;  /* of the prepared call */
    tt_prepared_t *prepared;       /* of which it is a user */
    int arrived;                   /* so many local ranks are known to have come */
    int round;
} tt_run_t;

static inline tt_run_t *tt_run_of(tt_op_t *op)
{
    return op->kind == TT_OP_CALL ? (tt_run_t *)(void *)op : NULL;
}

/* Whether one of two calls of this rank writes memory that the other one reads or writes. */
bool tt_runs_conflict(const tt_run_t *a, const tt_run_t *b);

/* Before a call is shown to others, and when it has gone well. */
void tt_call_copy_in(const tt_call_t *call);
void tt_call_copy_out(const tt_call_t *call);

/* Where ranks that wait for long say so, for those of other hosts: small values by kind and rank. A
 * call takes a fraction of a second at most. */
typedef struct {
    /* Over what was there. */
    tutti_status_t (*put)(void *user, const char *what, int rank, const void *value, size_t bytes);
    /* END: there is none, or more than `capacity`. */
    tutti_status_t (*get)(void *user, const char *what, int rank, void *value, size_t capacity,
                          size_t *bytes);
    void *user;
} tt_wait_board_t;

typedef struct {
    int rank, size;
    tt_peers_t *peers;     /* retained */
    const int *peer_ranks; /* [size] their ranks in peers; NULL: the same numbers */
    const char *name;      /* of the group, for messages; borrowed */
    uint64_t group;        /* a number that names the group in fingerprints */
    uint32_t epoch;
    int64_t timeout_ms; /* of each call */
    int64_t report_ms;  /* a wait of this length is logged; 0: 30 s */
    tt_coll_t *world; /* whose ranks peer_ranks are; outlives this group; NULL: it is one itself */
    tt_wait_board_t wait_board; /* of this group; may be empty */
    const char *rules;          /* which algorithms (rules.h); NULL: the built-in choice */
} tt_coll_options_t;

/* What a call is to others, but for its tag and its group. */
tt_call_descriptor_t tt_call_descriptor(const tt_call_t *call, int size);

/* What tt_coll_start finds out about a call before it tells others, for calls with this descriptor:
 * fingerprint, plan, executor. Nothing is sent to other ranks. Errors: ARG, UNSUPPORTED, NOMEM. */
tutti_status_t tt_coll_prepare(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out);
void tt_prepared_release(tt_prepared_t *prepared); /* before the group; NULL is fine */

#endif
