/**
 * @file optim_kinds.h
 * More kinds of optimizers: RMSprop, Adagrad, Lion, LAMB and Adafactor, for tutti_optim_create().
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
#ifndef TUTTI_OPTIM_KINDS_H
#define TUTTI_OPTIM_KINDS_H

#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

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
