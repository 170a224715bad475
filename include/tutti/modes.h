/**
 * @file modes.h
 * Modes of a context: training or evaluation, recording of a graph, autocast; modules that are
 * computed again in backward; and the scaling of losses that autocast to f16 wants.
 *
 * Example:
 *
 *     tutti_context_set_training(ctx, false);                        // dropout is off
 *     const bool was = tutti_context_set_grad_enabled(ctx, false);   // no graph
 *     (void)tutti_context_set_autocast(ctx, TUTTI_BF16);             // products in bf16
 *     tutti_tensor_t *y = tutti_forward(s, net, x);
 *     printf("%g\n", tutti_tensor_at(y, 0));
 *     (void)tutti_context_set_autocast(ctx, TUTTI_F32);
 *     (void)tutti_context_set_grad_enabled(ctx, was);
 *     tutti_context_set_training(ctx, true);
 */
#ifndef TUTTI_MODES_H
#define TUTTI_MODES_H

#include <tutti/context.h>
#include <tutti/dtype.h>
#include <tutti/group.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whether modules train (dropout is on); true at first. @thread owner @errors none */
TUTTI_API bool tutti_context_is_training(const tutti_context_t *ctx);
/** Switch between training and evaluation. @thread owner @errors none */
TUTTI_API void tutti_context_set_training(tutti_context_t *ctx, bool is_training);

/** Whether operations record a graph; true at first. @thread owner @errors none */
TUTTI_API bool tutti_context_is_grad_enabled(const tutti_context_t *ctx);
/** Switch recording on or off; returns what it was. @thread owner @errors none
 *  @source torch.set_grad_enabled */
TUTTI_API bool tutti_context_set_grad_enabled(tutti_context_t *ctx, bool is_enabled);

/** Whether a forward is being run again for its backward, by tutti_recompute(). What a forward does
 *  beside its result, such as counting, is to be left out then. @thread owner @errors none */
TUTTI_API bool tutti_context_is_recomputing(const tutti_context_t *ctx);

/** The dtype that matrix products, attention and recurrent layers are computed in: TUTTI_F32 (no
 *  autocast), TUTTI_BF16 or TUTTI_F16, with a tutti_scaler_t. Powers, exponentials, logarithms,
 * sums, softmax and losses stay f32; everything else takes its inputs as they come, and a mixture
 * is promoted. These are torch's lists, except that norms give the 16-bit dtype.
 *  @thread owner @errors none */
TUTTI_API tutti_dtype_t tutti_context_autocast(const tutti_context_t *ctx);
/** Set it; returns what it was. Under any other dtype each operation fails with DTYPE, and says so.
 *  @thread owner @errors none @source torch.autocast */
TUTTI_API tutti_dtype_t tutti_context_set_autocast(tutti_context_t *ctx, tutti_dtype_t dtype);

/* ---- numbers gone bad ------------------------------------------------------------------------ */

/** Whether the first operation that makes a NaN or an infinity fails: see the next one. At first
 *  what TUTTI_DETECT_ANOMALY says, which is no. @thread owner @errors none */
TUTTI_API bool tutti_context_detects_anomaly(const tutti_context_t *ctx);

/**
 * Look at what every operation makes, forward and backward. One that makes a NaN, or an infinity of
 * finite inputs, fails with NUMERIC, and says the module, the step, and in which range its inputs
 * lie:
 *
 *     log in gpt.head: output 0, f32[2, 3], holds an infinity (step 7): input 0, f32[2, 3], from 0
 *     to 1 (in linear in gpt)
 *     gradient of sqrt in gpt.blocks.1.mlp: that of input 0, f32[2, 3], holds an infinity (step 7):
 *     incoming gradient 0, f32[2, 3], from 1 to 1; saved 0, f32[2, 3], from 0 to 2
 *
 * Infinities that a program writes itself pass (masks: tutti_where(), tutti_masked_fill(),
 * tutti_pad()), and so do gradients in f16 that overflow, which tutti_scaler_t looks after, and all
 * that comes of either in backward. What a program puts into tensors, optimizers and collectives is
 * not looked at before an operation uses it.
 *
 * @return  what it was before
 * @thread  owner
 * @cost    two passes over each output, and waiting for it where it lies on a device
 * @errors  none
 * @source  torch.autograd.set_detect_anomaly, which sees NaN in backward alone
 */
