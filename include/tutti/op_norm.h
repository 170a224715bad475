/**
 * @file op_norm.h
 * Normalisation of rows.
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

#ifdef __cplusplus
}
#endif

#endif
