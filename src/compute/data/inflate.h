/* Bytes that may be gzip's, read as what they stand for. */
#ifndef TT_INFLATE_H
#define TT_INFLATE_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/objects.h>

#include <zlib.h>

#include "core/base/fail.h"

typedef struct {
    const char *name; /* for messages */
    tutti_bytes_t data;
    bool is_gzip;
    uint64_t offset; /* of the next byte, after inflating */
    z_stream z;
    bool is_at_end; /* of the gzip stream */
} tt_inflate_t;

/* Data begins with gzip's magic or is plain. Borrowed. */
tutti_status_t tt_inflate_begin(const char *name, tutti_bytes_t data, tt_inflate_t *out);

/* Exactly `bytes`; FORMAT names the offset where they end too early. */
tutti_status_t tt_inflate_read(tt_inflate_t *in, void *to, size_t bytes);

/* FORMAT unless nothing is left. */
tutti_status_t tt_inflate_expect_end(tt_inflate_t *in);

/* No more than this can still come out. */
uint64_t tt_inflate_bytes_max(const tt_inflate_t *in);

void tt_inflate_end(tt_inflate_t *in);

#endif
