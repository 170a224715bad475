/* Memory that mates touch: pieces and outs where they lie in the shared heap, stages and tables
 * that the group keeps there. A rank shows where its memory is in its flag slot (places of out and
 * of each piece) and in its flag block (stages, table).
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
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

static bool do_mates_touch_pieces(const tt_coll_t *coll, const tt_call_t *call)
{
    return call->collective != TT_BROADCAST || call->root == coll->rank;
}

static bool do_mates_touch_out(const tt_coll_t *coll, const tt_call_t *call)
{
    return call->collective == TT_ALL_REDUCE || call->collective == TT_REDUCE ||
           tt_collective_is_prefix(call->collective) || coll->host_count > 1;
}

/* Places of out and the pieces; false if one that mates would touch has none. */
static bool find_places(tt_coll_t *coll, const tt_run_t *run, tt_place_t *places)
{
    const tt_call_t *call = &run->call;
    tt_device_t *heap = tt_mates_heap(coll->mates);
    const size_t whole = out_bytes(run), bytes = piece_bytes(run);
    places[0] = 0;
    if (whole > 0 && do_mates_touch_out(coll, call)) {
        places[0] = tt_heap_place(heap, call->out, whole);
        if (places[0] == 0) {
            return false;
        }
    }
    for (int i = 0; i < call->piece_count; i++) {
        places[1 + i] = 0;
        if (bytes > 0 && do_mates_touch_pieces(coll, call)) {
            places[1 + i] = tt_heap_place(heap, run->pieces[i], bytes);
            if (places[1 + i] == 0) {
                return false;
            }
        }
    }
    return true;
}

/* An all_to_all of uneven parts: the others cannot know where theirs begin. */
static bool show_table(tt_coll_t *coll, const tt_run_t *run)
{
    const size_t *parts = run->plan->plan->parts;
    if (parts == NULL) {
        return true;
    }
    const size_t entries = (size_t)coll->size + 1;
    const size_t bytes = TT_FLAG_SLOTS * entries * sizeof(uint64_t);
    tt_device_t *heap = tt_mates_heap(coll->mates);
    if (coll->table.data == NULL) {
        coll->table.data = tt_device_alloc(heap, bytes, "table of counts");
        if (coll->table.data == NULL) {
            return false;
        }
        coll->table.bytes = bytes;
        atomic_store_explicit(&coll->block->table, tt_heap_place(heap, coll->table.data, bytes),
                              memory_order_release);
    }
    uint64_t *row = (uint64_t *)coll->table.data + run->sequence % TT_FLAG_SLOTS * entries;
    for (size_t i = 0; i < entries; i++) {
        row[i] = parts[i];
    }
    return true;
}

void tt_coll_show_places(tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot)
{
    tt_place_t places[1 + TT_TREE_DEPTH_MAX];
    if (coll->local_count == 1) {
        return;
    }
    if (run->plan->request.is_staged || !find_places(coll, run, places) || !show_table(coll, run)) {
        slot->flags = TT_FLAG_FOREIGN;
        return;
    }
    const size_t bytes = (1 + (size_t)run->call.piece_count) * sizeof *places;
    memcpy(tt_flag_payload(slot, bytes), places, bytes);
}

