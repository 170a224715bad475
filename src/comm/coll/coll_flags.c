/* The flag protocol: showing a call, seeing that all have come, seeing that all are done.
 *
 * The slot's sequence is stored last, with release; who loads it with acquire sees the rest. A
 * slot is written again only when every rank has finished the call that it showed (`done`), which
 * is looked up once in TT_FLAG_SLOTS calls.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/futex.h"

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

uint64_t tt_sign_fingerprint(const tt_sign_t *sign)
{
    uint64_t hash = mix(sign->group, sign->count);
    hash = mix(hash, sign->tag);
    hash = mix(hash, sign->leaf_map);
    hash = mix(hash, (uint64_t)sign->epoch << 32 | sign->leaves);
    return mix(hash, (uint64_t)(uint32_t)sign->root << 32 | (uint64_t)sign->collective << 24 |
                         (uint64_t)sign->dtype << 16 | (uint64_t)sign->out_dtype << 8 |
                         sign->reduction);
}

tt_flag_slot_t *tt_coll_slot(const tt_coll_t *coll, int rank, uint64_t sequence)
{
    return &coll->blocks[rank]->slots[sequence % TT_FLAG_SLOTS];
}

void tt_coll_wake_all(tt_coll_t *coll)
{
    for (int i = 0; i < coll->size; i++) {
        tt_mates_wake(coll->mates, coll->mate_ranks[i]);
    }
}

static uint64_t lowest_done(const tt_coll_t *coll)
{
    uint64_t lowest = UINT64_MAX;
    for (int i = 0; i < coll->size; i++) {
        const uint64_t done = atomic_load_explicit(&coll->blocks[i]->done, memory_order_acquire);
        lowest = done < lowest ? done : lowest;
    }
    return lowest;
}

bool tt_coll_may_show(tt_coll_t *coll, const tt_run_t *run)
{
    if (run->sequence > coll->all_done + TT_FLAG_SLOTS) {
        coll->all_done = lowest_done(coll);
    }
    return run->sequence <= coll->all_done + TT_FLAG_SLOTS;
}

static bool peers_touch_pieces(const tt_coll_t *coll, const tt_call_t *call)
{
    return call->collective != TT_BROADCAST || call->root == coll->rank;
}

/* Places of out and the pieces; false if one that peers would touch has none. */
static bool find_places(tt_coll_t *coll, const tt_run_t *run, tt_place_t *places)
{
    const tt_call_t *call = &run->call;
    tt_device_t *heap = tt_mates_heap(coll->mates);
    places[0] = 0;
    if (call->collective == TT_ALL_REDUCE) {
        places[0] =
            tt_heap_place(heap, call->out, call->count * tutti_dtype_bytes(call->out_dtype));
        if (places[0] == 0) {
            return false;
        }
    }
    const size_t bytes = tt_call_piece_bytes(call, coll->size);
    for (int i = 0; i < call->piece_count && peers_touch_pieces(coll, call); i++) {
        places[1 + i] = tt_heap_place(heap, run->pieces[i], bytes);
        if (places[1 + i] == 0) {
            return false;
        }
    }
    return true;
}

/* Where the memory lies, for those who read it in place. */
static void show_places(tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot)
{
    tt_place_t places[1 + TT_TREE_DEPTH_MAX];
    if (coll->size == 1 || run->call.count == 0) {
        return;
    }
    if (!find_places(coll, run, places)) {
        slot->flags = TT_FLAG_FOREIGN;
        return;
    }
    const size_t bytes = (1 + (size_t)run->call.piece_count) * sizeof *places;
    memcpy(tt_flag_payload(slot, bytes), places, bytes);
}

static void show_payload(const tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot)
{
    const size_t bytes = tt_call_piece_bytes(&run->call, coll->size);
    unsigned char *payload = tt_flag_payload(slot, bytes * (size_t)run->call.piece_count);
    if (bytes == 0 || (run->call.collective == TT_BROADCAST && run->call.root != coll->rank)) {
        return;
    }
    for (int i = 0; i < run->call.piece_count; i++) {
        if (bytes == 4) {
            memcpy(payload + 4 * i, run->pieces[i], 4);
        } else {
            memcpy(payload + bytes * (size_t)i, run->pieces[i], bytes);
        }
    }
}

void tt_coll_show(tt_coll_t *coll, tt_run_t *run)
{
    tt_flag_slot_t *slot = tt_coll_slot(coll, coll->rank, run->sequence);
    slot->fingerprint = run->fingerprint;
    slot->flags = 0;
    slot->sign = run->sign;
    if (run->plan->algorithm->travels_in_flags) {
        show_payload(coll, run, slot);
    } else if (run->plan->algorithm->needs_shared_memory) {
        show_places(coll, run, slot);
    } else {
        slot->flags = TT_FLAG_FOREIGN;
    }
    atomic_store_explicit(&slot->sequence, run->sequence, memory_order_release);
    run->state = TT_RUN_SHOWN;
    run->arrived = 0;
    tt_coll_wake_all(coll);
}

bool tt_coll_have_all_come(tt_coll_t *coll, tt_run_t *run)
{
    while (run->arrived < coll->size) {
        const tt_flag_slot_t *slot = tt_coll_slot(coll, run->arrived, run->sequence);
        if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != run->sequence) {
            return false;
        }
        run->arrived++;
    }
    return true;
}

bool tt_coll_are_all_done(tt_coll_t *coll, const tt_run_t *run)
{
    if (coll->all_done < run->sequence) {
        coll->all_done = lowest_done(coll);
    }
    return coll->all_done >= run->sequence;
}

void tt_coll_post_done(tt_coll_t *coll, const tt_run_t *run)
{
    atomic_store_explicit(&coll->block->done, run->sequence, memory_order_release);
    tt_coll_wake_all(coll);
}
