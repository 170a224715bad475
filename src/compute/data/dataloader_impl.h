/* The inside of a data loader. */
#ifndef TT_DATALOADER_IMPL_H
#define TT_DATALOADER_IMPL_H

#include <tutti/dataloader.h>

#include "compute/data/read_ahead.h"
#include "core/device/device.h"

struct tutti_dataloader {
    tutti_dataset_t *dataset;
    tutti_sampler_t *sampler;
    tutti_dataloader_options_t options; /* with the defaults put in */
    int64_t first_shard, shard_count;   /* of this rank */
    int64_t steps;                      /* of an epoch */
    int64_t epoch;
    int64_t number;   /* of the next batch of this rank in the epoch */
    int64_t prepared; /* of the next to be read ahead */
    bool must_reset;  /* what was read ahead follows on a failure, or on another place */
    int64_t *scratch; /* [width] */
    tt_read_ahead_t *ahead;
};

/* Batches of this rank in an epoch. */
static inline int64_t tt_dataloader_batches(const tutti_dataloader_t *loader)
{
    return loader->steps * loader->shard_count;
}

/* Steps of an epoch, of a loader that has its sampler and options. */
int64_t tt_dataloader_count_steps(const tutti_dataloader_t *loader);

/* Say which samples the batch has whose number in the epoch is loader->prepared, and make memory
 * for them on a device. */
tutti_status_t tt_dataloader_prepare(tutti_dataloader_t *loader, tt_device_t *device,
                                     tt_job_t *job);

/* Go to a place: nothing that was read ahead is left. */
tutti_status_t tt_dataloader_go(tutti_dataloader_t *loader, int64_t epoch, int64_t number);

#endif
