/**
 * @file progress.h
 * How far a training is, on the terminal: one line that is written again and again where somebody
 * watches, and a line now and then elsewhere.
 *
 * Example:
 *
 *     tutti_progress_t *progress;
 *     TUTTI_CHECK(tutti_progress_open(&(tutti_progress_options_t){.is_silent = rank != 0},
 *                                     &progress));
 *     for (int step = 1; step <= 100; step++) {
 *         tutti_progress_show(progress, 0.1 * (100 - step), "step %d  loss %.4f", step, 0.5);
 *     }
 *     tutti_progress_print(progress, "validation loss %.4f", 0.5); // stays
 *     // step 70  loss 0.5000  3 s left  41.2 MiB
 *     TUTTI_CHECK(tutti_progress_close(progress));
 *
 * Under `tutti run` on a terminal it is the launcher's last line. NO_COLOR, set to anything, takes
 * the colours away; on a terminal that cannot move its cursor (TERM=dumb) lines are plain.
 */
#ifndef TUTTI_PROGRESS_H
#define TUTTI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Who shows how far it is; one thread at a time. */
typedef struct tutti_progress tutti_progress_t;

/** Zero means default. */
typedef struct tutti_progress_options {
    FILE *file;           /**< borrowed; NULL: stdout */
    bool is_silent;       /**< show nothing: a rank that others speak for */
    int64_t watched_ms;   /**< between two texts on a terminal; 0: 100 */
    int64_t unwatched_ms; /**< between two lines elsewhere; 0: 5000 */
} tutti_progress_options_t;

/**
 * Begin to show.
 *
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller, to be closed with tutti_progress_close
 * @thread         any
 * @errors         ARG (a time that is negative), NOMEM
 * @source         tqdm
 */
TUTTI_API tutti_status_t tutti_progress_open(const tutti_progress_options_t *options,
                                             tutti_progress_t **out);

/** Stop; a line that still moves stays. NULL does nothing. Gone in any case.
 *  @thread one at a time @errors IO: not all of it could be written */
TUTTI_API tutti_status_t tutti_progress_close(tutti_progress_t *progress);

/**
 * Show a text in place of the one before, with the time that is left and the memory that the
 * process has. It is left out where too little time has passed, but for the first one, and for one
 * with which nothing is left. On a terminal it is cut to one line.
 *
 * @param seconds_left  until the end; negative, no number, or above 1e9: not known
 * @param format        as printf's, without a line feed
 * @thread              one at a time
 * @cost                where it is left out, a look at the clock
 * @errors              none here; tutti_progress_close() tells
 */
TUTTI_API void tutti_progress_show(tutti_progress_t *progress, double seconds_left,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/** A line that stays, above the one that moves. @param format as printf's, without a line feed
 *  @thread one at a time @errors none here; tutti_progress_close() tells */
TUTTI_API void tutti_progress_print(tutti_progress_t *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

#endif
