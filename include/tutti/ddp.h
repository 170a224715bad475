/**
 * @file ddp.h
 * Distributed data parallelism: every rank holds the whole model, the gradients are averaged; or,
 * from time to time, the parameters.
 *
 * Example:
 *
 *     while (tutti_ddp_next_shard(ddp, ctx)) {
 *         tutti_scope_t *s;
 *         TUTTI_CHECK(tutti_scope_open(ctx, &s));
 *         tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(8, 16), 0, 1);
 *         tutti_backward(s, tutti_mean(s, tutti_forward(s, tutti_ddp_module(ddp), x)));
 *         TUTTI_CHECK(tutti_scope_close(s));
 *     }
 *     TUTTI_CHECK(tutti_ddp_finish(ddp)); // gradients are here, the same bits on every rank
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *
 * A job fixes its number of shards V. A shard is a part of every batch, with random numbers of its
 * own; ranks merely host shards, rank r those from floor(V r / size) on. Gradients of shards are
 * averaged in the canonical order, so that the weights after any number of steps have the same
 * bits on any number of ranks.
 *
 * When inputs run out at different times, gradients can be weighted by what each shard has, so that
 * every sample counts once (tutti_ddp_uneven_t):
 *
 *     for (;;) {
 *         while (tutti_ddp_next_shard(ddp, ctx)) {
 *             int64_t n = next_batch(&batch); // 0: this shard has no more
 *             TUTTI_CHECK(tutti_ddp_set_weight(ddp, n));
 *             if (n > 0) { forward and backward of the mean loss of n samples }
 *         }
 *         const tutti_status_t status = tutti_ddp_finish(ddp);
 *         TUTTI_CHECK(status);
 *         if (status == TUTTI_END) { break; } // no shard had any
 *         TUTTI_CHECK(tutti_optim_step(opt));
 *     }
 *
 * Buffers (running statistics): every shard of a step begins with them as the step found them, and
 * tutti_ddp_finish() gives every rank those that the first shard, or the first one with data, ends
 * with.
 *
 * Calls of your own in ddp's group, such as a sum of losses, stand behind tutti_ddp_finish(), not
 * between the last backward and it: on ranks without data buckets leave in finish.
 *
 * The optimizer's step can be taken inside backward (options.optimizer): a bucket's parameters are
 * stepped as soon as its average is there, while backward goes on. The bits are those of a step
 * behind tutti_ddp_finish(), which then is not called.
 *
 * Mixed precision (options.param_dtype, reduce_dtype, buffer_dtype): from the first
 * tutti_ddp_next_shard() of a step to tutti_ddp_finish() the module's f32 parameters are 16-bit
 * copies of themselves; between steps they are f32, and so are their gradients. So optimizers,
 * clipping and files know nothing of it. Who writes a copy loses it: tutti_ddp_finish() says so
 * (STATE).
 *
 * Unlike torch.nn.parallel.DistributedDataParallel: parameters that got no gradient are not an
 * error of the next step but named at the end of the same backward, and count as zero if another
 * shard has one; buckets are averaged by tutti_ddp_finish(), not when backward returns; layouts do
 * not change bits; a rank that runs out of inputs gives a weight of zero and need not shadow the
 * calls of the others (torch's Join).
 */
#ifndef TUTTI_DDP_H
#define TUTTI_DDP_H

#include <stdint.h>

#include <tutti/collectives.h>
#include <tutti/diagnose.h>
#include <tutti/group.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A module whose gradients are averaged over a group. One thread, the context's. */
typedef struct tutti_ddp tutti_ddp_t;

/** What becomes of a step in which a shard has no data. */
typedef enum tutti_ddp_uneven {
    TUTTI_DDP_EVEN,     /**< it cannot be: a shard without a backward is an error */
    TUTTI_DDP_WEIGHTED, /**< gradients are averaged by weight: every sample counts once */
    TUTTI_DDP_INITIAL,  /**< it counts as zero; the sum is divided by V as ever */
    TUTTI_DDP_ACTIVE,   /**< the sum is divided by the number of shards that have data */
} tutti_ddp_uneven_t;

