/* Threads that read batches ahead of who uses them, in a ring:
 *
 *     slot    0      1        2        3       4
 *             done   reading  reading  posted  free
 *             ^ first, the next to be used     ^ the next to be filled in and posted
 *
 * The owner fills a free slot in (which samples, and memory for them), posts it, and takes slots
 * back in the same order; workers take what is posted. All but the workers is one thread.
 */
#ifndef TT_READ_AHEAD_H
#define TT_READ_AHEAD_H

#include "compute/data/batch_reader.h"
#include "core/base/clock.h"

typedef struct tt_read_ahead tt_read_ahead_t;

/* Read the samples of a job that has its place and its memory. */
tutti_status_t tt_read_job(const tt_batch_reader_t *reader, tt_job_t *job);

/* `slots` and workers at least 1, each slot for up to `width` samples; the reader is borrowed. */
tutti_status_t tt_read_ahead_create(const tt_batch_reader_t *reader, int workers, int slots,
                                    int64_t width, tt_read_ahead_t **out);

/* Waits for the samples that are being read, and for nothing else. NULL is fine. */
void tt_read_ahead_release(tt_read_ahead_t *ahead);

/* STATE in a forked child, where nothing below may be called. */
tutti_status_t tt_read_ahead_check(const tt_read_ahead_t *ahead);

/* A slot to be filled in, empty; NULL if there is none. Then post it: with a negative status it is
 * done at once, and the last error is its text. */
tt_job_t *tt_read_ahead_free_slot(tt_read_ahead_t *ahead);
void tt_read_ahead_post(tt_read_ahead_t *ahead, tutti_status_t status);

/* Wait for the batch that was posted first; there is one. TIMEOUT names who is late with what, and
 * leaves everything as it is. The batch's own failure is returned too, with *out. */
tutti_status_t tt_read_ahead_wait(tt_read_ahead_t *ahead, tt_deadline_t deadline, tt_job_t **out);

/* The first slot is free again; its tensors are somebody else's. */
void tt_read_ahead_advance(tt_read_ahead_t *ahead);

/* Forget all that was posted. TIMEOUT as above: then call it again. */
tutti_status_t tt_read_ahead_reset(tt_read_ahead_t *ahead, tt_deadline_t deadline);

#endif
