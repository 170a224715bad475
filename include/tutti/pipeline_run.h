/**
 * @file pipeline_run.h
 * Training a module that is cut into stages, each on a rank of its own: schedules of pipeline.h,
 * performed.
 *
 * Example:
 *
 *     static tutti_tensor_t *mean_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
 *                                      int output_count, tutti_tensor_t *const *targets,
 *                                      int target_count, void *user)
 *     {
 *         (void)output_count, (void)target_count, (void)user;
 *         return tutti_cross_entropy(s, outputs[0], targets[0]);
 *     }
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_gpt_layer, NULL, &net));
 *     tutti_pipeline_t *pipeline;
 *     TUTTI_CHECK(tutti_pipeline_create(
 *         ctx, net, world,
 *         &(tutti_pipeline_run_options_t){.plan = {.schedule = "1f1b", .micro_batches = 8},
 *                                         .loss = mean_loss},
 *         &pipeline));
 *     tutti_optim_t *opt; // of all parameters: each rank has the state of its own, and steps them
 *     TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adamw, NULL, &opt));
 *     TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
 *     double loss;
 *     tutti_context_set_step(ctx, 0); // the step's number, which names its random numbers
 *     TUTTI_CHECK(tutti_pipeline_step(
 *         pipeline, &(tutti_pipeline_batch_t){.inputs = &x, .input_count = 1, .targets = &y,
 *                                             .target_count = 1}, &loss));
 *     TUTTI_CHECK(tutti_clip_grad_norm(opt, 1.0, 2.0, NULL));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_optim_zero_grad(opt);
 *     tutti_optim_release(opt);
 *     tutti_pipeline_release(pipeline);
 *     tutti_module_release(net);
 *
 * The module is a chain: its kind says so (tutti_module_ops_t.chain), as tutti_sequential_layer and
 * tutti_gpt_layer do; chains inside it are taken apart, too. Each link is one *part*, and a stage
 * is some parts in a row. Any other module is one part.
 *
 * Every rank makes the whole module, on meta best, with the same seed. A rank keeps (or
 * materializes) the parameters and buffers of its own stages; all others move to meta, where they
 * have names and shapes and no memory. Each parameter is one slice of its rank's, so that
 * optimizers, clipping, loss scaling and checkpoints work on the whole module, as under DDP's
 * stage 1: every rank makes the same calls.
 *
 * Bits: gradients are those of one rank that has all stages, for every schedule that steps at the
 * end of a batch, and every cut. Backward goes through the micro-batches in ascending order; a
 * parameter that several parts have (a tied one) has a gradient for each part, and they are added
 * in the order of forward at the end of a step; random numbers (dropout) are named by step,
 * micro-batch and part: tutti_context_set_step() before each step, or every step has the same ones.
 * Running statistics of batch norm see the micro-batches in ascending order, one move for each, or
 * one for all of them (deferred_statistics). Schedules of one's own
 * have these orders if tutti_pipeline_check() calls them canonical; others run, and have other
 * bits.
 *
 * Checkpoints of the module and its optimizer are written and read by all ranks together, and are
 * those of one rank: they may be loaded on any number of ranks, and with any cut. A buffer
 * is of the rank whose stage has it, as a parameter is; one of parts on several ranks is refused.
 *
 * Asynchronous schedules ("pipedream", "2bw", or of one's own) step inside a batch: a stage steps
 * behind each micro-batch, or behind each group of them, while others are under way, by an
 * optimizer that it is told of (tutti_pipeline_set_optimizer()). Backward uses the weights that
 * forward had; a stage keeps as many versions of its parameters as that takes. A batch begins and
 * ends with an empty pipeline: evaluation, digests and checkpoints see the newest weights. With
 * stages s = 1 … p and updates t = 0, 1, … of a batch, the gradients of update t are taken at
 * weights of version t - p + s of the batch, with vertical sync t - p + 1, under 2bw t - 1; below
 * 0: at those with which the batch began. Random numbers and running statistics have no versions.
 * An update's loss is the mean over its micro-batches, weighed by their rows.
 *
 * A failure on one rank ends the step on all, with a text that names rank, action and micro-batch:
 * which one failed, or which one was awaited. The pipeline is of no use then, but to be released.
 */
#ifndef TUTTI_PIPELINE_RUN_H
#define TUTTI_PIPELINE_RUN_H

