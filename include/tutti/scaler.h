/**
 * @file scaler.h
 * Scaling the loss, so that the gradients of a training in f16 do not vanish, and skipping the
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
#ifndef TUTTI_SCALER_H
#define TUTTI_SCALER_H

#include <tutti/group.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * calls
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
 * growth_interval steps in which none did, unless f32 could not hold it.
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
