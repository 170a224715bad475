/**
 * @file op_conv.h
 * Convolutions, pooling and interpolation over lines and planes. The layers with their parameters
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
 * gradients have the same bits on any number of threads. Near an infinity in x, numbers may come
 * out as NaN that the sums alone would leave infinite or finite: kernels of 3 × 3 are computed from
 * differences of neighbours (Winograd), and in bf16 pairs and tiles of dweight are filled up with
 * zeros, which are multiplied, too. An infinity in weight is multiplied with some of the padding's
 * zeros; with which depends on the CPU.
 */
#ifndef TUTTI_OP_CONV_H
#define TUTTI_OP_CONV_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a kernel moves: {height, width}, over lines the first alone; over volumes (op_volume.h)
 *  {depth, height, width}. */
typedef struct tutti_conv_options {
    int64_t stride[3];         /**< 0: 1 */
    int64_t padding[3];        /**< zeros on both sides */
    int64_t output_padding[3]; /**< of transposed ones: more of y at the end; below stride or
                                    dilation */
    int64_t dilation[3];       /**< distance between taps; 0: 1 */
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

/* ---- pooling --------------------------------------------------------------------------------- */

/* Pooling over lines and planes.
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

/** How a window moves: {height, width}, over lines the first alone; over volumes {depth, height,
 *  width}. */
typedef struct tutti_pool_options {
    int64_t kernel[3];   /**< size of the window */
    int64_t stride[3];   /**< 0: the kernel */
    int64_t padding[3];  /**< on both sides, at most half of the kernel; never a maximum */
    int64_t dilation[3]; /**< distance between the elements of a window; 0: 1; of maxima only */
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

/** How a window that is averaged moves; as tutti_pool_options_t. */
typedef struct tutti_avg_pool_options {
    int64_t kernel[3];     /**< size of the window */
    int64_t stride[3];     /**< 0: the kernel */
    int64_t padding[3];    /**< zeros on both sides, at most half of the kernel */
    bool ceil_mode;        /**< a last window that reaches over the end counts as well */
    bool excludes_padding; /**< sums are divided by the elements of x in the window alone; torch's
                                count_include_pad=False */
    int64_t divisor;       /**< divides all sums; 0: the size of the window */
} tutti_avg_pool_options_t;

/**
 * y[n,c,i] = Σ x[n, c, i stride - padding + a] / the window's size, of which what lies over the end
 * by ceil_mode is no part.
 *
 * @param x        [N, C, L] or [C, L]
 * @param options  borrowed
 * @return         [N, C, (L + 2 padding - kernel) / stride + 1]; dx = Σ dy / the sizes
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.avg_pool1d
 */
TUTTI_API tutti_tensor_t *tutti_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_avg_pool_options_t *options);

/**
 * y[n,c,i,j] = Σ x[n, c, i s - p + a, j s - p + b] / the window's size.
 *
 * @param x        [N, C, H, W] or [C, H, W]
 * @param options  borrowed
 * @return         [N, C, OH, OW], sizes and gradient as in tutti_avg_pool1d()
 * @thread         the scope's
 * @cost           reads x once; sums are f32 (f64 for f64); keeps nothing
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.avg_pool2d
 */
TUTTI_API tutti_tensor_t *tutti_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_avg_pool_options_t *options);

/* ---- windows chosen for the size of y -------------------------------------------------------- */
/* Window i of n is [i L / n, (i + 1) L / n), rounded outwards. */

/** Lines [N, C, L] of any length to [N, C, length], by maxima; length 0: L. indices as
 *  tutti_max_pool1d()'s. @thread the scope's @errors SHAPE, DTYPE, ARG, UNSUPPORTED @source
 *  torch.nn.functional.adaptive_max_pool1d */
TUTTI_API tutti_tensor_t *tutti_adaptive_max_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    int64_t length, tutti_tensor_t **indices);

