/**
 * @file optim.h
 * Optimizers, clipping of gradients, and learning rates over time.
 *
 * Example:
 *
 *     tutti_optim_t *opt;
 *     TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adamw, &(tutti_adamw_options_t){.lr = 3e-4},
 *                                    &opt));
 *     TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
 *     tutti_schedule_t schedule = {TUTTI_SCHEDULE_COSINE, .lr = 3e-4, .total_steps = 1000};
 *     for (int64_t step = 0; step < 1000; step++) {
 *         TUTTI_CHECK(tutti_backward(s, loss));
 *         TUTTI_CHECK(tutti_clip_grad_norm(opt, 1.0, 2.0, NULL));
 *         tutti_optim_set_lr(opt, tutti_schedule_lr(&schedule, step));
 *         TUTTI_CHECK(tutti_optim_step(opt));
 *         tutti_optim_zero_grad(opt);
 *     }
 *     tutti_optim_release(opt);
 *
 * Of a bf16 or f16 parameter (tutti_module_cast) the optimizer keeps an f32 master, which it steps
 * and rounds into the parameter. Its gradient, or one that is not contiguous, is copied once, as
 * f32 in a row; clipping and unscaling change the copy, not tutti_tensor_grad(). Where somebody
 * writes the parameter (a load, a broadcast), the master takes the new value, unless it rounds to
 * it: what it holds beyond 16 bits is its rank's own, as moments are.
 *
 * Formulas and defaults are PyTorch's. Options of 0 mean the default. A parameter without a
 * gradient is left alone, with its moments and its count of steps. Unlike PyTorch, a schedule is
 * a pure function of the step, so that there is no state of it to save, and it leaves momentum
 * alone.
 */
#ifndef TUTTI_OPTIM_H
#define TUTTI_OPTIM_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An optimizer with its parameters; one thread at a time. */
typedef struct tutti_optim tutti_optim_t;

/** A kind of optimizer: one of those below, or your own (own_optimizer.h). */
typedef struct tutti_optim_ops tutti_optim_ops_t;

typedef struct tutti_sgd_options {
    double lr;       /**< 0: 1e-3 */
    double momentum; /**< in [0, 1) */
    double dampening;
    double weight_decay;
    bool nesterov; /**< wants momentum, and no dampening */
    bool maximize;
} tutti_sgd_options_t;

/** Stochastic gradient descent, with tutti_sgd_options_t. g += decay w; b = momentum b +
 *  (1 - dampening) g, at first g; w -= lr b (Nesterov: lr (g + momentum b)).
 *  @source torch.optim.SGD; Sutskever et al., ICML 2013 */
TUTTI_API extern const tutti_optim_ops_t tutti_sgd;

typedef struct tutti_adam_options {
    double lr;           /**< 0: 1e-3 */
    double beta1, beta2; /**< 0: 0.9, 0.999; below 1 */
    double eps;          /**< 0: 1e-8 */
    double weight_decay; /**< added to the gradient */
    bool amsgrad;        /**< divide by the largest second moment so far */
    bool maximize;
} tutti_adam_options_t;

/** Adam, with tutti_adam_options_t. m, v: moving means of g and g²; w -= lr m̂ / (√v̂ + eps).
 *  @source torch.optim.Adam; Kingma and Ba, ICLR 2015; Reddi et al., ICLR 2018 for AMSGrad */
TUTTI_API extern const tutti_optim_ops_t tutti_adam;

typedef struct tutti_adamw_options {
    double lr;            /**< 0: 1e-3 */
    double beta1, beta2;  /**< 0: 0.9, 0.999; below 1 */
    double eps;           /**< 0: 1e-8 */
    double weight_decay;  /**< 0: 0.01; w is shrunk by lr × this before the step */
    bool no_weight_decay; /**< such as for biases and norms */
    bool amsgrad;
    bool maximize;
} tutti_adamw_options_t;

/** Adam with the weight decay taken out of the gradient, with tutti_adamw_options_t.
 *  @source torch.optim.AdamW; Loshchilov and Hutter, ICLR 2019 */
TUTTI_API extern const tutti_optim_ops_t tutti_adamw;

