/* What ranks print: cut into lines, marked with the rank, written whole, kept in logs.
 *
 * Whole lines wait in a queue, one for each of the launcher's streams, until the stream takes them;
 * nothing here blocks. The caller does not read a rank while the queue of its lines is full.
 *
 * A line that ends with a carriage return is progress: on a terminal rank 0's is shown as the last
 * line and drawn again, elsewhere only what follows the last carriage return of a line is printed.
 */
#ifndef TT_LAUNCH_OUTPUT_H
#define TT_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/launch.h>

#include "comm/net/net.h"

enum {
    TT_LINE_BYTES_MAX = 1 << 16,
    TT_LIVE_BYTES = 512,
    TT_TAIL_BYTES = 4000,
    TT_QUEUE_BYTES = 1 << 18, /* a queue that holds as many is full */
    TT_STREAMS = 2            /* 0 is stdout, 1 is stderr */
};

typedef struct {
    bool is_terminal;
    int fd;     /* the stream; a terminal's own, non-blocking */
    int error;  /* errno of the first write that failed: from then on the stream gets nothing */
    char *text; /* whole lines that the stream has not taken yet */
    size_t bytes, room;
    int epoll;         /* readable while the stream can be written; -1: none */
    tt_watch_t *watch; /* of that, while lines wait; NULL: it can always be written */
} tt_queue_t;

/* Both of the launcher's streams. */
typedef struct {
    tt_queue_t queues[TT_STREAMS];
    bool is_marked; /* all goes to stdout, with a mark in front of each line that says what it is:
                       'o' or 'e', of stdout or stderr (launch_ssh.h) */
    char live[TT_LIVE_BYTES]; /* the progress line that stands at the bottom; "" if none */
    void (*moved)(void *user);
    void *user;
} tt_console_t;

typedef struct {
    tt_console_t *console; /* NULL: not shown */
    int stream;            /* the launcher's that it goes to */
    char mark;             /* in front of each line; 0: none */
    bool is_live;          /* its progress is shown */
    int log_fd;            /* -1: no log */
    int log_error;         /* errno; the log ends there */
    char prefix[32];
    char *line; /* the line under way */
    size_t bytes;
    char *tail; /* the last lines, of at most TT_TAIL_BYTES; NULL: not kept */
    size_t tail_bytes;
} tt_output_t;

/* moved() is called on the loop when a stream has taken lines that waited, or has failed. */
tutti_status_t tt_console_init(tt_console_t *console, tt_loop_t *loop, void (*moved)(void *user),
                               void *user);

/* Lines that still wait are lost. Before the loop is released. */
void tt_console_fini(tt_console_t *console);

/* A line goes to a stream as it is, with tt_console_flush(). */
void tt_console_add(tt_console_t *console, int stream, const char *line, size_t bytes);
void tt_console_flush(tt_console_t *console);

/* Whether the reader of either stream has gone. */
bool tt_console_has_no_reader(const tt_console_t *console);

/* A job that went well but for its output has not gone well: into the report. log_problem: the
 * same of a log; NULL: none. */
void tt_console_judge(const tt_console_t *console, const char *log_problem,
                      tutti_launch_report_t *report);

/* Whether lines wait. */
bool tt_console_is_busy(const tt_console_t *console);

/* keeps_tail: for the report. */
tutti_status_t tt_output_init(tt_output_t *output, tt_console_t *console, int stream, int log_fd,
                              bool keeps_tail);
void tt_output_fini(tt_output_t *output);

/* Its queue is full. */
bool tt_output_is_full(const tt_output_t *output);

/* Bytes came from the rank; they are taken even if the queue is full. */
void tt_output_add(tt_output_t *output, const char *data, size_t bytes);

/* It has ended: what is left without a new line is printed as a line, and the log is closed. */
void tt_output_finish(tt_output_t *output);

#endif
