/* Units of a file that come into memory ahead of their use and go back behind it, by threads.
 *
 *     file     | unit 0 | unit 1 | unit 2 | unit 3 | unit 4 | …
 *     memory              [writing] [in use] [read]   [reading]
 *
 * Whoever uses units calls use() for one after another. A unit that is used is memory until the
 * next call; then it is written. The order of the units that were used between begin() and end() is
 * that in which the next ones are read ahead; behind end() those that come first are read already.
 * Any other order is right, too: what is not there is waited for.
 *
 * A unit is some ranges of the file, which stand one behind another in memory. Ranges of different
 * units share no block, unless they are read alone.
 *
 * Cost: memory of TT_DISK_BUFFERS times the largest unit; one transfer for each range. One thread
 * at a time uses a ring, beside the ring's own.
 */
#ifndef TT_DISK_RING_H
#define TT_DISK_RING_H

#include "core/device/disk_file.h"

enum { TT_DISK_BUFFERS = 4, TT_DISK_RANGES_MAX = 11 };

/* Multiples of TT_DISK_BLOCK. */
typedef struct {
    uint64_t at;
    size_t bytes;
    bool is_constant; /* it is read alone: what a user leaves in it is not written */
} tt_disk_range_t;

typedef struct {
    tt_disk_range_t ranges[TT_DISK_RANGES_MAX];
    int count;
} tt_disk_unit_t;

/* disk_unit.c: in memory; and of what is written; and all of it comes, or goes. Errors: IO. */
size_t tt_disk_unit_bytes(const tt_disk_unit_t *unit);
size_t tt_disk_unit_written_bytes(const tt_disk_unit_t *unit);
tutti_status_t tt_disk_unit_move(tt_disk_file_t *file, const tt_disk_unit_t *unit, char *memory,
                                 bool is_writing);

typedef struct tt_disk_ring tt_disk_ring_t;

typedef struct {
    uint64_t read_bytes, written_bytes; /* by the threads */
    int64_t waited_ns;                  /* by the user, for units that were not there */
    size_t buffer_bytes;                /* of all buffers */
} tt_disk_ring_stats_t;

/* file: borrowed. Errors: NOMEM, IO (a thread cannot be started). */
tutti_status_t tt_disk_ring_open(tt_disk_file_t *file, tt_disk_ring_t **out);

/* Waits for transfers under way; what is not yet written is dropped. */
void tt_disk_ring_close(tt_disk_ring_t *ring);

/* Units 0 to count - 1 from now on, in this order until there is another; `units` is copied. All is
 * written before. Errors: those of settle, NOMEM; nothing is changed then. */
tutti_status_t tt_disk_ring_set_units(tt_disk_ring_t *ring, const tt_disk_unit_t *units,
                                      size_t count);

/* Whether `who` was the last one to say that units are its own; they are from now on. Where it was
 * not, they may be another one's: it sets its own. */
bool tt_disk_ring_take(tt_disk_ring_t *ring, const void *who);

/* Of a round: the unit that will be first is there. Errors: that of its reading, which is tried
 * again by the next begin() or use(); that of a write since the last begin(), which stays. */
tutti_status_t tt_disk_ring_begin(tt_disk_ring_t *ring);

/* The unit's memory, at a multiple of TT_DISK_BLOCK, until the next call: its bytes will be
 * written. Errors: as begin; TIMEOUT (TUTTI_TIMEOUT_MS), STATE (forked). */
tutti_status_t tt_disk_ring_use(tt_disk_ring_t *ring, size_t unit, void **memory);

/* The round ends. What is read and written then goes on without the caller. */
void tt_disk_ring_end(tt_disk_ring_t *ring);

/* Until all is in the file, and memory forgets it: others may read and write the file until the
 * next begin() or use(). Errors: those of a write, which stay; TIMEOUT. */
tutti_status_t tt_disk_ring_settle(tt_disk_ring_t *ring);

/* What failed is forgotten: all units will get new bytes. */
void tt_disk_ring_forgive(tt_disk_ring_t *ring);

tt_disk_ring_stats_t tt_disk_ring_stats(tt_disk_ring_t *ring);

#endif