bool tt_coll_is_foreign(tt_coll_t *coll, const tt_run_t *run)
{
    for (int i = 0; i < coll->local_count; i++) {
        if ((tt_coll_slot(coll, coll->locals[i], run->sequence)->flags & TT_FLAG_FOREIGN) != 0) {
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
        !do_mates_touch_out(coll, &run->call)) {
        return NULL;
    }
    return run->call.out;
}

static int pieces_of(const tt_run_t *run, int rank)
{
    const tt_plan_t *plan = run->plan->plan;
    return plan->pieces_of != NULL ? plan->pieces_of[rank] : 1;
}

/* What a mate's slot shows of piece `index`, or with -1 of out. */
static tt_place_t shown_place(const tt_coll_t *coll, const tt_run_t *run, int rank, int index)
{
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    tt_place_t place;
    const size_t bytes = (1 + (size_t)pieces_of(run, rank)) * sizeof place;
    memcpy(&place, tt_flag_payload(slot, bytes) + (size_t)(1 + index) * sizeof place, sizeof place);
    return place;
}

/* A place so many bytes further on; offsets stay below 2^48, or are found out of range. */
static tt_place_t move_place(tt_place_t place, size_t bytes)
{
    return place == 0 || bytes >> 47 != 0 ? 0 : place + bytes;
}

/* Elements of a rank's piece. Without counts all have as many, but for the root. */
static size_t piece_elements_of(const tt_run_t *run, int rank)
{
    const tt_cached_plan_t *plan = run->plan;
    if (plan->request.counts == NULL) {
        return rank == plan->request.root ? plan->root_piece_elements : plan->piece_elements;
    }
    tt_plan_request_t request = plan->request;
    request.rank = rank;
    return tt_plan_piece_elements(&request);
}

/* The piece of a mate inside its flag line. */
static void *payload_of(const tt_coll_t *coll, const tt_run_t *run, int rank, tt_part_t part)
{
    const size_t element = tt_dtype_bytes(run->call.dtype);
    const size_t bytes = piece_elements_of(run, rank) * element;
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    return tt_flag_payload(slot, bytes * (size_t)pieces_of(run, rank)) +
           bytes * (size_t)part.index + part.offset * element;
}

void *tt_coll_memory_of(const tt_coll_t *coll, const tt_run_t *run, int rank, tt_part_t part,
                        size_t bytes)
{
    if (run->plan->plan->algorithm->travels_in_flags) {
        return payload_of(coll, run, rank, part);
    }
    const tt_flag_block_t *block = coll->blocks[rank];
    tt_place_t place = 0;
    switch (part.buffer) {
    case TT_BUFFER_PIECE:
        place = shown_place(coll, run, rank, part.index);
        break;
    case TT_BUFFER_OUT:
        place = shown_place(coll, run, rank, -1);
        break;
    case TT_BUFFER_STAGE:
    case TT_BUFFER_STAGE_BACK:
        place = atomic_load_explicit(&block->stage, memory_order_relaxed);
        break;
    case TT_BUFFER_STAGE_OUT:
        place = atomic_load_explicit(&block->stage_out, memory_order_relaxed);
        break;
    case TT_BUFFER_SCRATCH:
    case TT_BUFFER_SUM:
        TT_ASSERT(rank == coll->rank); /* private */
    }
    return tt_mates_at(coll->mates, coll->mate_ranks[rank],
                       move_place(place, tt_part_begin(&run->call, part)), bytes);
}

tutti_status_t tt_coll_look_up(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step,
                               size_t *offset)
{
    const size_t entries = (size_t)coll->size + 1;
    const tt_place_t place =
        atomic_load_explicit(&coll->blocks[step->peer]->table, memory_order_relaxed);
    const size_t row = run->sequence % TT_FLAG_SLOTS * entries + (size_t)coll->rank;
    const uint64_t *at = tt_mates_at(coll->mates, coll->mate_ranks[step->peer],
                                     move_place(place, row * sizeof *at), 2 * sizeof *at);
    if (at == NULL) {
        return TUTTI_PENDING;
    }
    if (at[1] - at[0] != step->count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "all_to_all #%llu: rank %d gives rank %d %llu elements, but rank %d wants "
                       "%zu of it",
                       (unsigned long long)run->sequence, step->peer, coll->rank,
                       (unsigned long long)(at[1] - at[0]), coll->rank, step->count);
    }
    *offset = (size_t)at[0];
    return TUTTI_OK;
}

static tutti_status_t grow(tt_coll_t *coll, tt_stage_t *stage, size_t bytes,
                           _Atomic tt_place_t *shown)
{
    if (stage->bytes >= bytes) {
        return TUTTI_OK;
    }
    tt_device_t *heap = tt_mates_heap(coll->mates);
    void *grown = tt_device_alloc(heap, bytes, "stage");
    TT_TRY_ALLOC(grown);
    if (stage->data != NULL) {
        tt_device_free(heap, stage->data, stage->bytes); /* nobody looks at it between calls */
    }
    *stage = (tt_stage_t){grown, bytes};
    atomic_store_explicit(shown, tt_heap_place(heap, grown, bytes), memory_order_release);
    return TUTTI_OK;
}

tutti_status_t tt_coll_stage(tt_coll_t *coll, const tt_run_t *run)
{
    const tt_plan_t *plan = run->plan->plan;
    TT_TRY(grow(coll, &coll->stage, plan->stage_count * tt_dtype_bytes(run->call.dtype),
                &coll->block->stage));
    return grow(coll, &coll->stage_out, plan->stage_out_count * tt_dtype_bytes(run->call.out_dtype),
                &coll->block->stage_out);
}

void tt_coll_keep_stages(tt_coll_t *coll)
{
    const tt_stage_t *const all[] = {&coll->stage, &coll->stage_out, &coll->table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_quarantine_add(coll->quarantine, all[i]->data, all[i]->bytes);
    }
}
