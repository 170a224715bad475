/* The inside of the shared heap's owner: heap_pages.c (segments, populating, punching) and
 * heap_device.c (blocks). */
#ifndef TT_HEAP_IMPL_H
#define TT_HEAP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "core/base/integers.h"
#include "core/device/heap.h"
#include "core/device/heap_alias.h"
#include "core/device/heap_extents.h"
#include "core/device/heap_segment.h"

enum { TT_HEAP_CHUNK = 64, TT_HEAP_CHUNKS = TT_HEAP_SEGMENTS_MAX / TT_HEAP_CHUNK + 1 };

typedef struct {
    pid_t owner; /* a forked child takes and gives nothing: the pages are its parent's */
    pthread_mutex_t lock;
    tt_heap_options_t options;                 /* without zeros */
    tt_heap_segment_t *chunks[TT_HEAP_CHUNKS]; /* TT_HEAP_CHUNK segments each */
    atomic_int segment_count; /* only grows, so that places are found without the lock */
    size_t address_bytes, page_bytes;
    size_t kept_bytes; /* of idle pages, beside options.idle_min */
    tt_extents_t extents;
    tt_device_stats_t stats;
    tt_heap_aliases_t aliases;
} tt_heap_t;

static inline tt_heap_segment_t *tt_heap_segment_at(const tt_heap_t *heap, int segment)
{
    return &heap->chunks[segment / TT_HEAP_CHUNK][segment % TT_HEAP_CHUNK];
}

/* A new segment, bare: of `wished` bytes, or of `needed` where limits of the process refuse that.
 * The lock is held. */
tutti_status_t tt_heap_add_segment(tt_heap_t *heap, size_t wished, size_t needed);

/* Whole pages of a segment, of which `missing` bytes are not populated. */
typedef struct {
    int segment;
    size_t offset, bytes, missing;
} tt_heap_range_t;

/* Make the pages there be, if the system has enough memory. Needs no lock. */
tutti_status_t tt_heap_fill(const tt_heap_t *heap, const tt_heap_range_t *range, const char *what);

/* The first bare pages that a small block needs at a fit, and some more if they may stay idle. The
 * lock is held. */
tutti_status_t tt_heap_fill_small(tt_heap_t *heap, const tt_extent_fit_t *fit, size_t bytes,
                                  const char *what);

/* Punch a block of whole pages and free it. The lock is held, but not while punching. */
void tt_heap_empty(tt_heap_t *heap, tt_extent_t *block);

/* After blocks have been freed or retired: punch what is retired, and the idle pages above the
 * bound. The lock is held, but not while punching the latter. */
void tt_heap_trim(tt_heap_t *heap);

#endif
