/* Loaders. A batch is positions ((step × shards + shard) × micro_batches + micro_batch) × batch …
 * of an endless row of epochs, and the sampler says which sample stands at each.
 */
#include "compute/data/dataset.h"
#include "compute/data/shuffle.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

struct tutti_loader {
    tutti_dataset_t *dataset;
    tutti_loader_options_t options; /* with the defaults put in */
    int64_t batches;                /* of a step */
};

static tutti_status_t check(const tutti_dataset_t *d, const tutti_loader_options_t *o)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", o->batch}, {"shards", o->shards}, {"micro_batches", o->micro_batches}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1 || sizes[i].value > INT32_MAX) {
            return TT_FAIL(TUTTI_ERR_ARG, "loader: %s is %lld: it must be from 1 to %d",
                           sizes[i].name, (long long)sizes[i].value, INT32_MAX);
        }
    }
    if (o->epochs < 0 || (int)o->order < 0 || o->order > TUTTI_ORDER_RANDOM) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "loader: epochs %lld, order %d: epochs must be at least 0, the order 0 to "
                       "%d",
                       (long long)o->epochs, (int)o->order, TUTTI_ORDER_RANDOM);
    }
    int64_t batches;
    if (__builtin_mul_overflow(o->shards * o->micro_batches, o->batch, &batches)) {
        return TT_FAIL(TUTTI_ERR_ARG, "loader: too many samples for a step");
    }
    return d->info.count > 0 ? TUTTI_OK : TT_FAIL(TUTTI_ERR_ARG, "loader: the data set is empty");
}

tutti_status_t tutti_loader_create(tutti_dataset_t *d, const tutti_loader_options_t *options,
                                   tutti_loader_t **out)
{
    tutti_loader_options_t o = options == NULL ? (tutti_loader_options_t){0} : *options;
    o.batch = o.batch == 0 ? 1 : o.batch;
    o.shards = o.shards == 0 ? 1 : o.shards;
    o.micro_batches = o.micro_batches == 0 ? 1 : o.micro_batches;
    TT_TRY(check(d, &o));
    tutti_loader_t *loader = tt_alloc(sizeof *loader, "loader");
    TT_TRY_ALLOC(loader);
    loader->dataset = tutti_dataset_retain(d);
    loader->options = o;
    loader->batches = o.shards * o.micro_batches;
    *out = loader;
    return TUTTI_OK;
}

void tutti_loader_release(tutti_loader_t *loader)
{
    if (loader != NULL) {
        tutti_dataset_release(loader->dataset);
        tt_free(loader);
    }
}

int64_t tutti_loader_epoch_steps(const tutti_loader_t *loader)
{
    const int64_t step = loader->batches * loader->options.batch;
    const int64_t count = loader->dataset->info.count;
    return count / step + (count % step != 0);
}

/* The first position of a batch. */
static tutti_status_t find_position(const tutti_loader_t *loader, tutti_batch_place_t place,
                                    int64_t *out)
{
    const tutti_loader_options_t *o = &loader->options;
    if (place.shard < 0 || place.shard >= o->shards || place.micro_batch < 0 ||
        place.micro_batch >= o->micro_batches) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "loader: shard %lld, micro-batch %lld: it was made for %lld shards of %lld "
                       "micro-batches",
                       (long long)place.shard, (long long)place.micro_batch, (long long)o->shards,
                       (long long)o->micro_batches);
    }
    const int64_t within = place.shard * o->micro_batches + place.micro_batch;
    int64_t position;
    if (place.step < 0 ||
        __builtin_mul_overflow(place.step, loader->batches * o->batch, &position) ||
        __builtin_add_overflow(position, within * o->batch, &position) ||
        position > INT64_MAX - o->batch) {
        return TT_FAIL(TUTTI_ERR_ARG, "loader: step %lld is out of range", (long long)place.step);
    }
    *out = position;
    return TUTTI_OK;
}

/* Of `wanted` samples from a position on, those there are: all, or what is left of the last epoch.
 */
