/**
 * @file collate.h
 * How samples become the tensors of a batch: stacked, padded or packed.
 *
 * Example:
 *
 *     // field 0: texts of different lengths, u8 [TUTTI_ANY]; field 1: labels, i64 []
 *     const tutti_pad_options_t pad = {.multiple = 8};
 *     const tutti_collate_t collate[] = {{.call = tutti_collate_pad, .options = &pad}, {0}};
 *     const tutti_dataloader_options_t options = {.batch = 32, .collate = collate};
 *
 *     // batch.fields[0]: u8 [32, longest text, rounded up to 8], batch.lengths[0]: i64 [32]
 *     tutti_scope_t *scope;
 *     tutti_batch_t batch;
 *     TUTTI_CHECK(tutti_scope_open(ctx, &scope));
 *     TUTTI_CHECK(tutti_dataloader_next(batches, scope, &batch));
 *     TUTTI_CHECK(tutti_scope_close(scope));
 *
 * Fields of one shape are stacked, and read where they will lie. Where a size is TUTTI_ANY, each
 * sample is read into memory of its own first. All of this happens in the loader's workers.
 */
#ifndef TUTTI_COLLATE_H
#define TUTTI_COLLATE_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One field of the samples of a batch. */
typedef struct tutti_collate_call {
    const tutti_field_t *field;
    const tutti_sample_t *samples; /**< [size] */
    int64_t size;                  /**< may be 0 */
    int index;                     /**< of the field in each sample */
} tutti_collate_call_t;

/** What becomes of it; tensors of the host (tutti_tensor_create()), which the loader then owns,
 *  after a failure too. */
typedef struct tutti_collated {
    tutti_tensor_t *values;
    tutti_tensor_t *lengths; /**< i64, or NULL */
} tutti_collated_t;

/** Makes the tensors of one field; any threads at once. Equal samples give equal tensors. */
typedef tutti_status_t (*tutti_collate_fn_t)(const void *options, const tutti_collate_call_t *call,
                                             tutti_collated_t *out);

/** How one field is put together. */
typedef struct tutti_collate {
    tutti_collate_fn_t call; /**< NULL: tutti_collate_stack */
    const void *options;     /**< of that function; borrowed, must outlive the loader */
} tutti_collate_t;

/**
 * [size, ...]: one behind another; no options.
 *
 * @thread  any, at once
 * @errors  SHAPE (samples that differ: says which, and how to put them together), NOMEM
 * @source  torch.utils.data.default_collate
 */
TUTTI_API tutti_status_t tutti_collate_stack(const void *options, const tutti_collate_call_t *call,
                                             tutti_collated_t *out);

typedef struct tutti_pad_options {
    double value;     /**< of what is filled up */
    int64_t multiple; /**< sizes are rounded up to multiples of it; 0: 1 */
    int64_t length;   /**< sizes are this, whatever the batch holds; 0: the largest of the batch */
    bool left;        /**< samples stand at the end, and the padding before them */
} tutti_pad_options_t;

/**
 * [size, ...]: sizes that are TUTTI_ANY become the largest of the batch, and what is missing is
 * filled up; lengths are i64 [size], or [size, n] where n sizes are TUTTI_ANY.
 *
 * @param options  tutti_pad_options_t; NULL: the defaults
 * @thread         any, at once
 * @errors         ARG (an option), SHAPE (a sample is larger than options.length), NOMEM
 * @source         torch.nn.utils.rnn.pad_sequence
 */
TUTTI_API tutti_status_t tutti_collate_pad(const void *options, const tutti_collate_call_t *call,
                                           tutti_collated_t *out);

/**
 * [sum of lengths, ...]: nothing between one sample and the next; lengths are offsets, i64
 * [size + 1], from 0 to the sum. Only the first size may be TUTTI_ANY; no options.
 *
 * @thread  any, at once
 * @errors  SHAPE, NOMEM
 * @source  cu_seqlens of FlashAttention's varlen functions
 */
TUTTI_API tutti_status_t tutti_collate_pack(const void *options, const tutti_collate_call_t *call,
                                            tutti_collated_t *out);

#ifdef __cplusplus
}
#endif

#endif
