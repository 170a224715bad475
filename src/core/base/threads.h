/* The threads that compute inside a rank: a small pool, one per context.
 *
 * Work is a count of pieces, fixed by the shape of the problem and never by the number of threads;
 * which thread runs which piece does not matter, so it changes no bit. The caller works too: a
 * pool of one thread has no thread of its own, and starts nothing.
 *
 *     static void scale_piece(void *arg, size_t piece) { … }
 *     tt_pool_run(pool, pieces, scale_piece, &job);
 *
 * A pool is used by one caller at a time (the context's thread). A piece that begins another job
 * runs it by itself.
 * After fork() the child's copy runs everything in the caller.
 */
#ifndef TT_POOL_H
#define TT_POOL_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct tt_pool tt_pool_t;

typedef void (*tt_piece_fn_t)(void *arg, size_t piece);

/* threads counts the caller; at least 1. Threads are bound to the cores the caller may use. */
tutti_status_t tt_pool_create(int threads, tt_pool_t **out);
void tt_pool_release(tt_pool_t *pool);

int tt_pool_threads(const tt_pool_t *pool);

/* Run fn for every piece in [0, pieces) and return when all are done. NULL pool: in the caller. */
void tt_pool_run(tt_pool_t *pool, size_t pieces, tt_piece_fn_t fn, void *arg);

/* Call fn in the caller's thread between pieces, about every 100 us while there are any, so that
 * what a job has under way elsewhere goes on. It must not call the pool, and is not
 * called in a forked child. NULL: nothing more. */
void tt_pool_set_idle(tt_pool_t *pool, void (*fn)(void *user), void *user);

/* Scratch memory of the caller's, to be given back before the job is over: one block is kept in
 * the pool from job to job, so that the steady state neither allocates nor faults pages in. A
 * second block, or one without a pool, is allocated. NULL: the error is recorded. */
void *tt_pool_borrow(tt_pool_t *pool, size_t bytes);
void tt_pool_give_back(tt_pool_t *pool, void *block);

#endif
