/* Bytes that grow to twice what is needed, and those of a whole file. */
#include "compute/data/byte_sink.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/file.h"

tutti_status_t tt_sink_append(tt_sink_t *sink, const void *data, size_t bytes)
{
    const size_t needed = sink->bytes.bytes + bytes;
    if (needed > sink->room) {
        void *grown = tt_realloc(sink->bytes.data, 2 * needed, "bytes");
        TT_TRY_ALLOC(grown);
        sink->bytes.data = grown;
        sink->room = 2 * needed;
    }
    if (bytes > 0) {
        memcpy((char *)sink->bytes.data + sink->bytes.bytes, data, bytes);
    }
    sink->bytes.bytes = needed;
    return TUTTI_OK;
}

tutti_status_t tt_file_bytes(const char *path, const char *what, tutti_buffer_t *out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    char *data = tt_alloc_raw(file.bytes, what);
    tutti_status_t status = data == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0) {
        status = tt_file_read_at(&file, 0, data, file.bytes);
    }
    *out = (tutti_buffer_t){data, file.bytes};
    tt_file_close(&file);
    if (status < 0) {
        tt_free(data);
    }
    return status;
}
