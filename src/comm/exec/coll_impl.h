/* The inside of tt_coll_t: what a group keeps, and whose it is. coll_flags.h has the flag protocol,
 * coll_lease.h the lease, coll_exec.h what the other files of this room offer. */
#ifndef TT_COLL_IMPL_H
#define TT_COLL_IMPL_H

#include "comm/exec/call.h"
#include "comm/wire/endpoint.h"
#include "comm/wire/quarantine.h"
#include "core/base/dtype_bytes.h"
#include "core/kernel/reduce/tree_reduce.h"

enum { TT_REPORT_MS = 30000 };

/* What precedes every message on a wire. docs/formats/frame.md has the bytes. */
typedef struct {
    uint32_t magic;
    uint32_t index; /* of the message, among those of its call between these two ranks */
    uint64_t sequence, fingerprint, bytes;
    tt_call_descriptor_t descriptor;
    uint64_t wanted; /* elements that the sender wants of the receiver; 0 but in an all_to_all of
                        uneven parts */
} tt_frame_t;

enum { TT_FRAME_MAGIC = 0x46545454 };

/* How many messages of a call have passed in one direction between two ranks. */
typedef struct {
    uint64_t sequence;
    uint32_t count;
} tt_passed_t;

/* The endpoint to one rank, and the frame under way in each direction. */
typedef struct {
    tt_endpoint_t endpoint;
    tt_frame_t in, out;
    tt_passed_t in_passed, out_passed;
    bool is_blocked_in, is_blocked_out;
} tt_link_t;

/* Carries out what a plan says, as far as it can. OK: all is done. PENDING: others are awaited. */
typedef tutti_status_t (*tt_execute_fn_t)(tt_coll_t *coll, tt_run_t *run);

/* A plan; the arrays of its request are those of the prepared call. */
struct tt_cached_plan {
    tt_plan_t *plan; /* NULL: not made yet */
    tt_execute_fn_t execute;
    size_t piece_elements, root_piece_elements; /* this rank's and the root's; or all are equal */
    size_t out_elements;
};

/* Everything about a call that depends on its descriptor alone. */
struct tt_prepared {
    tt_call_t call; /* no memory, no tag, no site; the arrays are its own */
    bool has_more;  /* arrays, or a reduction of the program's own */
    bool is_small;  /* coll_small.c */
    /* Of a small sum of two ranks' values as they are, else NULL: where the other one's begin in
     * its flag slot, and this rank's in its piece; bytes. */
    tt_combine_fn_t combine;
    size_t theirs_at, mine_at;
    uint64_t fingerprint;            /* of the descriptor */
    size_t posted_bytes;             /* of each of this rank's pieces, in its flag line */
    uint64_t record;                 /* tt_record_what */
    uint64_t rules;                  /* the version of the group's rules that chose */
    int users;                       /* the cache, runs under way, the caller that prepared it */
    tt_call_descriptor_t descriptor; /* without a tag */
    tt_cached_plan_t plan, staged;   /* the other one is made when anyone's memory is foreign */
    size_t arrays[];
};

/* A call with its memory, as it is posted. */
typedef struct {
    const tt_prepared_t *prepared;
    const tt_call_t *call;
    uint64_t sequence, fingerprint;
} tt_post_t;

/* Found by a hash of the descriptor, which chooses a set. */
enum { TT_PREPARED_SETS = 32, TT_PREPARED_WAYS = 4 };

/* Memory that grows on demand. */
typedef struct {
    void *data;
    size_t bytes;
} tt_room_t;

/* What a rank of this host sleeps on, and its number in local ranks. */
typedef struct {
    const _Atomic uint32_t *word;
    int node_peer;
} tt_doorbell_t;

/* ---- what each file keeps in a group. A room cannot include the headers of those above it, so all
 * parts stand here; only the owner writes them. ---- */

/* coll_flags.c */
typedef struct {
    uint64_t all_done;                   /* every local rank is known to have finished this call */
    uint64_t posted_here[TT_FLAG_SLOTS]; /* fingerprints of the descriptors that my slots hold */
    size_t bytes_before;                 /* payload of the last small call */
} tt_flag_state_t;

/* coll_lease.c */
typedef struct {
    tt_quarantine_t *quarantine; /* memory that local ranks may look at; NULL when alone */
    bool is_inside;              /* as the block says */
} tt_lease_t;

/* coll_prepared.c */
typedef struct {
    tt_prepared_t *entries[TT_PREPARED_SETS][TT_PREPARED_WAYS];
    uint32_t evicted; /* so many entries have made room */
    uint64_t rules_version;
} tt_prepared_cache_t;

