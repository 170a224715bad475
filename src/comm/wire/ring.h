/* A ring of bytes with one writer and one reader, in memory that both map. It is small enough to
 * stay in the cache that they share, so that a copy through it costs no memory traffic. */
#ifndef TT_RING_H
#define TT_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/wire/wire.h"

enum { TT_RING_BYTES = 128 << 10 };

typedef struct {
    _Alignas(128) _Atomic uint64_t written; /* bytes since the start; the writer's line */
    _Alignas(128) _Atomic uint64_t read;    /* the reader's line */
    _Alignas(128) unsigned char data[TT_RING_BYTES];
} tt_ring_t;

/* How many bytes were taken or given; 0 when the ring is full or empty. */
size_t tt_ring_write_spans(tt_ring_t *ring, const tt_span_t *spans, int span_count);
size_t tt_ring_read(tt_ring_t *ring, void *data, size_t bytes);

#endif
