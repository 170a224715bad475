/**
 * @file dataloader.h
 * Batches of a data set, read ahead by threads: what torch.utils.data.DataLoader is; and samplers,
 * which say in which order samples come.
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
 * A shard may take its samples in micro-batches, which count as if they were shards of their own.
 *
 * The batch of any place may be read at any time (tutti_dataloader_at), by rank or step or at
 * random: there is no state but the place. An endless loader has no epochs that end: each step is
 * whole, and an epoch's last samples share a step with the next one's first.
 */
#ifndef TUTTI_DATALOADER_H
#define TUTTI_DATALOADER_H

#include <tutti/collate.h>
#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- samplers -------------------------------------------------------------------------------- */

/**
 * An order of samples; reference-counted. Used by one thread at a time.
 *
 * A row of entries for each epoch, any of which may be read at any time: a pure function of
 * (options, epoch, position), the same on every machine and for every number of ranks and threads.
 * So there is no generator whose state must be saved, and no set_epoch() that could be forgotten.
 * Random numbers are Philox's; they are not PyTorch's, but the rules are.
 */
typedef struct tutti_sampler tutti_sampler_t;

/** What a sampler gives in an epoch. */
typedef struct {
    int64_t count; /**< entries of an epoch */
    int64_t width; /**< most samples of an entry: 1, but for samplers of batches */
} tutti_sampler_info_t;

/** What a kind of sampler can do. `init` and `read` are required. */
typedef struct tutti_sampler_ops {
    const char *name;   /**< "random" */
    const char *about;  /**< one line */
    size_t state_bytes; /**< of zeroed memory that tutti_sampler_state() gives */

    /** Keep what the options say, and say how long an epoch is. On failure `fini` is called. */
    tutti_status_t (*init)(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info);

    /** Release what the state owns. */
    void (*fini)(tutti_sampler_t *sampler);

    /** Write the samples of an entry, at most `width`, and how many there are; 0 <= epoch,
     *  0 <= position < count. Equal arguments give equal samples. */
    tutti_status_t (*read)(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                           int64_t *samples, int64_t *size);
} tutti_sampler_ops_t;

/**
 * Make a sampler.
 *
 * @param kind     one of those below, or your own; borrowed, must outlive the sampler
 * @param options  of that kind; borrowed
 * @param out      owned by the caller, to be released with tutti_sampler_release
 * @thread         any
 * @errors         ARG (names the option, its value and the rule), NOMEM
 */
TUTTI_API tutti_status_t tutti_sampler_create(const tutti_sampler_ops_t *kind, const void *options,
                                              tutti_sampler_t **out);

/** Share a sampler. @thread any @errors none */
TUTTI_API tutti_sampler_t *tutti_sampler_retain(tutti_sampler_t *sampler);

/** Give a sampler back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_sampler_release(tutti_sampler_t *sampler);

/** The sampler's own state. @thread any @errors none */
TUTTI_API void *tutti_sampler_state(tutti_sampler_t *sampler);

/** Entries of an epoch: samples, or batches of a batch sampler. @thread any @errors none
 *  @source len(sampler) */
TUTTI_API int64_t tutti_sampler_count(const tutti_sampler_t *sampler);

/** Most samples of an entry: 1, but for samplers of batches. @thread any @errors none */
TUTTI_API int64_t tutti_sampler_width(const tutti_sampler_t *sampler);

/**
 * Read an entry of an epoch.
 *
 * @param position  0 … count - 1, in any order
 * @param samples   out: room for `width` numbers
 * @param size      out: how many there are; may be NULL if the width is 1
 * @thread          one at a time
 * @cost            a few hundred ns; weighted without replacement works an epoch's order out when
 *                  the epoch is first asked for: O(num_samples × log count)
 * @errors          ARG (epoch, position), NOMEM; those of kind->read
 */
TUTTI_API tutti_status_t tutti_sampler_read(tutti_sampler_t *sampler, int64_t epoch,
                                            int64_t position, int64_t *samples, int64_t *size);

typedef struct tutti_sequential_sampler_options {
    int64_t count; /**< samples of the data set */
} tutti_sequential_sampler_options_t;

/** 0, 1, 2, … @source torch.utils.data.SequentialSampler */
TUTTI_API extern const tutti_sampler_ops_t tutti_sequential_sampler;

