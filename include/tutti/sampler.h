/**
 * @file sampler.h
 * Samplers: which samples an epoch consists of, and in which order.
 *
 * Example:
 *
 *     tutti_sampler_t *sampler; // rank 1 of 4: torch's DistributedSampler
 *     TUTTI_CHECK(tutti_sampler_create(&tutti_distributed_sampler,
 *         &(tutti_distributed_sampler_options_t){
 *             .count = 60000, .shuffle = true, .replicas = 4, .rank = 1}, &sampler));
 *     for (int64_t i = 0; i < tutti_sampler_count(sampler); i++) {
 *         int64_t sample;
 *         TUTTI_CHECK(tutti_sampler_read(sampler, 0, i, &sample, NULL)); // of epoch 0
 *         printf("%lld\n", (long long)sample);
 *     }
 *     tutti_sampler_release(sampler);
 *
 * A sampler is a row of entries for each epoch, and any entry may be read at any time: it is a pure
 * function of (options, epoch, position), the same on every machine and for every number of ranks
 * and threads. So there is no generator whose state must be saved, and no set_epoch() that could be
 * forgotten: the epoch is an argument. Random numbers are Philox's; they are not PyTorch's, but the
 * rules are.
 */
#ifndef TUTTI_SAMPLER_H
#define TUTTI_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An order of samples; reference-counted. Used by one thread at a time. */
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

/* ---- kinds ---------------------------------------------------------------------------------- */

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

/** Samples drawn with probabilities proportional to their weights; by whole numbers, so that the
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

#ifdef __cplusplus
}
#endif

#endif
