/* The inside of tt_coll_t, shared by the coll_*.c files. */
#ifndef TT_COLL_IMPL_H
#define TT_COLL_IMPL_H

#include <string.h>

#include "comm/exec/call.h"
#include "comm/wire/endpoint.h"
#include "comm/wire/quarantine.h"
#include "core/base/futex.h"
#include "core/base/dtype_bytes.h"
#include "core/kernel/tree_reduce.h"

enum { TT_REPORT_MS = 30000 };

/* What precedes every message on a wire. docs/formats/frame.md has the bytes. */
typedef struct {
    uint32_t magic;
    uint32_t index; /* of the message, among those of its call between these two ranks */
    uint64_t sequence, fingerprint, bytes;
    tt_call_descriptor_t descriptor;
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

/* A plan, with the request it was made for, whose arrays are those of the prepared call. */
struct tt_cached_plan {
    tt_plan_request_t request;
    tt_plan_t *plan; /* NULL: not made yet */
    tt_execute_fn_t execute;
    size_t piece_elements, root_piece_elements; /* this rank's and the root's; or all are alike */
    size_t out_elements;
};

/* Everything about a call that depends on its descriptor alone. */
struct tt_prepared {
    tt_call_t call; /* no memory, no tag, no site; the arrays are its own */
    bool has_arrays;
    bool is_small; /* coll_small.c */
    /* Of a small sum of two ranks' values as they are, else NULL: where the other one's begin in
     * its flag slot, and this rank's in its piece; bytes. */
    tt_combine_fn_t combine;
    size_t theirs_at, mine_at;
    uint64_t fingerprint;            /* of the descriptor */
    size_t posted_bytes;             /* of each of this rank's pieces, in its flag line */
    uint64_t record;                 /* tt_record_what */
    uint64_t rules;                  /* the version of the group's rules that chose */
    int users;                       /* the cache, runs under way, whoever prepared it */
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

/* Polls of the local ranks' flags in a row, and those of them without a pause. */
enum { TT_EXPECT_POLLS = 128, TT_EAGER_POLLS = 16 };

/* Found by a hash of the descriptor, which chooses a set. */
enum { TT_PREPARED_SETS = 32, TT_PREPARED_WAYS = 4 };

/* Memory in the shared heap that grows on demand. */
typedef struct {
    void *data;
    size_t bytes;
} tt_bounce_buffer_t;

/* So many elements of a rank's part of a plan's buffer. */
typedef struct {
    int rank;
    tt_part_t part;
    size_t count;
} tt_place_t;

/* What a rank of this host sleeps on, and its number in local ranks. */
typedef struct {
    const _Atomic uint32_t *word;
    int node_peer;
} tt_doorbell_t;

struct tt_coll {
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
    tt_doorbell_t *doorbells;          /* [local_count - 1] */
    tt_coll_t *first_part, *next_part; /* groups of a world; of the world this one is part of */
    tt_flag_block_t *block;            /* mine */
    tt_flag_block_t **blocks;          /* [size], my local ranks'; NULL for ranks of other hosts */
    tt_quarantine_t *quarantine;       /* memory that local ranks may look at; NULL when alone */
    bool is_inside;                    /* as the block says */
    const tt_combine_kernels_t *kernels;
    tt_coll_rules_t rules;      /* what chooses algorithms */
    const tt_algorithm_t *last; /* of the last call that was carried out */
    int64_t uncanonical_sums;   /* calls so far */

    uint64_t sequence; /* of the last call started */
    uint64_t all_done; /* every local rank is known to have finished this call */
    tt_run_t *head, *tail, *to_post;
    uint64_t posted_here[TT_FLAG_SLOTS]; /* fingerprints of the descriptors that my slots hold */
    struct tt_p2p *p2p;                  /* messages; NULL until the first one */

    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
    bool is_announced; /* the failure, to ranks of other hosts */
    int mismatched;    /* the rank whose frame was of another call; -1: none */
    tt_call_descriptor_t mismatched_descriptor;
    int64_t watched_ns;
    const tt_op_t *waited;  /* this rank blocks until that is done; NULL: it does not */
    uint64_t posted_record; /* the one that local ranks see in `where`; 0: none of this group */
    uint64_t put_record;    /* the one that the board has; 0: none of this group */
    int put_round;

    tt_prepared_t *prepared[TT_PREPARED_SETS][TT_PREPARED_WAYS];
    uint32_t evicted; /* so many entries have made room */
    uint64_t rules_version;

    tt_link_t *links;      /* [size] */
    tt_plan_round_t round; /* that the plan which runs is in, if is_in_round */
    bool is_in_round;
    unsigned char *step_marks; /* how far each of its steps is */
    int step_capacity;
    const void **sources; /* of a sum */
    int source_capacity;
    void **dst; /* [size] */
    void *scratch, *sums, *tree_scratch;
    size_t scratch_bytes, sums_bytes, tree_scratch_bytes;
    tt_bounce_buffer_t bounce, bounce_out, table;
    size_t cache_bytes; /* results that do not fit are stored around the cache */
};

/* After so long a wait is logged. */
static inline int64_t tt_coll_report_ms(const tt_coll_t *coll)
{
    return coll->options.report_ms > 0 ? coll->options.report_ms : TT_REPORT_MS;
}

/* coll_flags.c: what local ranks show each other. */
void tt_coll_post(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_may_post(tt_coll_t *coll, uint64_t sequence);
bool tt_coll_have_arrived(tt_coll_t *coll, tt_run_t *run);
bool tt_coll_are_all_done(tt_coll_t *coll, const tt_run_t *run);
bool tt_coll_have_reached(const tt_coll_t *coll, uint64_t phase);
void tt_coll_post_phase(tt_coll_t *coll, uint64_t phase);

static inline tt_flag_slot_t *tt_coll_slot(const tt_coll_t *coll, int rank, uint64_t sequence)
{
    return &coll->blocks[rank]->slots[sequence % TT_FLAG_SLOTS];
}

static inline void tt_coll_wake_node_peers(tt_coll_t *coll)
{
    for (int i = 0; i < coll->local_count - 1; i++) {
        const tt_doorbell_t *doorbell = &coll->doorbells[i];
        if (atomic_load_explicit(doorbell->word, memory_order_relaxed) != 0) {
            tt_node_peers_wake(coll->node_peers, doorbell->node_peer);
        }
    }
}

/* memcpy of a length that is not known is a call. */
static inline void tt_copy_small(void *dst, const void *src, size_t bytes)
{
    if (bytes == 8) {
        memcpy(dst, src, 8);
    } else if (bytes == 4) {
        memcpy(dst, src, 4);
    } else {
        memcpy(dst, src, bytes);
    }
}

/* What every call shows. */
static inline tt_flag_slot_t *tt_coll_write_descriptor(tt_coll_t *coll, const tt_post_t *post)
{
    tt_flag_slot_t *slot = &coll->block->slots[post->sequence % TT_FLAG_SLOTS];
    uint64_t *shown = &coll->posted_here[post->sequence % TT_FLAG_SLOTS];
    if (*shown != post->fingerprint) { /* else the descriptor is there already */
        *shown = post->fingerprint;
        slot->descriptor = post->prepared->descriptor;
        slot->descriptor.tag = post->call->tag;
    }
    slot->fingerprint = post->fingerprint;
    slot->flags = 0;
    return slot;
}

static inline void tt_coll_publish(tt_coll_t *coll, tt_flag_slot_t *slot, uint64_t sequence)
{
    atomic_store_explicit(&slot->sequence, sequence, memory_order_release);
    tt_coll_wake_node_peers(coll);
    tt_cpu_prefetch_to_write(&coll->block->slots[(sequence + 1) % TT_FLAG_SLOTS]);
}

/* Local ranks that call at the same time are here within a few hundred ns: look at nothing but
 * their flags for so long. True: all have come, with the same call. */
static inline bool tt_coll_expect(const tt_coll_t *coll, uint64_t sequence, uint64_t fingerprint,
                                  int polls)
{
    const int eager = polls - TT_EAGER_POLLS;
    for (int i = 0; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, sequence);
        if (rank == coll->rank) {
            continue;
        }
        while (atomic_load_explicit(&slot->sequence, memory_order_acquire) != sequence) {
            if (--polls < 0) {
                return false;
            }
            if (polls < eager) {
                tt_cpu_pause();
            }
        }
        if (slot->fingerprint != fingerprint) {
            return false;
        }
    }
    return true;
}

static inline void tt_coll_post_done(tt_coll_t *coll, uint64_t sequence)
{
    atomic_store_explicit(&coll->block->done, sequence, memory_order_release);
    tt_coll_wake_node_peers(coll);
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

/* The fingerprint of a descriptor is that of all but its tag, mixed with the tag, so that the
 * costly part need not be computed for each call. */
uint64_t tt_call_fingerprint(const tt_call_descriptor_t *descriptor_without_tag);

static inline uint64_t tt_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* coll_small.c. Start: false if the local ranks have not come yet; it is posted and written down.
 */
void tt_coll_note_small(const tt_coll_t *coll, tt_prepared_t *prepared);
bool tt_coll_start_small(tt_coll_t *coll, const tt_post_t *post, uint64_t *record);

/* Local ranks wait to see the call: this comes after it has been shown. */
static inline uint64_t tt_coll_write_down(tt_coll_t *coll, const tt_call_t *call,
                                          const tt_prepared_t *prepared, bool is_shown)
{
    tt_records_t *records = &coll->block->records;
    const uint64_t record = tt_record_start(records, coll->sequence, call->count, call->tag,
                                            call->site, prepared->record);
    if (is_shown) {
        tt_record_progress(records, record, TT_RECORD_POSTED, -1);
    }
    return record;
}

static inline bool tt_call_has_arrays(const tt_call_t *call)
{
    return ((uintptr_t)call->first | (uintptr_t)call->counts | (uintptr_t)call->recv_counts) != 0;
}

/* Chooses the set in which a descriptor is looked for; without its arrays. */
static inline uint64_t tt_call_hash(const tt_call_t *call)
{
    const uint64_t kind =
        (uint64_t)call->collective * 64 + (uint64_t)call->reduction * 8 + (uint64_t)call->dtype;
    return (call->count ^ (uint64_t)(uint32_t)call->root << 32 ^ kind << 48 ^
            (uint64_t)(uint32_t)call->leaves << 40) *
           UINT64_C(0x9e3779b97f4a7c15);
}

/* But for the arrays. Each member is loaded as it was stored, just before. */
static inline bool tt_call_is_alike(const tt_call_t *a, const tt_call_t *b)
{
    return a->count == b->count && a->collective == b->collective && a->root == b->root &&
           a->reduction == b->reduction && a->dtype == b->dtype && a->out_dtype == b->out_dtype &&
           a->leaves == b->leaves && a->piece_count == b->piece_count;
}

static inline tt_prepared_t **tt_coll_prepared_set(tt_coll_t *coll, uint64_t hash)
{
    return coll->prepared[(hash >> 59) % TT_PREPARED_SETS];
}

/* coll_prepared.c */
tutti_status_t tt_coll_find_prepared(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out);
void tt_coll_forget_prepared(tt_coll_t *coll);

/* coll_lease.c, flags.h: touching the memory of other ranks. */

/* The quarantine of a group, whose block is there; NOMEM. Closing says that this rank is quiet. */
tutti_status_t tt_coll_open_lease(tt_coll_t *coll);
void tt_coll_close_lease(tt_coll_t *coll);

/* Whether and why a group is to be given up; tutti_last_error() has the text of a failure. */
typedef struct {
    tutti_status_t status; /* OK: nothing is wrong */
    int blamed;            /* rank, or -1 */
    bool has_left;         /* the rank has left rather than died */
} tt_verdict_t;

/* So much of a sum or a copy is done between two looks at whether a rank has given the group up,
 * which then waits for this one. */
enum { TT_LOOK_BYTES = 512 << 10 };

/* False: one of them has given the group up, and nothing may be touched. */
bool tt_coll_enter(tt_coll_t *coll);
/* Also when this rank is not inside. False: what was read since tt_coll_enter may have changed
 * meanwhile. Nothing is told to others before. */
bool tt_coll_leave(tt_coll_t *coll);
/* Copies out of the memory of a rank of this host that has something to give. False: it has given
 * the group up, and what was copied may be something else. */
bool tt_coll_get(tt_coll_t *coll, int rank, void *dst, const void *src, size_t bytes);
/* Whether a rank of this host has given the group up. */
bool tt_coll_is_given_up(const tt_coll_t *coll);
/* The first failure counts. The ranks of this host see it, so that all blame the same rank. */
void tt_coll_give_up(tt_coll_t *coll, tt_verdict_t verdict);
/* What a call ends with then: ABORTED, until tt_coll_fail_call has found out why. */
tutti_status_t tt_coll_refuse(void);
/* After tt_coll_give_up: waits until no other rank is inside, 100 ms at most. If one still is, the
 * memory of the calls under way gets other pages, at the same addresses. */
void tt_coll_quiesce(tt_coll_t *coll);

/* coll_addresses.c: memory of local ranks. */
/* What other ranks may write of a call's memory; NULL: nothing. */
void *tt_coll_exposed_out(const tt_coll_t *coll, const tt_run_t *run, size_t *bytes);
bool tt_coll_is_foreign(tt_coll_t *coll, const tt_run_t *run);
void tt_coll_post_addresses(tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot);
/* `count` elements of a local rank's part. PENDING while the segment it lies in is on its way.
 * Errors: FORMAT (the rank shows an address that is none), those of tt_node_peers_status(). */
tutti_status_t tt_coll_find_memory(const tt_coll_t *coll, const tt_run_t *run,
                                   const tt_place_t *place, void **out);
tutti_status_t tt_coll_make_bounce_buffers(tt_coll_t *coll, const tt_run_t *run);
void tt_coll_keep_stages(tt_coll_t *coll);

/* Where the peer's counts say that this rank's part of its piece begins; elements. PENDING as
 * tt_coll_find_memory(). Errors: MISMATCH; as there. */
tutti_status_t tt_coll_look_up(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step,
                               size_t *offset);

/* The dtype of a buffer of a call. */
static inline tutti_dtype_t tt_call_dtype(const tt_call_t *call, tt_buffer_t buffer)
{
    if (buffer == TT_BUFFER_OUT || buffer == TT_BUFFER_BOUNCE_OUT ||
        buffer == TT_BUFFER_BOUNCE_BACK) {
        return call->out_dtype;
    }
    return buffer == TT_BUFFER_SUM ? tt_combine_dtype(call->dtype) : call->dtype;
}

/* The bytes in which offsets into a part's buffer are counted. */
static inline size_t tt_part_unit(const tt_call_t *call, tt_part_t part)
{
    const tt_buffer_t unit =
        part.buffer == TT_BUFFER_BOUNCE_BACK ? TT_BUFFER_BOUNCE : part.buffer; /* plan.h */
    return tt_dtype_bytes(tt_call_dtype(call, unit));
}

/* How many bytes into its buffer a part begins. */
static inline size_t tt_part_begin(const tt_call_t *call, tt_part_t part)
{
    return part.offset * tt_part_unit(call, part);
}

/* coll_pick.c */
tutti_status_t tt_coll_pick(tt_coll_t *coll, tt_prepared_t *prepared);
tutti_status_t tt_coll_pick_staged(tt_coll_t *coll, tt_run_t *run);
uint64_t tt_call_layout_hash(const tt_call_t *call, int size);

/* coll_steps.c */
tt_execute_fn_t tt_coll_executor(const tt_plan_t *plan);
tutti_status_t tt_coll_make_sum_room(tt_coll_t *coll, const tt_plan_t *plan);
/* Whether a step of the round under way waits for a rank of another host. */
bool tt_coll_awaits(const tt_coll_t *coll, const tt_run_t *run, int rank);

/* coll_wires.c */
tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire);
tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank);

/* coll_links.c */
tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned,
                            const void *data, size_t bytes);
tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned, void *data,
                            size_t bytes);

#endif