/** Planes [N, C, H, W] of any size to [N, C, height, width], by maxima; 0: that of x. indices as
 *  tutti_max_pool2d()'s. @thread the scope's @errors SHAPE, DTYPE, ARG, UNSUPPORTED @source
 *  torch.nn.functional.adaptive_max_pool2d */
TUTTI_API tutti_tensor_t *tutti_adaptive_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    int64_t height, int64_t width,
                                                    tutti_tensor_t **indices);

/** Lines [N, C, L] of any length to [N, C, length], by means; length 0: L. @thread the scope's
 *  @errors SHAPE, DTYPE, ARG @source torch.nn.functional.adaptive_avg_pool1d */
TUTTI_API tutti_tensor_t *tutti_adaptive_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    int64_t length);

/* ---- interpolation --------------------------------------------------------------------------- */

/* Other sizes of lines and planes, by the nearest element or by weights of those around. */

/** Planes [N, C, H, W] of any size to [N, C, height, width], by means; 0: that of x. 1 and 1 is
 *  global average pooling. @thread the scope's @errors SHAPE, DTYPE, ARG @source
 *  torch.nn.functional.adaptive_avg_pool2d */
TUTTI_API tutti_tensor_t *tutti_adaptive_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    int64_t height, int64_t width);

/* ---- other sizes ----------------------------------------------------------------------------- */

typedef enum tutti_interpolate_mode {
    TUTTI_INTERPOLATE_NEAREST, /**< one element of x, below the place of y's lower edge */
    TUTTI_INTERPOLATE_LINEAR,  /**< between two of a line, four of a plane (bilinear), eight of a
                                    volume (trilinear) */
    TUTTI_INTERPOLATE_CUBIC,   /**< of four in each dimension (bicubic), by cubic convolution */
    TUTTI_INTERPOLATE_AREA,    /**< means of windows: tutti_adaptive_avg_pool2d() and its like */
    TUTTI_INTERPOLATE_NEAREST_EXACT, /**< the element of x in which the middle of y's lies */
    TUTTI_INTERPOLATE_LANCZOS,       /**< of six in each dimension, by sinc(d) sinc(d / 3); wants
                                          antialias, without which PyTorch has none either */
} tutti_interpolate_mode_t;

/** {height, width}, over lines the first alone, over volumes {depth, height, width}. Of each
 *  dimension size or scale. */
typedef struct tutti_interpolate_options {
    tutti_interpolate_mode_t mode;
    int64_t size[3];    /**< of y */
    double scale[3];    /**< y's size over x's, rounded down; steps are 1 / scale. Where the size
                             stays, linear and antialias copy, as PyTorch does */
    bool align_corners; /**< of linear and cubic: first and last elements of x and y coincide; else
                             their outer edges do */
    bool antialias;     /**< of linear, cubic and lanczos: of a smaller y, elements are means over
                             all of x that they cover, by weights stretched by the step; cubic:
                             a = -0.5 */
} tutti_interpolate_options_t;

/**
 * Lines, planes or volumes of another size: y[i] = Σ weight x around a place in each dimension,
 * beyond the ends the last element. With steps r = L / L' (or 1 / scale): nearest floor(i r), exact
 * floor((i + 0.5) r); linear and cubic (i + 0.5) r - 0.5, or with align_corners
 * i (L - 1) / (L' - 1). Cubic's weights are Keys' with a = -0.75. Area's windows are those of the
 * sizes alone. Lanczos is Pillow's; its sines have the same bits everywhere.
 *
 * @param x        [N, C, L], [N, C, H, W] or [N, C, D, H, W], of a floating dtype
 * @param options  borrowed
 * @return         [N, C, L'], [N, C, H', W'] or [N, C, D', H', W'] of x's dtype; dx = Σ weight dy
 * @thread         the scope's
 * @cost           rows first, then columns: a product for each weight of a row, a gather for each
 *                 of a column; the gradient likewise. Keeps nothing
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.interpolate
 */
TUTTI_API tutti_tensor_t *tutti_interpolate(tutti_scope_t *s, tutti_tensor_t *x,
                                            const tutti_interpolate_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