/** Whether weights must have the same bits on any number of ranks. */
typedef enum tutti_ddp_exact {
    TUTTI_DDP_EXACT_DEFAULT, /**< as TUTTI_EXACT says: yes, unless that is 0 */
    TUTTI_DDP_EXACT_ON,
    TUTTI_DDP_EXACT_OFF, /**< each rank adds up its shards first, then ranks are added up */
} tutti_ddp_exact_t;

/** Where the gradients of a rank's shards are added up, at stages 2 and 3. The same bits. */
typedef enum tutti_ddp_accumulate {
    TUTTI_DDP_LOCAL,   /**< on the rank that hosts the shards, as whole buckets, which travel in its
                            last shard */
    TUTTI_DDP_SHARDED, /**< on the ranks that step them: a bucket travels in each shard, and no rank
                            has more of it than its slice between two shards. Shards are hosted in
                            turn then: rank r has r, r + size, … (tutti_ddp_shard_stride()) */
} tutti_ddp_accumulate_t;

/** For bucket_bytes: as many as hide the wire's latency, measured when the model is wrapped. */
#define TUTTI_DDP_BUCKET_AUTO SIZE_MAX

/** Which modules are units at stage 3, whose parameters come and go together. The root is one. A
 *  module is another if any of these says so. */
typedef struct tutti_ddp_units {
    const char *kind; /**< of modules: "transformer_block", or its last words, "block" */
    size_t bytes;     /**< parameters, without those of units inside it, of at least so many; 0:
                           does not count */
    const char *const *names; /**< [name_count] full names of modules */
    int name_count;
} tutti_ddp_units_t;

