/* The inside of a data loader. */
#ifndef TT_DATALOADER_IMPL_H
#define TT_DATALOADER_IMPL_H

#include <tutti/dataloader.h>

#include "compute/data/read_ahead.h"
#include "core/device/device.h"

struct tutti_dataloader {
    tutti_dataset_t *dataset;
    tutti_sampler_t *sampler;
    tt_batch_reader_t reader;
    tt_stream_cursor_t
        *cursors; /* of a stream: [shards of this rank, parts]; NULL: numbered samples */
    tutti_dataloader_options_t options; /* with the defaults put in */
    int64_t first_shard, shard_count;   /* of this rank */
    int64_t shard_stride;               /* from one of them to the next */
    int64_t lots;                       /* batches of a step: micro-batches of all shards */
    int64_t entries;                    /* of the sampler in a step */
    int64_t steps;                      /* of an epoch */
    int64_t epoch;                      /* of an endless loader: 0 */
    int64_t number;                     /* of the next batch of this rank in the epoch */
    int64_t prepared;                   /* of the next to be read ahead */
    int64_t past;           /* times that a stream was asked at its end: steps that others have */
    bool must_reset;        /* what was read ahead follows on a failure, or on another place */
    bool must_look;         /* a stream was not read up to here: it may be over */
    int64_t *scratch;       /* [width] */
    int64_t *samples;       /* of a batch that the caller reads */
    tt_read_ahead_t *ahead; /* NULL without workers */
};

/* Batches of this rank in a step. */
static inline int64_t tt_dataloader_local_lots(const tutti_dataloader_t *loader)
{
    return loader->shard_count * loader->options.micro_batches;
}

/* Check how steps are cut, and count them; the loader has its sampler and options. */
tutti_status_t tt_dataloader_cut(tutti_dataloader_t *loader);

/* Where this rank's batch with a number in the epoch stands. */
tutti_batch_place_t tt_dataloader_place(const tutti_dataloader_t *loader, int64_t number);

/* END: behind the epoch's last step. ARG: there is no such place. */
tutti_status_t tt_dataloader_check_place(const tutti_dataloader_t *loader,
                                         tutti_batch_place_t place);

/* Say which samples the batch of a place has, and make memory for them on a device. */
tutti_status_t tt_dataloader_prepare(tutti_dataloader_t *loader, tutti_batch_place_t place,
                                     tt_device_t *device, tt_job_t *job);

/* ---- streams (dataloader_stream.c) ----------------------------------------------------------- */

tutti_status_t tt_dataloader_open_stream(tutti_dataloader_t *loader);
void tt_dataloader_close_stream(tutti_dataloader_t *loader);

/* The loader stands elsewhere, and nothing is read ahead. */
void tt_dataloader_reset_stream(tutti_dataloader_t *loader);

/* Whether no shard of this rank has samples from the step on that the loader stands at. */
tutti_status_t tt_dataloader_stream_ends(tutti_dataloader_t *loader, bool *out);

/* Which samples of its part the batch of a place may have. */
void tt_dataloader_deal_stream(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                               tt_job_t *job);

/* A job that will be read: its cursor, and whose turn it is. */
void tt_dataloader_give_turn(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                             tt_job_t *job);

/* A cursor of one's own for the batch of any place. */
void tt_dataloader_visit(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                         tt_stream_cursor_t *cursor);

/* ---- places ---------------------------------------------------------------------------------- */

/* Go to a place: nothing that was read ahead is left. */
tutti_status_t tt_dataloader_go(tutti_dataloader_t *loader, int64_t epoch, int64_t number);

#endif
