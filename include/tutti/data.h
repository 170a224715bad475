/**
 * @file data.h
 * Data sets, and loaders that give each shard its samples.
 *
 * Example:
 *
 *     tutti_dataset_t *text;
 *     TUTTI_CHECK(tutti_dataset_create(&tutti_text_dataset,
 *         &(tutti_text_options_t){.path = "bible.txt", .length = 256, .stride = 1, .to = 0.95},
 *         &text));
 *     tutti_loader_t *loader;
 *     TUTTI_CHECK(tutti_loader_create(text, &(tutti_loader_options_t){.batch = 8}, &loader));
 *     tutti_batch_t batch;
 *     TUTTI_CHECK(tutti_loader_next(loader, s, &batch)); // the step and shard of s's context
 *     printf("%lld windows\n", (long long)tutti_tensor_dim(batch.input, 0)); // [8, 256]
 *
 * What a loader gives is a pure function of (seed, step, shard, micro-batch): it does not matter
 * how many ranks there are, and there is no state to be saved but the step. Unlike PyTorch's
 * DistributedSampler nothing is padded or dropped: positions run on from one epoch into the next.
 * Epochs that end, samplers, threads that read ahead: dataloader.h.
 */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/bytes.h>
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

/* ---- kinds (more: datasets.h) ---------------------------------------------------------------- */

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

/* ---- loaders without end (by epochs, with threads: dataloader.h) ----------------------------- */

/** Gives batches of a data set; any thread. */
typedef struct tutti_loader tutti_loader_t;

/** Which sample stands at a position. */
typedef enum tutti_order {
    TUTTI_ORDER_SHUFFLED, /**< each epoch a permutation of its own */
    TUTTI_ORDER_GIVEN,    /**< as the data set has them */
    TUTTI_ORDER_RANDOM,   /**< any sample at any position, with replacement */
} tutti_order_t;

typedef struct tutti_loader_options {
    int64_t batch;         /**< samples per shard and micro-batch; 0: 1 */
    int64_t shards;        /**< of a step, whatever the number of ranks; 0: 1 */
    int64_t micro_batches; /**< of a shard; 0: 1 */
    tutti_order_t order;
    int64_t epochs; /**< after which there is no more; 0: no end */
    uint64_t seed;  /**< of the order; 0: the context's */
} tutti_loader_options_t;

/** A batch; input and target belong to the scope. */
typedef struct tutti_batch {
    int64_t size;           /**< samples; less than asked for only at the end of the last epoch */
    int64_t epoch;          /**< of the first sample */
    int64_t step, shard;    /**< which of them it is for */
    int64_t total;          /**< samples of the step over all shards */
    tutti_tensor_t *input;  /**< [size, ...] */
    tutti_tensor_t *target; /**< [size, ...]; NULL if the data set has none */
} tutti_batch_t;

/**
 * Make a loader.
 *
 * @param d        retained
 * @param options  NULL for the defaults
 * @param out      owned by the caller, to be released with tutti_loader_release
 * @thread         any
 * @errors         ARG (an option, an empty data set), NOMEM
 */
TUTTI_API tutti_status_t tutti_loader_create(tutti_dataset_t *d,
                                             const tutti_loader_options_t *options,
                                             tutti_loader_t **out);

/** Release a loader; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_loader_release(tutti_loader_t *loader);

/** Steps that see each sample once, the last one perhaps with samples of the next epoch.
 *  @thread any @errors none */
TUTTI_API int64_t tutti_loader_epoch_steps(const tutti_loader_t *loader);

/**
 * The batch of the context's step and shard. Asked again it is the same again.
 *
 * @param batch  out; null tensors after a failure, which the scope has too
 * @return       TUTTI_END behind the last epoch: size 0, input and target NULL
 * @thread       the scope's
 * @cost         one copy of the samples
 * @errors       ARG (shard), IO, FORMAT, NOMEM
 */
TUTTI_API tutti_status_t tutti_loader_next(tutti_loader_t *loader, tutti_scope_t *s,
                                           tutti_batch_t *batch);

/** Where a batch stands. */
typedef struct tutti_batch_place {
    int64_t step, shard, micro_batch;
} tutti_batch_place_t;

/** The batch of any place: position ((step × shards + shard) × micro_batches + micro_batch) ×
 *  batch and those behind it. @return as tutti_loader_next @thread the scope's
 *  @errors ARG (the place), IO, FORMAT, NOMEM */
TUTTI_API tutti_status_t tutti_loader_at(tutti_loader_t *loader, tutti_scope_t *s,
                                         tutti_batch_place_t place, tutti_batch_t *batch);

#ifdef __cplusplus
}
#endif

#endif
