/* Loaders of streams. The stream is cut into shards × parts; a shard's batches come from its parts
 * in turn:
 *
 *     parts 2:    batch of the shard   0     1     2     3     4
 *                 part                 0     1     0     1     0
 *                 samples (batch 8)    0-7   0-7   8-15  8-15  16-23
 *
 * So which samples a batch has depends on its place alone, as with numbered samples, and workers
 * can read the parts of a shard at once. A part that has ended gives smaller batches, then empty
 * ones. The epoch is over for a rank with the step before which every part of its shards has given
 * all.
 */
#include "compute/data/dataloader_impl.h"

#include "compute/data/dataset.h"
#include "core/base/alloc.h"

static int64_t parts_of(const tutti_dataloader_t *loader)
{
    return loader->options.parts;
}

/* The cursor of a part of a shard of this rank. */
static tt_stream_cursor_t *cursor_of(const tutti_dataloader_t *loader, int64_t shard, int64_t part)
{
    const int64_t local = (shard - loader->first_shard) / loader->shard_stride;
    return &loader->cursors[local * parts_of(loader) + part];
}

static int64_t cursor_count(const tutti_dataloader_t *loader)
{
    return loader->shard_count * parts_of(loader);
}

tutti_status_t tt_dataloader_open_stream(tutti_dataloader_t *loader)
{
    const tutti_dataloader_options_t *o = &loader->options;
    const int64_t parts = parts_of(loader);
    loader->cursors =
        tt_alloc_array((size_t)cursor_count(loader), sizeof *loader->cursors, "data loader");
    TT_TRY_ALLOC(loader->cursors);
    for (int64_t i = 0; i < cursor_count(loader); i++) {
        const int64_t shard = loader->first_shard + i / parts * loader->shard_stride;
        tt_stream_cursor_init(&loader->cursors[i], loader->dataset, shard * parts + i % parts,
                              o->shards * parts);
    }
    return TUTTI_OK;
}

void tt_dataloader_close_stream(tutti_dataloader_t *loader)
{
    for (int64_t i = 0; loader->cursors != NULL && i < cursor_count(loader); i++) {
        tt_stream_cursor_fini(&loader->cursors[i]);
    }
    tt_free(loader->cursors);
}

void tt_dataloader_reset_stream(tutti_dataloader_t *loader)
{
    for (int64_t i = 0; loader->cursors != NULL && i < cursor_count(loader); i++) {
        tt_stream_cursor_reset(&loader->cursors[i]);
    }
    loader->must_look = loader->number > 0;
}

/* Which of its shard's batches it is, from the epoch's first on. */
static int64_t turn_of(const tutti_dataloader_t *loader, tutti_batch_place_t place)
{
    return place.step * loader->options.micro_batches + place.micro_batch;
}

/* How many batches a cursor of this rank has given before the loader's place. */
static int64_t given_by(const tutti_dataloader_t *loader, int64_t cursor)
{
    const int64_t micro = loader->options.micro_batches, parts = parts_of(loader);
    const int64_t lots = tt_dataloader_local_lots(loader), part = cursor % parts;
    int64_t of_step = loader->number % lots - cursor / parts * micro;
    of_step = of_step < 0 ? 0 : of_step > micro ? micro : of_step;
    const int64_t turns = loader->number / lots * micro + of_step;
    return turns <= part ? 0 : (turns - part + parts - 1) / parts;
}

/* Behind a jump: what the parts know when they are read without one. No worker reads. */
static tutti_status_t look_again(tutti_dataloader_t *loader)
{
    for (int64_t i = 0; i < cursor_count(loader); i++) {
        const int64_t given = given_by(loader, i);
        if (given > 0) {
            TT_TRY(tt_stream_cursor_seek(&loader->cursors[i], loader->epoch,
                                         given * loader->options.batch));
            TT_TRY(tt_stream_cursor_look(&loader->cursors[i]));
        }
    }
    loader->must_look = false;
    return TUTTI_OK;
}

/* A part must have been read before: whether one is empty is not asked beforehand, so that it does
 * not matter what others have read ahead. */
tutti_status_t tt_dataloader_stream_ends(tutti_dataloader_t *loader, bool *out)
{
    if (loader->must_look) {
        TT_TRY(look_again(loader));
    }
    bool is_over = loader->number % tt_dataloader_local_lots(loader) == 0;
    for (int64_t i = 0; i < cursor_count(loader) && is_over; i++) {
        const int64_t given = given_by(loader, i);
        const int64_t total = atomic_load(&loader->cursors[i].total);
        is_over = given > 0 && total != TUTTI_ANY && total <= given * loader->options.batch;
    }
    *out = is_over;
    return TUTTI_OK;
}

void tt_dataloader_deal_stream(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                               tt_job_t *job)
{
    const int64_t turn = turn_of(loader, place), batch = loader->options.batch;
    job->batch.size = batch;
    job->batch.total = TUTTI_ANY;
    job->epoch_samples = 1;
    job->first = turn / parts_of(loader) * batch;
    job->stride = 1;
    job->drops_last = loader->options.drop_last;
    for (int64_t i = 0; i < batch; i++) {
        job->samples[i] = job->first + i;
    }
}

void tt_dataloader_give_turn(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                             tt_job_t *job)
{
    job->cursor = NULL;
    if (loader->cursors != NULL) {
        const int64_t part = turn_of(loader, place) % parts_of(loader);
        job->cursor = cursor_of(loader, place.shard, part);
        job->turn = job->cursor->posted++;
    }
}

void tt_dataloader_visit(const tutti_dataloader_t *loader, tutti_batch_place_t place,
                         tt_stream_cursor_t *cursor)
{
    const int64_t parts = parts_of(loader);
    tt_stream_cursor_init(cursor, loader->dataset,
                          place.shard * parts + turn_of(loader, place) % parts,
                          loader->options.shards * parts);
}
