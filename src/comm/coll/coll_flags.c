/* The flag protocol between mates: showing a call, seeing that all have come, meeting inside a
 * call, seeing that all are done.
 *
 * The slot's sequence is stored last, with release; who loads it with acquire sees the rest. A
 * slot is written again only when every mate has finished the call that it showed (`done`), which
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
    hash = mix(hash, sign->layout);
    hash = mix(hash, (uint64_t)sign->epoch << 32 | sign->leaves);
    return mix(hash, (uint64_t)(uint32_t)sign->root << 32 | (uint64_t)sign->collective << 24 |
                         (uint64_t)sign->dtype << 16 | (uint64_t)sign->out_dtype << 8 |
                         sign->reduction);
}

static uint64_t lowest_done(const tt_coll_t *coll)
{
    uint64_t lowest = UINT64_MAX;
    for (int i = 0; i < coll->local_count; i++) {
        const uint64_t done =
            atomic_load_explicit(&coll->blocks[coll->locals[i]]->done, memory_order_acquire);
        lowest = done < lowest ? done : lowest;
    }
    return lowest;
}

bool tt_coll_may_show(tt_coll_t *coll, uint64_t sequence)
{
    if (sequence > coll->all_done + TT_FLAG_SLOTS) {
        coll->all_done = lowest_done(coll);
    }
    return sequence <= coll->all_done + TT_FLAG_SLOTS;
}

static void show_payload(const tt_coll_t *coll, const tt_run_t *run, tt_flag_slot_t *slot)
{
    const size_t bytes = run->plan->piece_elements * tt_dtype_bytes(run->call.dtype);
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
    uint64_t *shown = &coll->shown_here[run->sequence % TT_FLAG_SLOTS];
    if (*shown != run->fingerprint) { /* else the sign is there already */
        *shown = run->fingerprint;
        slot->sign = run->sign;
    }
    slot->fingerprint = run->fingerprint;
    slot->flags = 0;
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    if (algorithm->travels_in_flags) {
        show_payload(coll, run, slot);
    } else if (algorithm->shares_memory) {
        tt_coll_show_places(coll, run, slot);
    }
    atomic_store_explicit(&slot->sequence, run->sequence, memory_order_release);
    run->state = TT_RUN_SHOWN;
    run->arrived = 0;
    tt_coll_wake_mates(coll);
    tt_cpu_prefetch_to_write(tt_coll_slot(coll, coll->rank, run->sequence + 1));
}

bool tt_coll_have_mates_come(tt_coll_t *coll, tt_run_t *run)
{
    while (run->arrived < coll->local_count) {
        const tt_flag_slot_t *slot = tt_coll_slot(coll, coll->locals[run->arrived], run->sequence);
        if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != run->sequence) {
            return false;
        }
        run->arrived++;
    }
    return true;
}

bool tt_coll_have_mates_met(const tt_coll_t *coll, uint64_t phase)
{
    for (int i = 0; i < coll->local_count; i++) {
        if (atomic_load_explicit(&coll->blocks[coll->locals[i]]->phase, memory_order_acquire) <
            phase) {
            return false;
        }
    }
    return true;
}

void tt_coll_post_phase(tt_coll_t *coll, uint64_t phase)
{
    atomic_store_explicit(&coll->block->phase, phase, memory_order_release);
    tt_coll_wake_mates(coll);
}

bool tt_coll_are_mates_done(tt_coll_t *coll, const tt_run_t *run)
{
    if (coll->all_done < run->sequence) {
        coll->all_done = lowest_done(coll);
    }
    return coll->all_done >= run->sequence;
}

void tt_coll_post_done(tt_coll_t *coll, const tt_run_t *run)
{
    atomic_store_explicit(&coll->block->done, run->sequence, memory_order_release);
    tt_coll_wake_mates(coll);
}
