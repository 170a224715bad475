/**
 * @file op_volume.h
 * Convolutions, pooling and interpolation over volumes; pooling by powers.
 *
 * Example:
 *
 *     tutti_tensor_t *film = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 8, 16, 16));
 *     tutti_tensor_t *taps = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 3, 3, 3, 3));
 *     tutti_tensor_t *y = tutti_conv3d(s, film, taps, NULL, // [N, C, D, H, W] -> [2, 4, 8, 16, 16]
 *         &(tutti_conv_options_t){.padding = {1, 1, 1}});
 *     y = tutti_max_pool3d(s, y, &(tutti_pool_options_t){.kernel = {2, 2, 2}}, NULL);
 *
 * Options are those of op_conv.h, {depth, height, width}. What is said there of dtypes and bits
 * holds here, too; tutti_interpolate() takes volumes itself.
 */
#ifndef TUTTI_OP_VOLUME_H
#define TUTTI_OP_VOLUME_H

#include <tutti/op_conv.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions ---------------------------------------------------------------------------- */

/**
 * y[n,o,t,i,j] = bias[o] + Σ weight[o,c,e,a,b] x[n, c, t s - p + e d, i s - p + a d, …].
 *
 * @param x        [N, C, D, H, W] or [C, D, H, W]
 * @param weight   [O, C / groups, KD, KH, KW]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, OD, OH, OW], sizes and gradients as tutti_conv2d()'s
 * @thread         the scope's
 * @cost           N·OD·OH·OW·O·C/groups·KD·KH·KW multiplications at the speed of tutti_conv2d();
 *                 scratch of KD copies of some samples, 16 MB or of one sample; keeps x and weight
 * @errors         SHAPE, DTYPE, ARG, NOMEM
 * @source         torch.nn.functional.conv3d
 */
TUTTI_API tutti_tensor_t *tutti_conv3d(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias, const tutti_conv_options_t *options);

/**
 * What the gradient of tutti_conv3d() is to its x: a larger volume.
 *
 * @param x        [N, C, D, H, W] or [C, D, H, W]
 * @param weight   [C, O / groups, KD, KH, KW]
 * @param bias     [O], or NULL
 * @param options  borrowed, or NULL
 * @return         [N, O, OD, OH, OW], sizes and gradients as tutti_conv_transpose2d()'s
 * @thread         the scope's
 * @cost           as tutti_conv3d()'s gradient of x
 * @errors         SHAPE, DTYPE, ARG, NOMEM
 * @source         torch.nn.functional.conv_transpose3d
 */
TUTTI_API tutti_tensor_t *tutti_conv_transpose3d(tutti_scope_t *s, tutti_tensor_t *x,
                                                 tutti_tensor_t *weight, tutti_tensor_t *bias,
                                                 const tutti_conv_options_t *options);

/* ---- pooling --------------------------------------------------------------------------------- */

/**
 * The largest of each window; NaN if there is one.
 *
 * @param x        [N, C, D, H, W] or [C, D, H, W]
 * @param options  borrowed
 * @param indices  out: (d H + h) W + w of each, i64; the first of equal ones; may be NULL
 * @return         [N, C, OD, OH, OW], sizes as in tutti_max_pool1d(); dx = dy at the indices
 * @thread         the scope's
 * @cost           planes first, then depth: KH KW + KD comparisons an element
 * @errors         SHAPE, DTYPE, ARG, UNSUPPORTED (more than 2^31 - 1 elements in a volume)
 * @source         torch.nn.functional.max_pool3d
 */
TUTTI_API tutti_tensor_t *tutti_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_pool_options_t *options,
                                           tutti_tensor_t **indices);

/**
 * The mean of each window.
 *
 * @param x        [N, C, D, H, W] or [C, D, H, W]
 * @param options  borrowed
 * @return         [N, C, OD, OH, OW], sizes and gradient as in tutti_avg_pool1d()
 * @thread         the scope's
 * @cost           planes first, then depth, in f32 (f64)
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.avg_pool3d
 */
TUTTI_API tutti_tensor_t *tutti_avg_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                           const tutti_avg_pool_options_t *options);

/** Volumes [N, C, D, H, W] of any size to one of these sizes, by maxima; 0: that of x. indices as
 *  tutti_max_pool3d()'s. @thread the scope's @errors SHAPE, DTYPE, ARG, UNSUPPORTED @source
 *  torch.nn.functional.adaptive_max_pool3d */