TUTTI_API bool tutti_context_set_detect_anomaly(tutti_context_t *ctx, bool detects);

/* ---- recomputation --------------------------------------------------------------------------- */

/* Activation recomputation, also called activation checkpointing: what a module's forward saves
 * for its backward is not kept but computed again when backward needs it. A transformer's
 * blocks then cost the memory of one block and of their inputs, and about a third more time.
 *
 * Example:
 *
 *     tutti_module_t *block;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_transformer_block_layer,
 *         &(tutti_transformer_block_options_t){.width = 8, .heads = 2, .dropout = 0.1f}, &block));
 *     x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 8));
 *     tutti_tensor_t *y = tutti_recompute(s, block, x); // instead of tutti_forward(s, block, x)
 *     TUTTI_CHECK(tutti_backward(s, tutti_sum(s, y)));
 *
 * Not to be confused with a training's checkpoints (checkpoint.h).
 *
 * The gradients are those of tutti_forward(), bit by bit: the graph, the order of its execution and
 * the hooks are the same, and the second forward gets the first one's step, shard, random numbers
 * (dropout drops the same), autocast and mode. Running statistics move once. So it may be used
 * anywhere: under DDP, with shared parameters, under several backwards (each computes again), and
 * whether x needs a gradient or not. Recomputations nest: n levels keep the inputs of the outermost
 * ones alone, and run forward n times more. tutti_sequential_options_t and tutti_gpt_options_t have
 * an option `recompute` for each of their modules.
 *
 * Forward must do the same each time, and so must not depend on a state that it changes; what it
 * does beside its result it leaves out while tutti_context_is_recomputing(). Backward fails with
 * STATE, and names the module, if the second forward makes other operations, or if an input or a
 * parameter was written between the two.
 */

/**
 * Run a module on one tensor, and again in backward.
 *
 * @param m  retained as long as the graph of the result
 * @param x  its values are kept
 * @return   as tutti_forward()
 * @thread   the scope's
 * @cost     in backward, one more forward; keeps x and the graph without its saved tensors
 * @errors   the module's, through the scope; from backward: the module's, and STATE as above
 * @source   torch.utils.checkpoint.checkpoint(use_reentrant=False); Chen et al., "Training Deep
 *           Nets with Sublinear Memory Cost" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_recompute(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

/** Run a module on several tensors, and again in backward. @param outputs out, [output_count], in
 *  scope s; null tensors after a failure @thread the scope's @errors as tutti_recompute */
TUTTI_API void tutti_recompute_many(tutti_scope_t *s, tutti_module_t *m,
                                    tutti_tensor_t *const *inputs, int input_count,
                                    tutti_tensor_t **outputs, int output_count);

/* ---- scaling of losses ----------------------------------------------------------------------- */

/* Scaling the loss, so that the gradients of a training in f16 do not vanish, and skipping the
 * steps in which they overflow.
 *
 * Example:
 *
 *     tutti_scaler_t *scaler;
 *     TUTTI_CHECK(tutti_scaler_create(&(tutti_scaler_options_t){.group = world}, &scaler));
 *     tutti_context_set_autocast(ctx, TUTTI_F16);
 *     for (int64_t step = 0; step < 1000; step++) {
 *         TUTTI_CHECK(tutti_backward(s, tutti_scaler_scale(scaler, s, loss)));
 *         TUTTI_CHECK(tutti_scaler_unscale(scaler, opt));
 *         TUTTI_CHECK(tutti_clip_grad_norm(opt, 1.0, 2.0, NULL));
 *         TUTTI_CHECK(tutti_scaler_step(scaler, opt, NULL));
 *         TUTTI_CHECK(tutti_scaler_update(scaler));
 *         tutti_optim_zero_grad(opt);
 *     }
 *     tutti_scaler_release(scaler);
 *
 * Constants are PyTorch's. With a group, a step in which any rank's gradients overflow is skipped
 * by all of them, and their scales stay the same. bf16 has the range of f32 and needs no scaler.
 */

/** The scale of a training; one thread at a time. */
typedef struct tutti_scaler tutti_scaler_t;

