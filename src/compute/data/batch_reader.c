/* One batch: samples are read in order, fields of one shape to their places in its tensors, others
 * into memory of each sample, of which collate functions then make tensors. Last of all the batch
 * goes through the caller's function.
 */
#include "compute/data/batch_reader.h"

#include <string.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/tensor/tensor_impl.h"

/* A name of random numbers that no sample has (map_data.c), nor an order (shuffle.c). */
#define BATCH_STEP (UINT64_MAX - 4)

void tt_batch_reader_init(tt_batch_reader_t *reader, tutti_dataset_t *d,
                          const tutti_dataloader_options_t *options)
{
    *reader = (tt_batch_reader_t){.dataset = d,
                                  .batch_call = options->batch_call,
                                  .batch_options = options->batch_options,
                                  .batch_seed = options->batch_seed};
    for (int i = 0; i < d->info.field_count; i++) {
        const tutti_collate_t none = {0};
        tutti_collate_t *collate = &reader->collate[i];
        *collate = options->collate == NULL ? none : options->collate[i];
        collate->call = collate->call == NULL ? tutti_collate_stack : collate->call;
        reader->is_placed[i] =
            collate->call == tutti_collate_stack && !tt_field_varies(&d->info.fields[i]);
        reader->has_loose = reader->has_loose || !reader->is_placed[i];
    }
}

void tt_batch_release(tutti_batch_t *batch)
{
    for (int i = 0; i < TUTTI_FIELDS_MAX; i++) {
        tutti_tensor_release(batch->fields[i]);
        tutti_tensor_release(batch->lengths[i]);
    }
    *batch = (tutti_batch_t){0};
}

/* Where sample i of the batch lies, for fields that are placed. */
static void point(const tt_batch_reader_t *reader, const tt_job_t *job, int64_t i,
                  tutti_sample_t *sample)
{
    const tutti_dataset_info_t *info = &reader->dataset->info;
    for (int k = 0; k < info->field_count; k++) {
        if (reader->is_placed[k]) {
            sample->data[k] = (char *)tutti_tensor_data(job->batch.fields[k]) +
                              (size_t)i * tt_field_bytes(&info->fields[k]);
        }
    }
}

static tutti_status_t read_sample(const tt_batch_reader_t *reader, tt_job_t *job, int64_t i,
                                  tutti_sample_t *sample)
{
    if (atomic_load_explicit(&job->is_cancelled, memory_order_relaxed)) {
        return TT_FAIL(TUTTI_ERR_ABORTED, "dataloader: cancelled");
    }
    atomic_store_explicit(&job->at, i, memory_order_relaxed);
    const int64_t position = job->first + i * job->stride;
    const tutti_draw_t draw = {job->batch.epoch + position / job->epoch_samples,
                               position % job->epoch_samples};
    point(reader, job, i, sample);
    if (job->cursor != NULL) {
        return tt_stream_cursor_next(job->cursor, sample);
    }
    return tutti_dataset_read(reader->dataset, job->samples[i], draw, sample);
}

/* A stream has ended before sample i of the batch. */
static void end_early(tt_job_t *job, tutti_status_t status, int64_t i)
{
    if (status == TUTTI_END) {
        job->batch.size = job->drops_last ? 0 : i;
    }
}

/* All are placed: one sample after another through the same struct. */
static tutti_status_t read_placed(const tt_batch_reader_t *reader, tt_job_t *job)
{
    tutti_sample_t sample = {0};
    tutti_status_t status = TUTTI_OK;
    for (int64_t i = 0; i < job->batch.size && status == TUTTI_OK; i++) {
        status = read_sample(reader, job, i, &sample);
        end_early(job, status, i);
    }
    tutti_sample_clear(&sample);
    return status < 0 ? status : TUTTI_OK;
}

