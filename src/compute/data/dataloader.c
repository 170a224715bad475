/* Data loaders: a place in an epoch, and what is read ahead of it (read_ahead.h). What a batch is
 * depends on its place alone (dataloader_plan.c), so a place is all the state there is, and the
 * batch of any place may be read at any time.
 */
#include "compute/data/dataloader_impl.h"

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/tensor_impl.h"

enum { WORKERS_MAX = 256, PREFETCH_MAX = 1024, PARTS_MAX = 65536, TIMEOUT_MS = 600 * 1000 };

static tutti_status_t check_sizes(const tutti_dataloader_options_t *o)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } sizes[] = {
        {"batch", o->batch, 1, INT32_MAX},
        {"ranks", o->ranks, 1, INT32_MAX},
        {"rank", o->rank, 0, (int64_t)o->ranks - 1},
        {"shards", o->shards, 1, TT_TREE_LEAVES_MAX},
        {"workers", o->workers, 0, WORKERS_MAX},
        {"prefetch", o->prefetch, 1, PREFETCH_MAX},
        {"parts", o->parts, 1, PARTS_MAX},
        {"micro_batches", o->micro_batches, 1, INT32_MAX},
        {"timeout_ms", o->timeout_ms, 1, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < sizes[i].min || sizes[i].value > sizes[i].max) {
            return TT_FAIL(TUTTI_ERR_ARG, "dataloader: %s is %lld: it must be from %lld to %lld",
                           sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].min,
                           (long long)sizes[i].max);
        }
    }
    return TUTTI_OK;
}

/* What a stream excludes. */
static tutti_status_t check_stream(const tutti_dataset_t *d,
                                   const tutti_dataloader_options_t *given)
{
    if (!tt_is_stream(d)) {
        return given->parts == 0
                   ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_ARG, "dataloader: parts is %d, but data set %s is no stream",
                             given->parts, d->ops->name);
    }
    if (given->sampler != NULL || given->shuffle || given->endless) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "dataloader: data set %s is a stream, whose order is its own: sampler, "
                       "shuffle and endless must not be given",
                       d->ops->name);
    }
    return TUTTI_OK;
}

/* What a sampler of the caller's excludes. */
static tutti_status_t check_sampler(const tutti_dataloader_options_t *given)
{
    if (given->sampler == NULL) {
        return TUTTI_OK;
    }
    if (given->shuffle || given->seed != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "dataloader: a sampler is given, so shuffle and seed must "
                                      "not be: they are options of the sampler");
    }
    if (tutti_sampler_width(given->sampler) > 1 && given->batch != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "dataloader: batch is %lld, but the sampler gives batches: leave it 0",
                       (long long)given->batch);
    }
    return TUTTI_OK;
}

static tutti_dataloader_options_t with_defaults(const tutti_dataloader_options_t *given)
{
    tutti_dataloader_options_t o = *given;
    o.batch = o.batch == 0 ? 1 : o.batch;
    o.micro_batches = o.micro_batches == 0 ? 1 : o.micro_batches;
    o.parts = o.parts == 0 ? 1 : o.parts;
    o.ranks = o.ranks == 0 ? 1 : o.ranks;
    o.shards = o.shards == 0 ? o.ranks : o.shards;
    o.prefetch = o.prefetch == 0 ? 2 : o.prefetch;
    o.timeout_ms = o.timeout_ms == 0 ? TIMEOUT_MS : o.timeout_ms;
    return o;
}

static tutti_status_t make_sampler(const tutti_dataloader_options_t *o, int64_t count,
                                   tutti_sampler_t **out)
{
    if (o->sampler != NULL) {
        *out = tutti_sampler_retain(o->sampler);
        return TUTTI_OK;
    }
    if (o->shuffle) {
        const tutti_random_sampler_options_t options = {.count = count, .seed = o->seed};
        return tutti_sampler_create(&tutti_random_sampler, &options, out);
    }
    const tutti_sequential_sampler_options_t options = {.count = count};
    return tutti_sampler_create(&tutti_sequential_sampler, &options, out);
}

