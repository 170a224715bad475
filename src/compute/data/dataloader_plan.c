/* Which samples a batch has. Of an order of N samples, step t has those from t × batch × shards on,
 * and deals them in turn, so that shards differ by at most one sample in the last step too:
 *
 *     batch 2, shards 3:    position   0 1 2 3 4 5 | 6 7 8 9
 *                           shard      0 1 2 0 1 2 | 0 1 2 0
 *
 * Of an order of batches, entry i is shard i modulo shards' in step i / shards.
 */
#include "compute/data/dataloader_impl.h"
#include "compute/data/dataset.h"
#include "core/tensor/tensor_impl.h"

static int64_t entries_of_step(const tutti_dataloader_t *loader)
{
    const tutti_dataloader_options_t *o = &loader->options;
    return tutti_sampler_width(loader->sampler) > 1 ? o->shards : o->batch * o->shards;
}

int64_t tt_dataloader_count_steps(const tutti_dataloader_t *loader)
{
    const int64_t count = tutti_sampler_count(loader->sampler), each = entries_of_step(loader);
    return count / each + (count % each != 0 && !loader->options.drop_last);
}

/* Single samples. */
static tutti_status_t deal_samples(tutti_dataloader_t *loader, tt_job_t *job)
{
    const int64_t each = entries_of_step(loader), first = job->batch.step * each;
    const int64_t left = tutti_sampler_count(loader->sampler) - first;
    job->batch.total = left < each ? left : each;
    job->first = first + job->batch.shard;
    job->stride = loader->options.shards;
    int64_t *size = &job->batch.size;
    for (int64_t at = job->batch.shard; at < job->batch.total; at += job->stride, ++*size) {
        TT_TRY(tutti_sampler_read(loader->sampler, job->batch.epoch, first + at,
                                  job->samples + *size, NULL));
    }
    return TUTTI_OK;
}

/* Whole batches: the other shards' are read to know the total. */
static tutti_status_t deal_batches(tutti_dataloader_t *loader, tt_job_t *job)
{
    const int64_t first = job->batch.step * loader->options.shards;
    const int64_t left = tutti_sampler_count(loader->sampler) - first;
    for (int64_t shard = 0; shard < loader->options.shards && shard < left; shard++) {
        const bool is_ours = shard == job->batch.shard;
        int64_t size;
        TT_TRY(tutti_sampler_read(loader->sampler, job->batch.epoch, first + shard,
                                  is_ours ? job->samples : loader->scratch, &size));
        job->batch.total += size;
        job->batch.size = is_ours ? size : job->batch.size;
    }
    job->first = (first + job->batch.shard) * tutti_sampler_width(loader->sampler);
    job->stride = 1;
    return TUTTI_OK;
}

static tutti_status_t make_field(tt_device_t *device, const tutti_field_t *field, int64_t size,
                                 tutti_tensor_t **out)
{
    tutti_shape_t shape;
    TT_TRY(tt_batch_shape(field, size, &shape));
    return tt_tensor_new(device, field->dtype, shape, false, out);
}

tutti_status_t tt_dataloader_prepare(tutti_dataloader_t *loader, tt_device_t *device, tt_job_t *job)
{
    const tutti_dataset_info_t *info = &loader->dataset->info;
    job->number = loader->prepared;
    job->batch = (tutti_batch_t){.epoch = loader->epoch,
                                 .step = job->number / loader->shard_count,
                                 .shard = loader->first_shard + job->number % loader->shard_count};
    TT_TRY(tutti_sampler_width(loader->sampler) > 1 ? deal_batches(loader, job)
                                                    : deal_samples(loader, job));
    TT_TRY(make_field(device, &info->input, job->batch.size, &job->batch.input));
    return info->has_target ? make_field(device, &info->target, job->batch.size, &job->batch.target)
                            : TUTTI_OK;
}
