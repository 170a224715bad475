/* The inside of tt_coll_t, shared by the coll_*.c files. */
#ifndef TT_COLL_IMPL_H
#define TT_COLL_IMPL_H

#include "comm/coll/coll.h"
#include "comm/coll/mail.h"
#include "comm/wire/quarantine.h"
#include "core/base/dtype_bytes.h"
#include "core/kernel/tree_reduce.h"

enum { TT_PLAN_CACHE = 32 };

/* What precedes every message on a wire. docs/formats/frame.md has the bytes. */
typedef struct {
    uint32_t magic;
    uint32_t index; /* of the message, among those of its call between these two ranks */
    uint64_t sequence, fingerprint, bytes;
    tt_sign_t sign;
} tt_frame_t;

enum { TT_FRAME_MAGIC = 0x46545454 };

/* How many messages of a call have passed in one direction between two ranks. */
typedef struct {
    uint64_t sequence;
    uint32_t count;
} tt_passed_t;

/* The connection to one rank: its wire, and the message under way in each direction. */
typedef struct {
    tt_wire_t wire;
    tt_frame_t in, out;
    size_t in_done, out_done; /* bytes done of the header and what follows it */
    tt_passed_t in_passed, out_passed;
    bool is_blocked_in, is_blocked_out;
} tt_link_t;

/* A plan, with the request it was made for; the arrays of the request are the entry's own. */
struct tt_cached_plan {
    tt_plan_request_t request;
    tt_plan_t *plan;
    size_t piece_elements, root_piece_elements; /* this rank's and the root's; or all are alike */
    size_t out_elements;
    size_t *counts; /* of both kinds, one after the other */
    int *first;
};

/* What was found out about a call, for the next one that is alike: most programs make the same few
 * calls again and again. */
typedef struct {
    tt_call_t call;
    tt_sign_t sign;
    uint64_t fingerprint;
    const tt_cached_plan_t *plan; /* NULL: nothing is known */
    bool is_express;              /* coll_express.c */
    tt_combine_fn_t combine;      /* of two ranks' values as they are; NULL: a tree does it */
    size_t shown_bytes;           /* of this rank's piece, in its flag line */
} tt_memo_t;

enum { TT_MEMOS = 8 };

/* Memory in the shared heap that grows on demand. */
typedef struct {
    void *data;
    size_t bytes;
} tt_stage_t;

struct tt_coll {
    tt_coll_options_t options;
    int rank, size;
    tt_peers_t *peers;
    tt_mates_t *mates;
    int *peer_ranks; /* [size] in peers */
    int *mate_ranks; /* [size] in mates; -1: on another host */
    int *hosts;      /* [size] each rank's host, numbered as they first appear */
    int host_count;
    int *locals; /* [local_count] the ranks of this host, in order */
    int local_count;
    const _Atomic uint32_t **bells;    /* [local_count] what they sleep on, this rank too */
    tt_coll_t *first_part, *next_part; /* groups of a world; of the world this one is part of */
    tt_flag_block_t *block;            /* mine */
    tt_flag_block_t **blocks;          /* [size], my mates'; NULL for ranks of other hosts */
    tt_quarantine_t *quarantine;       /* memory that local ranks may look at; NULL when alone */
    bool is_inside;                    /* as the block says */
    const tt_combine_kernels_t *kernels;
    tt_coll_rules_t rules;      /* what chooses algorithms */
    const tt_algorithm_t *last; /* of the last call that was carried out */
    int64_t uncanonical_sums;   /* calls so far */

    uint64_t sequence; /* of the last call started */
    uint64_t all_done; /* every mate is known to have finished this call */
    tt_run_t *head, *tail, *to_show;
    tt_run_t express;                   /* of a call that has come to wait */
    uint64_t shown_here[TT_FLAG_SLOTS]; /* fingerprints of the signs that my slots hold */
    tt_mail_t *mail;                    /* messages; NULL until the first one */

    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    bool has_blamed_left; /* the rank that the failure blames has left rather than died */
    int64_t watched_ns;
    const tt_op_t *waited; /* this rank blocks until that is done; NULL: it does not */
    uint64_t shown_record; /* the one that mates see in `where`; 0: none of this group */
    uint64_t put_record;   /* the one that the board has; 0: none of this group */
    int put_round;

    tt_cached_plan_t plans[TT_PLAN_CACHE];
    tt_memo_t memos[TT_MEMOS];

    tt_link_t *links;   /* [size] */
    size_t *step_bytes; /* bytes done of each step of the plan that runs */
    int step_capacity;
    const void **sources; /* of a sum */
    int source_capacity;
    void **dst; /* [size] */
    void *scratch, *sums, *tree_scratch;
    size_t scratch_bytes, sums_bytes, tree_scratch_bytes;
    tt_stage_t stage, stage_out, table;
    size_t cache_bytes; /* results that do not fit are stored around the cache */
};

