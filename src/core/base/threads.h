/* The threads that compute inside a rank: one small set a context.
 *
 * Work is a count of pieces, fixed by the shape of the problem and never by the number of threads;
 * which thread runs which piece does not matter, so it changes no bit. The caller works too: one
 * thread is the caller alone, and starts nothing.
 *
 *     static void scale_piece(void *arg, size_t piece) { … }
 *     tt_threads_run(threads, pieces, scale_piece, &job);
 *
 * A set is used by one caller at a time (the context's thread). A piece that begins another job
 * runs it by itself.
 * After fork() the child's copy runs everything in the caller.
 */
#ifndef TT_THREADS_H
#define TT_THREADS_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct tt_threads tt_threads_t;

typedef void (*tt_piece_fn_t)(void *arg, size_t piece);

/* count includes the caller; at least 1. Threads are bound to the cores the caller may use. */
tutti_status_t tt_threads_create(int count, tt_threads_t **out);
void tt_threads_release(tt_threads_t *threads);

int tt_threads_count(const tt_threads_t *threads);

/* Run fn for every piece in [0, pieces) and return when all are done. NULL threads: in the caller.
 */
void tt_threads_run(tt_threads_t *threads, size_t pieces, tt_piece_fn_t fn, void *arg);

/* Call fn in the caller's thread between pieces, about every 100 us while there are any, so that
 * what a job has under way elsewhere goes on. It must not use these threads, and is not
 * called in a forked child. NULL: nothing more. */
void tt_threads_set_idle(tt_threads_t *threads, void (*fn)(void *user), void *user);

/* Scratch memory of the caller's, to be given back before the job is over: one block is kept
 * from job to job, so that the steady state neither allocates nor faults pages in. A
 * second block, or one without threads, is allocated. NULL: the error is recorded. */
void *tt_threads_borrow(tt_threads_t *threads, size_t bytes);
void tt_threads_give_back(tt_threads_t *threads, void *block);

#endif
