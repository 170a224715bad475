/* Making a call happen: prepared calls, plans, memory of local ranks, steps, links. */
#ifndef TT_COLL_EXEC_H
#define TT_COLL_EXEC_H

#include "comm/exec/coll_flags.h"
#include "comm/exec/coll_lease.h"

/* So many elements of a rank's part of a plan's buffer. */
typedef struct {
    int rank;
    tt_part_t part;
    size_t count;
} tt_place_t;

/* coll_small.c. Start: false if the local ranks have not come yet; it is posted and written down.
 */
void tt_coll_note_small(const tt_coll_t *coll, tt_prepared_t *prepared);
bool tt_coll_start_small(tt_coll_t *coll, const tt_post_t *post, uint64_t *record);

/* More than numbers: arrays, or a reduction of the program's own. */
static inline bool tt_call_has_more(const tt_call_t *call)
{
    return ((uintptr_t)call->first | (uintptr_t)call->counts | (uintptr_t)call->recv_counts |
            (uintptr_t)call->custom) != 0;
}

/* Chooses the set in which a descriptor is looked for; without what tt_call_has_more says. */
static inline uint64_t tt_call_hash(const tt_call_t *call)
{
    const uint64_t kind =
        (uint64_t)call->collective * 64 + (uint64_t)call->reduction * 8 + (uint64_t)call->dtype;
    return (call->count ^ (uint64_t)(uint32_t)call->root << 32 ^ kind << 48 ^
            (uint64_t)(uint32_t)call->leaves << 40) *
           UINT64_C(0x9e3779b97f4a7c15);
}

/* But for what tt_call_has_more says. Each member is loaded as it was stored, just before. */
static inline bool tt_call_is_alike(const tt_call_t *a, const tt_call_t *b)
{
    return a->count == b->count && a->collective == b->collective && a->root == b->root &&
           a->reduction == b->reduction && a->dtype == b->dtype && a->out_dtype == b->out_dtype &&
           a->leaves == b->leaves && a->piece_count == b->piece_count;
}

static inline tt_prepared_t **tt_coll_prepared_set(tt_coll_t *coll, uint64_t hash)
{
    return coll->prepared.entries[(hash >> 59) % TT_PREPARED_SETS];
}

/* coll_prepared.c */
tutti_status_t tt_coll_find_prepared(tt_coll_t *coll, const tt_call_t *call, tt_prepared_t **out);
void tt_coll_forget_prepared(tt_coll_t *coll);

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
    const tt_content_t content = tt_plan_content(buffer);
    return content == TT_OF_OUT   ? call->out_dtype
           : content == TT_OF_SUM ? tt_combine_dtype(call->dtype)
                                  : call->dtype;
}

/* The bytes in which offsets into a part's buffer are counted. */
static inline size_t tt_part_unit(const tt_call_t *call, tt_part_t part)
{
    return tt_dtype_bytes(tt_call_dtype(call, tt_plan_memory(part.buffer)));
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

/* coll_steps.c: NOMEM */
tutti_status_t tt_coll_open_steps(tt_coll_t *coll);
void tt_coll_close_steps(tt_coll_t *coll);
tt_execute_fn_t tt_coll_executor(const tt_plan_t *plan);
tutti_status_t tt_coll_make_sum_room(tt_coll_t *coll, const tt_plan_t *plan);
/* Whether a step of the round under way waits for a rank of another host. */
bool tt_coll_awaits(const tt_coll_t *coll, const tt_run_t *run, int rank);

/* coll_links.c */
tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire);
tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank);
tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned,
                            const void *data, size_t bytes);
tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned, void *data,
                            size_t bytes);

#endif
