/**
 * @file op_likelihood.h
 * Losses that are likelihoods: of counts, of normal and of weighted binary variables, of sequences.
 *
 * Example:
 *
 *     tutti_tensor_t *mean = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(8, 3));
 *     tutti_tensor_t *seen = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3));
 *     tutti_tensor_t *var = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3));
 *     tutti_tensor_t *loss = tutti_gaussian_nll_loss(s, mean, seen, var, NULL); // 0.5
 *     loss = tutti_focal_loss(s, mean, seen, NULL);
 *
 * 16-bit inputs are computed and returned in f32.
 */
#ifndef TUTTI_OP_LIKELIHOOD_H
#define TUTTI_OP_LIKELIHOOD_H

#include <tutti/op_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_poisson_nll_options {
    tutti_loss_reduction_t reduction;
    bool is_rate; /**< x is the rate itself; false: its logarithm, as PyTorch's log_input */
    bool full;    /**< with Stirling's formula for log y!, of y above 1 */
    double eps;   /**< added to a rate before its logarithm; 0: 1e-8 */
} tutti_poisson_nll_options_t;

/**
 * e^x - y x for x the logarithm of a rate, x - y log(x + eps) for a rate; reduced.
 *
 * @param x        [any shape], floating
 * @param y        [x's shape], counts of any dtype
 * @param options  NULL for the defaults
 * @return         a scalar, or x's shape without reduction
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (reduction), NOMEM
 * @source         torch.nn.functional.poisson_nll_loss
 */
TUTTI_API tutti_tensor_t *tutti_poisson_nll_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                 tutti_tensor_t *y,
                                                 const tutti_poisson_nll_options_t *options);

typedef struct tutti_gaussian_nll_options {
    tutti_loss_reduction_t reduction;
    bool full;  /**< with log(2π)/2 */
    double eps; /**< the least variance; 0: 1e-6 */
} tutti_gaussian_nll_options_t;

/**
 * (log v + (x - y)² / v) / 2 with v = max(var, eps), reduced.
 *
 * @param x, y     [..., D], floating, of one shape
 * @param var      of x's rank and broadcast to it, or [...]; its gradient is that of v, also where
 *                 eps is larger
 * @param options  NULL for the defaults
 * @return         a scalar, or x's shape without reduction
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (reduction), NOMEM
 * @source         torch.nn.functional.gaussian_nll_loss; Nix and Weigend 1994
 */
TUTTI_API tutti_tensor_t *tutti_gaussian_nll_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                  tutti_tensor_t *y, tutti_tensor_t *var,
                                                  const tutti_gaussian_nll_options_t *options);

typedef struct tutti_bce_options {
    tutti_loss_reduction_t reduction;
    tutti_tensor_t *weight;     /**< of each loss, broadcast to x; NULL: all 1 */
    tutti_tensor_t *pos_weight; /**< of y's part, broadcast to x; NULL: all 1 */
} tutti_bce_options_t;

/** tutti_bce_loss() with a weight of each loss; there is no pos_weight. @param options NULL for the
 *  defaults @thread the scope's @errors SHAPE, DTYPE, ARG (reduction, pos_weight), NOMEM
 *  @source torch.nn.functional.binary_cross_entropy */
TUTTI_API tutti_tensor_t *tutti_bce_loss_with(tutti_scope_t *s, tutti_tensor_t *x,
                                              tutti_tensor_t *y,
                                              const tutti_bce_options_t *options);

/** tutti_bce_with_logits() with weights: w ((1 - y) x + (1 + (p - 1) y) log(1 + e^-x)).
 *  @param options NULL for the defaults @thread the scope's @errors SHAPE, DTYPE, ARG, NOMEM
 *  @source torch.nn.functional.binary_cross_entropy_with_logits */
TUTTI_API tutti_tensor_t *tutti_bce_with_logits_with(tutti_scope_t *s, tutti_tensor_t *x,
                                                     tutti_tensor_t *y,
                                                     const tutti_bce_options_t *options);

typedef struct tutti_focal_options {
    tutti_loss_reduction_t reduction;
    double alpha; /**< the weight of y = 1, and 1 - alpha that of y = 0; negative: neither;
                       0: 0.25 */
    double gamma; /**< how much less what is right counts; 0: 2 */
} tutti_focal_options_t;

/**
 * Binary cross entropy of σ(x) and y times (1 - p)^gamma, p the probability of what y says.
 *
 * @param x        [any shape], floating
 * @param y        [x's shape], 0 or 1, of any dtype
 * @param options  NULL for the defaults
 * @return         a scalar, or x's shape without reduction
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (reduction), NOMEM
 * @source         torchvision.ops.sigmoid_focal_loss, whose reduction is none; Lin et al. 2017
 */
TUTTI_API tutti_tensor_t *tutti_focal_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                           const tutti_focal_options_t *options);

typedef struct tutti_ctc_options {
    tutti_loss_reduction_t reduction; /**< the mean is of losses over target lengths, at least 1 */
    int64_t blank;                    /**< its class */
    bool zero_infinity;               /**< losses that are infinite count as 0, without gradient */
    tutti_tensor_t *input_lengths;    /**< [N] or [], i64 or i32, at most T; NULL: all are T */
    tutti_tensor_t *target_lengths;   /**< [N] or [], i64 or i32; NULL: all are S */
} tutti_ctc_options_t;

/**
 * Connectionist temporal classification: minus the logarithm of the probability of all paths
 * through T steps that read as the target, repetitions and blanks left out. Infinite where there is
 * no path: a target that is too long.
 *
 * @param log_probs  [T, N, V] or [T, V], floating, as tutti_log_softmax() gives them; of -infinity
 *                   there is no probability, and what is below -2^48 (2.8e14) counts as that
 * @param targets    [N, S] or [S], or of all samples one behind the other, with target_lengths; i64
 *                   or i32 in [0, V)
 * @param options    NULL for the defaults
 * @return           a scalar, or [N] (or [] without N) without reduction; the gradient is
 *                   PyTorch's: e^log_prob - the probability of being there, of which
 *                   log_softmax's own gradient cancels the first part; NaN of an infinite loss
 * @thread           the scope's
 * @cost             T S for each sample, in f64; backward twice that
 * @errors           SHAPE, DTYPE, ARG (blank; a length or a target outside), NOMEM
 * @source           torch.nn.functional.ctc_loss; Graves et al. 2006
 */
TUTTI_API tutti_tensor_t *tutti_ctc_loss(tutti_scope_t *s, tutti_tensor_t *log_probs,
                                         tutti_tensor_t *targets,
                                         const tutti_ctc_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