#include <tutti/ddp.h>
#include <tutti/group.h>
#include <tutti/modes.h>
#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A module cut into stages, of which this rank has some; the thread of its context. */
typedef struct tutti_pipeline tutti_pipeline_t;

enum { TUTTI_PIPELINE_TENSORS_MAX = 16 }; /**< that go from one part to the next */

/**
 * The loss of a micro-batch, on the rank of the last stage.
 *
 * @param outputs  [output_count] of the last part
 * @param targets  [target_count] the micro-batch's rows of the targets
 * @return         one floating number, in s
 */
typedef tutti_tensor_t *(*tutti_pipeline_loss_t)(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                                 int output_count, tutti_tensor_t *const *targets,
                                                 int target_count, void *user);

/** The same on every rank; zero means default. */
typedef struct tutti_pipeline_run_options {
    tutti_pipeline_options_t plan; /**< which schedule; ranks are the group's */
    const char *const *cut; /**< [cut_count] names of the parts with which the stages behind the
                                 first begin, in their order. NULL: evenly. Then the longest chain
                                 inside the module (a gpt's blocks) is divided, the first stages
                                 getting one more where it must be; what comes before it is the
                               first stage's, what comes behind it the last one's */
    int cut_count;
    tutti_pipeline_loss_t loss;
    void *loss_user;
    bool loss_is_sum; /**< the step's loss is the sum over the micro-batches; else their mean, each
                           weighed by its rows */
    bool recompute;   /**< each part is computed again in backward (tutti_recompute()) */
    bool deferred_statistics; /**< running statistics of batch norm move once in each
                                   tutti_pipeline_step(), towards those of the whole batch, as in
                                   GPipe; each micro-batch is normalized by its own all the same */
} tutti_pipeline_run_options_t;

/**
 * Cut a module into stages.
 *
 * @param ctx      of the module
 * @param module   retained; the same chain on every rank, and its parameters of the same initial
 *                 values. What this rank does not need of it moves to meta, and stays there
 * @param group    retained; NULL: this rank alone. Messages go through a group of its own
 * @param options  copied, with what `cut` names; `plan.own` and the loss's user are borrowed
 * @param out      owned by the caller, to be released with tutti_pipeline_release
 * @thread         the context's; blocks until every rank has called it
 * @errors         on every rank: ARG (more stages than parts; a name in `cut` that is no part's, or
 *                 not behind the one before; no loss; a parameter that no part has; a tied weight
 *                 that nobody reduces), MISMATCH (ranks differ), UNSUPPORTED (a buffer of
 *                 parts on several ranks; of an asynchronous schedule: several shards, several
 *                 stages of a rank, a tied weight of several stages, stages that step behind
 *                 different micro-batches, a part by tensor parallelism, deferred_statistics),
 *                 STATE (a parameter is dealt out, or averaged, already), NOMEM; as
 *                 tutti_pipeline_plan_row() and tutti_pipeline_check()
 * @source         Huang et al., "GPipe" (2019); torch.distributed.pipelining
 */
TUTTI_API tutti_status_t tutti_pipeline_create(tutti_context_t *ctx, tutti_module_t *module,
                                               tutti_group_t *group,
                                               const tutti_pipeline_run_options_t *options,
                                               tutti_pipeline_t **out);

