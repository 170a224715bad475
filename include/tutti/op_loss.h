/**
 * @file op_loss.h
 * Losses.
 *
 * Example:
 *
 *     tutti_tensor_t *logits = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 256));
 *     tutti_tensor_t *targets = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2, 3));
 *     tutti_tensor_t *loss = tutti_cross_entropy(s, logits, targets); // log 256
 *     tutti_tensor_t *sum = tutti_cross_entropy_with(s, logits, targets,
 *         &(tutti_cross_entropy_options_t){.reduction = TUTTI_LOSS_SUM});
 *
 * Classes are the last dimension, as they come out of a linear layer; PyTorch has them second.
 * Losses of 16-bit inputs are computed and returned in f32, autocast or not. Sums over elements
 * are made in a fixed order, whatever the number of threads.
 */
#ifndef TUTTI_OP_LOSS_H
#define TUTTI_OP_LOSS_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What becomes of the single losses. Another value is an ARG error of every loss. */
typedef enum tutti_loss_reduction {
    TUTTI_LOSS_MEAN, /**< their mean (over what is not ignored) */
    TUTTI_LOSS_SUM,  /**< their sum */
    TUTTI_LOSS_NONE, /**< each by itself; those ignored are 0 */
} tutti_loss_reduction_t;

typedef struct tutti_cross_entropy_options {
    tutti_loss_reduction_t reduction;
    double label_smoothing; /**< in [0, 1]: this much of the target is spread over all classes */
    bool has_ignore_index;  /**< false: ignore_index is -100 */
    int64_t ignore_index;   /**< rows with this target count for nothing */
    tutti_tensor_t *weight; /**< [V] of each class; NULL: all 1. A mean divides by those of the
                                 targets, of probabilities by the rows */
} tutti_cross_entropy_options_t;

/**
 * Mean over rows of -log softmax(logits)[target].
 *
 * @param logits   [..., V], floating
 * @param targets  [...], i64 (or i32, u8) in [0, V), or -100: ignored
 * @return         a scalar; dlogits = (softmax(logits) - onehot(target)) dy / rows that count;
 *                 NaN, as in PyTorch, if no row counts
 * @thread         the scope's
 * @cost           one pass; backward keeps logits and one number per row, never the softmax
 * @errors         SHAPE, DTYPE, ARG (a target outside: its row, its value and V)
 * @source         torch.nn.functional.cross_entropy
 */
TUTTI_API tutti_tensor_t *tutti_cross_entropy(tutti_scope_t *s, tutti_tensor_t *logits,
                                              tutti_tensor_t *targets);

/**
 * The same with options; NULL for the defaults. Targets may also be probabilities, [..., V] and
 * floating: -Σ p log softmax(logits), with a gradient of their own.
 *
 * @return  a scalar, or [...] without reduction; with smoothing ε the target is
 *          (1-ε) onehot(target) + ε/V
 * @thread  the scope's
 * @cost    as tutti_cross_entropy; with weights or probabilities some passes more
 * @errors  as tutti_cross_entropy, and ARG for a smoothing outside [0, 1]
 * @source  torch.nn.functional.cross_entropy; Szegedy et al., "Rethinking the Inception
 *          Architecture for Computer Vision" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_cross_entropy_with(tutti_scope_t *s, tutti_tensor_t *logits,
                                                   tutti_tensor_t *targets,
                                                   const tutti_cross_entropy_options_t *options);

typedef struct tutti_nll_loss_options {
    tutti_loss_reduction_t reduction;
    bool has_ignore_index;  /**< false: ignore_index is -100 */
    int64_t ignore_index;   /**< rows with this target count for nothing */
    tutti_tensor_t *weight; /**< [V] of each class; NULL: all 1. A mean divides by those of the
                                 targets */
} tutti_nll_loss_options_t;

/**
 * Mean over rows of -log_probs[target].
 *
 * @param log_probs  [..., V], floating, as tutti_log_softmax() gives them
 * @param targets    [...], i64 (or i32, u8) in [0, V), or ignored
 * @param options    NULL for the defaults
 * @return           a scalar, or [...] without reduction; the gradient is -dy / rows that count
 *                   at each target, 0 elsewhere
 * @thread           the scope's
 * @cost             one read per row
 * @errors           SHAPE, DTYPE, ARG (a target outside: its row, its value and V)
 * @source           torch.nn.functional.nll_loss
 */
TUTTI_API tutti_tensor_t *tutti_nll_loss(tutti_scope_t *s, tutti_tensor_t *log_probs,
                                         tutti_tensor_t *targets,
                                         const tutti_nll_loss_options_t *options);

/**
 * (x - y)², reduced.
 *
 * @param x  [any shape], floating
 * @param y  [x's shape]; PyTorch broadcasts and warns, here it is an error
 * @return   a scalar, or x's shape without reduction; dx = 2 (x - y) dy (/ numel), dy' = -dx
 * @thread   the scope's
 * @cost     one pass
 * @errors   SHAPE, DTYPE
 * @source   torch.nn.functional.mse_loss
 */
