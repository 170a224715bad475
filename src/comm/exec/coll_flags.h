/* What local ranks show each other: the flag protocol (flags.h), inline where a small call takes
 * it.
 */
#ifndef TT_COLL_FLAGS_H
#define TT_COLL_FLAGS_H

#include <string.h>

#include "comm/exec/coll_impl.h"
#include "core/base/futex.h"

/* Polls of the local ranks' flags in a row, and those of them without a pause. */
enum { TT_EXPECT_POLLS = 128, TT_EAGER_POLLS = 16 };

/* The fingerprint of a descriptor is that of all but its tag, mixed with the tag, so that the
 * costly part need not be computed for each call. */
uint64_t tt_call_fingerprint(const tt_call_descriptor_t *descriptor_without_tag);

static inline uint64_t tt_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

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
    uint64_t *shown = &coll->flags.posted_here[post->sequence % TT_FLAG_SLOTS];
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

/* Local ranks wait to see the call: this comes after it has been shown. */
static inline uint64_t tt_coll_write_down(tt_coll_t *coll, const tt_call_t *call,
                                          const tt_prepared_t *prepared, bool is_shown)
{
    tt_records_t *records = &coll->block->records;
    const uint64_t record = tt_record_start(records, coll->queue.sequence, call->count, call->tag,
                                            call->site, prepared->record);
    if (is_shown) {
        tt_record_progress(records, record, TT_RECORD_POSTED, -1);
    }
    return record;
}

#endif
