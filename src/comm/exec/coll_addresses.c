/* Memory that local ranks touch: pieces and outs where they lie in the shared heap, bounce buffers
 * and tables that the group keeps there. A rank shows where its memory is in its flag slot (places
 * of out and of each piece) and in its flag block (bounce buffers, table).
 */
#include <string.h>

#include "comm/exec/call_text.h"
#include "comm/exec/coll_exec.h"
#include "core/base/alloc.h"

static size_t out_bytes(const tt_run_t *run)
{
    return run->call.out == NULL ? 0
                                 : run->plan->out_elements * tt_dtype_bytes(run->call.out_dtype);
}

static size_t piece_bytes(const tt_run_t *run)
{
    return run->plan->piece_elements * tt_dtype_bytes(run->call.dtype);
}

static bool do_node_peers_touch_pieces(const tt_coll_t *coll, const tt_call_t *call)
{
    return call->collective != TT_BROADCAST || call->root == coll->rank;
}

static bool do_node_peers_touch_out(const tt_coll_t *coll, const tt_call_t *call)
{
    return call->collective == TT_ALL_REDUCE || call->collective == TT_REDUCE ||
           (call->collective == TT_BROADCAST && call->root != coll->rank) ||
           tt_collective_is_prefix(call->collective) || coll->host_count > 1;
}