/** The same on every rank of the group. */
typedef struct tutti_scaler_options {
    double init_scale;       /**< 0: 65536 */
    double growth_factor;    /**< 0: 2; above 1 */
    double backoff_factor;   /**< 0: 0.5; below 1 */
    int64_t growth_interval; /**< steps in a row without an overflow until it grows; 0: 2000 */
    bool disabled;           /**< every call does what it would without a scaler */
    tutti_group_t *group;    /**< retained; its ranks skip the same steps. NULL: this rank alone */
} tutti_scaler_options_t;

/** What a scaler remembers. */
typedef struct tutti_scaler_state {
    double scale;
    int64_t growth_tracker; /**< steps in a row without an overflow, since it last grew */
    int64_t skipped;        /**< steps skipped in all */
} tutti_scaler_state_t;

/**
 * Make a scaler.
 *
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller, to be released with tutti_scaler_release
 * @thread         any
 * @errors         ARG (names the option, its value and its range), NOMEM
 * @source         torch.cuda.amp.GradScaler; Micikevicius et al., ICLR 2018
 */
TUTTI_API tutti_status_t tutti_scaler_create(const tutti_scaler_options_t *options,
                                             tutti_scaler_t **out);

/** Release a scaler; NULL does nothing. @thread the scaler's @errors none */
TUTTI_API void tutti_scaler_release(tutti_scaler_t *scaler);

/** The loss times the scale. @thread the scope's @errors as tutti_mul_scalar, through the scope */
TUTTI_API tutti_tensor_t *tutti_scaler_scale(const tutti_scaler_t *scaler, tutti_scope_t *s,
                                             tutti_tensor_t *loss);

/**
 * Divide an optimizer's gradients by the scale, so that they may be clipped before the step; at
 * most once between two updates. It looks for overflows, and the ranks agree on them.
 *
 * @thread  the context's; with a group, every rank calls it, with its optimizers in one order
 * @cost    one pass over the gradients; with a group an all_reduce of one number
 * @errors  STATE (unscaled already, or stepped; a DDP steps the optimizer), NOMEM; as the group's
 *          calls; a failure of a device's work: where a part is unscaled then, no call does it
 *          again, and the step is skipped as behind an overflow. A failure of one rank is one of
 *          all, "rank 2: …", and all may call it again
 * @source  torch.cuda.amp.GradScaler.unscale_
 */
TUTTI_API tutti_status_t tutti_scaler_unscale(tutti_scaler_t *scaler, tutti_optim_t *opt);

/**
 * tutti_optim_step(), unless a gradient is infinite or NaN. Unscales first where that is to do.
 *
 * @param is_skipped  out, whether nothing was changed; may be NULL
 * @thread            as tutti_scaler_unscale
 * @errors            STATE (stepped already); as tutti_scaler_unscale and tutti_optim_step
 * @source            torch.cuda.amp.GradScaler.step
 */
TUTTI_API tutti_status_t tutti_scaler_step(tutti_scaler_t *scaler, tutti_optim_t *opt,
                                           bool *is_skipped);

/**
 * The end of a step: the scale shrinks if any optimizer's gradients overflowed, and grows after
 * growth_interval steps in which none did, unless f32 could not hold it or its reciprocal.
 *
 * @thread  the scaler's
 * @errors  STATE (nothing was unscaled or stepped)
 * @source  torch.cuda.amp.GradScaler.update
 */
TUTTI_API tutti_status_t tutti_scaler_update(tutti_scaler_t *scaler);

/** What it remembers now; of a disabled one the scale is 1. @thread the scaler's @errors none */
TUTTI_API tutti_scaler_state_t tutti_scaler_get_state(const tutti_scaler_t *scaler);

/** Go on from a state. @thread the scaler's @errors ARG (names the value), STATE (within a step) */
TUTTI_API tutti_status_t tutti_scaler_set_state(tutti_scaler_t *scaler, tutti_scaler_state_t state);

/** Save the state as safetensors. @thread the scaler's @errors as tutti_safetensors_save */
TUTTI_API tutti_status_t tutti_scaler_save(const tutti_scaler_t *scaler, const char *path);

/** Load the state; on an error it is what it was. @thread the scaler's
 *  @errors MISMATCH (no scaler's file), ARG, STATE; as tutti_safetensors_open */
TUTTI_API tutti_status_t tutti_scaler_load(tutti_scaler_t *scaler, const char *path);

#ifdef __cplusplus
}
#endif

#endif
