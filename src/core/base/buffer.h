/* Buffers that a caller will own, and bytes made readable for messages. */
#ifndef TT_BUFFER_H
#define TT_BUFFER_H

#include <stdbool.h>

#include <tutti/objects.h>

#include "core/base/fail.h"

/* A copy with a 0 behind it. */
tutti_status_t tt_buffer_copy(tutti_bytes_t from, tutti_buffer_t *out);

tutti_bytes_t tt_buffer_view(const tutti_buffer_t *buffer);

bool tt_bytes_equal(tutti_bytes_t a, tutti_bytes_t b);

/* Printable text of any bytes, such as `rank/3\x00`, cut to fit with "..." at its end. */
void tt_bytes_print(tutti_bytes_t bytes, char *text, size_t text_bytes);

#endif