typedef struct tutti_random_sampler_options {
    int64_t count;       /**< samples of the data set */
    int64_t num_samples; /**< entries of an epoch; 0: count. More than count: one permutation
                              behind another */
    bool replacement;    /**< any sample at any position */
    uint64_t seed;
} tutti_random_sampler_options_t;

/** A permutation for each epoch, or draws with replacement. @source torch.utils.data.RandomSampler
 */
TUTTI_API extern const tutti_sampler_ops_t tutti_random_sampler;

typedef struct tutti_subset_sampler_options {
    const int64_t *samples; /**< [count], copied; repeats are allowed */
    int64_t count;
    bool in_order; /**< as given, not shuffled */
    uint64_t seed;
} tutti_subset_sampler_options_t;

/** Given samples, in an order of its own for each epoch. @source torch's SubsetRandomSampler */
TUTTI_API extern const tutti_sampler_ops_t tutti_subset_sampler;

typedef struct tutti_weighted_sampler_options {
    const double *weights; /**< [count], copied: at least 0 and finite, not all 0; any sum. What is
                                below 2^-40 or so of the largest counts as that */
    int64_t count;         /**< samples of the data set */
    int64_t num_samples;   /**< entries of an epoch; 0: count */
    bool no_replacement;   /**< no sample twice: at most as many entries as weights above 0 */
    uint64_t seed;
} tutti_weighted_sampler_options_t;

/** Samples drawn with probabilities proportional to their weights; by integers, so that the
 *  order is the same everywhere. @source torch.utils.data.WeightedRandomSampler; Fenwick, "A New
 *  Data Structure for Cumulative Frequency Tables", 1994 */
TUTTI_API extern const tutti_sampler_ops_t tutti_weighted_sampler;

typedef struct tutti_batch_sampler_options {
    tutti_sampler_t *sampler; /**< of width 1; retained */
    int64_t batch;            /**< samples of an entry */
    bool drop_last;           /**< leave out a last entry that would be smaller */
} tutti_batch_sampler_options_t;

/** Entries that are batches of another sampler's. @source torch.utils.data.BatchSampler */
TUTTI_API extern const tutti_sampler_ops_t tutti_batch_sampler;

/** As tutti_distributed_sampler_options_t.rank: what all ranks get, in turn. */
#define TUTTI_ALL_RANKS (-1)

typedef struct tutti_distributed_sampler_options {
    int64_t count;            /**< samples of the data set */
    tutti_sampler_t *sampler; /**< instead of count, shuffle and seed: of width 1; retained */
    bool shuffle;             /**< each epoch a permutation, named by seed + epoch */
    uint64_t seed;            /**< the same on every rank */
    int64_t replicas;         /**< that the samples are dealt to */
    int64_t rank;             /**< 0 … replicas - 1, or TUTTI_ALL_RANKS */
    bool drop_last;           /**< leave out what is left when all have equally many */
    bool exact;               /**< neither pad nor drop: the first ranks get one sample more */
} tutti_distributed_sampler_options_t;

/**
 * Samples dealt to ranks: entry i of rank r is that at i × replicas + r of the whole order. So that
 * all ranks get equally many, the order is lengthened by repeating it from its front, unless
 * drop_last or exact is set. The whole order does not depend on the number of ranks.
 *
 * With the whole order (TUTTI_ALL_RANKS) a data loader over shards gives shard r what rank r would
 * get. @source torch.utils.data.distributed.DistributedSampler
 */
TUTTI_API extern const tutti_sampler_ops_t tutti_distributed_sampler;

/* ---- data loaders ---------------------------------------------------------------------------- */

/** Gives the batches of an epoch in order; one thread at a time. */
typedef struct tutti_dataloader tutti_dataloader_t;

/** A batch; its tensors belong to the scope. */
typedef struct tutti_batch {
    int64_t size;           /**< samples; less than asked for only in the last step of an epoch, or
                                 where a part of a stream has ended */
    int64_t epoch;          /**< of the first sample */
    int64_t step, shard;    /**< which of them it is for */
    int64_t micro_batch;    /**< which of the shard's */
    int64_t total;          /**< samples of the step over all shards; TUTTI_ANY: of a stream */
    tutti_tensor_t *input;  /**< fields[TUTTI_INPUT]: [size, ...] */
    tutti_tensor_t *target; /**< fields[TUTTI_TARGET]; NULL if there is none */
    int field_count;
    tutti_tensor_t *fields[TUTTI_FIELDS_MAX];  /**< as options.collate makes them */
    tutti_tensor_t *lengths[TUTTI_FIELDS_MAX]; /**< the same; NULL of fields that have none */
} tutti_batch_t;

