/* One segment of a shared heap: a sealed memfd, mapped. */
#ifndef TT_HEAP_SEGMENT_H
#define TT_HEAP_SEGMENT_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct {
    int fd;
    unsigned char *base;
    size_t bytes;
} tt_heap_segment_t;

/* `bytes` is rounded up to whole pages. NOMEM when the pages cannot be had. */
tutti_status_t tt_heap_segment_create(size_t bytes, tt_heap_segment_t *out);
void tt_heap_segment_release(tt_heap_segment_t *segment);

/* Give the whole pages inside [offset, offset + bytes) back to the system. They read as zeros. */
void tt_heap_segment_punch(const tt_heap_segment_t *segment, size_t offset, size_t bytes);

/* Map a peer's descriptor after checking that it cannot shrink under us. Does not close fd. */
tutti_status_t tt_heap_segment_map(int fd, size_t bytes, unsigned char **out);

#endif
