/**
 * @file op_feature.h
 * Channels and features: their order, dropout of whole ones, norms over neighbours, bags of
 * embeddings, products of two inputs.
 *
 * Example:
 *
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 12, 16, 16));
 *     tutti_tensor_t *large = tutti_pixel_shuffle(s, image, 2);           // [8, 3, 32, 32]
 *     tutti_tensor_t *mixed = tutti_channel_shuffle(s, image, 3);
 *     tutti_tensor_t *some = tutti_dropout2d(s, mixed, 0.1F);
 *     tutti_tensor_t *unit = tutti_normalize(s, image, 2, 1, 1e-12);      // channels of length 1
 *
 * Each consists of other operations, whose gradients it has, of any order. 16-bit inputs are
 * computed in f32 and rounded once. What is random is drawn as tutti_dropout() draws.
 */
#ifndef TUTTI_OP_FEATURE_H
#define TUTTI_OP_FEATURE_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the order of channels ------------------------------------------------------------------- */

/**
 * Channels become pixels: y[…, c, h r + i, w r + j] = x[…, (c r + i) r + j, h, w].
 *
 * @param x       [..., C r², H, W], any dtype
 * @param factor  r, at least 1
 * @return        [..., C, H r, W r]; dx is tutti_pixel_unshuffle() of dy
 * @thread        the scope's
 * @cost          one pass
 * @errors        SHAPE (r² does not divide the channels), ARG, NOMEM
 * @source        torch.nn.functional.pixel_shuffle; Shi et al. 2016
 */
TUTTI_API tutti_tensor_t *tutti_pixel_shuffle(tutti_scope_t *s, tutti_tensor_t *x, int64_t factor);

/** Back again: [..., C, H r, W r] -> [..., C r², H, W]. @thread the scope's @errors SHAPE (r does
 *  not divide the plane), ARG, NOMEM @source torch.nn.functional.pixel_unshuffle */
TUTTI_API tutti_tensor_t *tutti_pixel_unshuffle(tutti_scope_t *s, tutti_tensor_t *x,
                                                int64_t factor);

/** Channels of x [N, C, ...] as a matrix [groups, C / groups], transposed. @thread the scope's
 *  @errors SHAPE, ARG (groups do not divide C), NOMEM @source torch.nn.functional.channel_shuffle;
 *  Zhang et al. 2018 */
TUTTI_API tutti_tensor_t *tutti_channel_shuffle(tutti_scope_t *s, tutti_tensor_t *x,
                                                int64_t groups);

/* ---- dropout of whole channels --------------------------------------------------------------- */

/** tutti_dropout() of whole lines of x [N, C, L] or [C, L]. @thread the scope's @errors ARG (p),
 *  SHAPE, DTYPE @source torch.nn.functional.dropout1d; Tompson et al. 2015 */
TUTTI_API tutti_tensor_t *tutti_dropout1d(tutti_scope_t *s, tutti_tensor_t *x, float p);

/** Of whole planes of x [N, C, H, W] or [C, H, W]. @thread the scope's @errors ARG (p), SHAPE,
 *  DTYPE @source torch.nn.functional.dropout2d */
TUTTI_API tutti_tensor_t *tutti_dropout2d(tutti_scope_t *s, tutti_tensor_t *x, float p);

/** Of whole volumes of x [N, C, D, H, W] or [C, D, H, W]. @thread the scope's @errors ARG (p),
 *  SHAPE, DTYPE @source torch.nn.functional.dropout3d */
TUTTI_API tutti_tensor_t *tutti_dropout3d(tutti_scope_t *s, tutti_tensor_t *x, float p);

/**
 * While the context trains, elements become -1.7581, SELU's limit below, with probability p; then
 * all are scaled and shifted, so that mean 0 and variance 1 stay. x itself otherwise, or if p is 0.
 *
 * @param x  [any shape], floating
 * @param p  in [0, 1]; of 1 all is 0
 * @return   x's shape and dtype; dx = a g where x was kept, a = 1/√((1-p)(1 + 1.7581² p))
 * @thread   the scope's
 * @errors   ARG (p), DTYPE
 * @source   torch.nn.functional.alpha_dropout; Klambauer et al. 2017
 */
TUTTI_API tutti_tensor_t *tutti_alpha_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p);

/** The same of whole channels of x [N, C, ...]. @thread the scope's @errors ARG (p), SHAPE, DTYPE
 *  @source torch.nn.functional.feature_alpha_dropout */
TUTTI_API tutti_tensor_t *tutti_feature_alpha_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p);

/* ---- lengths --------------------------------------------------------------------------------- */

/**
 * x / max(‖x‖, eps) along a dimension, ‖x‖ = (Σ |x|^p)^(1/p).
 *
 * @param p    above 0, INFINITY: the largest; PyTorch's is 2
 * @param dim  PyTorch's is 1
 * @param eps  PyTorch's is 1e-12
 * @return     x's shape and dtype
 * @thread     the scope's
 * @errors     ARG (p, dim), DTYPE
 * @source     torch.nn.functional.normalize
 */
TUTTI_API tutti_tensor_t *tutti_normalize(tutti_scope_t *s, tutti_tensor_t *x, double p, int dim,
                                          double eps);

typedef struct tutti_local_response_options {
    int64_t size; /**< channels that count */
    double alpha; /**< 0: 1e-4 */
    double beta;  /**< 0: 0.75 */
    double k;     /**< 0: 1 */
} tutti_local_response_options_t;

