/**
 * @file op_linear.h
 * Matrix products and linear layers.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 16, 8));
 *     tutti_tensor_t *w = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 8));
 *     tutti_tensor_t *y = tutti_linear(s, x, w, NULL); // [4, 16, 3]
 *
 * Under autocast (context.h) the inputs are rounded to the autocast dtype, sums are made in f32
 * and results have the autocast dtype. The gradient of a f32 weight or bias is summed in f32 and
 * never rounded to 16 bits on its way, which PyTorch does.
 *
 * Every product is cut on a grid fixed by its shape, so that the number of threads changes no bit.
 */
#ifndef TUTTI_OP_LINEAR_H
#define TUTTI_OP_LINEAR_H

#include <tutti/op_math.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * a · b. Dimensions before the last two are batches and broadcast against each other; a vector
 * on the left is a row, one on the right a column, and its dimension is dropped from the result.
 *
 * @param a  [..., M, K] or [K]; any strides
 * @param b  [..., K, N] or [K]; promoted with a to one floating dtype
 * @return   [..., M, N]; da = dy · bᵀ and db = aᵀ · dy, summed over what was broadcast
 * @thread   the scope's
 * @cost     2 · batch · M · N · K flops; rows or columns that are not packed are copied first
 * @errors   SHAPE (the inner sizes differ; batches do not broadcast; a scalar), DTYPE
 * @source   torch.matmul
 */
TUTTI_API tutti_tensor_t *tutti_matmul(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/**
 * x · weightᵀ + bias.
 *
 * @param x       [..., in]
 * @param weight  [out, in]
 * @param bias    [out], or NULL
 * @return        [..., out]; dx = dy · weight, dweight = dyᵀ · x, dbias = Σ dy over all rows
 * @thread        the scope's
 * @cost          2 · rows · in · out flops; backward keeps x and weight, no copies
 * @errors        SHAPE, DTYPE
 * @source        torch.nn.functional.linear
 */
TUTTI_API tutti_tensor_t *tutti_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias);

/**
 * gelu(x · weightᵀ + bias) in one pass over the result.
 *
 * @param x        [..., in]
 * @param weight   [out, in]
 * @param bias     [out], or NULL
 * @param formula  TUTTI_GELU_ERF or TUTTI_GELU_TANH
 * @return         [..., out]; with z what gelu is given, dz = dy · gelu'(z), then as tutti_linear
 * @thread         the scope's
 * @cost           as tutti_linear; backward keeps z as well
 * @errors         SHAPE, DTYPE, ARG (formula)
 * @source         Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_linear_gelu(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *weight, tutti_tensor_t *bias,
                                            tutti_gelu_t formula);

#ifdef __cplusplus
}
#endif

#endif
