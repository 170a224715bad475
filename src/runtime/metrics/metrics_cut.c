/* What is cut away from files of metrics when a training goes on. A file is read and, if something
 * of it goes, written anew beside itself and renamed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/little_endian.h"
#include "core/base/log.h"
#include "runtime/metrics/metrics_impl.h"

/* [bytes] of a file, with a 0 behind it; NULL and END: it is not there. */
static tutti_status_t read_all(const char *path, char **out, size_t *bytes)
{
    *out = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return TUTTI_END;
    }
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    char *text = tt_alloc_raw(file.bytes + 1, "metrics");
    tutti_status_t status =
        text == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, text, file.bytes);
    *bytes = (size_t)file.bytes;
    tt_file_close(&file);
    if (status < 0) {
        tt_free(text);
        return status;
    }
    text[*bytes] = 0;
    *out = text;
    return TUTTI_OK;
}

static tutti_status_t write_all(const char *path, const tt_byte_row_t *kept)
{
    tt_new_file_t file;
    if (kept->is_broken) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "%s: no memory to cut it", path);
    }
    TT_TRY(tt_new_file_begin(path, &file));
    return tt_new_file_end(&file, tt_new_file_write(&file, kept->bytes, kept->count));
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool take_varint(const uint8_t *bytes, size_t count, size_t *at, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && *at < count; shift += 7) {
        const uint8_t byte = bytes[(*at)++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

/* The step of an event, 0 if it says none; false: it is no event. What a file begins with has no
 * step of its own: it is of none. */
static bool step_of(const uint8_t *bytes, size_t count, int64_t *step)
{
    enum { STEP = 2, FILE_VERSION = 3 };
    *step = 0;
    for (size_t at = 0; at < count;) {
        uint64_t tag, value = 0;
        if (!take_varint(bytes, count, &at, &tag)) {
            return false;
        }
        switch (tag & 7) {
        case 0:
            if (!take_varint(bytes, count, &at, &value)) {
                return false;
            }
            break;
        case 1:
            value = 8;
            break;
        case 2:
            if (!take_varint(bytes, count, &at, &value)) {
                return false;
            }
            break;
        case 5:
            value = 4;
            break;
        default:
            return false;
        }
        if (tag >> 3 == STEP && (tag & 7) == 0) {
            *step = (int64_t)value;
        }
        *step = tag >> 3 == FILE_VERSION ? -1 : *step;
        const uint64_t skip = (tag & 7) == 0 ? 0 : value;
        if (skip > count - at) {
            return false;
        }
        at += (size_t)skip;
    }
    return true;
}

/* The bytes of the record at `record`; 0: there is no whole one. */
static size_t record_bytes(const uint8_t *record, size_t left, int64_t *step)
{
    const size_t around = TT_RECORD_HEAD + TT_RECORD_TAIL;
    if (left < around || tt_get_u32(record + 8) != tt_record_checksum(record, 8)) {
        return 0;
    }
    const uint64_t bytes = tt_get_u64(record);
    const uint8_t *event = record + TT_RECORD_HEAD;
    if (bytes > left - around ||
        tt_get_u32(event + bytes) != tt_record_checksum(event, (size_t)bytes) ||
        !step_of(event, (size_t)bytes, step)) {
        return 0;
    }
    return (size_t)bytes + around;
}

/* What a crash, or a full disk, left of a file's first record. */
static bool is_half_record(const uint8_t *record, size_t count)
{
    return count < TT_RECORD_HEAD || tt_get_u32(record + 8) == tt_record_checksum(record, 8);
}

tutti_status_t tt_cut_events(const char *path, int64_t step)
{
    char *text;
    size_t count, at = 0;
    const tutti_status_t found = read_all(path, &text, &count);
    if (found != TUTTI_OK) {
        return found < 0 ? found : TUTTI_OK;
    }
    tt_byte_row_t kept = {0};
    while (at < count) {
        int64_t of;
        const size_t bytes = record_bytes((const uint8_t *)text + at, count - at, &of);
        if (bytes == 0) {
            break;
        }
        tt_row_add(&kept, text + at, of < step ? bytes : 0);
        at += bytes;
    }
    tutti_status_t status = TUTTI_OK;
    if (at == 0 && !is_half_record((const uint8_t *)text, count)) {
        status = TT_FAIL(TUTTI_ERR_FORMAT, "%s: holds no record of events", path);
    } else if (kept.count < count || kept.is_broken) {
        if (at < count) {
            tt_log(TT_LOG_WARN, "%s: %zu bytes behind the last whole record are cut away", path,
                   count - at);
        }
        status = write_all(path, &kept);
    }
    tt_row_free(&kept);
    tt_free(text);
    return status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Lines that do not begin so are somebody else's, or the head: they stay. */
static bool is_before(const char *line, const char *before_step, int64_t step)
{
    const size_t length = strlen(before_step);
    char *end;
    if (strncmp(line, before_step, length) != 0) {
        return true;
    }
    const long long of = strtoll(line + length, &end, 10);
    return end == line + length || of < step;
}

tutti_status_t tt_cut_lines(const char *path, const char *before_step, int64_t step)
{
    char *text;
    size_t count;
    const tutti_status_t found = read_all(path, &text, &count);
    if (found != TUTTI_OK) {
        return found < 0 ? found : TUTTI_OK;
    }
    tt_byte_row_t kept = {0};
    for (char *line = text, *end; (end = memchr(line, '\n', count - (size_t)(line - text))) != NULL;
         line = end + 1) {
        tt_row_add(&kept, line, is_before(line, before_step, step) ? (size_t)(end + 1 - line) : 0);
    }
    const tutti_status_t status =
        kept.count < count || kept.is_broken ? write_all(path, &kept) : TUTTI_OK;
    tt_row_free(&kept);
    tt_free(text);
    return status;
}
