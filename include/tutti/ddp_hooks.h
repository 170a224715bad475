/**
 * @file ddp_hooks.h
 * Other ways for a bucket of gradients to become an average: compressed, within some ranks, not at
 * all, or your own.
 *
 * Example:
 *
 *     // half the bytes on the wire; weights then depend on the number of ranks
 *     TUTTI_CHECK(tutti_ddp_set_hook(ddp, &tutti_bf16_hook, NULL));
 *
 * A hook sees a bucket when its last gradient is ready, starts what shall happen to it, and later
 * completes it:
 *
 *     backward    start(bucket 0)  start(bucket 1)  …                     must not wait
 *     finish                                          finish(bucket 0)  finish(bucket 1)  …
 *
 * Both are called in the order of buckets, which is the same on every rank.
 */
#ifndef TUTTI_DDP_HOOKS_H
#define TUTTI_DDP_HOOKS_H

#include <tutti/collectives.h>
#include <tutti/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Gradients that travel together, as a hook sees them. */
typedef struct tutti_bucket {
    int index, count; /**< its number, and how many there are */
    int64_t step;     /**< from 1 on */
    int shards;       /**< V */
    int local_shards; /**< of this rank */
    tutti_group_t *group;

    /** [elements] The sum of the gradients of this rank's shards, before; the sum to be divided,
     *  after. In the memory that the group's ranks share. */
    tutti_tensor_t *grad;
    tutti_tensor_t *const *parameters; /**< [parameter_count] */
    tutti_tensor_t *const *gradients;  /**< [parameter_count] views of grad, shaped as those */
    int parameter_count;

    double divisor; /**< V; a hook may change it, in start or finish */
    void **data; /**< NULL at first: room for what a hook keeps of this bucket from step to step */
} tutti_bucket_t;

/** What a kind of hook can do. `start` is required. */
typedef struct tutti_ddp_hook_ops {
    const char *name;   /**< "bf16" */
    const char *about;  /**< one line */
    bool is_canonical;  /**< weights have the same bits on any number of ranks */
    size_t state_bytes; /**< of zeroed memory */

    /** Read options, which may be NULL. On failure `fini` is called. */
    tutti_status_t (*init)(void *state, const void *options, tutti_group_t *group);

    /** Release what the state owns. */
    void (*fini)(void *state);

    /** Start what turns bucket->grad into a sum; must not wait. *work stays NULL if nothing is
     * under way; it is waited for and released before finish is called. */
    tutti_status_t (*start)(void *state, tutti_bucket_t *bucket, tutti_work_t **work);

    /** Complete the sum. May wait. */
    tutti_status_t (*finish)(void *state, tutti_bucket_t *bucket);

    /** Release what *bucket->data points to: buckets are filled again, or DDP ends. */
    void (*drop)(void *state, void *data);
} tutti_ddp_hook_ops_t;

/**
 * Let gradients be averaged in another way, from the next step on.
 *
 * @param hook     one of those below, or your own; borrowed, must outlive ddp. NULL: as at first
 * @param options  of that kind; borrowed; NULL for all defaults. The same on every rank
 * @thread         the context's, between steps
 * @errors         STATE (in the middle of a step), UNSUPPORTED (options.uneven is not EVEN), NOMEM,
 *                 and those of hook->init
 * @source         torch.nn.parallel.DistributedDataParallel.register_comm_hook
 */
TUTTI_API tutti_status_t tutti_ddp_set_hook(tutti_ddp_t *ddp, const tutti_ddp_hook_ops_t *hook,
                                            const void *options);

/** The name of the hook in use; "leaves" without one. @thread any @errors none */
TUTTI_API const char *tutti_ddp_hook_name(const tutti_ddp_t *ddp);

/* ---- kinds ---------------------------------------------------------------------------------- */

/** The sum over all ranks, in the gradients' dtype; ranks first add up their own shards. What torch
 *  does; no options. @source torch's allreduce_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_allreduce_hook;

/** The same, rounded to bf16 on the way; no options. @source torch's bf16_compress_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_bf16_hook;

/** The same, rounded to f16 on the way; no options. @source torch's fp16_compress_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_fp16_hook;

/** Every rank keeps the average over its own shards; no options. @source torch's noop_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_noop_hook;

typedef struct tutti_powersgd_options {
    int rank;               /**< columns of the thin matrices; 0: 1 */
    int64_t start_step;     /**< the first one that is compressed, at least 2; 0: 1000 */
    double min_compression; /**< what gets smaller by less travels whole; 0: 2 */
    bool no_error_feedback; /**< what is lost is not added to the next gradient */
    bool no_warm_start;     /**< Q starts from random values in each step */
    double epsilon;         /**< added to norms */
    uint64_t seed;          /**< of the first Q */
} tutti_powersgd_options_t;

/** Matrices of f32 gradients travel as products of two thin ones, with tutti_powersgd_options_t;
 *  what is lost is added to the next gradient. @source Vogels et al., NeurIPS 2019; torch's
 *  powerSGD_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_powersgd_hook;

typedef struct tutti_local_sgd_options {
    tutti_group_t *subgroup; /**< whose ranks go on averaging; retained. NULL: no rank does */
    int64_t start_step;      /**< steps that all ranks average, before */
} tutti_local_sgd_options_t;

/** From some step on, gradients are averaged within a subgroup, with tutti_local_sgd_options_t;
 * goes with tutti_averager_t. @source Lin et al., ICLR 2020; torch's post_localSGD_hook */
TUTTI_API extern const tutti_ddp_hook_ops_t tutti_local_sgd_hook;

/** A kind of hook by its name; NULL if there is none. @thread any @errors none */
TUTTI_API const tutti_ddp_hook_ops_t *tutti_ddp_hook_find(const char *name);

/** All kinds, as a NULL-terminated array. @thread any @errors none */
TUTTI_API const tutti_ddp_hook_ops_t *const *tutti_ddp_hooks(void);

#ifdef __cplusplus
}
#endif

#endif