/** The same on every rank. */
typedef struct tutti_ddp_options {
    int shards;                /**< V; 0: one for each rank */
    size_t bucket_bytes;       /**< gradients that travel together; 0: 25 MiB */
    size_t first_bucket_bytes; /**< of the bucket that is ready first; 0: 1 MiB */
    bool no_overlap;           /**< start to travel in tutti_ddp_finish() only, for measuring */
    bool no_rebuild;           /**< keep the order of registration: buckets are not rebuilt in
                                    the order in which the first step's gradients came */
    bool static_graph;         /**< in every step a shard gives the same parameters gradients: these
                                    are agreed on in the first step alone. A change is an error */
    tutti_ddp_uneven_t uneven;
    bool ends_with_first; /**< uneven: the first shard without data ends the epoch for all */
    tutti_ddp_exact_t exact;

    tutti_dtype_t param_dtype;  /**< f32, bf16 or f16: what shards compute with. Unless it is f32,
                                     all floating parameters must be f32 */
    tutti_dtype_t reduce_dtype; /**< f32, bf16 or f16: what a shard's gradient of a f32 parameter is
                                     rounded to, and the average; sums are f32. With one shard on
                                     every rank this is what travels. Not under a hook */
    tutti_dtype_t buffer_dtype; /**< bf16 or f16: floating buffers are cast, for good */
    const char *const *f32_kinds; /**< [f32_kind_count] kinds of modules, as units.kind: "norm". In
                                     a step these, with all below them, compute in f32 in spite of
                                       param_dtype; floating inputs are cast to f32 at their border,
                                       outputs to param_dtype; their buffers are not cast. A
                                     parameter must be in such modules alone, or in none */
    int f32_kind_count;
    bool f32_output; /**< floating outputs of the module are cast to f32, also between steps */

    /** Steps parameters as soon as they can be: in the synced backward, when the average of their
     *  bucket is there and no node that has still to run reads one of them; the rest, and under a
     *  hook or uneven shards all of them, in tutti_ddp_finish(). Has parameters of this module
     *  alone, and no other ddp; borrowed, must outlive ddp. Its learning rate is set before the
     *  backward; its step, clipping and unscaling are STATE. Do not read
     *  parameters between backward and finish; after a failure some of them have been
     *  stepped. At stages 1 and 2 each rank steps its slice of a bucket, which is gathered at once;
     *  in tutti_ddp_finish() where the kind measures whole parameters (LAMB, but see
     * whole_slices), and at stage 3. NULL: none */
    tutti_optim_t *optimizer;

    /** ZeRO's stage. 0: every rank steps all parameters. 1: each rank steps slices of its own, with
     *  their gradients' averages, moments and masters alone; behind tutti_optim_step(), or in
     *  tutti_ddp_finish() with options.optimizer, every rank has all parameters again. 2: the
     *  memory of a bucket of gradients is there from its first gradient in a step until it is
     *  averaged; this rank's slice of the averages stays. 3: parameters, too, are there only while
     *  they are used (options.units). The same bits. Optimizers, clipping and
     * scalers know of it; tutti_tensor_grad() of a parameter is NULL behind tutti_ddp_finish().
     * Parameters of the host, each with memory of its own; no hooks; buckets are not rebuilt */
    int stage;
    bool no_init; /**< stage 3, of parameters on meta: they are zeros, and a step is STATE, until a
                       checkpoint is loaded, or they are written when summoned */
    tutti_ddp_units_t units;
    bool keep_after_forward; /**< a unit stays from its forward to its backward: more memory, one
                                  gather less */
    /** Ranks that keep a unit together from its forward to its backward, each 1 / reshard_ranks of
     *  it: backward gathers it among them alone. Sets of so many ranks, one behind another; they
     *  are all of the group, or of its row (mesh). As many as a host has: then nothing of a
     *  backward's gathers goes to another host. Where ranks of a host gather once for all of them,
     *  their host keeps what it has gathered; where all ranks share a host, nothing is gathered.
     *  0, and all ranks: nothing stays. 1: as keep_after_forward. FSDP2's reshard_after_forward as
     *  a number, ZeRO++'s hpZ */
    int reshard_ranks;
    bool keep_after_backward; /**< and from its backward to the end of the step: for several
                                   backwards in a shard, and several shards */
    int prefetch; /**< units that are gathered before they are wanted, in the order of the step
                       before; 0: 1; -1: none */
    size_t persistence_bytes; /**< parameters smaller than this stay on all ranks */

    /** With more shards than ranks; else there is no difference. SHARDED wants stage 2 or 3, and
     * tutti_ddp_no_sync() around all backwards but the last of every shard. What goes to slices'
     *  owners is f32 (of f64 f64), also under reduce_dtype, to which it is rounded before */
    tutti_ddp_accumulate_t accumulate;

    /** Parameters and buffers that DDP leaves alone, at every stage: not compared nor copied when
     * it is made (ranks may have other shapes), not cast, not averaged, not dealt out; of buffers,
     * each rank has its own. Full names of tensors or of modules, all of which is meant then; *
     * stands for any letters but a dot, ? for one. Such a parameter's gradient is forgotten when a
     * step begins, and is the sum over this rank's shards then, not divided; optimizers step it
     * whole, on each rank by what that has (inside backward: in tutti_ddp_finish()). Who clips has
     * such parameters in an optimizer of their own, or every rank clips by another norm.
     * tutti_ddp_digest() has this rank's values of them. Another ddp, of another group, may average
     * them. Parameters of a pipeline's module: at stage 0 alone */
    const char *const *ignored; /**< [ignored_count]; each means something in the module */
    int ignored_count;
    /** Stage 3 in rows of ranks: a mesh of the group with the dimensions "replicate" and "shard",
     * in any order. A unit's parameters come from the row, the ranks along "shard", alone: each has
     *  1 / shard of them. Gradients and optimizer state are dealt out to all ranks of the group as
     *  without; behind the step each slice goes to the ranks that have it, one of every row. The
     *  same bits. Borrowed until tutti_ddp_create() returns. NULL: one row of all ranks.
     *  FSDP's HYBRID_SHARD; with keep_after_forward its HYBRID_SHARD_ZERO2 */
    tutti_mesh_t *mesh;

    /** Stage 3 with slices on a disk: this rank's slices of parameters, and of gradients' averages,
     *  lie in a file of its own without a name in this folder, and the optimizer's state with them,
     *  without tutti_optim_offload(). Units are read ahead in the order of the step before, and
     *  slices written behind the step. Parameters in f32, ranks in one row; units are gathered.
     *  The same bits. A full disk is an error of tutti_ddp_create(), or, of state, of the first
     *  step, before it changes anything. Any other failure of the disk ends the training, and names
     *  rank, folder and parameter or unit. Ranks may have other folders. Borrowed until
     *  tutti_ddp_create() returns. NULL: in memory. DeepSpeed's offload_param with nvme_path */
    const char *offload;

    bool whole_slices;    /**< a slice has whole parameters: for optimizers that look at those
                               (Adafactor); so is one that is in options.optimizer */
    tutti_trace_t *trace; /**< retained; gets an event for each bucket's way, and for each
                                unit's. NULL: none */
} tutti_ddp_options_t;

