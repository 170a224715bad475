/**
 * @file dataloader.h
 * Batches of an epoch, read ahead by threads: what torch.utils.data.DataLoader is.
 *
 * Example:
 *
 *     static tutti_status_t train_epoch(tutti_dataloader_t *loader, tutti_context_t *ctx)
 *     {
 *         tutti_status_t status = TUTTI_OK;
 *         while (status == TUTTI_OK) {
 *             tutti_scope_t *s;
 *             tutti_batch_t batch;
 *             TUTTI_CHECK(tutti_scope_open(ctx, &s));
 *             status = tutti_dataloader_next(loader, s, &batch);
 *             if (status == TUTTI_OK) {
 *                 printf("%lld samples\n", (long long)batch.size); // the last time perhaps fewer
 *             }
 *             TUTTI_CHECK(tutti_scope_close(s));
 *         }
 *         return status; // TUTTI_END: the epoch is over
 *     }
 *
 *     tutti_dataset_t *clothes;
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_mnist_dataset,
 *         &(tutti_mnist_options_t){.folder = "fashion-mnist"}, &clothes));
 *     tutti_dataloader_t *batches;
 *     TUTTI_CHECK(tutti_dataloader_create(clothes,
 *         &(tutti_dataloader_options_t){.batch = 64, .shuffle = true, .workers = 2}, &batches));
 *     for (int64_t epoch = 0; epoch < 10; epoch++) {
 *         TUTTI_CHECK(tutti_dataloader_set_epoch(batches, epoch));
 *         TUTTI_CHECK(train_epoch(batches, ctx));
 *     }
 *     tutti_dataloader_release(batches);
 *     tutti_dataset_release(clothes);
 *
 * A job that trains on shards (ddp.h) says how many there are, and which of how many ranks this is.
 * A step has batch × shards samples, dealt to the shards in turn, so that all have equally many or
 * one less. Which samples a step has, and which of them a shard gets, depends on no rank, thread or
 * time. No sample is padded or dropped: in the last step of an epoch shards may have fewer samples,
 * or none (a batch of size 0), but each shard has a batch in each step. Every sample then counts
 * once by tutti_ddp_set_weight(ddp, batch.size), or if a shard's mean loss is multiplied by size ×
 * shards / total. Who wants a padded order takes tutti_distributed_sampler.
 *
 * tutti_loader_t (data.h) is without end and without state, for any step at any time.
 */
#ifndef TUTTI_DATALOADER_H
#define TUTTI_DATALOADER_H

#include <tutti/data.h>
#include <tutti/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Gives the batches of an epoch in order; one thread at a time. */
typedef struct tutti_dataloader tutti_dataloader_t;

typedef struct tutti_dataloader_options {
    int64_t batch;            /**< samples per shard and step; 0: 1 */
    bool shuffle;             /**< each epoch in an order of its own */
    uint64_t seed;            /**< of the order; the same on every rank */
    tutti_sampler_t *sampler; /**< instead of shuffle and seed: the order of all shards; of batches:
                                   instead of batch too, entry i is for shard i modulo shards.
                                   Retained; not used elsewhere meanwhile */
    bool drop_last;           /**< leave out an epoch's last step unless every shard's is whole */
    int shards;               /**< of the job: tutti_ddp_shards(); 0: one for each rank */
    int ranks;                /**< that host them, as under ddp.h; 0: 1 */
    int rank;                 /**< this one */
    int workers;              /**< threads that read ahead; 0: the caller reads */
    int prefetch;             /**< batches read ahead for each worker; 0: 2 */
    int64_t timeout_ms;       /**< longest wait for a batch; 0: 10 minutes; negative: for ever */
} tutti_dataloader_options_t;

/**
 * Make a loader, which stands at the beginning of epoch 0.
 *
 * @param d        retained; read by all workers at once
 * @param options  borrowed; NULL for the defaults
 * @param out      owned by the caller, to be released with tutti_dataloader_release
 * @thread         any
 * @cost           starts the workers; at most workers × prefetch batches are in memory ahead
 * @errors         ARG (names the option, its value and the rule), NOMEM
 * @source         torch.utils.data.DataLoader
 */
TUTTI_API tutti_status_t tutti_dataloader_create(tutti_dataset_t *d,
                                                 const tutti_dataloader_options_t *options,
                                                 tutti_dataloader_t **out);

/** Release a loader, also in mid-epoch: waits until each worker has read the sample it is at. NULL
 *  does nothing. @thread as next @errors none */
TUTTI_API void tutti_dataloader_release(tutti_dataloader_t *loader);

/** Steps of an epoch: in each, every shard has a batch. @thread any @errors none
 *  @source len(loader) */
TUTTI_API int64_t tutti_dataloader_steps(const tutti_dataloader_t *loader);

/** The epoch under way. @thread as next @errors none */
TUTTI_API int64_t tutti_dataloader_epoch(const tutti_dataloader_t *loader);

/** Steps of this epoch that this rank has had whole. @thread as next @errors none */
TUTTI_API int64_t tutti_dataloader_step(const tutti_dataloader_t *loader);

/**
 * Go to the beginning of an epoch; what was read ahead is forgotten.
 *
 * @thread  one at a time per loader
 * @errors  ARG (epoch < 0), TIMEOUT (a worker does not come back from the data set)
 * @source  torch.utils.data.distributed.DistributedSampler.set_epoch
 */
TUTTI_API tutti_status_t tutti_dataloader_set_epoch(tutti_dataloader_t *loader, int64_t epoch);

/**
 * The next batch: step by step, and within a step shard by shard. After a failure the same batch is
 * tried again by the next call.
 *
 * @param batch  out; null tensors after a failure, which the scope has too
 * @return       TUTTI_END behind the epoch's last batch, until set_epoch: size 0, tensors NULL
 * @thread       the scope's; one at a time per loader
 * @cost         with workers that keep up: waits for nothing and copies nothing
 * @errors       STATE (the context is at another shard); those of the data set, whose text comes
 *               behind the names of worker and sample; TIMEOUT (names them too), NOMEM
 */
TUTTI_API tutti_status_t tutti_dataloader_next(tutti_dataloader_t *loader, tutti_scope_t *s,
                                               tutti_batch_t *batch);

/**
 * Where the loader stands, as one line of text, for a snapshot: the same on every rank that
 * hosts shards. What was read ahead does not count.
 *
 * @param out  owned by the caller: tutti_buffer_release
 * @thread     as next
 * @errors     STATE (in the middle of a step: some of this rank's shards have had their batch; or
 * it hosts none), NOMEM
 * @source     docs/formats/dataloader.md
 */
TUTTI_API tutti_status_t tutti_dataloader_save_state(tutti_dataloader_t *loader,
                                                     tutti_buffer_t *out);

/**
 * Go to where a loader stood, which may have had other ranks and workers, but the same order, batch
 * and shards.
 *
 * @param state  borrowed
 * @thread       as next
 * @errors       FORMAT (not such a text), MISMATCH (names what differs, and both values), TIMEOUT
 */
TUTTI_API tutti_status_t tutti_dataloader_load_state(tutti_dataloader_t *loader,
                                                     tutti_bytes_t state);

#ifdef __cplusplus
}
#endif

#endif