/**
 * Make an optimizer without parameters yet.
 *
 * @param ctx      retained; its threads do the steps
 * @param kind     &tutti_sgd, &tutti_adamw, … or your own; borrowed, must live as long as the
 *                 optimizer
 * @param options  of that kind, for group 0; borrowed; NULL for all defaults
 * @param out      owned by the caller, to be released with tutti_optim_release
 * @thread         the context's
 * @errors         ARG (names the option, its value and its range), NOMEM
 */
TUTTI_API tutti_status_t tutti_optim_create(tutti_context_t *ctx, const tutti_optim_ops_t *kind,
                                            const void *options, tutti_optim_t **out);

/** Release an optimizer and its moments; NULL does nothing. @thread the context's @errors none */
TUTTI_API void tutti_optim_release(tutti_optim_t *opt);

/**
 * Options for some of the parameters.
 *
 * @param options  of the optimizer's kind; borrowed
 * @param group    out, its number, from 1 on
 * @thread         the context's
 * @errors         as tutti_optim_create
 */
TUTTI_API tutti_status_t tutti_optim_add_group(tutti_optim_t *opt, const void *options, int *group);

/**
 * Let the optimizer change a tensor.
 *
 * @param group  0, or one from tutti_optim_add_group()
 * @param name   of its state in files, unlike the others'; borrowed
 * @param x      [any shape], f32, or bf16 and f16 with an f32 master; contiguous; retained
 * @thread       the context's
 * @errors       ARG (the group; a name, a tensor or some of its memory twice), DTYPE, UNSUPPORTED
 *               (not contiguous; on an accelerator, behind tutti_optim_offload()), STATE (a DDP or
 *               a pipeline steps it), NOMEM
 */
TUTTI_API tutti_status_t tutti_optim_add_parameter(tutti_optim_t *opt, int group, const char *name,
                                                   tutti_tensor_t *x);

/** The group of a parameter; negative: leave it out. */
typedef int (*tutti_optim_choose_t)(void *user, const char *name, const tutti_tensor_t *x);

/** Add a module's parameters, in the order of their registration. @param choose NULL: all to
 *  group 0 @thread the context's @errors as tutti_optim_add_parameter */
TUTTI_API tutti_status_t tutti_optim_add_module(tutti_optim_t *opt, tutti_module_t *m,
                                                tutti_optim_choose_t choose, void *user);

/**
 * Change all parameters that have a gradient.
 *
 * @thread  the context's
 * @cost    one pass over parameters, gradients and moments; the first step makes the moments
 * @errors  NOMEM, STATE (a DDP or a pipeline steps it; it has no parameters), ARG (a learning rate
 *          that is not finite), DTYPE (the module was cast to f64); nothing is changed then
 * @source  torch.optim.Optimizer.step
 */
TUTTI_API tutti_status_t tutti_optim_step(tutti_optim_t *opt);

/** Forget all gradients. @thread the context's @errors none */
TUTTI_API void tutti_optim_zero_grad(tutti_optim_t *opt);

/** Learning rate of group 0 from now on. Other groups keep the ratio to it that their options had,
 *  also those that are added later. A step refuses a rate that is not finite.
 *  @thread the context's @errors none */
TUTTI_API void tutti_optim_set_lr(tutti_optim_t *opt, double lr);

/** Learning rate of a group; NaN if there is no such group. @thread the context's @errors none */
TUTTI_API double tutti_optim_lr(const tutti_optim_t *opt, int group);

/* ---- clipping ------------------------------------------------------------------------------- */

/**
 * Scale all gradients so that their norm together is at most `max_norm`. The norm is summed in f64
 * over fixed blocks, parameters in their order, so that threads change no bit.
 *
 * @param max_norm  at least 0; infinity only measures
 * @param p      2, or INFINITY for the largest absolute value
 * @param norm   out, as it was before; NaN where all gradients lie on meta; may be NULL
 * @thread       the context's
 * @cost         one pass, another one if it is above that
 * @errors       ARG, NOMEM, STATE (a DDP or a pipeline steps it)
 * @source       torch.nn.utils.clip_grad_norm_; Pascanu et al., ICML 2013
 */
TUTTI_API tutti_status_t tutti_clip_grad_norm(tutti_optim_t *opt, double max_norm, double p,
                                              double *norm);