/**
 * Wrap a module. Checks that it is the same on every rank, and cut over devices at the same places
 * (whatever devices those are), and copies rank 0's parameters and buffers to all. From then on the
 * parameters' gradients lie in buckets in the memory that ranks share.
 *
 * At stage 3 the module may lie on meta. Then each rank makes parameter by parameter, with the bits
 * that the module would have had in memory, and keeps its slices: it never has more than these and
 * one parameter. Buffers, and what is ignored, are made whole. What fails leaves its parameters on
 * meta.
 *
 * @param ctx     the module's context, or, for a module on meta, one of the host; must outlive the
 *                result
 * @param module  retained
 * @param group   retained
 * @param options borrowed; NULL for all defaults
 * @param out     owned by the caller, to be released with tutti_ddp_release
 * @thread        the context's; blocks until every rank has called it
 * @cost          one broadcast of the model; as much memory as the parameters, and for a rank that
 *                hosts n shards at most log2(n) + 1 times as much again
 * @errors        ARG, MISMATCH (names the first parameter that differs, and how), STATE (another
 *                ddp averages a parameter, or steps the optimizer; a parameter lies on meta and the
 *                stage is not 3, or its initial value is not known), NOMEM: what one rank fails of,
 *                every rank returns ("rank 2: …"); as the group's calls
 * @source        torch.nn.parallel.DistributedDataParallel
 */
TUTTI_API tutti_status_t tutti_ddp_create(tutti_context_t *ctx, tutti_module_t *module,
                                          tutti_group_t *group, const tutti_ddp_options_t *options,
                                          tutti_ddp_t **out);

/** Unwrap. In the middle of a step it aborts the group, so that no other rank waits for this one.
 *  NULL does nothing. @thread the context's @errors none */
TUTTI_API void tutti_ddp_release(tutti_ddp_t *ddp);

/**
 * Forward of the module, with x in options.param_dtype if x is floating.
 *
 * @param x  any input of the module
 * @return   as tutti_forward()
 * @thread   the scope's
 * @errors   the module's, through the scope
 * @source   torch.nn.parallel.DistributedDataParallel.forward, with mixed_precision
 */
TUTTI_API tutti_tensor_t *tutti_ddp_forward(tutti_scope_t *s, tutti_ddp_t *ddp, tutti_tensor_t *x);

/** The wrapped module, borrowed. @thread any @errors none */
TUTTI_API tutti_module_t *tutti_ddp_module(const tutti_ddp_t *ddp);

/** V. @thread any @errors none */
TUTTI_API int tutti_ddp_shards(const tutti_ddp_t *ddp);

/** The shards that this rank hosts: `count` of them, from `first` on, every
 *  tutti_ddp_shard_stride()-th. @param first out @param count out @thread any @errors none */
TUTTI_API void tutti_ddp_local_shards(const tutti_ddp_t *ddp, int *first, int *count);

/** From one shard of this rank to its next one: 1; the ranks where shards are hosted in turn
 *  (options.accumulate). @thread any @errors none */
TUTTI_API int tutti_ddp_shard_stride(const tutti_ddp_t *ddp);

/** The first shard that a rank hosts of `shards` on `ranks` ranks, before there is a ddp; `rank`
 *  may be `ranks`, so that a rank has as many as lie between it and the next. Where shards are
 *  hosted in turn (options.accumulate), rank r has r, r + ranks, … instead. @thread any @errors
 *  none */
TUTTI_API int tutti_ddp_first_shard(int shards, int ranks, int rank);

