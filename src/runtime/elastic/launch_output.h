/* What ranks print: cut into lines, marked with the rank, written whole, kept in logs.
 *
 * A line that ends with a carriage return is progress: on a terminal rank 0's is shown as the last
 * line and drawn anew, elsewhere only what follows the last carriage return of a line is printed.
 */
#ifndef TT_LAUNCH_OUTPUT_H
#define TT_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/fail.h"

enum { TT_LINE_BYTES_MAX = 1 << 16, TT_LIVE_BYTES = 512, TT_TAIL_BYTES = 4000 };

/* Both of the launcher's streams. */
typedef struct {
    bool is_terminal[2];
    int error[2]; /* errno of the first write that failed: from then on the stream gets nothing */
    int guard;    /* when this pipe's other end is closed, nothing is worth waiting for */
    char live[TT_LIVE_BYTES]; /* the progress line that stands at the bottom; "" if none */
    char *text;               /* what is about to be written, whole lines */
    size_t bytes, room;
} tt_console_t;

typedef struct {
    tt_console_t *console; /* NULL: not shown */
    int target;            /* descriptor of the launcher's that it goes to: 1 or 2 */
    bool is_live;          /* its progress is shown */
    int log_fd;            /* -1: no log */
    int log_error;         /* errno; the log ends there */
    char prefix[32];
    char *line; /* the line under way */
    size_t bytes;
    char *tail; /* the last lines, of at most TT_TAIL_BYTES; NULL: not kept */
    size_t tail_bytes;
} tt_output_t;

tutti_status_t tt_console_init(tt_console_t *console, int guard);
void tt_console_fini(tt_console_t *console);

/* keeps_tail: for the report. */
tutti_status_t tt_output_init(tt_output_t *output, tt_console_t *console, int target, int log_fd,
                              bool keeps_tail);
void tt_output_fini(tt_output_t *output);

/* Bytes came from the rank. */
void tt_output_add(tt_output_t *output, const char *data, size_t bytes);

/* It has ended: what is left without a new line is printed as a line, and the log is closed. */
void tt_output_finish(tt_output_t *output);

#endif