/**
 * Replicas of the pipeline, whose gradients are averaged: on each rank by a ddp of the same module
 * over the ranks that have the same stages, of other data.
 *
 *     tutti_parallelize(net, tutti_mesh_group(mesh, "tp"), …);        // if layers are cut, too
 *     tutti_pipeline_create(ctx, net, tutti_mesh_group(mesh, "pp"), …, &pipeline);
 *     tutti_ddp_create(ctx, net, tutti_mesh_group(mesh, "dp"), …, &ddp);
 *     tutti_pipeline_set_ddp(pipeline, ddp);
 *     …
 *     while (tutti_ddp_next_shard(ddp, ctx)) {
 *         tutti_pipeline_step(pipeline, &batch_of_the_shard, &loss);
 *     }
 *     tutti_ddp_finish(ddp);                                          // gradients are averages
 *     tutti_optim_step(opt);
 *
 * So a shard goes through all of its micro-batches before the next one begins, and fills and drains
 * the pipeline; tutti_pipeline_step_shards() takes all of them in one schedule. A stage's buckets
 * leave during its last backward of the last shard; where a shard has several batches, call
 * tutti_ddp_no_sync() around all but the last of them. Weights have the same bits for any number of
 * replicas, stages and ranks of a layer, if the numbers of shards, shards of tensor parallelism and
 * micro-batches are the same.
 *
 * The ddp averages this rank's parameters alone; it may have any stage of ZeRO. At stage 3 what a
 * rank has of its units is gathered once in a step, and stays until tutti_ddp_finish().
 *
 * A failure in a row ends the ddp's step, too, and one in the ddp's calls the pipeline's: then all
 * ranks of the mesh are told.
 *
 * @param ddp  borrowed, until one of both is released; whichever that is first
 * @thread     the context's, between steps; no other rank waits
 * @errors     ARG (of another module; plan.shards is above 1, and not the number of shards that
 *             this rank has), STATE (it has one; ddp is another pipeline's, or in a step),
 *             UNSUPPORTED (ddp steps its parameters itself; an asynchronous schedule; a tied weight
 *             of several ranks with which shards compute in 16 bits)
 */
TUTTI_API tutti_status_t tutti_pipeline_set_ddp(tutti_pipeline_t *pipeline, tutti_ddp_t *ddp);

/** Let go of a pipeline, behind its optimizers. Parameters stay where they are. NULL does nothing.
 *  @thread the context's @errors none */
TUTTI_API void tutti_pipeline_release(tutti_pipeline_t *pipeline);

/**
 * The optimizer that steps inside a batch, for asynchronous schedules. Until it is taken away,
 * steps, clipping and unscaling by the caller are refused: gradients are gone when a batch ends.
 * Its learning rate may be set between batches. A parameter's memory moves at a step: addresses of
 * its elements, and views of it that are older than a batch, are not those of the newest weights.
 *
 * @param optimizer  borrowed, until it is taken away or the pipeline makes no more steps; of this
 *                   module's parameters, each in memory; NULL: takes it away, also from a pipeline
 *                   that has failed, which waits for nobody
 * @thread           the context's; blocks until every rank has called it
 * @errors           on every rank: STATE (the schedule steps at the end of a batch; somebody steps
 *                   the optimizer already), ARG (it has a parameter that is none of the module),
 *                   UNSUPPORTED (its state is on a disk), MISMATCH (some rank gives NULL: no rank
 *                   has one then); what failed before
 * @source           Narayanan et al., "PipeDream" (2019)
 */
TUTTI_API tutti_status_t tutti_pipeline_set_optimizer(tutti_pipeline_t *pipeline,
                                                      tutti_optim_t *optimizer);

/* ---- optimistic steps ------------------------------------------------------------------------ */

/** What a step is checked for, of all stages' gradients together. */
typedef struct tutti_pipeline_validation {
    double max_norm;        /**< as tutti_clip_grad_norm() takes it; clips nothing if it is 0 */
    double norm_type;       /**< the same: 2 or INFINITY; 2 if it is 0 */
    tutti_scaler_t *scaler; /**< borrowed; its group is not used. NULL: losses are not scaled */
} tutti_pipeline_validation_t;

/** What became of a step. */
typedef struct tutti_pipeline_verdict {
    double loss;          /**< of the batch; the mean of those that a ddp averages in this row */
    const double *losses; /**< [loss_count] of the step's batches of this row, in their order:
                               borrowed until the next verdict, the next
                               tutti_pipeline_post_validate(), or the pipeline's release */
    int loss_count;
    double norm;      /**< of all gradients; INFINITY behind an overflow */
    bool was_clipped; /**< it was undone, and made again with clipped gradients */
    bool was_skipped; /**< an overflow: it was undone */
} tutti_pipeline_verdict_t;