/** Cut each element of the gradients to [-clip_value, clip_value]. @thread the context's @errors as
 *  tutti_clip_grad_norm @source torch.nn.utils.clip_grad_value_ */
TUTTI_API tutti_status_t tutti_clip_grad_value(tutti_optim_t *opt, double clip_value);

/* ---- keeping -------------------------------------------------------------------------------- */

/** Visit the state, as "<parameter>.<moment>" and "<parameter>.step", of parameters that have
 *  been changed; it stays what it is. @thread the context's @errors those of visit, NOMEM */
TUTTI_API tutti_status_t tutti_optim_each_state(tutti_optim_t *opt, tutti_tensor_visit_t visit,
                                                void *user);

/** Save the state as safetensors. @thread the context's @errors as tutti_safetensors_save; STATE
 * (of some parameter this rank has a slice, or another rank has all: tutti_checkpoint_save()) */
TUTTI_API tutti_status_t tutti_optim_save(tutti_optim_t *opt, const char *path);

/**
 * Load the state. After an error nothing is changed.
 *
 * @thread  the context's
 * @cost    for a while the memory of both states, where there is one already
 * @errors  MISMATCH (another kind of optimizer, other names or shapes), and as
 *          tutti_safetensors_open
 */
TUTTI_API tutti_status_t tutti_optim_load(tutti_optim_t *opt, const char *path);

/* ---- learning rates over time --------------------------------------------------------------- */

typedef enum tutti_schedule_kind {
    TUTTI_SCHEDULE_CONSTANT,
    TUTTI_SCHEDULE_STEP,          /**< × gamma every step_size steps */
    TUTTI_SCHEDULE_COSINE,        /**< lr to min_ratio × lr along half a cosine */
    TUTTI_SCHEDULE_LINEAR_WARMUP, /**< up for warmup_steps, then constant */
    TUTTI_SCHEDULE_WARMUP_COSINE, /**< up for warmup_steps, then as COSINE until total_steps */
    TUTTI_SCHEDULE_ONE_CYCLE,     /**< up, then down further than where it began, by cosines */
} tutti_schedule_kind_t;

/** A schedule; what its kind does not name is not used. */
typedef struct tutti_schedule {
    tutti_schedule_kind_t kind;
    double lr;               /**< the highest */
    int64_t warmup_steps;    /**< steps until lr is reached */
    int64_t total_steps;     /**< steps after which the rate stays */
    double min_ratio;        /**< of the last rate to lr, in [0, 1] */
    int64_t step_size;       /**< of STEP */
    double gamma;            /**< of STEP; 0: 0.1 */
    double up_share;         /**< of ONE_CYCLE, share of the steps that go up; 0: 0.3 */
    double div_factor;       /**< of ONE_CYCLE: begins at lr / this; 0: 25 */
    double final_div_factor; /**< of ONE_CYCLE: ends at the begin / this; 0: 1e4 */
} tutti_schedule_t;

/** Whether a schedule makes sense. @thread any @errors ARG (names the value and its range) */
TUTTI_API tutti_status_t tutti_schedule_check(const tutti_schedule_t *schedule);

/**
 * The learning rate of a step; a pure function.
 *
 * @param step  from 0 on
 * @thread      any
 * @errors      none; NaN if tutti_schedule_check() fails
 * @source      torch.optim.lr_scheduler: StepLR, CosineAnnealingLR, OneCycleLR; Loshchilov and
 *              Hutter, ICLR 2017; Smith and Topin 2018 for one cycle
 */
TUTTI_API double tutti_schedule_lr(const tutti_schedule_t *schedule, int64_t step);

/* ---- more kinds ------------------------------------------------------------------------------ */

/* More kinds of optimizers: RMSprop, Adagrad, Lion, LAMB and Adafactor, for tutti_optim_create().
 *
 * Example:
 *
 *     tutti_optim_t *opt;
 *     const tutti_lion_options_t options = {.lr = 1e-4, .weight_decay = 0.1};
 *     TUTTI_CHECK(tutti_optim_create(ctx, &tutti_lion, &options, &opt));
 *     TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_optim_release(opt);
 *
 * Options of 0 mean the default. g is the gradient, w the parameter.
 */