/* Places of out and the pieces; false if one that local ranks would touch has none. */
static bool find_addresses(tt_coll_t *coll, const tt_run_t *run, tt_heap_address_t *addresses)
{
    const tt_call_t *call = &run->call;
    tt_device_t *heap = tt_node_peers_heap(coll->node_peers);
    const size_t whole = out_bytes(run), bytes = piece_bytes(run);
    addresses[0] = 0;
    if (whole > 0 && do_node_peers_touch_out(coll, call)) {
        addresses[0] = tt_heap_address(heap, call->out, whole);
        if (addresses[0] == 0) {
            return false;
        }
    }
    for (int i = 0; i < call->piece_count; i++) {
        addresses[1 + i] = 0;
        if (bytes > 0 && do_node_peers_touch_pieces(coll, call)) {
            addresses[1 + i] = tt_heap_address(heap, run->pieces[i], bytes);
            if (addresses[1 + i] == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Of the shared heap; shows where it is. No rank reads it between calls. */
static tutti_status_t grow(tt_coll_t *coll, tt_room_t *room, size_t bytes,
                           _Atomic tt_heap_address_t *shown)
{
    if (room->bytes >= bytes) {
        return TUTTI_OK;
    }
    tt_device_t *heap = tt_node_peers_heap(coll->node_peers);
    void *grown = tt_device_alloc(heap, bytes, "bounce buffer");
    TT_TRY_ALLOC(grown);
    if (room->data != NULL) {
        tt_device_free(heap, room->data, room->bytes);
    }
    *room = (tt_room_t){grown, bytes};
    atomic_store_explicit(shown, tt_heap_address(heap, grown, bytes), memory_order_release);
    return TUTTI_OK;
}

/* An all_to_all of uneven parts: the others cannot know where theirs begin. */
static bool post_table(tt_coll_t *coll, const tt_run_t *run)
{
    const size_t *parts = run->plan->plan->request.begins;
    if (parts == NULL || run->call.collective != TT_ALL_TO_ALL) {
        return true;
    }
    const size_t entries = (size_t)coll->size + 1;
    const size_t bytes = TT_FLAG_SLOTS * entries * sizeof(uint64_t);
    if (grow(coll, &coll->table, bytes, &coll->block->table) < 0) {
        return false;
    }
    uint64_t *row = (uint64_t *)coll->table.data + run->sequence % TT_FLAG_SLOTS * entries;
    for (size_t i = 0; i < entries; i++) {
        row[i] = parts[i];
    }
    return true;
}

void tt_coll_post_addresses(tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot)
{
    tt_heap_address_t addresses[1 + TT_TREE_DEPTH_MAX];
    if (coll->local_count == 1) {
        return;
    }
    if (run->plan->plan->request.is_staged || !find_addresses(coll, run, addresses) ||
        !post_table(coll, run)) {
        slot->flags = TT_FLAG_FOREIGN;
        return;
    }
    const size_t bytes = (1 + (size_t)run->call.piece_count) * sizeof *addresses;
    memcpy(tt_flag_payload(slot, bytes), addresses, bytes);
}

bool tt_coll_is_foreign(tt_coll_t *coll, const tt_run_t *run)
{
    for (int i = 0; i < coll->local_count; i++) {
        if ((tt_coll_slot(coll, coll->local_ranks[i], run->sequence)->flags & TT_FLAG_FOREIGN) !=
            0) {
            return true;
        }
    }
    return false;
}

void *tt_coll_exposed_out(const tt_coll_t *coll, const tt_run_t *run, size_t *bytes)
{
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    *bytes = out_bytes(run);
    const bool is_shown = run->state != TT_RUN_QUEUED && algorithm->shares_memory &&
                          !algorithm->travels_in_flags && coll->local_count > 1;
    const tt_flag_slot_t *slot = tt_coll_slot(coll, coll->rank, run->sequence);
    if (!is_shown || (slot->flags & TT_FLAG_FOREIGN) != 0 || *bytes == 0 ||
        !do_node_peers_touch_out(coll, &run->call)) {
        return NULL;
    }
    return run->call.out;
}

static int pieces_of(const tt_run_t *run, int rank)
{
    const tt_plan_t *plan = run->plan->plan;
    return plan->pieces_of != NULL ? plan->pieces_of[rank] : 1;
}

/* What a local rank's slot shows of piece `index`, or with -1 of out. */
static tt_heap_address_t posted_address(const tt_coll_t *coll, const tt_run_t *run, int rank,
                                        int index)
{
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    tt_heap_address_t address;
    const size_t bytes = (1 + (size_t)pieces_of(run, rank)) * sizeof address;
    memcpy(&address, tt_flag_payload(slot, bytes) + (size_t)(1 + index) * sizeof address,
           sizeof address);
    return address;
}

/* So many bytes further on. An offset too large becomes an address that no heap has. */
static tt_heap_address_t move_address(tt_heap_address_t address, size_t bytes)
{
    return address == 0                                           ? 0
           : (tt_heap_address_offset(address) + bytes) >> 48 != 0 ? UINT64_MAX
                                                                  : address + bytes;
}

/* Elements of a rank's piece. Without counts all have as many, but for the root. */
static size_t piece_elements_of(const tt_run_t *run, int rank)
{
    const tt_cached_plan_t *plan = run->plan;
    if (plan->plan->request.counts == NULL) {
        return rank == plan->plan->root ? plan->root_piece_elements : plan->piece_elements;
    }
    tt_plan_request_t request = plan->plan->request;
    request.rank = rank;
    return tt_plan_piece_elements(&request);
}

/* The piece of a local rank inside its flag line. */
static void *payload_of(const tt_coll_t *coll, const tt_run_t *run, int rank, tt_part_t part)
{
    const size_t element = tt_dtype_bytes(run->call.dtype);
    const size_t bytes = piece_elements_of(run, rank) * element;
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    return tt_flag_payload(slot, bytes * (size_t)pieces_of(run, rank)) +
           bytes * (size_t)part.index + part.offset * element;
}

/* Where a local rank says that its buffer is. */
static tt_heap_address_t announced_address(const tt_coll_t *coll, const tt_run_t *run, int rank,
                                           tt_part_t part)
{
    const tt_flag_block_t *block = coll->blocks[rank];
    switch (part.buffer) {
    case TT_BUFFER_PIECE:
        return posted_address(coll, run, rank, part.index);
    case TT_BUFFER_OUT:
        return posted_address(coll, run, rank, -1);
    case TT_BUFFER_BOUNCE:
    case TT_BUFFER_BOUNCE_BACK:
        return atomic_load_explicit(&block->bounce, memory_order_relaxed);
    case TT_BUFFER_BOUNCE_OUT:
        return atomic_load_explicit(&block->bounce_out, memory_order_relaxed);
    case TT_BUFFER_SCRATCH:
    case TT_BUFFER_SUM:
    case TT_BUFFER_COUNT:
        TT_ASSERT(rank == coll->rank); /* private */
    }
    return 0;
}

tutti_status_t tt_coll_find_memory(const tt_coll_t *coll, const tt_run_t *run,
                                   const tt_place_t *place, void **out)
{
    const tt_part_t part = place->part;
    if (run->plan->plan->algorithm->travels_in_flags) {
        *out = payload_of(coll, run, place->rank, part);
        return TUTTI_OK;
    }
    const tt_heap_span_t span = {move_address(announced_address(coll, run, place->rank, part),
                                              tt_part_begin(&run->call, part)),
                                 place->count *
                                     tt_dtype_bytes(tt_call_dtype(&run->call, part.buffer)),
                                 tt_part_unit(&run->call, part)};
    return tt_node_peers_find(coll->node_peers, coll->node_peer_ranks[place->rank], span, out);
}

tutti_status_t tt_coll_look_up(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step,
                               size_t *offset)
{
    const size_t entries = (size_t)coll->size + 1;
    const tt_heap_address_t address =
        atomic_load_explicit(&coll->blocks[step->peer]->table, memory_order_relaxed);
    const size_t row = run->sequence % TT_FLAG_SLOTS * entries + (size_t)coll->rank;
    const tt_heap_span_t span = {move_address(address, row * sizeof(uint64_t)),
                                 2 * sizeof(uint64_t), sizeof(uint64_t)};
    void *found;
    const tutti_status_t status =
        tt_node_peers_find(coll->node_peers, coll->node_peer_ranks[step->peer], span, &found);
    if (status != TUTTI_OK) {
        return status;
    }
    const uint64_t *at = found;
    if (at[0] >> 48 != 0) { /* more than a heap has */
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d shows a part that begins at element %llu",
                       step->peer, (unsigned long long)at[0]);
    }
    const tt_exchange_t exchange = {step->peer, coll->rank, at[1] - at[0], step->count};
    TT_TRY(tt_exchange_check(run->sequence, &exchange));
    *offset = (size_t)at[0];
    return TUTTI_OK;
}

tutti_status_t tt_coll_make_bounce_buffers(tt_coll_t *coll, const tt_run_t *run)
{
    const size_t *room = run->plan->plan->room;
    TT_TRY(grow(coll, &coll->rooms[TT_BUFFER_BOUNCE],
                room[TT_BUFFER_BOUNCE] * tt_dtype_bytes(run->call.dtype), &coll->block->bounce));
    return grow(coll, &coll->rooms[TT_BUFFER_BOUNCE_OUT],
                room[TT_BUFFER_BOUNCE_OUT] * tt_dtype_bytes(run->call.out_dtype),
                &coll->block->bounce_out);
}

void tt_coll_keep_stages(tt_coll_t *coll)
{
    const tt_room_t *const all[] = {&coll->rooms[TT_BUFFER_BOUNCE],
                                    &coll->rooms[TT_BUFFER_BOUNCE_OUT], &coll->table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_quarantine_add(coll->lease.quarantine, all[i]->data, all[i]->bytes);
    }
}
