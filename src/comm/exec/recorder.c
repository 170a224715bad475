/* Reading a ring of records that its owner goes on writing. What is read came from another process:
 * numbers are what they are, and callers check them before they use them as an index. */
#include "comm/exec/recorder.h"

bool tt_record_read(const tt_record_slot_t *slot, tt_record_t *out)
{
    const uint64_t stamp = atomic_load_explicit(&slot->stamp, memory_order_acquire);
    const tt_record_t record = {
        .number = stamp,
        .sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire),
        .count = atomic_load_explicit(&slot->count, memory_order_acquire),
        .tag = atomic_load_explicit(&slot->tag, memory_order_acquire),
        .site = atomic_load_explicit(&slot->site, memory_order_acquire),
    };
    const uint64_t what = atomic_load_explicit(&slot->what, memory_order_acquire);
    const uint64_t progress = atomic_load_explicit(&slot->progress, memory_order_acquire);
    if (atomic_load_explicit(&slot->stamp, memory_order_relaxed) != stamp) {
        return false;
    }
    *out = record;
    out->kind = (tt_record_kind_t)(what & 0xff);
    out->collective = (int)(what >> 8 & 0xff);
    out->dtype = (int)(what >> 16 & 0xff);
    out->reduction = (int)(what >> 24 & 0xff);
    out->root = (int)(int32_t)(uint32_t)(what >> 32);
    out->state = (tt_record_state_t)(progress & 0xff);
    out->round = (int)(uint32_t)(progress >> 8) - 1;
    return true;
}

bool tt_records_at(const tt_records_t *records, uint64_t number, tt_record_t *out)
{
    return tt_record_read(&records->slots[number % TT_RECORDS], out) && out->number == number &&
           number != 0;
}

tt_record_t tt_records_last_call(const tt_records_t *records)
{
    const uint64_t newest = atomic_load_explicit(&records->count, memory_order_acquire);
    for (uint64_t back = 0; back < TT_RECORDS && back < newest; back++) {
        tt_record_t record;
        if (tt_records_at(records, newest - back, &record) && record.kind == TT_RECORD_CALL) {
            return record;
        }
    }
    return (tt_record_t){0};
}

bool tt_records_find(const tt_records_t *records, uint64_t sequence, tt_record_t *out)
{
    const uint64_t newest = atomic_load_explicit(&records->count, memory_order_acquire);
    for (uint64_t back = 0; back < TT_RECORDS && back < newest; back++) {
        if (tt_records_at(records, newest - back, out) && out->kind == TT_RECORD_CALL &&
            out->sequence == sequence) {
            return true;
        }
    }
    return false;
}

const char *tt_record_state_name(tt_record_state_t state)
{
    static const char *const names[] = {"started", "posted", "running", "done", "failed"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}