/* coll_steps.c */
typedef struct {
    tt_plan_round_t round; /* that the plan which runs is in, if is_in_round */
    bool is_in_round;
    tt_room_t marks;   /* a byte for each of its steps: how far it is */
    tt_room_t sources; /* of a sum: const void * */
    void **dst;        /* [size] */
    tt_room_t tree_scratch;
    size_t cache_bytes; /* results that do not fit are stored around the cache */
} tt_steps_t;

/* coll_links.c */
typedef struct {
    tt_link_t *all; /* [size] */
    int mismatched; /* the rank whose frame was of another call; -1: none */
    tt_call_descriptor_t mismatched_descriptor;
    int64_t sent_bytes[TT_COLLECTIVE_COUNT]; /* of values, so far */
    int64_t sent_message_bytes;              /* to ranks of other hosts: p2p_send.c's */
} tt_links_t;

/* diagnose/wait_state.c */
typedef struct {
    const tt_op_t *op; /* this rank blocks until that is done; NULL: it does not; coll_wait.c */
    uint64_t posted_record; /* the one that local ranks see in `where`; 0: none of this group */
    uint64_t put_record;    /* the one that the board has; 0: none of this group */
    int put_round;
    int64_t asked_end_ns; /* when the board was asked last whether a rank has given up */
} tt_waiting_t;

/* coll/coll.c: calls under way, those after to_post not shown yet. */
typedef struct {
    tt_run_t *head, *tail, *to_post;
    const tt_run_t *conflict;   /* to_post waits until that is done; NULL: not known to wait */
    uint64_t sequence;          /* of the last call started */
    const tt_algorithm_t *last; /* of the last call that was carried out */
    int64_t uncanonical_sums;   /* calls so far */
    int64_t watched_ns;
    bool is_announced; /* the failure, to ranks of other hosts */
} tt_queue_t;

struct tt_coll {
    /* Set when the group is made. */
    tt_coll_options_t options;
    int rank, size;
    tt_peers_t *peers;
    tt_node_peers_t *node_peers;
    int *peer_ranks;      /* [size] in peers */
    int *node_peer_ranks; /* [size] in local ranks; -1: on another host */
    int *hosts;           /* [size] each rank's host, numbered as they first appear */
    int host_count;
    int *local_ranks; /* [local_count] the ranks of this host, in order */
    int local_count;
    tt_doorbell_t *doorbells;     /* [local_count - 1] */
    LIST_HEAD(, tt_coll) parts;   /* of a world: the groups made of it */
    LIST_ENTRY(tt_coll) of_world; /* of one of them */
    tt_flag_block_t *block;       /* mine */
    tt_flag_block_t **blocks;     /* [size], my local ranks'; NULL for ranks of other hosts */
    const tt_combine_kernels_t *kernels;
    tt_coll_rules_t rules; /* what chooses algorithms */

    tutti_status_t status; /* the first failure: coll_lease.c */
    char error[TT_ERROR_TEXT_BYTES];

    tt_queue_t queue;
    tt_flag_state_t flags;
    tt_waiting_t waiting;
    struct tt_p2p *p2p; /* messages; NULL until the first one */
    tt_prepared_cache_t prepared;
    tt_links_t links;
    tt_lease_t lease;
    tt_steps_t steps;
    /* Of plans: SCRATCH and SUM are this rank's own (coll_steps.c); local ranks read and write the
     * bounce buffers and the table of counts, which are in the shared heap (coll_addresses.c). */
    tt_room_t rooms[TT_BUFFER_COUNT], table;
};

/* Whether a rank of the group is on this host; this one is, too. */
static inline bool tt_coll_is_node_peer(const tt_coll_t *coll, int rank)
{
    return coll->node_peer_ranks[rank] >= 0;
}

/* The world that a group is part of; or itself. */
static inline tt_coll_t *tt_coll_world(tt_coll_t *coll)
{
    return coll->options.world != NULL ? coll->options.world : coll;
}

/* After so long a wait is logged. */
static inline int64_t tt_coll_report_ms(const tt_coll_t *coll)
{
    return coll->options.report_ms > 0 ? coll->options.report_ms : TT_REPORT_MS;
}

static inline tt_call_descriptor_t tt_run_descriptor(const tt_run_t *run)
{
    tt_call_descriptor_t descriptor = run->prepared->descriptor;
    descriptor.tag = run->call.tag;
    return descriptor;
}

static inline tt_post_t tt_run_post(const tt_run_t *run)
{
    return (tt_post_t){run->prepared, &run->call, run->sequence, run->fingerprint};
}

#endif
