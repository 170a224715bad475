/* Which samples a batch has. A step is cut into lots: the micro-batches of all shards, those of a
 * shard side by side. Of an order of N samples, step t has those from t × batch × lots on, and
 * deals them in turn, so that lots differ by at most one sample in an epoch's last step too:
 *
 *     batch 2, lots 3:    position   0 1 2 3 4 5 | 6 7 8 9
 *                         lot        0 1 2 0 1 2 | 0 1 2 0
 *
 * Of an order of batches, entry i is lot i modulo lots' in step i / lots. Without end the entries
 * of epoch e + 1 follow on those of epoch e, and each step is whole.
 */
#include "compute/data/dataloader_impl.h"
#include "compute/data/dataset.h"
#include "core/tensor/tensor_impl.h"

tutti_status_t tt_dataloader_cut(tutti_dataloader_t *loader)
{
    const tutti_dataloader_options_t *o = &loader->options;
    const bool is_stream = loader->sampler == NULL;
    const int64_t width = is_stream ? 1 : tutti_sampler_width(loader->sampler);
    const int64_t count = is_stream ? 0 : tutti_sampler_count(loader->sampler);
    int64_t samples;
    if (__builtin_mul_overflow(o->shards, o->micro_batches, &loader->lots) ||
        __builtin_mul_overflow(loader->lots, width > 1 ? width : o->batch, &samples)) {
        return TT_FAIL(TUTTI_ERR_ARG, "dataloader: too many samples for a step");
    }
    if (o->endless && (count == 0 || o->drop_last)) {
        return TT_FAIL(TUTTI_ERR_ARG, "dataloader: endless with %s",
                       count == 0 ? "an empty order" : "drop_last: each of its steps is whole");
    }
    loader->entries = width > 1 ? loader->lots : samples;
    loader->steps = is_stream
                        ? TUTTI_ANY
                        : count / loader->entries + (count % loader->entries != 0 && !o->drop_last);
    return TUTTI_OK;
}

tutti_batch_place_t tt_dataloader_place(const tutti_dataloader_t *loader, int64_t number)
{
    const int64_t lots = tt_dataloader_local_lots(loader), lot = number % lots;
    return (tutti_batch_place_t){
        .epoch = loader->epoch,
        .step = number / lots,
        .shard = loader->first_shard + lot / loader->options.micro_batches * loader->shard_stride,
        .micro_batch = lot % loader->options.micro_batches};
}

tutti_status_t tt_dataloader_check_place(const tutti_dataloader_t *loader,
                                         tutti_batch_place_t place)
{
    const tutti_dataloader_options_t *o = &loader->options;
    const bool is_stream = loader->sampler == NULL;
    const int64_t width = is_stream ? 1 : tutti_sampler_width(loader->sampler);
    if (place.shard < 0 || place.shard >= o->shards || place.micro_batch < 0 ||
        place.micro_batch >= o->micro_batches) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "dataloader: shard %lld, micro-batch %lld: it was made for %d shards of "
                       "%lld micro-batches",
                       (long long)place.shard, (long long)place.micro_batch, o->shards,
                       (long long)o->micro_batches);
    }
    if (place.step < 0 || place.epoch < 0 || (o->endless && place.epoch > 0) ||
        place.step >= INT64_MAX / width / loader->entries) {
        return TT_FAIL(TUTTI_ERR_ARG, "dataloader: step %lld of epoch %lld is out of range",
                       (long long)place.step, (long long)place.epoch);
    }
    return o->endless || is_stream || place.step < loader->steps ? TUTTI_OK : TUTTI_END;
}

/* An entry of the order, counted from the beginning of the place's epoch. */
static tutti_status_t read_entry(const tutti_dataloader_t *loader, int64_t epoch, int64_t entry,
                                 int64_t *samples, int64_t *size)
{
    const int64_t count = tutti_sampler_count(loader->sampler);
    return tutti_sampler_read(loader->sampler, epoch + entry / count, entry % count, samples, size);
}

/* Single samples. */
static tutti_status_t deal_samples(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                                   int64_t lot, int64_t entries, tt_job_t *job)
{
    const int64_t first = place.step * loader->entries;
    int64_t *size = &job->batch.size;
    job->batch.total = entries;
    for (int64_t at = lot; at < entries; at += loader->lots, ++*size) {
        TT_TRY(read_entry(loader, place.epoch, first + at, job->samples + *size, NULL));
    }
    return TUTTI_OK;
}

/* Whole batches: the other lots' are read to know the total. */
static tutti_status_t deal_batches(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                                   int64_t lot, int64_t entries, tt_job_t *job)
{
    const int64_t first = place.step * loader->entries;
    for (int64_t i = 0; i < entries; i++) {
        int64_t size;
        TT_TRY(read_entry(loader, place.epoch, first + i, i == lot ? job->samples : loader->scratch,
                          &size));
        job->batch.total += size;
        job->batch.size = i == lot ? size : job->batch.size;
    }
    return TUTTI_OK;
}

static tutti_status_t deal(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                           tt_job_t *job)
{
    const int64_t width = tutti_sampler_width(loader->sampler);
    const int64_t count = tutti_sampler_count(loader->sampler);
    const int64_t lot = place.shard * loader->options.micro_batches + place.micro_batch;
    const int64_t first = place.step * loader->entries, left = count - first;
    const bool is_whole = loader->options.endless || left >= loader->entries;
    job->batch.epoch += loader->options.endless ? (first + lot) / count : 0;
    job->first = (loader->options.endless ? (first + lot) % count : first + lot) * width;
    job->stride = width > 1 ? 1 : loader->lots;
    job->epoch_samples = count * width;
    return (width > 1 ? deal_batches : deal_samples)(loader, place, lot,
                                                     is_whole ? loader->entries : left, job);
}

static tutti_status_t make_field(tt_device_t *device, const tutti_field_t *field, int64_t size,
                                 tutti_tensor_t **out)
{
    tutti_shape_t shape;
    TT_TRY(tt_batch_shape(field->shape, size, &shape));
    return tt_tensor_new(device, field->dtype, shape, false, out);
}

tutti_status_t tt_dataloader_prepare(tutti_dataloader_t *loader, tutti_batch_place_t place,
                                     tt_device_t *device, tt_job_t *job)
{
    const tutti_dataset_info_t *info = &loader->dataset->info;
    job->batch = (tutti_batch_t){.epoch = place.epoch,
                                 .step = place.step,
                                 .shard = place.shard,
                                 .micro_batch = place.micro_batch};
    job->batch.field_count = info->field_count;
    if (loader->sampler == NULL) {
        tt_dataloader_deal_stream(loader, place, job);
    } else {
        TT_TRY(deal(loader, place, job));
    }
    for (int i = 0; i < info->field_count; i++) {
        if (loader->reader.is_placed[i]) {
            TT_TRY(make_field(device, &info->fields[i], job->batch.size, &job->batch.fields[i]));
        }
    }
    return TUTTI_OK;
}
