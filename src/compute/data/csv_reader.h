/* Reading CSV cell by cell. */
#ifndef TT_CSV_READER_H
#define TT_CSV_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/data/byte_sink.h"

typedef struct {
    const char *name; /* of the file, for messages */
    const char *at, *end;
    char separator;
    int64_t line;      /* where the reader stands, from 1 on */
    int64_t cell_line; /* where the last cell began */
    int column;        /* of the last cell, from 1 on */
    tt_sink_t cell;    /* its text, with a 0 behind it */
} tt_csv_t;

/* A mark of UTF-8 at the beginning is passed by. */
void tt_csv_begin(tt_csv_t *csv, const char *name, tutti_bytes_t data, char separator);
void tt_csv_end(tt_csv_t *csv);

/* Pass empty lines by, and stand at the first cell of the next one. END: there is none. */
tutti_status_t tt_csv_line(tt_csv_t *csv);

/* The next cell of this line; *is_last: no other follows. FORMAT: quotes that do not fit. */
tutti_status_t tt_csv_cell(tt_csv_t *csv, bool *is_last);

#endif