/**
 * Go on to the next shard that this rank hosts: forgets the gradients and sets the context's
 * shard, until tutti_ddp_finish(). Buckets start to travel during the last one, as soon as their
 * last gradient is there.
 *
 * @return  false after the last one, and after a failure, which tutti_ddp_finish() returns
 * @thread  the context's
 * @errors  none
 */
TUTTI_API bool tutti_ddp_next_shard(tutti_ddp_t *ddp, tutti_context_t *ctx);

/**
 * Several backwards in one shard (micro-batches) accumulate in order: switch this on for all but
 * the last of them.
 *
 * @thread  the context's
 * @errors  none
 * @source  torch's DistributedDataParallel.no_sync
 */
TUTTI_API void tutti_ddp_no_sync(tutti_ddp_t *ddp, bool is_on);

/**
 * Say how much the shard under way counts, such as its samples or tokens: its gradient is the mean
 * over so many. 1 unless this is called; 0 for a shard without data, which needs no backward
 * (with sync_batch_norm it runs forward and backward on no samples).
 *
 * @param weight  at least 0, below 2^24; under INITIAL and ACTIVE 0 or 1
 * @thread        the context's; before the shard's backward
 * @errors        ARG, STATE (no shard is under way, a gradient is there, or options.uneven is EVEN)
 */
TUTTI_API tutti_status_t tutti_ddp_set_weight(tutti_ddp_t *ddp, int64_t weight);

/**
 * End a step: wait until every gradient is the average over all shards, and the module's buffers
 * are the first shard's; with options.optimizer, until every parameter has been stepped. A
 * parameter that got no gradient in any shard of any rank is left without one: optimizers pass over
 * it. The context's shard is again what it was before the step, so that random numbers between
 * steps depend on no layout.
 *
 * @return  END when no shard had data, or, with ends_with_first, some had none: no rank has
 * gradients then
 * @thread  the context's
 * @errors  STATE (shards are left, or one ran no backward); what failed since the step began; PEER,
 *          TIMEOUT, MISMATCH, ABORTED
 */
TUTTI_API tutti_status_t tutti_ddp_finish(tutti_ddp_t *ddp);

/** What a shard, of whatever rank, weighed in the last finished step; with -1 all together. Without
 *  options.uneven every shard weighs 1. @thread the context's @errors none; 0 for no such shard */
TUTTI_API int64_t tutti_ddp_weight(const tutti_ddp_t *ddp, int shard);

/** Names of the parameters that got no gradient in the last step on this rank, separated by
 *  blanks; "" if there were none. @thread the context's @errors none */
TUTTI_API const char *tutti_ddp_unused(const tutti_ddp_t *ddp);

/** Times are of the last finished step, on this rank. */
typedef struct tutti_ddp_statistics {
    int64_t steps; /**< finished */
    int shards, local_shards, parameters, buckets;
    size_t parameter_bytes, bucket_bytes, largest_bucket_bytes;
    const char *unit_source; /**< where the parameters of a unit come from at stage 3: "share",
                                ranks that share a host have them once; "host", each of several
                                hosts gathers them once; or "gather"; "" at others */
    bool is_rebuilt;         /**< buckets follow the order in which gradients come */
    int early_steps;         /**< buckets whose parameters were stepped before backward had ended */
    bool is_canonical;  /**< weights have the same bits on any number of ranks: options.exact, no
                             hook that changes them, and since DDP was made no uncanonical sum of
                             the group, by whomever (tutti_group_uncanonical_sums()) */
    double forward_ms;  /**< from the beginning of shards to their first gradient */
    double backward_ms; /**< from there to the end of backward */
    double comm_ms;     /**< buckets were under way */
    double overlap_ms;  /**< of that, while backward ran */
    double wait_ms;     /**< in tutti_ddp_finish() */
} tutti_ddp_stats_t;

/** What DDP knows of itself. @thread the context's @errors none
 *  @source torch's DistributedDataParallel logging data */
TUTTI_API tutti_ddp_stats_t tutti_ddp_stats(const tutti_ddp_t *ddp);

/** Number of buckets. @thread any @errors none */
TUTTI_API int tutti_ddp_bucket_count(const tutti_ddp_t *ddp);