typedef struct tutti_rmsprop_options {
    double lr;           /**< 0: 1e-2 */
    double alpha;        /**< 0: 0.99; below 1 */
    double eps;          /**< 0: 1e-8 */
    double weight_decay; /**< added to the gradient */
    double momentum;     /**< in [0, 1) */
    bool centered;       /**< divide by the deviation of g instead of its root mean square */
    bool maximize;
} tutti_rmsprop_options_t;

/** RMSprop, with tutti_rmsprop_options_t. v: moving mean of g²; centered: less the square of g's;
 *  b = momentum b + g / (√v + eps); w -= lr b.
 *  @source torch.optim.RMSprop; Hinton's lecture 6; Graves 2013 for centered */
TUTTI_API extern const tutti_optim_ops_t tutti_rmsprop;

typedef struct tutti_adagrad_options {
    double lr;                  /**< 0: 1e-2 */
    double lr_decay;            /**< lr is divided by 1 + this × steps before */
    double weight_decay;        /**< added to the gradient */
    double initial_accumulator; /**< what the sum of squares begins at */
    double eps;                 /**< 0: 1e-10 */
    bool maximize;
} tutti_adagrad_options_t;

/** Adagrad, with tutti_adagrad_options_t. s += g²; w -= lr g / (√s + eps).
 *  @source torch.optim.Adagrad; Duchi et al., JMLR 2011 */
TUTTI_API extern const tutti_optim_ops_t tutti_adagrad;

typedef struct tutti_lion_options {
    double lr;           /**< 0: 1e-4 */
    double beta1, beta2; /**< 0: 0.9, 0.99; below 1 */
    double weight_decay; /**< w is shrunk by lr × this in the step */
    bool maximize;
} tutti_lion_options_t;

/** Lion, with tutti_lion_options_t. w -= lr (sign(beta1 m + (1 - beta1) g) + decay w);
 *  m = beta2 m + (1 - beta2) g. @source Chen et al., NeurIPS 2023, program 1 */
TUTTI_API extern const tutti_optim_ops_t tutti_lion;

typedef struct tutti_lamb_options {
    double lr;           /**< 0: 1e-3 */
    double beta1, beta2; /**< 0: 0.9, 0.999; below 1 */
    double eps;          /**< 0: 1e-6 */
    double weight_decay; /**< part of the update whose norm is measured */
    bool maximize;
} tutti_lamb_options_t;
/** LAMB, with tutti_lamb_options_t. u = m̂ / (√v̂ + eps) + decay w; w -= lr (norm w / norm u) u,
 *  norms of the whole parameter; their ratio is 1 if either is 0.
 *  @source You et al., ICLR 2020, algorithm 2, with φ(x) = x */
TUTTI_API extern const tutti_optim_ops_t tutti_lamb;

typedef struct tutti_adafactor_options {
    double lr;               /**< 0: 1, a factor of the relative step; without it, the step */
    double eps1, eps2;       /**< 0: 1e-30 added to g², 1e-3 the least scale of a parameter */
    double clip;             /**< 0: 1, limit of the update's root mean square */
    double decay_rate;       /**< 0: -0.8; beta2 of step t is 1 - t^this */
    double beta1;            /**< in [0, 1); at 0 there is no moving mean of updates */
    double weight_decay;     /**< w is shrunk by the step × this */
    bool no_scale_parameter; /**< do not scale the step with the parameter's root mean square */
    bool no_relative_step;   /**< lr is the step; it must be given */
    bool warmup_init;        /**< the relative step begins at 1e-6 t, not at 1e-2 */
    bool maximize;
} tutti_adafactor_options_t;

/** Adafactor, with tutti_adafactor_options_t. The second moment of a parameter of two or more
 *  dimensions is kept as means R along the last and C along the last but one: v = R C / mean R.
 *  u = g / √v, divided by max(1, rms u / clip); w -= step u. The relative step is
 *  min(1e-2 or 1e-6 t, 1/√t); both kinds of step are scaled by max(eps2, rms w).
 *  @source Shazeer and Stern, ICML 2018; names and defaults of Hugging Face's Adafactor */
TUTTI_API extern const tutti_optim_ops_t tutti_adafactor;

#ifdef __cplusplus
}
#endif

#endif
