/* Reading the samples of one batch, and making its tensors of them: what workers do, or the caller
 * where there are none.
 */
#ifndef TT_BATCH_READER_H
#define TT_BATCH_READER_H

#include <stdatomic.h>

#include <tutti/dataloader.h>

#include "compute/data/stream_cursor.h"
#include "core/base/fail.h"

typedef enum { TT_JOB_FREE, TT_JOB_POSTED, TT_JOB_READING, TT_JOB_DONE } tt_job_state_t;

/* One batch. The worker that has it may change its tensors, what stands behind `state`, and nothing
 * else. */
typedef struct {
    tutti_batch_t batch;   /* fields: owned, contiguous; those of one shape are there before */
    int64_t number;        /* of the batch in the epoch, for messages */
    int64_t first, stride; /* positions of the samples, from the epoch's first on */
    int64_t epoch_samples; /* behind them the next epoch's come */
    int64_t *samples;
    tt_stream_cursor_t *cursor; /* of a stream; NULL: samples have numbers */
    uint32_t turn;              /* with that cursor */
    bool drops_last;            /* a batch of a stream is whole, or empty */
    _Atomic uint32_t state;     /* tt_job_state_t, also what the owner sleeps on */
    atomic_bool is_cancelled;
    atomic_int worker;  /* who has it */
    _Atomic int64_t at; /* which of the samples is being read; -1: none any more */
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
} tt_job_t;

/* What all batches of a loader have in common. */
typedef struct {
    tutti_dataset_t *dataset;
    tutti_collate_t collate[TUTTI_FIELDS_MAX];
    bool is_placed[TUTTI_FIELDS_MAX]; /* samples are read to where they lie in the batch */
    bool has_loose;                   /* a field is not */
    tutti_batch_fn_t batch_call;
    const void *batch_options;
    uint64_t batch_seed;
} tt_batch_reader_t;

/* Copy what the options say; the data set is borrowed. */
void tt_batch_reader_init(tt_batch_reader_t *reader, tutti_dataset_t *d,
                          const tutti_dataloader_options_t *options);

/* Read the samples of a job that has its place, and its memory for fields that are placed. Of a
 * stream there may be fewer than it has room for. */
tutti_status_t tt_batch_reader_read(const tt_batch_reader_t *reader, tt_job_t *job);

/* Release a batch's tensors, and leave it empty. */
void tt_batch_release(tutti_batch_t *batch);

#endif