static tutti_status_t build(tutti_dataloader_t *loader)
{
    const tutti_dataloader_options_t *o = &loader->options;
    const bool is_stream = tt_is_stream(loader->dataset);
    if (!is_stream) {
        TT_TRY(make_sampler(o, loader->dataset->info.count, &loader->sampler));
    }
    TT_TRY(tt_dataloader_cut(loader));
    const tt_hosted_t hosted = tt_tree_hosted(o->shards, o->ranks, o->rank, o->shards_in_turn);
    loader->first_shard = hosted.first;
    loader->shard_count = hosted.count;
    loader->shard_stride = hosted.stride;
    if (is_stream) {
        TT_TRY(tt_dataloader_open_stream(loader));
    }
    const int64_t width = is_stream ? 1 : tutti_sampler_width(loader->sampler);
    const int64_t samples = width > 1 ? width : o->batch;
    loader->scratch = tt_alloc_array((size_t)width, sizeof *loader->scratch, "data loader");
    TT_TRY_ALLOC(loader->scratch);
    loader->samples = tt_alloc_array((size_t)samples, sizeof *loader->samples, "data loader");
    TT_TRY_ALLOC(loader->samples);
    return o->workers == 0
               ? TUTTI_OK
               : tt_read_ahead_create(&loader->reader, o->workers, o->workers * o->prefetch,
                                      samples, &loader->ahead);
}

tutti_status_t tutti_dataloader_create(tutti_dataset_t *d,
                                       const tutti_dataloader_options_t *options,
                                       tutti_dataloader_t **out)
{
    TT_WANT("dataloader_create", d);
    TT_WANT("dataloader_create", out);
    const tutti_dataloader_options_t none = {0}, *given = options == NULL ? &none : options;
    const tutti_dataloader_options_t o = with_defaults(given);
    TT_TRY(check_sampler(given));
    TT_TRY(check_stream(d, given));
    TT_TRY(check_sizes(&o));
    tutti_dataloader_t *loader = tt_alloc(sizeof *loader, "data loader");
    TT_TRY_ALLOC(loader);
    loader->dataset = tutti_dataset_retain(d);
    loader->options = o;
    loader->options.collate = NULL; /* copied */
    tt_batch_reader_init(&loader->reader, d, &o);
    const tutti_status_t status = build(loader);
    if (status < 0) {
        tutti_dataloader_release(loader);
        return status;
    }
    *out = loader;
    return TUTTI_OK;
}

void tutti_dataloader_release(tutti_dataloader_t *loader)
{
    if (loader != NULL) {
        tt_read_ahead_release(loader->ahead);
        tt_dataloader_close_stream(loader);
        tutti_sampler_release(loader->sampler);
        tutti_dataset_release(loader->dataset);
        tt_free(loader->scratch);
        tt_free(loader->samples);
        tt_free(loader);
    }
}

int64_t tutti_dataloader_steps(const tutti_dataloader_t *loader)
{
    return loader->steps;
}

int64_t tutti_dataloader_step(const tutti_dataloader_t *loader)
{
    return loader->shard_count == 0 ? 0 : loader->number / tt_dataloader_local_lots(loader);
}

int64_t tutti_dataloader_epoch(const tutti_dataloader_t *loader)
{
    return loader->options.endless ? tutti_dataloader_step(loader) * loader->entries /
                                         tutti_sampler_count(loader->sampler)
                                   : loader->epoch;
}

/* ---- from place to place --------------------------------------------------------------------- */

static tt_deadline_t deadline_of(const tutti_dataloader_t *loader)
{
    return tt_deadline_in_ms(loader->options.timeout_ms);
}

tutti_status_t tt_dataloader_go(tutti_dataloader_t *loader, int64_t epoch, int64_t number)
{
    if (loader->ahead != NULL) {
        TT_TRY(tt_read_ahead_check(loader->ahead));
        loader->must_reset = true;
        TT_TRY(tt_read_ahead_reset(loader->ahead, deadline_of(loader)));
        loader->must_reset = false;
    }
    loader->epoch = epoch;
    loader->number = number;
    loader->prepared = number;
    loader->past = 0;
    tt_dataloader_reset_stream(loader);
    return TUTTI_OK;
}

tutti_status_t tutti_dataloader_set_epoch(tutti_dataloader_t *loader, int64_t epoch)
{
    TT_WANT("dataloader_set_epoch", loader);
    if (epoch < 0 || (epoch > 0 && loader->options.endless)) {
        return TT_FAIL(TUTTI_ERR_ARG, "dataloader: epoch is %lld: it must be %s", (long long)epoch,
                       epoch < 0 ? "at least 0" : "0, where a loader is endless");
    }
    return tt_dataloader_go(loader, epoch, 0);
}

/* Whether this rank has a batch with that number in the epoch. */
static bool has_batch(const tutti_dataloader_t *loader, int64_t number)
{
    const int64_t lots = tt_dataloader_local_lots(loader);
    return lots > 0 &&
           (loader->options.endless || loader->cursors != NULL || number < loader->steps * lots);
}

