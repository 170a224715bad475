/* A report: one page of HTML with pictures in SVG, without a script and without anything from
 * outside. Whatever comes from files is text there: tt_row_html() alone writes it. */
#ifndef TT_REPORT_PARTS_H
#define TT_REPORT_PARTS_H

#include "runtime/profile/profile_parts.h"
#include "runtime/profile/profile_text.h"

/* ---- report_curves.c: metrics.jsonl ---------------------------------------------------------- */

typedef struct {
    char *name;
    int64_t *steps;
    double *values; /* NaN: no number */
    size_t count, capacity;
} tt_curve_t;

typedef struct {
    char *name, *text;
} tt_note_t;

typedef struct {
    tt_curve_t *curves;
    tt_note_t *notes; /* texts that were told; of each name the last one */
    size_t curve_count, note_count;
} tt_told_numbers_t;

/* Adds what a file of lines of JSON tells; lines that are no such objects are left out, and
 * counted. */
tutti_status_t tt_numbers_read(const char *path, tt_told_numbers_t *out, size_t *odd_lines);
void tt_numbers_free(tt_told_numbers_t *numbers);

/* ---- pictures -------------------------------------------------------------------------------- */

void tt_page_curve(tt_byte_row_t *page, const tt_curve_t *curve);

/* What each thread did, and memory, of all ranks on one axis. */
tutti_status_t tt_page_timeline(tt_byte_row_t *page, const tutti_profile_t *profile);
void tt_page_memory(tt_byte_row_t *page, const tutti_profile_t *profile);

#endif