/** The buckets as text, a line each, and at stage 3 the units, at most `bytes`; returns text.
 * @thread any @errors none */
TUTTI_API char *tutti_ddp_describe(const tutti_ddp_t *ddp, char *text, size_t bytes);

/* ---- other ways for a bucket to become an average -------------------------------------------- */

/* Other ways for a bucket of gradients to become an average: compressed, within some ranks, not at
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

    /** Release what *bucket->data points to: buckets are rebuilt, or DDP ends. */
    void (*drop)(void *state, void *data);
} tutti_ddp_hook_ops_t;

/**
 * Let gradients be averaged in another way, from the next step on.
 *
 * @param hook     one of those below, or your own; borrowed, must outlive ddp. NULL: as at first
 * @param options  of that kind; borrowed; NULL for all defaults. The same on every rank
 * @thread         the context's, between steps
 * @errors         ARG (no start), STATE (in the middle of a step), UNSUPPORTED (options.uneven is
 *                 not EVEN), NOMEM, and those of hook->init
 * @source         torch.nn.parallel.DistributedDataParallel.register_comm_hook
 */
TUTTI_API tutti_status_t tutti_ddp_set_hook(tutti_ddp_t *ddp, const tutti_ddp_hook_ops_t *hook,
                                            const void *options);

/** The name of the hook in use; "contributions" without one. @thread any @errors none */
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

/* ---- averaging parameters -------------------------------------------------------------------- */

/* Averaging parameters every so often, instead of gradients in each step.
 *
 * Example:
 *
 *     // within a host (group) every 4 steps, over all hosts every 16
 *     const tutti_average_level_t levels[] = {{.period = 4, .group = group},
 *                                             {.period = 16, .group = world}};
 *     tutti_averager_t *averager;
 *     TUTTI_CHECK(tutti_averager_create(levels, 2, 100, &averager));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     TUTTI_CHECK(tutti_averager_step(averager, net)); // after each step of the optimizer
 */

/**
 * Replace each parameter by its average over the group's ranks. Of a module that a pipeline has
 * cut, those of this rank's stages, over ranks that have the same.
 *
 * @param module  the same on every rank
 * @thread        the context's; blocks until it is done
 * @cost          an all_reduce of the parameters
 * @errors        MISMATCH (ranks have other stages), as tutti_all_reduce
 * @source        torch.distributed.algorithms.model_averaging.utils.average_parameters
 */
TUTTI_API tutti_status_t tutti_average_parameters(tutti_module_t *module, tutti_group_t *group);

/** Counts steps and averages when it is time. */
typedef struct tutti_averager tutti_averager_t;

/** Every `period` steps, the parameters are averaged over `group`. */
typedef struct tutti_average_level {
    int64_t period;
    tutti_group_t *group; /**< retained */
} tutti_average_level_t;

/**
 * Make an averager.
 *
 * @param levels  [count] of growing periods, each a multiple of the one before: where several are
 *                due, the last one is enough, whose group should hold the others'; borrowed
 * @param warmup  steps without any averaging, at first
 * @param out     owned by the caller, to be released with tutti_averager_release
 * @thread        any
 * @errors        ARG (names the period), NOMEM
 * @source        torch's PeriodicModelAverager and HierarchicalModelAverager
 */
TUTTI_API tutti_status_t tutti_averager_create(const tutti_average_level_t *levels, int count,
                                               int64_t warmup, tutti_averager_t **out);

/** Give an averager back; NULL does nothing. @thread the context's @errors none */
TUTTI_API void tutti_averager_release(tutti_averager_t *averager);

/** A step has been made: average if it is time. @thread the context's @errors as
 *  tutti_average_parameters */
TUTTI_API tutti_status_t tutti_averager_step(tutti_averager_t *averager, tutti_module_t *module);

/** Go on counting from a step, as after a restart. @thread the context's @errors none */
TUTTI_API void tutti_averager_set_step(tutti_averager_t *averager, int64_t step);

/** The level that averages after a step, counted from 0; -1: none. A pure function. @thread any
 *  @errors none */
TUTTI_API int tutti_averager_due(const tutti_averager_t *averager, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
