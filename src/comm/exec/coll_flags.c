/* The flag protocol between local ranks: showing a call, seeing that all have come, meeting inside
 * a call, seeing that all are done.
 *
 * The slot's sequence is stored last, with release; a rank that loads it with acquire sees the
 * rest. A slot is written again only when every local rank has finished the call that it showed
 * (`done`), which is looked up once in TT_FLAG_SLOTS calls.
 */
#include "comm/exec/coll_exec.h"

uint64_t tt_call_fingerprint(const tt_call_descriptor_t *descriptor)
{
    uint64_t hash = tt_mix(descriptor->group, descriptor->count);
    hash = tt_mix(hash, descriptor->layout);
    hash = tt_mix(hash, (uint64_t)descriptor->epoch << 32 | descriptor->leaves);
    uint64_t custom[2];
    _Static_assert(sizeof custom == sizeof descriptor->custom, "two words");
    memcpy(custom, &descriptor->custom, sizeof custom);
    hash = tt_mix(tt_mix(hash, custom[0]), custom[1]);
    return tt_mix(hash, (uint64_t)(uint32_t)descriptor->root << 32 |
                            (uint64_t)descriptor->collective << 24 |
                            (uint64_t)descriptor->dtype << 16 |
                            (uint64_t)descriptor->out_dtype << 8 | descriptor->reduction);
}

static uint64_t lowest_done(const tt_coll_t *coll)
{
    uint64_t lowest = UINT64_MAX;
    for (int i = 0; i < coll->local_count; i++) {
        const uint64_t done =
            atomic_load_explicit(&coll->blocks[coll->local_ranks[i]]->done, memory_order_acquire);
        lowest = done < lowest ? done : lowest;
    }
    return lowest;
}

bool tt_coll_may_post(tt_coll_t *coll, uint64_t sequence)
{
    if (sequence > coll->flags.all_done + TT_FLAG_SLOTS) {
        coll->flags.all_done = lowest_done(coll);
    }
    return sequence <= coll->flags.all_done + TT_FLAG_SLOTS;
}

static void post_payload(const tt_run_t *run, tt_flag_slot_t *slot)
{
    const size_t bytes = run->prepared->posted_bytes;
    const int count = bytes > 0 ? run->call.piece_count : 0;
    unsigned char *payload = tt_flag_payload(slot, bytes * (size_t)count);
    for (int i = 0; i < count; i++) {
        tt_copy_small(payload + bytes * (size_t)i, run->pieces[i], bytes);
    }
}

void tt_coll_post(tt_coll_t *coll, tt_run_t *run)
{
    tt_call_copy_in(&run->call);
    const tt_post_t post = tt_run_post(run);
    tt_flag_slot_t *slot = tt_coll_write_descriptor(coll, &post);
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    if (algorithm->travels_in_flags) {
        post_payload(run, slot);
    } else if (algorithm->shares_memory) {
        tt_coll_post_addresses(coll, run, slot);
    }
    run->state = TT_RUN_POSTED;
    run->arrived = 0;
    tt_coll_publish(coll, slot, run->sequence);
}

bool tt_coll_have_arrived(tt_coll_t *coll, tt_run_t *run)
{
    while (run->arrived < coll->local_count) {
        const tt_flag_slot_t *slot =
            tt_coll_slot(coll, coll->local_ranks[run->arrived], run->sequence);
        if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != run->sequence) {
            return false;
        }
        run->arrived++;
    }
    return true;
}

bool tt_coll_have_reached(const tt_coll_t *coll, uint64_t phase)
{
    for (int i = 0; i < coll->local_count; i++) {
        if (atomic_load_explicit(&coll->blocks[coll->local_ranks[i]]->phase, memory_order_acquire) <
            phase) {
            return false;
        }
    }
    return true;
}

void tt_coll_post_phase(tt_coll_t *coll, uint64_t phase)
{
    atomic_store_explicit(&coll->block->phase, phase, memory_order_release);
    tt_coll_wake_node_peers(coll);
}

bool tt_coll_are_all_done(tt_coll_t *coll, const tt_run_t *run)
{
    if (coll->flags.all_done < run->sequence) {
        coll->flags.all_done = lowest_done(coll);
    }
    return coll->flags.all_done >= run->sequence;
}