static tutti_status_t collate_all(const tt_batch_reader_t *reader, tt_job_t *job,
                                  const tutti_sample_t *samples)
{
    const tutti_dataset_info_t *info = &reader->dataset->info;
    atomic_store_explicit(&job->at, -1, memory_order_relaxed);
    for (int k = 0; k < info->field_count; k++) {
        if (reader->is_placed[k]) {
            continue;
        }
        const tutti_collate_call_t call = {&info->fields[k], samples, job->batch.size, k};
        tutti_collated_t out = {0};
        const tutti_status_t status =
            reader->collate[k].call(reader->collate[k].options, &call, &out);
        job->batch.fields[k] = out.values;
        job->batch.lengths[k] = out.lengths;
        TT_TRY(status);
        if (out.values == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "field %d: its collate function made no tensor", k);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t read_loose(const tt_batch_reader_t *reader, tt_job_t *job)
{
    const int64_t size = job->batch.size;
    tutti_sample_t *samples = tt_alloc_array((size_t)size, sizeof *samples, "samples");
    TT_TRY_ALLOC(samples);
    tutti_status_t status = TUTTI_OK;
    for (int64_t i = 0; i < job->batch.size && status == TUTTI_OK; i++) {
        status = read_sample(reader, job, i, &samples[i]);
        end_early(job, status, i);
    }
    if (status >= 0) {
        status = collate_all(reader, job, samples);
    }
    for (int64_t i = 0; i < size; i++) {
        tutti_sample_clear(&samples[i]);
    }
    tt_free(samples);
    return status;
}

static tutti_status_t change(const tt_batch_reader_t *reader, tt_job_t *job)
{
    tutti_batch_t *batch = &job->batch;
    const tt_rng_t rng =
        tt_rng_stream(reader->batch_seed, BATCH_STEP, (uint64_t)batch->epoch, (uint64_t)batch->step,
                      (uint64_t)batch->shard << 32 | (uint64_t)batch->micro_batch);
    tutti_random_t random = {.name = {rng.key[0], rng.key[1], rng.salt[0], rng.salt[1]}};
    batch->input = batch->fields[TUTTI_INPUT];
    batch->target = batch->fields[TUTTI_TARGET];
    atomic_store_explicit(&job->at, -1, memory_order_relaxed);
    return reader->batch_call(reader->batch_options, &random, batch);
}

/* What was made for a whole batch has the samples that came. */
static tutti_status_t shrink(const tt_batch_reader_t *reader, tt_job_t *job)
{
    const tutti_dataset_info_t *info = &reader->dataset->info;
    for (int i = 0; i < info->field_count; i++) {
        tutti_tensor_t **x = &job->batch.fields[i], *less;
        if (!reader->is_placed[i] || tutti_tensor_dim(*x, 0) == job->batch.size) {
            continue;
        }
        tutti_shape_t shape = tutti_tensor_shape(*x);
        shape.dims[0] = job->batch.size;
        TT_TRY(tt_tensor_new((*x)->storage->device, info->fields[i].dtype, shape, false, &less));
        memcpy(tutti_tensor_data(less), tutti_tensor_data(*x), tutti_tensor_bytes(less));
        tutti_tensor_release(*x);
        *x = less;
    }
    return TUTTI_OK;
}

static tutti_status_t read_all(const tt_batch_reader_t *reader, tt_job_t *job)
{
    return reader->has_loose ? read_loose(reader, job) : read_placed(reader, job);
}

/* When its turn is there. */
static tutti_status_t read_stream(const tt_batch_reader_t *reader, tt_job_t *job)
{
    atomic_store_explicit(&job->at, 0, memory_order_relaxed);
    TT_TRY(tt_stream_cursor_seek(job->cursor, job->batch.epoch, job->first));
    TT_TRY(read_all(reader, job));
    atomic_store_explicit(&job->at, -1, memory_order_relaxed); /* what fails now is behind them */
    TT_TRY(tt_stream_cursor_look(job->cursor));
    return shrink(reader, job);
}

static tutti_status_t read_in_turn(const tt_batch_reader_t *reader, tt_job_t *job)
{
    tt_stream_cursor_await(job->cursor, job->turn);
    const tutti_status_t status = read_stream(reader, job);
    tt_stream_cursor_pass(job->cursor);
    return status;
}

tutti_status_t tt_batch_reader_read(const tt_batch_reader_t *reader, tt_job_t *job)
{
    TT_TRY(job->cursor == NULL ? read_all(reader, job) : read_in_turn(reader, job));
    return reader->batch_call == NULL ? TUTTI_OK : change(reader, job);
}
