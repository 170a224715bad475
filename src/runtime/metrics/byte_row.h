/* A row of bytes that grows at its end, and what records of TensorBoard's are made of:
 *
 *     record   length u64 | masked CRC-32C of it | event | masked CRC-32C of the event
 *     event    a message of protocol buffers: fields of tag (number and kind), and value
 *
 * A row that could not grow is broken: it takes no more bytes, and says so once at the end.
 *
 * Source: TensorFlow's record_writer.h; "Protocol Buffers: Encoding".
 */
#ifndef TT_BYTE_ROW_H
#define TT_BYTE_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

enum { TT_RECORD_HEAD = 12, TT_RECORD_TAIL = 4 };

typedef struct {
    char *bytes;
    size_t count, room;
    bool is_broken; /* memory was missing */
} tt_byte_row_t;

void tt_row_free(tt_byte_row_t *row);
void tt_row_clear(tt_byte_row_t *row); /* broken no more */
void tt_row_add(tt_byte_row_t *row, const void *bytes, size_t count);
void tt_row_string(tt_byte_row_t *row, const char *text);
__attribute__((format(printf, 2, 3))) void tt_row_print(tt_byte_row_t *row, const char *format,
                                                        ...);

/* Fields of a message. */
void tt_row_number(tt_byte_row_t *row, int field, uint64_t value);
void tt_row_float(tt_byte_row_t *row, int field, float value);
void tt_row_double(tt_byte_row_t *row, int field, double value);
void tt_row_bytes(tt_byte_row_t *row, int field, const void *bytes, size_t count);
void tt_row_text(tt_byte_row_t *row, int field, const char *text);
void tt_row_doubles(tt_byte_row_t *row, int field, const double *values, size_t count);

/* A message in a message; broken if it is. */
void tt_row_message(tt_byte_row_t *row, int field, const tt_byte_row_t *message);

/* A record around an event. */
void tt_row_record(tt_byte_row_t *row, const tt_byte_row_t *event);

/* The masked checksum of records. */
uint32_t tt_record_checksum(const void *bytes, size_t count);

#endif