/**
 * From now on each stage steps its parameters at the end of a step, which is that of
 * tutti_pipeline_step(), or with a ddp of tutti_ddp_finish(): before it knows the norm of all
 * gradients, or whether another stage has an overflow. It learns that in the next step: if
 * gradients had to be clipped it undoes its step, and makes it again; behind an overflow it undoes
 * it. So a rank does not wait for the last one at the end of a batch, and optimizers run while
 * others are computing. Weights, optimizer state, scale and norms have the bits of unscaling,
 * clipping and stepping one after the other.
 *
 *     tutti_pipeline_post_validate(pipeline, opt, &(tutti_pipeline_validation_t){.max_norm = 1});
 *     for (…) {
 *         tutti_optim_set_lr(opt, lr);
 *         tutti_pipeline_step(pipeline, &batch, NULL);      // and the step of the optimizer
 *     }
 *     tutti_pipeline_validate(pipeline, &verdict);          // of the last one
 *
 * The next step begins with the forwards ahead of its first backward, while the verdict is on its
 * way. If it is a bad one, or changes the scale of losses, these forwards are made again: buffers
 * and random numbers are what they were, hooks of modules are called again. Where it comes first:
 * with a ddp, whose next step forgets gradients that a step made again needs; and where a weight is
 * of several parts of the module, which is passed on with the verdict. Evaluation and digests
 * validate what is under way; so must the caller, by tutti_pipeline_validate(), before it reads
 * weights, and before the pipeline is released: a rank that goes before the verdict ends the calls
 * of the others in its row (ABORTED). What would keep or replace weights that may be undone yet is
 * refused until then (STATE): averages (tutti_averaged_update(), _swap_in()), saving and loading
 * the module, alone or in a checkpoint, its tutti_module_digest(), and the optimizer's state.
 *
 * With a ddp (tutti_pipeline_set_ddp() first) the ranks that have the same stage step together, at
 * any of ZeRO's stages; so do those that have parts of its layers.
 *
 * @param optimizer  borrowed, until it is taken away; of this module's parameters. Steps, clipping
 *                   and unscaling by the caller are refused, and gradients are gone when a step has
 *                   been validated. NULL: takes it away, when what is under way is validated; also
 *                   from a pipeline that has failed, which waits for nobody
 * @param options    copied, the same on every rank of the mesh; NULL: nothing is clipped or scaled
 * @thread           the context's; blocks until every rank has called it
 * @cost             memory: a copy of what this rank steps of parameters, of the optimizer's state
 *                   of it, and of buffers; a pass over those at each step, and one over gradients.
 *                   A step that is made again: with ZeRO two gathers of parameters more
 * @errors           on every rank: STATE (it has one; somebody steps the optimizer already), ARG (a
 *                   parameter that is none of the module; a norm), UNSUPPORTED (an asynchronous
 *                   schedule; 16-bit parameters; parameters or state on a disk), MISMATCH (a rank
 *                   gives other options, another scaler, or NULL for the optimizer: it is named,
 *                   what is under way is validated, and no rank has one then), NOMEM; what failed
 *                   before
 * @source           Qi et al., "Zero Bubble Pipeline Parallelism" (2024), section 4
 */
TUTTI_API tutti_status_t tutti_pipeline_post_validate(tutti_pipeline_t *pipeline,
                                                      tutti_optim_t *optimizer,
                                                      const tutti_pipeline_validation_t *options);

/**
 * Validate the step that is under way, if one is. All ranks of the pipeline do, or none: the next
 * step of a rank that has done it alone fails (MISMATCH).
 *
 * @param verdict  out, on every rank: of the last step, also one that was validated before; zeros
 *                 if there was none; NULL: not wanted
 * @thread         the context's; blocks until every rank has made that step
 * @errors         STATE (no post-validation; gradients were forgotten meanwhile), those of the
 *                 optimizer, of another rank's step, too; what failed before
 */
TUTTI_API tutti_status_t tutti_pipeline_validate(tutti_pipeline_t *pipeline,
                                                 tutti_pipeline_verdict_t *verdict);

/* ---- steps ----------------------------------------------------------------------------------- */

/** A batch: tensors of as many rows, [rows, …]; micro-batches are consecutive rows of all, and the
 *  first rows % micro_batches of them have one more than the others. */
typedef struct tutti_pipeline_batch {
    tutti_tensor_t *const *inputs; /**< [input_count], on the rank of the first stage alone */
    int input_count;
    tutti_tensor_t *const *targets; /**< [target_count], on the rank of the last stage alone */
    int target_count;
} tutti_pipeline_batch_t;

