/**
 * @file op_pool.h
 * Pooling over lines and planes. The layers are in pool_layers.h.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32)); // [N, C, H, W]
 *     tutti_tensor_t *half = tutti_max_pool2d(s, image,
 *         &(tutti_pool_options_t){.kernel = {2, 2}}, NULL); // [8, 3, 16, 16]
 *
 * x is [N, C, L] or [N, C, H, W], or one sample without N, of a floating dtype, which the result
 * has too. Results and gradients have the same bits on any number of threads.
 */
#ifndef TUTTI_OP_POOL_H
#define TUTTI_OP_POOL_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a window moves: {height, width}; over lines the first alone. */
typedef struct tutti_pool_options {
    int64_t kernel[2];   /**< size of the window */
    int64_t stride[2];   /**< 0: the kernel */
    int64_t padding[2];  /**< on both sides, at most half of the kernel; never a maximum */
    int64_t dilation[2]; /**< distance between the elements of a window; 0: 1; of maxima only */
    bool ceil_mode;      /**< a last window that reaches over the end counts as well */
} tutti_pool_options_t;

/**
 * y[n,c,i] = the largest x[n, c, i stride - padding + a dilation]; NaN if one is NaN.
 *
 * @param x        [N, C, L] or [C, L]
 * @param options  borrowed
 * @param indices  out: where each is in its line, i64; the first of equal ones; may be NULL
 * @return         [N, C, (L + 2 padding - dilation (kernel - 1) - 1) / stride + 1]; dx = dy at the
 *                 indices
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG, UNSUPPORTED (more than 2^31 - 1 elements in a line)
 * @source         torch.nn.functional.max_pool1d
 */
TUTTI_API tutti_tensor_t *tutti_max_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_pool_options_t *options,
                                           tutti_tensor_t **indices);

/**
 * y[n,c,i,j] = the largest x[n, c, i s - p + a d, j s - p + b d]; NaN if one is NaN.
 *
 * @param x        [N, C, H, W] or [C, H, W]
 * @param options  borrowed
 * @param indices  out: h W + w of each, i64; the first of equal ones in this order; may be NULL
 * @return         [N, C, OH, OW], sizes as in tutti_max_pool1d(); dx = dy at the indices
 * @thread         the scope's
 * @cost           reads x once; keeps 4 bytes for each element of y
 * @errors         SHAPE, DTYPE, ARG, UNSUPPORTED (more than 2^31 - 1 elements in a plane)
 * @source         torch.nn.functional.max_pool2d
 */
TUTTI_API tutti_tensor_t *tutti_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_pool_options_t *options,
                                           tutti_tensor_t **indices);

#ifdef __cplusplus
}
#endif

#endif
