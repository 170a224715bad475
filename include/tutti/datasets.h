/**
 * @file datasets.h
 * Data sets made of others: parts, joins, splits, and samples that go through a function of yours.
 *
 * Example:
 *
 *     static tutti_status_t shift(void *user, tutti_random_t *random, const tutti_sample_t *from,
 *                                 const tutti_sample_t *to)
 *     {
 *         const float *x = from->input;
 *         float *y = to->input;
 *         const float by = (float)tutti_random_uniform(random); // the same on every machine
 *         for (int i = 0; i < 28 * 28; i++) {
 *             y[i] = x[i] + by;
 *         }
 *         memcpy(to->target, from->target, 1);
 *         return TUTTI_OK;
 *     }
 *
 *     tutti_dataset_t *all, *parts[2], *shifted;
 *     const tutti_mnist_options_t clothes = {
 *         .folder = "fashion-mnist", .mean = 0.286, .deviation = 0.353};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_mnist_dataset, &clothes, &all));
 *     TUTTI_CHECK(tutti_random_split(all, (int64_t[]){50000, 10000}, 2, seed, parts));
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_map_dataset,
 *         &(tutti_map_options_t){.dataset = parts[0], .transform = shift}, &shifted));
 */
#ifndef TUTTI_DATASETS_H
#define TUTTI_DATASETS_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_subset_options {
    tutti_dataset_t *dataset; /**< retained */
    const int64_t *samples;   /**< [count], copied; repeats are allowed */
    int64_t count;
} tutti_subset_options_t;

/** Some samples of a data set. @source torch.utils.data.Subset */
TUTTI_API extern const tutti_dataset_ops_t tutti_subset_dataset;

typedef struct tutti_concat_options {
    tutti_dataset_t *const *datasets; /**< [count], of the same dtypes and shapes; retained */
    int count;
} tutti_concat_options_t;

/** Data sets one behind another. @source torch.utils.data.ConcatDataset */
TUTTI_API extern const tutti_dataset_ops_t tutti_concat_dataset;

/**
 * Deal the samples of a data set to parts at random, none twice.
 *
 * @param lengths  [count] samples of each part, together all of d
 * @param out      [count] subsets, to be released with tutti_dataset_release
 * @thread         any
 * @errors         ARG (lengths), NOMEM
 * @source         torch.utils.data.random_split
 */
TUTTI_API tutti_status_t tutti_random_split(tutti_dataset_t *d, const int64_t *lengths, int count,
                                            uint64_t seed, tutti_dataset_t **out);

/* ---- functions of yours -----------------------------------------------------------------------
 */

/** Memory of one sample. */
typedef struct tutti_sample {
    void *input;
    void *target; /**< NULL if there are no targets */
} tutti_sample_t;

/** Random numbers of one sample: named by the seed, the epoch, the position in the epoch and the
 *  sample, so that they do not depend on ranks, threads or what was read before. */
typedef struct tutti_random {
    uint32_t name[4];
    uint64_t next; /**< number of those that were taken */
} tutti_random_t;

/** The next number in [0, 1). @thread the caller's own random numbers @errors none */
TUTTI_API double tutti_random_uniform(tutti_random_t *random);

/** The next whole number in [0, bound); bound > 0. @thread as above @errors none */
TUTTI_API int64_t tutti_random_below(tutti_random_t *random, int64_t bound);

/** The next normal number, of mean 0 and deviation 1. @thread as above @errors none */
TUTTI_API double tutti_random_normal(tutti_random_t *random);

/** Writes a sample, made of another; any threads at once. A failure of yours is an ERR status; its
 *  text stands behind the names of worker and sample. */
typedef tutti_status_t (*tutti_transform_fn_t)(void *user, tutti_random_t *random,
                                               const tutti_sample_t *from,
                                               const tutti_sample_t *to);

typedef struct tutti_map_options {
    tutti_dataset_t *dataset; /**< retained */
    tutti_transform_fn_t transform;
    void *user;                  /**< borrowed; must outlive the data set */
    uint64_t seed;               /**< of the random numbers */
    const tutti_field_t *input;  /**< what comes out; NULL: the same as goes in */
    const tutti_field_t *target; /**< the same */
} tutti_map_options_t;

/** Samples that go through a function, each time they are read. @source torchvision.transforms */
TUTTI_API extern const tutti_dataset_ops_t tutti_map_dataset;

/* ---- pictures ---------------------------------------------------------------------------------
 */

typedef struct tutti_mnist_options {
    const char *folder; /**< of the four files train-images-idx3-ubyte, t10k-labels-idx1-ubyte, …,
                             plain or with .gz behind their names */
    bool is_test;       /**< t10k instead of train */
    double mean;        /**< of the normalisation; of Fashion-MNIST 0.286 */
    double deviation;   /**< 0: 1; of Fashion-MNIST 0.353 */
} tutti_mnist_options_t;

/** MNIST, Fashion-MNIST and others of their format: input f32 [1, height, width], which is
 *  (byte / 255 - mean) / deviation, target u8 []. @source torchvision.datasets.FashionMNIST */
TUTTI_API extern const tutti_dataset_ops_t tutti_mnist_dataset;

#ifdef __cplusplus
}
#endif

#endif
