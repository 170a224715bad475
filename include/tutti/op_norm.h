/**
 * @file op_norm.h
 * Normalisation of rows, of channels over a batch, of groups of channels.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 16, 8));
 *     tutti_tensor_t *gain = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8));
 *     tutti_tensor_t *y = tutti_layer_norm(s, x, gain, NULL, 0); // rows of 8
 *
 * Statistics are f32 (f64 for f64), whatever x is. Under autocast the result has the autocast
 * dtype, since what follows a norm is nearly always a matrix product, which would round it anyway;
 * PyTorch returns f32 and rounds in the product, at the price of one more pass.
 */
#ifndef TUTTI_OP_NORM_H
#define TUTTI_OP_NORM_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * (x - mean) / √(variance + eps) · weight + bias over the last dimensions of x.
 *
 * @param x       [..., n]; the row is the last dimension, or the last k if weight has k
 * @param weight  [n], or NULL: ones
 * @param bias    [n], or NULL: zeros
 * @param eps     0: 1e-5
 * @return        x's shape; with x̂ the normalised row and g = dy · weight:
 *                dx = (g - mean(g) - x̂ mean(g x̂)) / σ, dweight = Σ dy x̂, dbias = Σ dy over rows
 * @thread        the scope's
 * @cost          one pass in cache per row; backward keeps x, mean and 1/σ
 * @errors        SHAPE, DTYPE, ARG (eps)
 * @source        torch.nn.functional.layer_norm; Ba et al., "Layer Normalization" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_layer_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           double eps);

/**
 * x / √(mean(x²) + eps) · weight over the last dimensions of x.
 *
 * @param x       [..., n]; the row is the last dimension, or the last k if weight has k
 * @param weight  [n], or NULL: ones
 * @param eps     0: 1.1920929e-7, as in PyTorch
 * @return        x's shape; with r = 1/√(mean(x²) + eps) and g = dy · weight:
 *                dx = r (g - x r² mean(g x)), dweight = Σ dy x r over rows
 * @thread        the scope's
 * @cost          one pass in cache per row; backward keeps x and r
 * @errors        SHAPE, DTYPE, ARG (eps)
 * @source        torch.nn.functional.rms_norm; Zhang and Sennrich, "Root Mean Square Layer
 *                Normalization" (2019)
 */
TUTTI_API tutti_tensor_t *tutti_rms_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                         tutti_tensor_t *weight, double eps);

typedef struct tutti_batch_norm_options {
    tutti_tensor_t *running_mean; /**< [C], a floating dtype; written while the context trains */
    tutti_tensor_t *running_var;  /**< [C]; both NULL: the batch's statistics, always */
    double momentum;              /**< weight of the newest batch in them; 0: 0.1 */
    double eps;                   /**< 0: 1e-5 */
} tutti_batch_norm_options_t;

/**
 * (x - mean) / √(variance + eps) · weight + bias for each channel of x [N, C, ...].
 *
 * While the context trains, mean and variance are those of the batch, over all dimensions but the
 * second, and the running ones move towards them: running = (1 - momentum) running + momentum now,
 * the variance taken with count - 1. In evaluation the running ones are used instead.
 *
 * @param x       [N, C, ...], two dimensions or more
 * @param weight  [C], or NULL: ones
 * @param bias    [C], or NULL: zeros
 * @param options NULL: the batch's statistics, eps 1e-5
 * @return        x's shape and dtype; with x̂ the normalised x and g = dy · weight:
 *                dx = (g - mean(g) - x̂ mean(g x̂)) / σ, in evaluation g / σ;
 *                dweight = Σ dy x̂, dbias = Σ dy
 * @thread        the scope's
 * @cost          x is read three times, from the cache where a channel fits it; backward keeps x
 * @errors        SHAPE (also one value per channel while training), DTYPE, ARG (eps, momentum)
 * @source        torch.nn.functional.batch_norm; Ioffe and Szegedy, "Batch Normalization" (2015)
 */
TUTTI_API tutti_tensor_t *tutti_batch_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           const tutti_batch_norm_options_t *options);

/**
 * (x - mean) / √(variance + eps) · weight + bias, where mean and variance are those of a sample's
 * group of neighbouring channels. One channel a group: instance norm.
 *
 * @param x       [N, C, ...], two dimensions or more
 * @param groups  divides C
 * @param weight  [C], or NULL: ones
 * @param bias    [C], or NULL: zeros
 * @param eps     0: 1e-5
 * @return        x's shape and dtype; gradients as tutti_layer_norm, the group being the row
 * @thread        the scope's
 * @cost          one pass in cache per group; backward keeps x, mean and 1/σ
 * @errors        SHAPE, DTYPE, ARG (eps, groups)
 * @source        torch.nn.functional.group_norm; Wu and He, "Group Normalization" (2018)
 */
TUTTI_API tutti_tensor_t *tutti_group_norm(tutti_scope_t *s, tutti_tensor_t *x, int64_t groups,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           double eps);

#ifdef __cplusplus
}
#endif

#endif
