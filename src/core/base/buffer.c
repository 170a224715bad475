/* Views and buffers of bytes. */
#include "core/base/buffer.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"

void tutti_buffer_release(tutti_buffer_t *buffer)
{
    if (buffer != NULL) {
        tt_free(buffer->data);
        *buffer = (tutti_buffer_t){0};
    }
}

tutti_status_t tt_buffer_copy(tutti_bytes_t from, tutti_buffer_t *out)
{
    char *data = tt_alloc_raw(from.bytes + 1, "buffer");
    TT_TRY_ALLOC(data);
    if (from.bytes > 0) {
        memcpy(data, from.data, from.bytes);
    }
    data[from.bytes] = 0;
    *out = (tutti_buffer_t){data, from.bytes};
    return TUTTI_OK;
}

tutti_bytes_t tt_buffer_view(const tutti_buffer_t *buffer)
{
    return tutti_bytes_of(buffer->data, buffer->bytes);
}

bool tt_bytes_equal(tutti_bytes_t a, tutti_bytes_t b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

void tt_bytes_print(tutti_bytes_t bytes, char *text, size_t text_bytes)
{
    const unsigned char *data = bytes.data;
    size_t used = 0;
    for (size_t i = 0; i < bytes.bytes; i++) {
        if (used + sizeof "\\xff..." > text_bytes) {
            snprintf(text + used, text_bytes - used, "...");
            return;
        }
        if (data[i] >= 0x20 && data[i] < 0x7f) {
            text[used++] = (char)data[i];
        } else {
            used += (size_t)snprintf(text + used, text_bytes - used, "\\x%02x", data[i]);
        }
    }
    text[used] = 0;
}
