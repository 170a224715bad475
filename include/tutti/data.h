/**
 * @file data.h
 * Data sets: tensors, files, pictures, your own; parts and joins of them, and samples that go
 * through a function of yours.
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
 *         .folder = "fashion-mnist", .mean = 0.286, .std = 0.353};
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_mnist_dataset, &clothes, &all));
 *     TUTTI_CHECK(tutti_random_split(all, (int64_t[]){50000, 10000}, 2, seed, parts));
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_map_dataset,
 *         &(tutti_map_options_t){.dataset = parts[0], .transform = shift}, &shifted));
 *
 * A data set is numbered samples. In which order they come, and how they become batches, is
 * dataloader.h's.
 */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/objects.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Numbered samples, each an input and perhaps a target; reference-counted, any thread. */
typedef struct tutti_dataset tutti_dataset_t;

/** One half of a sample. */
typedef struct tutti_field {
    tutti_dtype_t dtype;
    tutti_shape_t shape; /**< of one sample, without the batch */
} tutti_field_t;

/** What a data set holds. */
typedef struct {
    int64_t count; /**< samples */
    tutti_field_t input, target;
    bool has_target;
} tutti_dataset_info_t;

/** For which draw a sample is read: names its random numbers, if it has any. */
typedef struct tutti_draw {
    int64_t epoch, position; /**< in the order of an epoch */
} tutti_draw_t;

/** What a kind of data set can do. `init`, and `read` or `draw`, are required. */
typedef struct tutti_dataset_ops {
    const char *name;   /**< "text" */
    const char *about;  /**< one line */
    size_t state_bytes; /**< of zeroed memory that tutti_dataset_state() gives */

    /** Open what the options name, and say what is in it. On failure `fini` is called. */
    tutti_status_t (*init)(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info);

    /** Release what the state owns. */
    void (*fini)(tutti_dataset_t *d);

    /** Write a sample into memory for one input and one target (not NULL if there are targets);
     *  0 <= index < count. Any threads at once. */
    tutti_status_t (*read)(tutti_dataset_t *d, int64_t index, void *input, void *target);

    /** The same for data sets that are random or made of others: equal arguments give equal
     *  samples. */
    tutti_status_t (*draw)(tutti_dataset_t *d, int64_t index, tutti_draw_t draw, void *input,
                           void *target);
} tutti_dataset_ops_t;

/**
 * Open a data set.
 *
 * @param kind     one of those below, or your own; borrowed, must outlive the data set
 * @param options  of that kind; borrowed
 * @param out      owned by the caller, to be released with tutti_dataset_release
 * @thread         any
 * @errors         NOMEM, and those of kind->init: IO, FORMAT (file, offset, what was expected), ARG
 */
TUTTI_API tutti_status_t tutti_dataset_create(const tutti_dataset_ops_t *kind, const void *options,
                                              tutti_dataset_t **out);

/** Share a data set. @thread any @errors none */
TUTTI_API tutti_dataset_t *tutti_dataset_retain(tutti_dataset_t *d);

/** Give a data set back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_dataset_release(tutti_dataset_t *d);

/** The data set's own state. @thread any @errors none */
TUTTI_API void *tutti_dataset_state(tutti_dataset_t *d);

/** What is in it. @thread any @errors none */
TUTTI_API tutti_dataset_info_t tutti_dataset_info(const tutti_dataset_t *d);

/**
 * Read a sample.
 *
 * @param draw    for which; {0} will do if nothing is random
 * @param input   out: memory for one input
 * @param target  out: memory for one target; not used if there are none
 * @thread        any, at once
 * @errors        ARG (the index), and those of the kind
 */
TUTTI_API tutti_status_t tutti_dataset_read(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                            void *input, void *target);

/* ---- samples of tensors and files ------------------------------------------------------------ */

typedef struct tutti_tensor_data_options {
    tutti_tensor_t *input;  /**< [N, ...], contiguous; retained */
    tutti_tensor_t *target; /**< [N, ...], contiguous; retained; may be NULL */
} tutti_tensor_data_options_t;

/** Rows of tensors. @source torch.utils.data.TensorDataset */
TUTTI_API extern const tutti_dataset_ops_t tutti_tensor_dataset;

typedef struct tutti_text_options {
    const char *path;
    int64_t length; /**< bytes of a window */
    int64_t stride; /**< from window to window; 0: length, so that they do not overlap */
    double from;    /**< share of the file before the first window, such as 0.95 */
    double to;      /**< share at which the last one ends; 0: 1 */
} tutti_text_options_t;

/** Windows of a file's bytes: input [length] u8, target the same one byte further on. */
TUTTI_API extern const tutti_dataset_ops_t tutti_text_dataset;

typedef struct tutti_token_options {
    const char *const *paths; /**< [path_count] files that follow each other */
    int path_count;
    int64_t length; /**< tokens of a window */
    int64_t stride; /**< from window to window; 0: length */
    int64_t vocab;  /**< tokens must be below; 0: any */
} tutti_token_options_t;

/** Windows of llm.c's token files (1024 bytes of header, magic 20240520, then u16 tokens): input
 *  [length] i32, target the same one token further on. A window lies within one file.
 *  @source https://github.com/karpathy/llm.c */
TUTTI_API extern const tutti_dataset_ops_t tutti_token_dataset;

typedef struct tutti_idx_options {
    const char *inputs;  /**< path of an IDX file, plain or gzip */
    const char *targets; /**< the same; may be NULL */
} tutti_idx_options_t;

/** Rows of IDX files, such as MNIST's, read into memory. @source http://yann.lecun.com/exdb/mnist
 */
TUTTI_API extern const tutti_dataset_ops_t tutti_idx_dataset;

/**
 * Read an IDX file, plain or gzip.
 *
 * @param out  owned by the caller: u8 i8 i32 f32 or f64, of the file's shape
 * @thread     any
 * @errors     IO, FORMAT (file, offset, what was expected), UNSUPPORTED (16-bit integers), NOMEM
 * @source     http://yann.lecun.com/exdb/mnist
 */
TUTTI_API tutti_status_t tutti_idx_read(const char *path, tutti_tensor_t **out);

/** The same from bytes in memory. @param name stands for the path in messages @thread any
 *  @errors FORMAT, UNSUPPORTED, NOMEM */
TUTTI_API tutti_status_t tutti_idx_parse(const char *name, tutti_bytes_t data,
                                         tutti_tensor_t **out);

/* ---- made of others -------------------------------------------------------------------------- */

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

/* ---- functions of yours ---------------------------------------------------------------------- */

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

/** The next integer in [0, bound); bound > 0. @thread as above @errors none */
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

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct tutti_mnist_options {
    const char *folder; /**< of the four files train-images-idx3-ubyte, t10k-labels-idx1-ubyte, …,
                             plain or with .gz behind their names */
    bool is_test;       /**< t10k instead of train */
    double mean;        /**< of the normalisation; of Fashion-MNIST 0.286 */
    double std;         /**< 0: 1; of Fashion-MNIST 0.353 */
} tutti_mnist_options_t;

/** MNIST, Fashion-MNIST and others of their format: input f32 [1, height, width], which is
 *  (byte / 255 - mean) / std, target u8 []. @source torchvision.datasets.FashionMNIST */
TUTTI_API extern const tutti_dataset_ops_t tutti_mnist_dataset;

#ifdef __cplusplus
}
#endif

#endif
