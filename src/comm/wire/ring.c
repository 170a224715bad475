/* The ring: two counters that only grow; what lies between them is full. The writer publishes every
 * CHUNK_BYTES, so that the reader copies out while the writer copies in. */
#include "comm/wire/ring.h"

#include <string.h>

#include "core/base/integers.h"

enum { CHUNK_BYTES = 16 << 10 };

static size_t write_bytes(tt_ring_t *ring, const void *data, size_t bytes)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    const uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
    const uint64_t used = written - read;
    if (used > TT_RING_BYTES) {
        return 0; /* the other side wrote nonsense; the deadline will tell */
    }
    const size_t total = tt_min_size(bytes, (size_t)(TT_RING_BYTES - used));
    for (size_t done = 0; done < total;) {
        const size_t at = (size_t)(written % TT_RING_BYTES);
        const size_t part = tt_min_size(tt_min_size(total - done, TT_RING_BYTES - at), CHUNK_BYTES);
        memcpy(ring->data + at, (const unsigned char *)data + done, part);
        done += part;
        written += part;
        atomic_store_explicit(&ring->written, written, memory_order_release);
    }
    return total;
}

size_t tt_ring_write_spans(tt_ring_t *ring, const tt_span_t *spans, int span_count)
{
    size_t done = 0;
    for (int i = 0; i < span_count; i++) {
        const size_t part = write_bytes(ring, spans[i].data, spans[i].bytes);
        done += part;
        if (part < spans[i].bytes) {
            break;
        }
    }
    return done;
}

size_t tt_ring_read(tt_ring_t *ring, void *data, size_t bytes)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    const uint64_t used = written - read;
    if (used > TT_RING_BYTES) {
        return 0;
    }
    const size_t total = tt_min_size(bytes, (size_t)used);
    for (size_t done = 0; done < total;) {
        const size_t at = (size_t)(read % TT_RING_BYTES);
        const size_t part = tt_min_size(tt_min_size(total - done, TT_RING_BYTES - at), CHUNK_BYTES);
        memcpy((unsigned char *)data + done, ring->data + at, part);
        done += part;
        read += part;
        atomic_store_explicit(&ring->read, read, memory_order_release);
    }
    return total;
}
