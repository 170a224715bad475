/* Texts that become the caller's. */
#ifndef TT_PROFILE_TEXT_H
#define TT_PROFILE_TEXT_H

#include <tutti/objects.h>

#include "core/base/alloc.h"
#include "runtime/metrics/byte_row.h"

/* A JSON string, with its quotes. */
void tt_row_json(tt_byte_row_t *row, const char *text);

/* A text of a file's in HTML: < > & " ' and control characters made harmless. */
void tt_row_html(tt_byte_row_t *row, const char *text);

/* The row as the caller's buffer, or the failure. The row is empty afterwards. */
tutti_status_t tt_row_hand_over(tt_byte_row_t *row, tutti_status_t status, tutti_buffer_t *out);

#endif
