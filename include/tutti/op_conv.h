/**
 * @file op_conv.h
 * Convolutions and transposed convolutions over lines and planes. The layers with their parameters
 * are in nn_layers.h.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32)); // [N, C, H, W]
 *     tutti_tensor_t *filters = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(16, 3, 3, 3));
 *     tutti_tensor_t *y = tutti_conv2d(s, image, filters, NULL,
 *         &(tutti_conv_options_t){.stride = {2, 2}, .padding = {1, 1}}); // [8, 16, 16, 16]
 *
 * Beyond its edges x is zero; PyTorch's other padding modes are left to the caller. `.same` is its
 * padding="same".
 *
 * x is [N, C, L] or [N, C, H, W], or one sample without N. All inputs are of one dtype, or are
 * brought to the autocast dtype, as in matrix products; sums are f32 (f64 for f64). Results and
 * gradients have the same bits on any number of threads.
 */
#ifndef TUTTI_OP_CONV_H
#define TUTTI_OP_CONV_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a kernel moves: {height, width}; over lines the first alone. */
typedef struct tutti_conv_options {
    int64_t stride[2];         /**< 0: 1 */
    int64_t padding[2];        /**< zeros on both sides */
    int64_t output_padding[2]; /**< of transposed ones: more of y at the end; below stride or
                                    dilation */
    int64_t dilation[2];       /**< distance between taps; 0: 1 */
    int64_t groups;            /**< of channels, each by itself; 0: 1 */
    bool same;                 /**< in place of padding, so many zeros that y has x's size: of an
                                    odd number one more at the end. For a stride of 1; not of
                                    transposed ones */
} tutti_conv_options_t;

/**
 * y[n,o,i] = bias[o] + Σ weight[o,c,a] x[n, c, i stride - padding + a dilation].
 *
 * @param x        [N, C, L] or [C, L]
 * @param weight   [O, C / groups, K]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, (L + 2 padding - dilation (K - 1) - 1) / stride + 1]; gradients as
 *                 tutti_conv2d()'s
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.conv1d
 */
TUTTI_API tutti_tensor_t *tutti_conv1d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options);

/**
 * y[n,o,i,j] = bias[o] + Σ weight[o,c,a,b] x[n, c, i s - p + a d, j s - p + b d].
 *
 * @param x        [N, C, H, W] or [C, H, W]
 * @param weight   [O, C / groups, KH, KW]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, OH, OW], OH = (H + 2 p - d (KH - 1) - 1) / s + 1; dx is the transposed
 *                 convolution of dy, dweight[o,c,a,b] = Σ dy[n,o,i,j] x[…], dbias[o] = Σ dy
 * @thread         the scope's
 * @cost           N·OH·OW·O·C/groups·KH·KW multiplications; dx those times the strides, at the
 *                 speed of matrix products; keeps x and weight
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.conv2d
 */
TUTTI_API tutti_tensor_t *tutti_conv2d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options);

/**
 * What the gradient of tutti_conv1d() is to its x: a longer line.
 *
 * @param x        [N, C, L] or [C, L]
 * @param weight   [C, O / groups, K]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1];
 *                 gradients as tutti_conv_transpose2d()'s
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.conv_transpose1d
 */
TUTTI_API tutti_tensor_t *tutti_conv_transpose1d(tutti_scope_t *s, tutti_tensor_t *x,
                                                 tutti_tensor_t *weight, tutti_tensor_t *bias,
                                                 const tutti_conv_options_t *options);

/**
 * What the gradient of tutti_conv2d() is to its x: a larger plane.
 *
 * @param x        [N, C, H, W] or [C, H, W]
 * @param weight   [C, O / groups, KH, KW]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, OH, OW], OH = (H - 1) s - 2 p + d (KH - 1) + output_padding + 1; dx is the
 *                 convolution of dy with weight, dweight[c,o,a,b] = Σ x[n,c,i,j] dy[…]
 * @thread         the scope's
 * @cost           as tutti_conv2d()'s gradient of x
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.conv_transpose2d
 */
TUTTI_API tutti_tensor_t *tutti_conv_transpose2d(tutti_scope_t *s, tutti_tensor_t *x,
                                                 tutti_tensor_t *weight, tutti_tensor_t *bias,
                                                 const tutti_conv_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