/* coll_flags.c: what mates show each other. */
void tt_coll_show(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_may_show(tt_coll_t *coll, uint64_t sequence);
bool tt_coll_have_mates_come(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_are_mates_done(tt_coll_t *coll, const tt_run_t *run);
bool tt_coll_have_mates_met(const tt_coll_t *coll, uint64_t phase);
void tt_coll_post_phase(tt_coll_t *coll, uint64_t phase);
void tt_coll_post_done(tt_coll_t *coll, const tt_run_t *run);

static inline tt_flag_slot_t *tt_coll_slot(const tt_coll_t *coll, int rank, uint64_t sequence)
{
    return &coll->blocks[rank]->slots[sequence % TT_FLAG_SLOTS];
}

static inline void tt_coll_wake_mates(tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count; i++) {
        if (atomic_load_explicit(coll->bells[i], memory_order_relaxed) != 0) {
            tt_mates_wake(coll->mates, coll->mate_ranks[coll->locals[i]]);
        }
    }
}

uint64_t tt_sign_fingerprint(const tt_sign_t *sign);

/* coll.c: where what is known of calls like this one is kept, whether one of them is like it, and
 * the queue. */
tt_memo_t *tt_coll_memo(tt_coll_t *coll, const tt_call_t *call);
bool tt_call_is_alike(const tt_call_t *a, const tt_call_t *b);
void tt_coll_take_memory(tt_run_t *run, const tt_call_t *call);
void tt_coll_enqueue(tt_coll_t *coll, tt_run_t *run, bool is_shown);

/* coll_express.c: calls like this one go there if they may. */
void tt_coll_note_express(const tt_coll_t *coll, tt_memo_t *memo);

/* coll_lease.c, flags.h: touching the memory of other ranks. */

/* The quarantine of a group, whose block is there; NOMEM. Closing says that this rank is quiet. */
tutti_status_t tt_coll_open_lease(tt_coll_t *coll);
void tt_coll_close_lease(tt_coll_t *coll);

/* False: one of them has given the group up, and nothing may be touched. */
bool tt_coll_enter(tt_coll_t *coll);
/* Also when this rank is not inside. False: what was read since tt_coll_enter may have changed
 * meanwhile. Nothing is told to others before. */
bool tt_coll_leave(tt_coll_t *coll);
/* Whether a rank of this host has given the group up. */
bool tt_coll_is_given_up(const tt_coll_t *coll);
/* After tt_coll_fail: waits until no other rank is inside. False: one still is after 100 ms. */
bool tt_coll_quiesce(tt_coll_t *coll);
/* This rank will never learn where that rank's block is. False: that rank knows this one's. */
bool tt_coll_disown(tt_coll_t *coll, int rank);

/* coll_places.c: memory of mates. NULL while the segment it lies in is on its way. */
bool tt_coll_is_foreign(tt_coll_t *coll, const tt_run_t *run);
void tt_coll_show_places(tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot);
void *tt_coll_memory_of(const tt_coll_t *coll, const tt_run_t *run, int rank, tt_part_t part,
                        size_t bytes);
tutti_status_t tt_coll_stage(tt_coll_t *coll, const tt_run_t *run);
void tt_coll_keep_stages(tt_coll_t *coll);

/* Where the peer's counts say that this rank's part of its piece begins; elements. Errors:
 * PENDING, MISMATCH. */
tutti_status_t tt_coll_look_up(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step,
                               size_t *offset);

/* The dtype of a buffer of a call. */
static inline tutti_dtype_t tt_call_dtype(const tt_call_t *call, tt_buffer_t buffer)
{
    if (buffer == TT_BUFFER_OUT || buffer == TT_BUFFER_STAGE_OUT ||
        buffer == TT_BUFFER_STAGE_BACK) {
        return call->out_dtype;
    }
    return buffer == TT_BUFFER_SUM ? tt_combine_dtype(call->dtype) : call->dtype;
}

/* How many bytes into its buffer a part begins. */
static inline size_t tt_part_begin(const tt_call_t *call, tt_part_t part)
{
    const tt_buffer_t unit =
        part.buffer == TT_BUFFER_STAGE_BACK ? TT_BUFFER_STAGE : part.buffer; /* plan.h */
    return part.offset * tt_dtype_bytes(tt_call_dtype(call, unit));
}

/* coll_pick.c */
tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_run_t *run);
tutti_status_t tt_coll_pick_staged(tt_coll_t *coll, tt_run_t *run);
void tt_coll_drop_own_plan(tt_run_t *run);
void tt_coll_clear_plans(tt_coll_t *coll);
uint64_t tt_call_layout_hash(const tt_call_t *call, int size);

/* coll_steps.c: PENDING while something is awaited. */
tutti_status_t tt_coll_run_steps(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_is_step_done(const tt_coll_t *coll, int step);

/* coll_links.c */
tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank);
tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire);
tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, int step, const void *data,
                            size_t bytes);
tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, int step, void *data, size_t bytes);
void tt_coll_say_farewell(tt_coll_t *coll, uint64_t reason);

/* coll_dump.c */
void tt_coll_dump_failure(tt_coll_t *coll);

/* coll_watch.c */
int64_t tt_coll_report_ms(const tt_coll_t *coll);
void tt_coll_fail(tt_coll_t *coll, tutti_status_t status, int blamed_rank);
/* The group fails as the rank did that has given it up. */
tutti_status_t tt_coll_follow(tt_coll_t *coll, const tt_run_t *run);
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run);
/* A rank in a call; where it made it, NULL: to be looked up. */
typedef struct {
    int rank;
    const tt_sign_t *sign;
    const char *site;
} tt_party_t;

tutti_status_t tt_sign_mismatch(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                const tt_party_t *b);
void tt_coll_watch(tt_coll_t *coll, int64_t now);

#endif