/* Post what there is room for. Failures are reported when their batch is due. */
static void read_on(tutti_dataloader_t *loader, tt_device_t *device)
{
    while (has_batch(loader, loader->prepared)) {
        tt_job_t *job = tt_read_ahead_free_slot(loader->ahead);
        if (job == NULL) {
            return;
        }
        job->number = loader->prepared++;
        const tutti_batch_place_t place = tt_dataloader_place(loader, job->number);
        const tutti_status_t status = tt_dataloader_prepare(loader, place, device, job);
        if (status >= 0) {
            tt_dataloader_give_turn(loader, place, job);
        }
        tt_read_ahead_post(loader->ahead, status);
    }
}

static tutti_status_t check_shard(const tutti_dataloader_t *loader, const tutti_context_t *ctx)
{
    const int64_t shard = tt_dataloader_place(loader, loader->number).shard;
    if (loader->options.shards == 1 || ctx->shard == shard) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "dataloader: the next batch is shard %lld's in step %lld, but the context is at "
                   "shard %lld: go on by tutti_ddp_next_shard() or tutti_context_set_shard()",
                   (long long)shard, (long long)tutti_dataloader_step(loader),
                   (long long)ctx->shard);
}

/* To the device of the context. What is pinned stays, also where the scope lets it go, until the
 * copies of it are done. */
static tutti_status_t move_home(tutti_scope_t *s, bool is_pinned, tutti_tensor_t **x)
{
    if (*x != NULL && is_pinned) {
        TT_TRY(tutti_tensor_pin(*x));
    }
    if (*x == NULL || s->ctx->home == NULL || (*x)->status < 0) {
        return TUTTI_OK;
    }
    tutti_tensor_t *moved = tutti_empty(s, (*x)->dtype, (*x)->shape);
    TT_TRY(moved->status);
    TT_TRY(tutti_tensor_copy(moved, *x));
    *x = moved;
    return TUTTI_OK;
}

/* The scope owns a tensor of the batch from now on. */
static tutti_status_t hand_over_one(const tutti_dataloader_t *loader, tutti_scope_t *s,
                                    tutti_tensor_t **from, tutti_tensor_t **to)
{
    tutti_tensor_t *x = *from;
    if (x == NULL) {
        return TUTTI_OK;
    }
    *from = NULL;
    *to = tt_scope_adopt(s, TUTTI_OK, x);
    return move_home(s, loader->options.pin_memory, to);
}

/* All of them. */
static tutti_status_t hand_over(const tutti_dataloader_t *loader, tt_job_t *job, tutti_scope_t *s,
                                tutti_batch_t *batch)
{
    tutti_batch_t *from = &job->batch, to = *from;
    for (int i = 0; i < TUTTI_FIELDS_MAX; i++) {
        to.fields[i] = to.lengths[i] = NULL;
    }
    for (int i = 0; i < from->field_count; i++) {
        TT_TRY(hand_over_one(loader, s, &from->fields[i], &to.fields[i]));
        TT_TRY(hand_over_one(loader, s, &from->lengths[i], &to.lengths[i]));
    }
    TT_TRY(tutti_scope_status(s));
    to.input = to.fields[TUTTI_INPUT];
    to.target = to.fields[TUTTI_TARGET];
    *batch = to;
    return TUTTI_OK;
}

/* By the caller, at once. */
static tutti_status_t read_at(tutti_dataloader_t *loader, tutti_scope_t *s,
                              tutti_batch_place_t place, tt_job_t *job, tutti_batch_t *batch)
{
    tutti_status_t status = tt_dataloader_prepare(loader, place, s->ctx->cpu, job);
    if (status >= 0 && job->cursor == NULL) {
        tt_dataloader_give_turn(loader, place, job);
    }
    if (status >= 0) {
        status = tt_read_job(&loader->reader, job);
    }
    if (status >= 0) {
        status = hand_over(loader, job, s, batch);
    }
    tt_batch_release(&job->batch);
    return status;
}

/* The batch that is due, where there are no workers. */
static tutti_status_t read_due(tutti_dataloader_t *loader, tutti_scope_t *s, tutti_batch_t *batch)
{
    tt_job_t job = {.samples = loader->samples, .number = loader->number};
    return read_at(loader, s, tt_dataloader_place(loader, loader->number), &job, batch);
}

