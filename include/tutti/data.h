/**
 * @file data.h
 * Data sets: samples of several fields, from tensors, files (data_files.h), pictures (pictures.h)
 * or functions of your own; parts and joins of them, and samples that go through a function.
 *
 * Example:
 *
 *     static tutti_status_t shift(void *user, tutti_random_t *random, const tutti_sample_t *from,
 *                                 tutti_sample_t *to)
 *     {
 *         const float *x = from->data[TUTTI_INPUT];
 *         float *y = to->data[TUTTI_INPUT];
 *         const float by = (float)tutti_random_uniform(random); // the same on every machine
 *         for (int i = 0; i < 28 * 28; i++) {
 *             y[i] = x[i] + by;
 *         }
 *         return tutti_sample_copy(to, from, TUTTI_TARGET);
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
 * A data set is numbered samples, or a stream of them whose length nobody knows. In which order
 * they come, and how they become batches, is dataloader.h's.
 */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/objects.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Samples, each of up to eight fields; reference-counted, any thread. */
typedef struct tutti_dataset tutti_dataset_t;

/** Most fields of a sample. */
enum { TUTTI_FIELDS_MAX = 8 };

/** The first two fields have names: most samples have no others. */
enum { TUTTI_INPUT = 0, TUTTI_TARGET = 1 };

/** A size of a field that differs from sample to sample; a count of samples that nobody knows. */
#define TUTTI_ANY (-1)

/** One part of a sample, such as a picture, a text, a label. */
typedef struct tutti_field {
    tutti_dtype_t dtype;
    tutti_shape_t shape; /**< of one sample, without the batch; sizes may be TUTTI_ANY */
} tutti_field_t;

/** What a data set holds. */
typedef struct {
    int64_t count;   /**< samples; TUTTI_ANY: it is a stream */
    int field_count; /**< 1 … TUTTI_FIELDS_MAX */
    tutti_field_t fields[TUTTI_FIELDS_MAX];
} tutti_dataset_info_t;

/**
 * Memory of one sample. Where `data` of a field is given, samples are written there; NULL: the
 * sample gets memory of its own, to be freed by tutti_sample_clear(). Fields with a size of
 * TUTTI_ANY always lie in memory of its own.
 *
 *     float x;
 *     int64_t y;
 *     tutti_sample_t sample = {.data = {&x, &y}};
 *     TUTTI_CHECK(tutti_dataset_read(dataset, 17, (tutti_draw_t){0}, &sample));
 */
typedef struct tutti_sample {
    int field_count;
    void *data[TUTTI_FIELDS_MAX];
    tutti_dtype_t dtypes[TUTTI_FIELDS_MAX];
    tutti_shape_t shapes[TUTTI_FIELDS_MAX]; /**< of this sample */
    tutti_buffer_t own[TUTTI_FIELDS_MAX];   /**< memory that the sample owns */
} tutti_sample_t;

/**
 * Say which shape a field has in this sample, before it is written. Memory of a field whose shape
 * does not differ is there already.
 *
 * @param sample  data[field] is then memory for it: what was there is lost
 * @thread        one at a time per sample
 * @errors        ARG (the field, the shape), NOMEM
 */
TUTTI_API tutti_status_t tutti_sample_resize(tutti_sample_t *sample, int field,
                                             tutti_shape_t shape);

/** Copy a field of another sample as it is. @thread one at a time per sample
 *  @errors ARG (fields that differ), NOMEM */
TUTTI_API tutti_status_t tutti_sample_copy(tutti_sample_t *to, const tutti_sample_t *from,
                                           int field);

/** Free what the sample owns, and leave it empty; NULL does nothing. @thread one at a time per
 *  sample @errors none */
TUTTI_API void tutti_sample_clear(tutti_sample_t *sample);

/** For which draw a sample is read: names its random numbers, if it has any. */
typedef struct tutti_draw {
    int64_t epoch, position; /**< in the order of an epoch */
} tutti_draw_t;

/** What a kind of data set can do. Required are `init`, and `read` or `draw`, or for a stream
 *  `open`, `next` and `close`. */
