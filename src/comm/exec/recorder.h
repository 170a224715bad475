/* The recorder: the last calls of one rank in one group, as a ring in its shared heap, so that the
 * other ranks of the host can read it without its help: also while it is stopped or computes.
 *
 * One writer, the owner; everyone reads. A record is eight words; its stamp is 0 while the others
 * are written, so a reader never sees half of one. docs/formats/shm.md describes the bytes.
 *
 * Cost of a call: a dozen stores into this core's own cache; no clock, no system call.
 */
#ifndef TT_RECORDER_H
#define TT_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TT_RECORDS = 64 };

typedef enum {
    TT_RECORD_STARTED, /* not yet shown to others */
    TT_RECORD_POSTED,  /* waits until the ranks of this host have come */
    TT_RECORD_RUNNING,
    TT_RECORD_DONE,
    TT_RECORD_FAILED,
} tt_record_state_t;

typedef enum { TT_RECORD_CALL, TT_RECORD_SEND, TT_RECORD_RECV, TT_RECORD_PROBE } tt_record_kind_t;

/* A record as it is read. */
typedef struct {
    uint64_t number;   /* of all records of this ring, from 1; 0: none */
    uint64_t sequence; /* of a call; 0 of a message */
    uint64_t count, tag, site;
    tt_record_kind_t kind;
    int collective, dtype, reduction;
    int root; /* or a message's peer */
    tt_record_state_t state;
    int round; /* of the plan; -1 before the first, or if it is not known */
} tt_record_t;

typedef struct {
    _Atomic uint64_t stamp, sequence, count, tag, site;
    _Atomic uint64_t what; /* root << 32 | reduction << 24 | dtype << 16 | collective << 8 | kind */
    _Atomic uint64_t progress; /* (round + 1) << 8 | state */
    _Atomic uint64_t reserved;
} tt_record_slot_t;

typedef struct {
    _Alignas(64) _Atomic uint64_t count;
    uint64_t reserved[15];
    tt_record_slot_t slots[TT_RECORDS];
} tt_records_t;

_Static_assert(sizeof(tt_record_slot_t) == 64, "docs/formats/shm.md says 64");

static inline uint64_t tt_record_what(tt_record_kind_t kind, int collective, int dtype,
                                      int reduction, int root)
{
    return (uint64_t)(uint32_t)root << 32 | (uint64_t)(uint8_t)reduction << 24 |
           (uint64_t)(uint8_t)dtype << 16 | (uint64_t)(uint8_t)collective << 8 | (uint64_t)kind;
}

static inline void tt_record_fill(tt_record_slot_t *slot, uint64_t stamp, uint64_t sequence,
                                  uint64_t count, uint64_t tag, const void *site, uint64_t what)
{
    /* Stores with release keep behind the first one; they cost what plain ones do on x86. */
    atomic_store_explicit(&slot->stamp, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->sequence, sequence, memory_order_release);
    atomic_store_explicit(&slot->count, count, memory_order_release);
    atomic_store_explicit(&slot->tag, tag, memory_order_release);
    atomic_store_explicit(&slot->site, (uint64_t)(uintptr_t)site, memory_order_release);
    atomic_store_explicit(&slot->what, what, memory_order_release);
    atomic_store_explicit(&slot->progress, TT_RECORD_STARTED, memory_order_release);
    atomic_store_explicit(&slot->stamp, stamp, memory_order_release);
}

/* Write a new record down; gives its number. */
static inline uint64_t tt_record_start(tt_records_t *records, uint64_t sequence, uint64_t count,
                                       uint64_t tag, const void *site, uint64_t what)
{
    const uint64_t number = atomic_load_explicit(&records->count, memory_order_relaxed) + 1;
    tt_record_fill(&records->slots[number % TT_RECORDS], number, sequence, count, tag, site, what);
    atomic_store_explicit(&records->count, number, memory_order_release);
    return number;
}

/* The same of what the record says, but for its number and state. */
static inline uint64_t tt_record_add(tt_records_t *records, const tt_record_t *record)
{
    return tt_record_start(records, record->sequence, record->count, record->tag,
                           (const void *)(uintptr_t)record->site,
                           tt_record_what(record->kind, record->collective, record->dtype,
                                          record->reduction, record->root));
}

/* What became of a record; nothing if it was written over since. */
static inline void tt_record_progress(tt_records_t *records, uint64_t number,
                                      tt_record_state_t state, int round)
{
    tt_record_slot_t *slot = &records->slots[number % TT_RECORDS];
    if (atomic_load_explicit(&slot->stamp, memory_order_relaxed) == number) {
        atomic_store_explicit(&slot->progress,
                              (uint64_t)(uint32_t)(round + 1) << 8 | (uint64_t)state,
                              memory_order_release);
    }
}

/* False while it is being written; number 0 when there is none. */
bool tt_record_read(const tt_record_slot_t *slot, tt_record_t *out);

/* Record `number`, as long as it is in the ring. */
bool tt_records_at(const tt_records_t *records, uint64_t number, tt_record_t *out);

/* The last call, whatever messages came since; number 0: none is in the ring. */
tt_record_t tt_records_last_call(const tt_records_t *records);

/* The last record of call `sequence`. */
bool tt_records_find(const tt_records_t *records, uint64_t sequence, tt_record_t *out);

/* "started", "posted", "running", "done", "failed" */
const char *tt_record_state_name(tt_record_state_t state);

#endif