/* The batch of any place. A stream is read by a cursor of its own, for workers may read, too. */
static tutti_status_t read_any(tutti_dataloader_t *loader, tutti_scope_t *s,
                               tutti_batch_place_t place, tutti_batch_t *batch)
{
    const int64_t lot = place.shard * loader->options.micro_batches + place.micro_batch;
    tt_job_t job = {.samples = loader->samples, .number = place.step * loader->lots + lot};
    tt_stream_cursor_t cursor = {.parts = 0};
    if (loader->cursors != NULL) {
        tt_dataloader_visit(loader, place, &cursor);
        job.cursor = &cursor;
    }
    const tutti_status_t status = read_at(loader, s, place, &job, batch);
    tt_stream_cursor_fini(&cursor);
    return status;
}

static tutti_status_t take_read(tutti_dataloader_t *loader, tutti_scope_t *s, tutti_batch_t *batch)
{
    tt_job_t *job = NULL;
    read_on(loader, s->ctx->cpu);
    tutti_status_t status = tt_read_ahead_wait(loader->ahead, deadline_of(loader), &job);
    if (status >= 0) {
        status = hand_over(loader, job, s, batch);
    }
    if (status < 0) {
        loader->must_reset = job != NULL; /* else it is still being read */
        return status;
    }
    tt_read_ahead_advance(loader->ahead);
    return TUTTI_OK;
}

/* Behind a failure nothing that was read ahead is of use. */
static tutti_status_t recover(tutti_dataloader_t *loader)
{
    if (loader->ahead != NULL) {
        TT_TRY(tt_read_ahead_check(loader->ahead));
    }
    return loader->must_reset ? tt_dataloader_go(loader, loader->epoch, loader->number) : TUTTI_OK;
}

static tutti_status_t take_next(tutti_dataloader_t *loader, tutti_scope_t *s, tutti_batch_t *batch)
{
    const int64_t number = loader->number;
    bool is_over = !has_batch(loader, number);
    TT_TRY(recover(loader));
    if (!is_over && loader->cursors != NULL) {
        TT_TRY(tt_dataloader_stream_ends(loader, &is_over));
    }
    if (is_over) {
        loader->past += loader->cursors != NULL;
        return TUTTI_END;
    }
    TT_TRY(check_shard(loader, s->ctx));
    TT_TRY(loader->ahead != NULL ? take_read(loader, s, batch) : read_due(loader, s, batch));
    loader->number++;
    if (loader->ahead != NULL) {
        read_on(loader, s->ctx->cpu); /* while the caller computes */
    }
    return TUTTI_OK;
}

/* What a call that did not get a batch gives. */
static tutti_status_t give_none(const tutti_dataloader_t *loader, tutti_scope_t *s,
                                tutti_status_t status, tutti_batch_t *batch)
{
    if (status < 0) {
        tutti_tensor_t *null = tutti_scope_fail(s, status);
        const int fields = loader == NULL ? TUTTI_FIELDS_MAX : loader->dataset->info.field_count;
        *batch = (tutti_batch_t){.field_count = fields};
        for (int i = 0; i < batch->field_count; i++) {
            batch->fields[i] = null;
        }
        batch->input = batch->fields[TUTTI_INPUT];
        batch->target = batch->fields[TUTTI_TARGET];
    }
    return status;
}

static tutti_status_t want_loader(const tutti_dataloader_t *loader, const char *call,
                                  tutti_scope_t *s, tutti_batch_t *batch)
{
    return loader != NULL
               ? TUTTI_OK
               : give_none(NULL, s, TT_FAIL(TUTTI_ERR_ARG, "%s: loader is NULL", call), batch);
}

tutti_status_t tutti_dataloader_next(tutti_dataloader_t *loader, tutti_scope_t *s,
                                     tutti_batch_t *batch)
{
    TT_WANT("dataloader_next", batch);
    TT_TRY(want_loader(loader, "dataloader_next", s, batch));
    *batch = (tutti_batch_t){.epoch = loader->epoch, .step = tutti_dataloader_step(loader)};
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = take_next(loader, s, batch);
    }
    return give_none(loader, s, status, batch);
}

tutti_status_t tutti_dataloader_at(tutti_dataloader_t *loader, tutti_scope_t *s,
                                   tutti_batch_place_t place, tutti_batch_t *batch)
{
    TT_WANT("dataloader_at", batch);
    TT_TRY(want_loader(loader, "dataloader_at", s, batch));
    *batch = (tutti_batch_t){.epoch = place.epoch, .step = place.step};
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = tt_dataloader_check_place(loader, place);
    }
    if (status == TUTTI_OK) {
        status = read_any(loader, s, place, batch);
    }
    return give_none(loader, s, status, batch);
}
