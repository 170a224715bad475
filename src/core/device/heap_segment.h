/* One segment of a shared heap: a sealed memfd, mapped as a whole. Its pages are holes until they
 * are populated. */
#ifndef TT_HEAP_SEGMENT_H
#define TT_HEAP_SEGMENT_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct {
    int fd;
    unsigned char *base;
    size_t bytes;
} tt_heap_segment_t;

/* Address space alone. `bytes` is rounded up to whole pages. NOMEM when there is no room for it in
 * the address space or in the process's limits. */
tutti_status_t tt_heap_segment_create(size_t bytes, tt_heap_segment_t *out);
void tt_heap_segment_release(tt_heap_segment_t *segment);

/* Get the pages of [offset, offset + bytes), whole pages; those that are there stay as they are.
 * NOMEM when the system has none; then some of them may have been populated. */
tutti_status_t tt_heap_segment_populate(const tt_heap_segment_t *segment, size_t offset,
                                        size_t bytes);

/* How many bytes of [offset, offset + bytes) are holes. */
size_t tt_heap_segment_holes(const tt_heap_segment_t *segment, size_t offset, size_t bytes);

/* Give the whole pages inside [offset, offset + bytes) back to the system. They read as zeros. */
void tt_heap_segment_punch(const tt_heap_segment_t *segment, size_t offset, size_t bytes);

/* Map a peer's descriptor after checking that it cannot shrink under us. Does not close fd. */
tutti_status_t tt_heap_segment_map(int fd, size_t bytes, unsigned char **out);

#endif