/**
 * Forward and backward of a batch, as the schedule says: gradients are accumulated into this rank's
 * parameters. Several calls before the optimizer's step accumulate. By an asynchronous schedule
 * the parameters have been stepped on return, and there are no gradients.
 *
 * Shapes and dtypes of what goes from stage to stage are the module's affair: they travel with the
 * tensors, and may change when the inputs' do. A stage that gives other ones than before for the
 * same inputs is an error.
 *
 * @param batch  borrowed
 * @param loss   out, on every rank: of the batch; NULL: not wanted, or known later
 *               (tutti_pipeline_post_validate())
 * @thread       the context's; blocks until this rank's row is done and the loss has come
 * @cost         a message for each tensor at each cut, each way, with 1.4 KiB ahead of it for all
 *               tensors of the cut; an all_reduce of 8 bytes and a number for each parameter
 * @errors       SHAPE (inputs, targets, too few rows; a stage's outputs), ARG, STATE (an
 *               asynchronous schedule, and no optimizer; a plan of several shards), those of the
 *               modules, of the optimizer and of the loss; MISMATCH (a rank evaluates, or has
 *               validated the last step alone); PEER, TIMEOUT, ABORTED; what failed before
 */
TUTTI_API tutti_status_t tutti_pipeline_step(tutti_pipeline_t *pipeline,
                                             const tutti_pipeline_batch_t *batch, double *loss);

/** A shard of a step: the same on all ranks of the pipeline, but for the batch. */
typedef struct tutti_pipeline_shard {
    tutti_pipeline_batch_t batch;
    int64_t weight; /**< as tutti_ddp_set_weight() takes it; 0: 1 */
    bool is_empty;  /**< it has no data: nothing is computed, and the batch is not looked at */
} tutti_pipeline_shard_t;

/**
 * Forward and backward of all shards of this rank in one schedule, of shards × micro-batches: the
 * pipeline fills and drains once in a step. plan.shards says how many they are.
 *
 *     tutti_pipeline_create(…, {.plan = {.micro_batches = 4, .shards = 2}}, &pipeline);
 *     tutti_ddp_create(ctx, net, tutti_mesh_group(mesh, "dp"), …, &ddp); // 2 are this rank's:
 *                                                                        // tutti_ddp_first_shard()
 *     tutti_pipeline_set_ddp(pipeline, ddp);
 *     …
 *     tutti_pipeline_step_shards(pipeline, shards, 2, losses);
 *     tutti_ddp_finish(ddp);                                             // gradients are averages
 *
 * Gradients, losses, random numbers and running statistics are those of a loop with
 * tutti_ddp_next_shard(), bit by bit. The sum over shards takes one after the other; the gradients
 * that a stage has of a later shard wait in tensors of their own until its turn comes, which is
 * when all stages of this rank are done with those before. With one stage on a rank and a schedule
 * that comes with Tutti none wait, but for a tied weight of several ranks: then those of all shards
 * do, on the rank that steps it.
 *
 * @param shards  [count] borrowed, in the order of the ddp's shards of this rank
 * @param count   plan.shards; 0 on a rank to which the ddp gave no shard
 * @param losses  [count] out, on every rank of the pipeline, 0 of an empty one; NULL: not wanted
 * @thread        the context's; blocks until this rank's row is done and the losses have come
 * @cost          as tutti_pipeline_step() for each shard, but for the all_reduce: one; a copy of
 *                the gradients that wait, once
 * @errors        as tutti_pipeline_step(); STATE (no ddp, or it is in a step, or
 *                tutti_ddp_no_sync() is on), ARG (count; a weight)
 */
TUTTI_API tutti_status_t tutti_pipeline_step_shards(tutti_pipeline_t *pipeline,
                                                    const tutti_pipeline_shard_t *shards, int count,
                                                    double *losses);

/** The loss of a batch, by forward alone, in evaluation mode and without a graph. Nothing of a
 *  training changes. With a ddp at stage 3 all of its ranks call it. The batch is cut into
 *  micro-batches, as in a step. @param batch borrowed @param loss out, on every rank; NULL: not
 *  wanted @thread as tutti_pipeline_step @errors as tutti_pipeline_step */
TUTTI_API tutti_status_t tutti_pipeline_evaluate(tutti_pipeline_t *pipeline,
                                                 const tutti_pipeline_batch_t *batch, double *loss);