/** Changes a batch when it is whole; any threads at once. Its fields and lengths lie on the host
 *  and are the loader's: who puts other tensors there (tutti_tensor_create()) releases the old
 *  ones. `random` is named by (batch_seed, epoch, step, shard, micro-batch). */
typedef tutti_status_t (*tutti_batch_fn_t)(const void *options, tutti_random_t *random,
                                           tutti_batch_t *batch);

typedef struct tutti_dataloader_options {
    int64_t batch;            /**< samples per shard, step and micro-batch; 0: 1 */
    bool shuffle;             /**< each epoch in an order of its own */
    uint64_t seed;            /**< of the order; the same on every rank */
    tutti_sampler_t *sampler; /**< instead of shuffle and seed: the order of all shards; of batches:
                                   instead of batch too, entry i is for shard i modulo shards.
                                   Retained; not used elsewhere meanwhile */
    bool drop_last;           /**< leave out an epoch's last step unless every shard's is whole */
    bool endless;             /**< epochs run into each other: every step is whole, none is last */
    int64_t micro_batches;    /**< of a shard in a step; 0: 1 */
    int shards;               /**< of the job: tutti_ddp_shards(); 0: one for each rank */
    int ranks;                /**< that host them, as under ddp.h; 0: 1 */
    int rank;                 /**< this one */
    bool shards_in_turn; /**< rank r hosts shards r, r + ranks, …: under a ddp that accumulates
                              sharded (tutti_ddp_options_t.accumulate) */
    int workers;         /**< threads that read ahead; 0: the caller reads */
    int prefetch;        /**< batches read ahead for each worker; 0: 2 */
    int64_t timeout_ms;  /**< longest wait for a batch; 0: 10 minutes; at most 24 days */
    bool pin_memory;     /**< batches of the host are pinned (tutti_tensor_pin()): copies of
                              them to a device, the context's too, do not wait */
    const tutti_collate_t *collate; /**< [fields of a sample], copied: how each becomes a tensor;
                                         NULL: all are stacked */
    tutti_batch_fn_t batch_call;    /**< what each batch goes through, such as tutti_mixup; NULL:
                                         nothing */
    const void *batch_options;      /**< of that function; borrowed, must outlive the loader */
    uint64_t batch_seed;            /**< of its random numbers; the same on every rank */
} tutti_dataloader_options_t;

/** Where a batch stands. */
typedef struct tutti_batch_place {
    int64_t step, shard, micro_batch;
    int64_t epoch; /**< 0 if the loader is endless: its steps count on */
} tutti_batch_place_t;

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

/** Steps of an epoch: in each, every shard has a batch. Without end: steps after which each sample
 *  was seen. @thread any @errors none @source len(loader) */
TUTTI_API int64_t tutti_dataloader_steps(const tutti_dataloader_t *loader);

/** The epoch under way. @thread as next @errors none */
TUTTI_API int64_t tutti_dataloader_epoch(const tutti_dataloader_t *loader);

/** Steps of this epoch that this rank has had whole. @thread as next @errors none */
TUTTI_API int64_t tutti_dataloader_step(const tutti_dataloader_t *loader);

/**
 * Go to the beginning of an epoch; what was read ahead is forgotten.
 *
 * @thread  one at a time per loader
 * @errors  ARG (epoch < 0, or above 0 without end), TIMEOUT (a worker does not come back from the
 * data set)
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
 * The batch of any place and shard. Asked again it is the same again; where the loader stands does
 * not change. The caller reads it, workers or not.
 *
 * @param batch  out; null tensors after a failure, which the scope has too
 * @return       TUTTI_END behind the epoch's last step: size 0, tensors NULL
 * @thread       as next
 * @cost         reads the samples
 * @errors       ARG (the place), those of the data set, NOMEM
 */
TUTTI_API tutti_status_t tutti_dataloader_at(tutti_dataloader_t *loader, tutti_scope_t *s,
                                             tutti_batch_place_t place, tutti_batch_t *batch);

/**
 * Where the loader stands, as one line of text, for a checkpoint: the same on every rank that
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