/**
 * x / (k + alpha mean(x²))^beta, the mean over `size` neighbouring channels, those that are missing
 * being 0.
 *
 * @param x        [N, C, ...], three dimensions or more
 * @param options  borrowed
 * @return         x's shape and dtype
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (the size)
 * @source         torch.nn.functional.local_response_norm; Krizhevsky et al. 2012
 */
TUTTI_API tutti_tensor_t *tutti_local_response_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                                    const tutti_local_response_options_t *options);

/* ---- weights that are bounded ---------------------------------------------------------------- */

/**
 * g v / ‖v‖, the length over all dimensions but one: direction and length of weights apart.
 *
 * @param v    [..., n, ...], floating
 * @param g    broadcast to v's shape: [n, 1, 1] of a v [n, C, K] and dim 0
 * @param dim  of the lengths that stay apart; PyTorch's is 0
 * @return     v's shape and dtype; gradients of v and g
 * @thread     the scope's
 * @errors     SHAPE, DTYPE, ARG (dim)
 * @source     torch.nn.utils.parametrizations.weight_norm; Salimans and Kingma 2016
 */
TUTTI_API tutti_tensor_t *tutti_weight_norm(tutti_scope_t *s, tutti_tensor_t *v, tutti_tensor_t *g,
                                            int dim);

typedef struct tutti_spectral_norm_options {
    tutti_tensor_t *u; /**< [O], f32 (f64 for f64); written while the context trains */
    tutti_tensor_t *v; /**< [I], the other sizes' product; written, too */
    int iterations;    /**< of the power method while the context trains; 0: 1 */
    double eps;        /**< least length of u and v; PyTorch's is 1e-12 */
} tutti_spectral_norm_options_t;

/**
 * A weight over its largest singular value σ = uᵀ W v, W being [O, I]: the power method moves u and
 * v towards its vectors, u = W v / ‖W v‖ and then v = Wᵀ u / ‖Wᵀ u‖. Under tutti_recompute() they
 * move in the first forward alone; the second one reads them, so none may move them in between.
 *
 * @param weight   [O, ...], two dimensions or more, floating
 * @param options  borrowed; u and v are required, and begin as random numbers, not zeros
 * @return         the weight's shape and dtype; its gradient takes u and v as constant
 * @thread         the scope's
 * @cost           two products with a vector for each iteration
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.utils.parametrizations.spectral_norm; Miyato et al. 2018
 */
TUTTI_API tutti_tensor_t *tutti_spectral_norm(tutti_scope_t *s, tutti_tensor_t *weight,
                                              const tutti_spectral_norm_options_t *options);

/* ---- products and bags ----------------------------------------------------------------------- */

/**
 * y[…, o] = Σ x[…, i] weight[o, i, j] y[…, j] + bias[o].
 *
 * @param x       [..., I]
 * @param y       [..., J], all sizes but the last are x's
 * @param weight  [O, I, J]
 * @param bias    [O], or NULL
 * @return        [..., O]; in 16 bits the first product is rounded, too
 * @thread        the scope's
 * @cost          a product [rows, I] × [I, O J], and one [J] × [J, O] for each row
 * @errors        SHAPE, DTYPE
 * @source        torch.nn.functional.bilinear
 */
TUTTI_API tutti_tensor_t *tutti_bilinear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                         tutti_tensor_t *weight, tutti_tensor_t *bias);

/** What becomes of the rows of a bag. */
typedef enum tutti_bag_mode {
    TUTTI_BAG_MEAN,
    TUTTI_BAG_SUM,
    TUTTI_BAG_MAX,
} tutti_bag_mode_t;

typedef struct tutti_embedding_bag_options {
    tutti_bag_mode_t mode;
    tutti_tensor_t *offsets; /**< [B], i64: where each bag begins in indices [L]; the first is 0,
                                  and they rise. NULL: indices are [B, L] */
    bool has_last_offset;    /**< offsets are [B + 1]: the last is L */
    tutti_tensor_t
        *weights;     /**< as indices: factors of the rows, of TUTTI_BAG_SUM alone; or NULL */
    bool has_padding; /**< the index `padding` counts as if it was not there */
    int64_t padding;  /**< in [-V, V), counted from the end if negative */
    double max_norm, norm_p; /**< as in tutti_embedding_lookup_options_t (op_nn.h) */
    bool scale_by_frequency; /**< the same; not of TUTTI_BAG_MAX */
} tutti_embedding_bag_options_t;

/**
 * Means, sums or maxima of rows of a table, a bag of rows each.
 *
 * @param indices  [B, L], or [L] with offsets; i64, in [0, V)
 * @param weight   [V, C], floating
 * @param options  borrowed; NULL: means
 * @return         [B, C]; 0 of an empty bag; a maximum's gradient goes to the first row that has it
 * @thread         the scope's
 * @cost           as tutti_embedding(); the rows are in memory once. Maxima with offsets sort
 *                 columns, which takes six numbers of 8 bytes for each of the rows' numbers
 * @errors         SHAPE, DTYPE, ARG (an index outside, the options)
 * @source         torch.nn.functional.embedding_bag
 */
TUTTI_API tutti_tensor_t *tutti_embedding_bag(tutti_scope_t *s, tutti_tensor_t *indices,
                                              tutti_tensor_t *weight,
                                              const tutti_embedding_bag_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