typedef struct tutti_dataset_ops {
    const char *name;   /**< "text" */
    const char *about;  /**< one line */
    size_t state_bytes; /**< of zeroed memory that tutti_dataset_state() gives */

    /** Open what the options name, and say what is in it. On failure `fini` is called. */
    tutti_status_t (*init)(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info);

    /** Release what the state owns. */
    void (*fini)(tutti_dataset_t *d);

    /** Write a sample; 0 <= index < count. Any threads at once. */
    tutti_status_t (*read)(tutti_dataset_t *d, int64_t index, tutti_sample_t *to);

    /** The same for data sets that are random or made of others: equal arguments give equal
     *  samples. */
    tutti_status_t (*draw)(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                           tutti_sample_t *to);

    /** Open a part of a stream, of `parts` that together have each sample once: a cursor before its
     *  first sample. Equal arguments give equal samples. Any threads at once. */
    tutti_status_t (*open)(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                           void **cursor);

    /** Write the next sample; TUTTI_END behind the last. One thread at a time per cursor. */
    tutti_status_t (*next)(tutti_dataset_t *d, void *cursor, tutti_sample_t *to);

    /** Pass `count` samples by, and say how many there were; NULL: they are read. */
    tutti_status_t (*skip)(tutti_dataset_t *d, void *cursor, int64_t count, int64_t *passed);

    /** Release a cursor. */
    void (*close)(tutti_dataset_t *d, void *cursor);
} tutti_dataset_ops_t;

/**
 * Open a data set.
 *
 * @param kind     one of these chapters', or your own; borrowed, must outlive the data set
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
 * @param sample  in: memory, or {0}; out: its fields. One that was read before may be used again
 * @thread        any, at once
 * @errors        ARG (the index; a stream has none), and those of the kind
 */
TUTTI_API tutti_status_t tutti_dataset_read(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                            tutti_sample_t *sample);

/* ---- samples of tensors ---------------------------------------------------------------------- */

typedef struct tutti_tensor_data_options {
    tutti_tensor_t *input;       /**< [N, ...], contiguous; retained */
    tutti_tensor_t *target;      /**< [N, ...], contiguous; retained; may be NULL */
    tutti_tensor_t *const *more; /**< [more_count] further fields, as those */
    int more_count;
    tutti_tensor_t *const *offsets; /**< NULL, or for each field NULL or i64 [N + 1]: sample i has
                                         rows offsets[i] … offsets[i + 1] of its tensor; a shape of
                                         [TUTTI_ANY, ...]. Retained */
} tutti_tensor_data_options_t;

/** Rows of tensors. @source torch.utils.data.TensorDataset */
TUTTI_API extern const tutti_dataset_ops_t tutti_tensor_dataset;

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

typedef struct tutti_shuffle_buffer_options {
    tutti_dataset_t *dataset; /**< a stream; retained */
    int64_t size;             /**< samples that are held in memory for each part; 1: as they come */
    uint64_t seed;
} tutti_shuffle_buffer_options_t;

/** A stream out of order: each next sample is drawn from those in a buffer, whose place the next of
 *  the stream takes; it has each sample once. The order depends on (seed, epoch, part) alone, so
 *  that ranks, workers and a resume change nothing; a resume reads again what stands before it.
 *  Each part has a buffer of its own, and no sample leaves its part. @source
 *  torch.utils.data's IterDataPipe.shuffle, WebDataset's shuffle */
TUTTI_API extern const tutti_dataset_ops_t tutti_shuffle_buffer_dataset;

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

/** Writes a sample, made of another; any threads at once. Fields with a size of TUTTI_ANY are
 *  resized first. A failure of yours is an ERR status; its text stands behind the names of worker
 *  and sample. */
typedef tutti_status_t (*tutti_transform_fn_t)(void *user, tutti_random_t *random,
                                               const tutti_sample_t *from, tutti_sample_t *to);

typedef struct tutti_map_options {
    tutti_dataset_t *dataset; /**< retained; a stream gives a stream */
    tutti_transform_fn_t transform;
    void *user;                  /**< borrowed; must outlive the data set */
    uint64_t seed;               /**< of the random numbers */
    const tutti_field_t *fields; /**< [field_count] what comes out; NULL: the same as goes in */
    int field_count;
} tutti_map_options_t;

/** Samples that go through a function, each time they are read. @source torchvision.transforms */
TUTTI_API extern const tutti_dataset_ops_t tutti_map_dataset;

#ifdef __cplusplus
}
#endif

#endif