/**
 * The same for many batches, none of which is cut: each goes through the stages as one micro-batch,
 * one behind the other. So a batch may have one row, and its loss has the bits that one rank
 * without a pipeline computes, whatever the cut, the schedule and the number of micro-batches are:
 * what is made of losses in a fixed order, such as their mean, is the same on every layout.
 *
 *     tutti_pipeline_evaluate_batches(pipeline, windows, 64, losses);
 *
 * Losses of the loss function alone come to all ranks. What else it finds out, such as how many
 * predictions are right, it adds up through its user's pointer on the rank of the last stage.
 *
 * @param batches  [count] borrowed; of any shapes
 * @param count    at least 1, the same on all ranks of the pipeline; more than the schedule has
 *                 micro-batches (of all shards) go through it in rounds
 * @param losses   [count] out, on every rank; NULL: not wanted
 * @thread         as tutti_pipeline_step; with a ddp at stage 3 all of its ranks call it, each with
 *                 batches of its own
 * @cost           a forward for each batch; for each round the schedule's bubble, and an all_reduce
 *                 of 8 bytes a batch. At DDP's stage 3 parameters are gathered once for all batches
 * @errors         as tutti_pipeline_step; ARG (count), MISMATCH (a rank has another count, or is in
 *                 another call)
 */
TUTTI_API tutti_status_t tutti_pipeline_evaluate_batches(tutti_pipeline_t *pipeline,
                                                         const tutti_pipeline_batch_t *batches,
                                                         int count, double *losses);

/** Digest of all parameters of the whole module, the same on every rank: what
 *  tutti_module_digest() gives where all stages are on one.
 *  @param text out @thread the context's; every rank calls it @cost every parameter travels to
 *  every rank, one at a time @errors NOMEM; as tutti_pipeline_step */
TUTTI_API tutti_status_t tutti_pipeline_digest(tutti_pipeline_t *pipeline,
                                               char text[TUTTI_DIGEST_BYTES]);

/**
 * The whole module, a tensor at a time, as one rank alone would have it: parameters, then buffers,
 * in the order of registration; with the names, shapes and bits of the module that is not cut. To
 * write one file, or to fill a module that generates.
 *
 * @param to     of 0 … ranks - 1, the same on every rank: the one that is shown them
 * @param visit  on rank `to`, others may give NULL; the tensor is of the host, and let go behind it
 * @thread       the context's; every rank calls it, between steps, and so does every row of a mesh
 * @cost         every tensor travels to every rank, one at a time
 * @errors       ARG, NOMEM; what visit returns, on every rank (PEER on others); as
 *               tutti_pipeline_step
 */
TUTTI_API tutti_status_t tutti_pipeline_collect(tutti_pipeline_t *pipeline, int to,
                                                tutti_tensor_visit_t visit, void *user);

/** The group that the messages go through, of this pipeline alone; NULL: it has one rank. Borrowed.
 *  @thread the context's @errors none */
TUTTI_API tutti_group_t *tutti_pipeline_group(const tutti_pipeline_t *pipeline);

/** Of this rank. */
typedef struct tutti_pipeline_statistics {
    int64_t steps;                /**< that went well */
    int stages, parts;            /**< of the whole module */
    int local_stages;             /**< of this rank */
    int live_max;                 /**< (stage, micro-batch) pairs held at once, the most ever */
    int versions_max;             /**< of weights held at once, the most ever; synchronous: 1 */
    int64_t stash_bytes_max;      /**< of those beside the newest, the most ever */
    int accumulators_max;         /**< (stage, shard) pairs with gradients at once, the most ever:
                                       as tutti_pipeline_load_t counts them, where no ties wait */
    int64_t waiting_bytes_max;    /**< of gradients that wait for their shard's turn, the same */
    int64_t messages, sent_bytes; /**< tensors sent to other ranks, and their bytes, in all */
    int64_t forwards_ahead;       /**< F that ran before the verdict on the step before came */
    int64_t forwards_repeated;    /**< of those, that were made again */
} tutti_pipeline_stats_t;

/** What a pipeline knows of itself. @thread the context's @errors none */
TUTTI_API tutti_pipeline_stats_t tutti_pipeline_stats(const tutti_pipeline_t *pipeline);

/** The stages as text, a line each: number, rank, first and last part; at most `bytes`. @return
 *  text @thread the context's @errors none */
TUTTI_API char *tutti_pipeline_describe_stages(const tutti_pipeline_t *pipeline, char *text,
                                               size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