TUTTI_API tutti_tensor_t *tutti_mse_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                         tutti_loss_reduction_t reduction);

/** |x - y|, reduced: dx = dy sign(x - y) (/ numel), 0 where they are equal. @thread the scope's
 *  @errors SHAPE, DTYPE @source torch.nn.functional.l1_loss */
TUTTI_API tutti_tensor_t *tutti_l1_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                        tutti_loss_reduction_t reduction);

/**
 * d²/2β for d = |x - y| below β, else d - β/2; reduced.
 *
 * @param x     [any shape], floating
 * @param y     [x's shape]
 * @param beta  at least 0; 0: |x - y|. PyTorch's default is 1
 * @return      a scalar, or x's shape without reduction; dx = dy min(d/β, 1) sign(x - y)
 *              (/ numel), dy' = -dx
 * @thread      the scope's
 * @cost        one pass
 * @errors      SHAPE, DTYPE, ARG (beta)
 * @source      torch.nn.functional.smooth_l1_loss; Girshick, "Fast R-CNN" (2015)
 */
TUTTI_API tutti_tensor_t *tutti_smooth_l1_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                               tutti_tensor_t *y, double beta,
                                               tutti_loss_reduction_t reduction);

/**
 * d²/2 for d = |x - y| below δ, else δ (d - δ/2): δ times smooth_l1_loss; reduced.
 *
 * @param delta  positive; PyTorch's default is 1
 * @return       as tutti_smooth_l1_loss
 * @thread       the scope's
 * @cost         one pass
 * @errors       SHAPE, DTYPE, ARG (delta)
 * @source       torch.nn.functional.huber_loss; Huber (1964)
 */
TUTTI_API tutti_tensor_t *tutti_huber_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                           double delta, tutti_loss_reduction_t reduction);

typedef struct tutti_kl_div_options {
    tutti_loss_reduction_t reduction; /**< the mean is over elements, as in PyTorch */
    bool batch_mean; /**< the sum over the first size, which is the divergence's mean */
    bool log_target; /**< the target is given as its logarithm */
} tutti_kl_div_options_t;

/**
 * Kullback-Leibler divergence of a target p from what has the logarithms x: p (log p - x), reduced.
 *
 * @param x        [any shape], floating, as tutti_log_softmax() gives it
 * @param target   [x's shape], floating, probabilities, or their logarithms
 * @param options  NULL for the defaults
 * @return         a scalar, or x's shape without reduction; dx = -p dy (/ count), and to p
 *                 (log p - x + 1) dy (/ count), 0 where p is 0
 * @thread         the scope's
 * @cost           one pass
 * @errors         SHAPE, DTYPE
 * @source         torch.nn.functional.kl_div
 */
TUTTI_API tutti_tensor_t *tutti_kl_div(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *target,
                                       const tutti_kl_div_options_t *options);

/**
 * Binary cross entropy of a probability x and y: -(y log x + (1 - y) log(1 - x)), with logarithms
 * of at least -100; reduced.
 *
 * @param x  [any shape], floating, in [0, 1]; of another one the logarithm is NaN (PyTorch: an
 *           error, for which it waits)
 * @param y  [x's shape], floating, in [0, 1]
 * @return   a scalar, or x's shape without reduction; dx = (x - y) / max(x (1 - x), 1e-12) dy
 *           (/ numel), and the gradient of y is (log(1 - x) - log x) dy (/ numel), of logarithms of
 *           at least -100, too
 * @thread   the scope's
 * @cost     one pass
 * @errors   SHAPE, DTYPE
 * @source   torch.nn.functional.binary_cross_entropy
 */
TUTTI_API tutti_tensor_t *tutti_bce_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                         tutti_loss_reduction_t reduction);

/**
 * Binary cross entropy of sigmoid(x) and y: max(x, 0) - x y + log(1 + exp(-|x|)), reduced. Of an
 * infinite x 0 where y is what it says, and infinity elsewhere (PyTorch: NaN for most of both).
 *
 * @param x  [any shape], floating
 * @param y  [x's shape], floating, in [0, 1]
 * @return   a scalar, or x's shape without reduction; dx = (sigmoid(x) - y) dy (/ numel), and
 *           the gradient of y is -x dy (/ numel)
 * @thread   the scope's
 * @cost     one pass
 * @errors   SHAPE, DTYPE
 * @source   torch.nn.functional.binary_cross_entropy_with_logits
 */
TUTTI_API tutti_tensor_t *tutti_bce_with_logits(tutti_scope_t *s, tutti_tensor_t *x,
                                                tutti_tensor_t *y,
                                                tutti_loss_reduction_t reduction);

#ifdef __cplusplus
}
#endif

#endif