static int64_t size_of(const tutti_loader_t *loader, int64_t position, int64_t wanted)
{
    int64_t total;
    if (loader->options.epochs == 0 ||
        __builtin_mul_overflow(loader->options.epochs, loader->dataset->info.count, &total)) {
        return wanted;
    }
    const int64_t left = total - position;
    return left < 0 ? 0 : left < wanted ? left : wanted;
}

static int64_t sample_at(const tutti_loader_t *loader, uint64_t seed, int64_t position)
{
    const uint64_t count = (uint64_t)loader->dataset->info.count, at = (uint64_t)position;
    switch (loader->options.order) {
    case TUTTI_ORDER_SHUFFLED:
        return (int64_t)tt_permute(seed, at / count, count, at % count);
    case TUTTI_ORDER_RANDOM:
        return (int64_t)tt_draw(seed, at, count);
    case TUTTI_ORDER_GIVEN:
        break;
    }
    return (int64_t)(at % count);
}

static tutti_tensor_t *make_field(tutti_scope_t *s, const tutti_field_t *field, int64_t size)
{
    tutti_shape_t shape;
    const tutti_status_t status = tt_batch_shape(field, size, &shape);
    return status < 0 ? tutti_scope_fail(s, status) : tutti_empty(s, field->dtype, shape);
}

/* Reads samples from `position` on into the batch, whose tensors are there. */
static tutti_status_t fill(const tutti_loader_t *loader, uint64_t seed, int64_t position,
                           const tutti_batch_t *batch)
{
    tutti_dataset_t *d = loader->dataset;
    char *input = tutti_tensor_data(batch->input);
    char *target = batch->target == NULL ? NULL : tutti_tensor_data(batch->target);
    for (int64_t i = 0; i < batch->size; i++) {
        const int64_t at = position + i, count = d->info.count;
        const tutti_draw_t draw = {.epoch = at / count, .position = at % count};
        TT_TRY(tutti_dataset_read(d, sample_at(loader, seed, at), draw, input, target));
        input += tt_field_bytes(&d->info.input);
        target = target == NULL ? NULL : target + tt_field_bytes(&d->info.target);
    }
    return TUTTI_OK;
}

static tutti_status_t load(const tutti_loader_t *loader, tutti_scope_t *s, int64_t position,
                           tutti_batch_t *batch)
{
    const tutti_dataset_info_t *info = &loader->dataset->info;
    const uint64_t given = loader->options.seed;
    batch->input = make_field(s, &info->input, batch->size);
    batch->target = info->has_target ? make_field(s, &info->target, batch->size) : NULL;
    TT_TRY(tutti_scope_status(s));
    return fill(loader, given == 0 ? s->ctx->seed : given, position, batch);
}

tutti_status_t tutti_loader_at(tutti_loader_t *loader, tutti_scope_t *s, tutti_batch_place_t place,
                               tutti_batch_t *batch)
{
    *batch = (tutti_batch_t){0};
    int64_t position = 0;
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = find_position(loader, place, &position);
    }
    if (status >= 0) {
        const int64_t step = loader->batches * loader->options.batch;
        batch->epoch = position / loader->dataset->info.count;
        batch->step = place.step;
        batch->shard = place.shard;
        batch->size = size_of(loader, position, loader->options.batch);
        batch->total = size_of(loader, position / step * step, step);
        status = batch->size == 0 ? TUTTI_END : load(loader, s, position, batch);
    }
    if (status < 0) {
        tutti_tensor_t *null = tutti_scope_fail(s, status);
        *batch = (tutti_batch_t){.input = null,
                                 .target = loader->dataset->info.has_target ? null : NULL};
    }
    return status;
}

tutti_status_t tutti_loader_next(tutti_loader_t *loader, tutti_scope_t *s, tutti_batch_t *batch)
{
    const tutti_batch_place_t place = {.step = s->ctx->step, .shard = s->ctx->shard};
    return tutti_loader_at(loader, s, place, batch);
}
