/* Bytes that grow, and those of a whole file. */
#ifndef TT_BYTE_SINK_H
#define TT_BYTE_SINK_H

#include <tutti/objects.h>

#include "core/base/fail.h"

typedef struct {
    tutti_buffer_t bytes; /* tt_free() */
    size_t room;
} tt_sink_t;

/* NOMEM, and it is as it was. */
tutti_status_t tt_sink_append(tt_sink_t *sink, const void *data, size_t bytes);

/* All bytes of a file; tt_free(). */
tutti_status_t tt_file_bytes(const char *path, const char *what, tutti_buffer_t *out);

#endif
