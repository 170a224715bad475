/* What the tests of data loaders share: a data set of numbers that counts, fails and blocks as it
 * is told, and epochs as lists of what came. For *_test.c only.
 */
#ifndef TT_DATALOADER_TESTING_H
#define TT_DATALOADER_TESTING_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <tutti/dataloader.h>

#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/testing.h"

enum { ROOM = 512, WAIT_MS = 20000 };

/* ---- a data set that counts, fails and blocks on demand -------------------------------------- */

typedef struct {
    int64_t count;
    _Atomic int64_t fails_at; /* -1: nowhere */
    int64_t blocks_at;        /* until the gate is open; -1: nowhere */
    _Atomic uint32_t *gate;   /* 1: open */
    _Atomic uint32_t *reads;  /* samples read or begun */
    _Atomic uint32_t *open;   /* of those, by a thread that takes SIGTERM */
} numbers_options_t;

static inline tutti_status_t numbers_init(tutti_dataset_t *d, const void *options,
                                          tutti_dataset_info_t *info)
{
    const numbers_options_t **state = tutti_dataset_state(d);
    *state = options;
    *info =
        (tutti_dataset_info_t){.count = (*state)->count,
                               .field_count = 2,
                               .fields = {{TUTTI_F32, TUTTI_SHAPE(2)}, {TUTTI_I64, TUTTI_SCALAR}}};
    return TUTTI_OK;
}

/* True once the word is at least `least`. */
static inline bool wait_for(_Atomic uint32_t *word, uint32_t least)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(WAIT_MS);
    for (;;) {
        const uint32_t now = atomic_load(word);
        if (now >= least || tt_deadline_is_past(deadline)) {
            return now >= least;
        }
        tt_futex_wait(word, now, deadline);
    }
}

static inline tutti_status_t numbers_draw(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                          tutti_sample_t *to)
{
    const numbers_options_t *o = *(const numbers_options_t **)tutti_dataset_state(d);
    float *x = to->data[TUTTI_INPUT];
    if (o->reads != NULL) {
        atomic_fetch_add(o->reads, 1);
        tt_futex_wake_all(o->reads);
    }
    if (o->open != NULL) {
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        atomic_fetch_add(o->open, sigismember(&blocked, SIGTERM) == 0);
    }
    if (index == o->blocks_at && !wait_for(o->gate, 1)) {
        return tutti_fail(TUTTI_ERR_TIMEOUT, "the gate was never opened");
    }
    if (index == o->fails_at) {
        return tutti_fail(TUTTI_ERR_FORMAT, "number %lld is unlucky", (long long)index);
    }
    x[0] = (float)draw.epoch;
    x[1] = (float)draw.position;
    *(int64_t *)to->data[TUTTI_TARGET] = index;
    return TUTTI_OK;
}

static const tutti_dataset_ops_t numbers = {.name = "numbers",
                                            .about = "its index",
                                            .state_bytes = sizeof(void *),
                                            .init = numbers_init,
                                            .draw = numbers_draw};

static inline tutti_dataset_t *make_numbers(const numbers_options_t *options)
{
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&numbers, options, &d), 0);
    return d;
}

static inline numbers_options_t count_to(int64_t count)
{
    return (numbers_options_t){.count = count, .fails_at = -1, .blocks_at = -1};
}

static inline tutti_dataloader_t *make_loader(const numbers_options_t *data,
                                              const tutti_dataloader_options_t *options)
{
    tutti_dataset_t *d = make_numbers(data);
    tutti_dataloader_t *loader;
    if (tutti_dataloader_create(d, options, &loader) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_dataset_release(d);
    return loader;
}

/* ---- what a loader gives --------------------------------------------------------------------- */

typedef struct {
    int64_t epoch, step, shard, micro_batch, size, total;
    int64_t samples[32], epochs[32];
    float positions[32];
} seen_t;

static inline int setup(void **state)
{
    tutti_context_t *ctx;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    *state = ctx;
    return 0;
}

static inline int teardown(void **state)
{
    tutti_context_release(*state);
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static inline void keep(const tutti_batch_t *batch, seen_t *out)
{
    *out = (seen_t){.epoch = batch->epoch,
                    .step = batch->step,
                    .shard = batch->shard,
                    .micro_batch = batch->micro_batch,
                    .size = batch->size,
                    .total = batch->total};
    assert_int_equal(tutti_tensor_dim(batch->input, 0), batch->size);
    assert_int_equal(tutti_tensor_dim(batch->target, 0), batch->size);
    assert_true(batch->size <= 32);
    for (int64_t i = 0; i < batch->size; i++) {
        out->samples[i] = (int64_t)tutti_tensor_at(batch->target, i);
        out->positions[i] = (float)tutti_tensor_at(batch->input, 2 * i + 1);
        out->epochs[i] = (int64_t)tutti_tensor_at(batch->input, 2 * i);
    }
}

/* The next batch, in a scope of its own. `shard` is that of the context. */
static inline tutti_status_t next(tutti_context_t *ctx, tutti_dataloader_t *loader, int64_t shard,
                                  seen_t *out)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    tutti_context_set_shard(ctx, shard);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    const tutti_status_t status = tutti_dataloader_next(loader, s, &batch);
    if (status == TUTTI_OK) {
        keep(&batch, out);
    } else {
        assert_int_equal(batch.size, 0);
    }
    assert_int_equal(tutti_scope_close(s), status < 0 ? status : TUTTI_OK);
    return status;
}

/* The batch of a place. */
static inline tutti_status_t at(tutti_context_t *ctx, tutti_dataloader_t *loader,
                                tutti_batch_place_t place, seen_t *out)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    const tutti_status_t status = tutti_dataloader_at(loader, s, place, &batch);
    if (status == TUTTI_OK) {
        keep(&batch, out);
    } else {
        assert_int_equal(batch.size, 0);
    }
    assert_int_equal(tutti_scope_close(s), status < 0 ? status : TUTTI_OK);
    return status;
}

static inline void first_of(const tutti_dataloader_options_t *o, int *first, int *count)
{
    const int ranks = o->ranks == 0 ? 1 : o->ranks, shards = o->shards == 0 ? ranks : o->shards;
    *first = shards * o->rank / ranks;
    *count = shards * (o->rank + 1) / ranks - *first;
}

/* All that is left of an epoch; returns how many batches. */
static inline int read_epoch(tutti_context_t *ctx, tutti_dataloader_t *loader,
                             const tutti_dataloader_options_t *o, seen_t *out)
{
    int first, count, batches = 0;
    first_of(o, &first, &count);
    tutti_status_t status = TUTTI_OK;
    while (status == TUTTI_OK) {
        assert_true(batches < ROOM - 1);
        status = next(ctx, loader, count == 0 ? 0 : first + batches % count, &out[batches]);
        batches += status == TUTTI_OK;
    }
    if (status < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(next(ctx, loader, 0, &out[batches]), TUTTI_END); /* again */
    return batches;
}

static inline int run_epoch(tutti_context_t *ctx, int64_t count,
                            const tutti_dataloader_options_t *o, int64_t epoch, seen_t *out)
{
    const numbers_options_t data = count_to(count);
    tutti_dataloader_t *loader = make_loader(&data, o);
    assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
    const int batches = read_epoch(ctx, loader, o, out);
    tutti_dataloader_release(loader);
    return batches;
}

#endif