TUTTI_API tutti_tensor_t *tutti_adaptive_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    const int64_t size[3],
                                                    tutti_tensor_t **indices);

/** Volumes [N, C, D, H, W] of any size to one of these sizes, by means; 0: that of x.
 *  @thread the scope's @errors SHAPE, DTYPE, ARG @source torch.nn.functional.adaptive_avg_pool3d */
TUTTI_API tutti_tensor_t *tutti_adaptive_avg_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                                    const int64_t size[3]);

/* ---- pooling by powers ----------------------------------------------------------------------- */

typedef struct tutti_lp_pool_options {
    double p;          /**< the power, not 0 */
    int64_t kernel[3]; /**< as in tutti_avg_pool_options_t */
    int64_t stride[3]; /**< 0: the kernel */
    bool ceil_mode;    /**< a last window that reaches over the end counts as well, as if it were
                            whole: its sum is divided by its part of a window */
} tutti_lp_pool_options_t;

/**
 * (Σ x^p)^(1/p) over each window of lines; of a p that is 1 the sum.
 *
 * @param x        [N, C, L] or [C, L]
 * @param options  borrowed
 * @return         as tutti_avg_pool1d()'s, in x's dtype; dx = g y^(1-p) x^(p-1), 0 where all x of a
 *                 window are 0 (p above 1)
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (the windows, a power of 0)
 * @source         torch.nn.functional.lp_pool1d
 */
TUTTI_API tutti_tensor_t *tutti_lp_pool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                          const tutti_lp_pool_options_t *options);

/** The same over planes [N, C, H, W] or [C, H, W]. @thread the scope's @errors SHAPE, DTYPE, ARG
 *  @source torch.nn.functional.lp_pool2d */
TUTTI_API tutti_tensor_t *tutti_lp_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                          const tutti_lp_pool_options_t *options);

/** The same over volumes [N, C, D, H, W] or [C, D, H, W]. @thread the scope's @errors SHAPE, DTYPE,
 *  ARG @source torch.nn.functional.lp_pool3d */
TUTTI_API tutti_tensor_t *tutti_lp_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                          const tutti_lp_pool_options_t *options);

/* ---- back from maxima ------------------------------------------------------------------------ */

/** How the maxima were pooled; over lines the first alone, over planes {height, width}. */
typedef struct tutti_max_unpool_options {
    int64_t kernel[3];  /**< size of the window */
    int64_t stride[3];  /**< 0: the kernel */
    int64_t padding[3]; /**< on both sides */
    int64_t size[3];    /**< of y; 0: (L - 1) stride - 2 padding + kernel, the least that gives L
                             windows */
} tutti_max_unpool_options_t;

/**
 * Zeros, with the elements of x at the indices that tutti_max_pool1d() gave. Of several with one
 * place the last stands there.
 *
 * @param x        [N, C, L] or [C, L], of any dtype
 * @param indices  of x's shape, i64 or i32: places in a line of y
 * @param options  borrowed
 * @return         [N, C, L'] or [C, L'] of x's dtype; dx = g at the indices, 0 of what was
 *                 overwritten
 * @thread         the scope's
 * @cost           one pass over y and one over x
 * @errors         SHAPE, DTYPE (indices), ARG (the options, an index that is not in y)
 * @source         torch.nn.functional.max_unpool1d
 */
TUTTI_API tutti_tensor_t *tutti_max_unpool1d(tutti_scope_t *s, tutti_tensor_t *x,
                                             tutti_tensor_t *indices,
                                             const tutti_max_unpool_options_t *options);

/** The same over planes [N, C, H, W] or [C, H, W]; an index counts along the rows. @thread the
 *  scope's @errors SHAPE, DTYPE, ARG @source torch.nn.functional.max_unpool2d */
TUTTI_API tutti_tensor_t *tutti_max_unpool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                             tutti_tensor_t *indices,
                                             const tutti_max_unpool_options_t *options);

/** The same over volumes [N, C, D, H, W] or [C, D, H, W]. @thread the scope's @errors SHAPE, DTYPE,
 *  ARG @source torch.nn.functional.max_unpool3d */
TUTTI_API tutti_tensor_t *tutti_max_unpool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                             tutti_tensor_t *indices,
                                             const tutti_max_unpool_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
