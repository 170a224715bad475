/* Rows of bytes, fields of messages, records; see byte_row.h. */
#include "runtime/metrics/byte_row.h"

#include <stdarg.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/crc32c.h"
#include "core/base/little_endian.h"
#include "core/base/reals.h"

enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 }; /* kinds of values */

void tt_row_free(tt_byte_row_t *row)
{
    tt_free(row->bytes);
    *row = (tt_byte_row_t){0};
}

void tt_row_clear(tt_byte_row_t *row)
{
    row->count = 0;
    row->is_broken = false;
}

static bool has_room(tt_byte_row_t *row, size_t count)
{
    const size_t least = 256;
    if (!row->is_broken && row->room - row->count < count) {
        const size_t room = row->room * 2 > row->count + count ? row->room * 2 : row->count + count;
        char *bytes = tt_realloc(row->bytes, room < least ? least : room, "metrics");
        row->is_broken = bytes == NULL;
        if (bytes != NULL) {
            row->bytes = bytes;
            row->room = room < least ? least : room;
        }
    }
    return !row->is_broken;
}

void tt_row_add(tt_byte_row_t *row, const void *bytes, size_t count)
{
    if (count > 0 && has_room(row, count)) {
        memcpy(row->bytes + row->count, bytes, count);
        row->count += count;
    }
}

void tt_row_string(tt_byte_row_t *row, const char *text)
{
    tt_row_add(row, text, strlen(text));
}

void tt_row_print(tt_byte_row_t *row, const char *format, ...)
{
    va_list arguments, again;
    char text[128];
    va_start(arguments, format);
    va_copy(again, arguments);
    const int count = tt_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    TT_ASSERT(count >= 0);
    if ((size_t)count < sizeof text) {
        tt_row_add(row, text, (size_t)count);
    } else if (has_room(row, (size_t)count + 1)) {
        tt_format_list(row->bytes + row->count, (size_t)count + 1, format, again);
        row->count += (size_t)count;
    }
    va_end(again);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void add_varint(tt_byte_row_t *row, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[count++] = (uint8_t)(value | 0x80);
    }
    bytes[count++] = (uint8_t)value;
    tt_row_add(row, bytes, count);
}

static void add_tag(tt_byte_row_t *row, int field, unsigned kind)
{
    add_varint(row, (uint64_t)field << 3 | kind);
}

static void add_fixed64(tt_byte_row_t *row, double value)
{
    uint64_t bits;
    uint8_t bytes[sizeof bits];
    memcpy(&bits, &value, sizeof bits);
    tt_put_u64(bytes, bits);
    tt_row_add(row, bytes, sizeof bytes);
}

void tt_row_number(tt_byte_row_t *row, int field, uint64_t value)
{
    add_tag(row, field, VARINT);
    add_varint(row, value);
}

void tt_row_float(tt_byte_row_t *row, int field, float value)
{
    uint32_t bits;
    uint8_t bytes[sizeof bits];
    memcpy(&bits, &value, sizeof bits);
    tt_put_u32(bytes, bits);
    add_tag(row, field, FIXED32);
    tt_row_add(row, bytes, sizeof bytes);
}

void tt_row_double(tt_byte_row_t *row, int field, double value)
{
    add_tag(row, field, FIXED64);
    add_fixed64(row, value);
}

void tt_row_bytes(tt_byte_row_t *row, int field, const void *bytes, size_t count)
{
    add_tag(row, field, LENGTH);
    add_varint(row, count);
    tt_row_add(row, bytes, count);
}

void tt_row_text(tt_byte_row_t *row, int field, const char *text)
{
    tt_row_bytes(row, field, text, strlen(text));
}

void tt_row_doubles(tt_byte_row_t *row, int field, const double *values, size_t count)
{
    add_tag(row, field, LENGTH);
    add_varint(row, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        add_fixed64(row, values[i]);
    }
}

void tt_row_message(tt_byte_row_t *row, int field, const tt_byte_row_t *message)
{
    row->is_broken = row->is_broken || message->is_broken;
    tt_row_bytes(row, field, message->bytes, message->count);
}

/* ---- records --------------------------------------------------------------------------------- */

uint32_t tt_record_checksum(const void *bytes, size_t count)
{
    const uint32_t delta = 0xa282ead8, crc = tt_crc32c(0, bytes, count);
    return (crc >> 15 | crc << 17) + delta;
}

void tt_row_record(tt_byte_row_t *row, const tt_byte_row_t *event)
{
    uint8_t head[TT_RECORD_HEAD], tail[TT_RECORD_TAIL];
    tt_put_u64(head, event->count);
    tt_put_u32(head + 8, tt_record_checksum(head, 8));
    tt_put_u32(tail, tt_record_checksum(event->bytes, event->count));
    row->is_broken = row->is_broken || event->is_broken;
    if (has_room(row, sizeof head + event->count + sizeof tail)) { /* all of it or nothing */
        tt_row_add(row, head, sizeof head);
        tt_row_add(row, event->bytes, event->count);
        tt_row_add(row, tail, sizeof tail);
    }
}
