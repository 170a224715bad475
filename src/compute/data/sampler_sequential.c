/* All samples as the data set has them. */
#include "compute/data/sampler_impl.h"

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_sequential_sampler_options_t *o = options;
    (void)sampler;
    info->count = o->count;
    return tt_sampler_check("sequential", "count", o->count, 0);
}

static tutti_status_t read_entry(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    (void)sampler;
    (void)epoch;
    *samples = position;
    *size = 1;
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_sequential_sampler = {
    .name = "sequential",
    .about = "all samples as the data set has them",
    .init = init,
    .read = read_entry,
};
