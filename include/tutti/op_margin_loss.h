/**
 * @file op_margin_loss.h
 * Losses of distances, margins and rankings.
 *
 * Example:
 *
 *     tutti_tensor_t *anchor = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(8, 16), 0, 1);
 *     tutti_tensor_t *same = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(8, 16), 0, 1);
 *     tutti_tensor_t *other = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(8, 16), 0, 1);
 *     tutti_tensor_t *loss = tutti_triplet_margin_loss(s, anchor, same, other, NULL);
 *
 * Vectors are the last dimension. 16-bit inputs are computed and returned in f32. A hinge max(0, …)
 * has no gradient at 0. Gradients are of any order: most losses consist of other operations.
 */
#ifndef TUTTI_OP_MARGIN_LOSS_H
#define TUTTI_OP_MARGIN_LOSS_H

#include <tutti/op_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- distances ------------------------------------------------------------------------------- */

/**
 * The p-norm of x - y + eps along the last dimension.
 *
 * @param y    [x's shape]
 * @param p    above 0, or infinite; PyTorch's is 2
 * @param eps  so that there is a gradient where both are equal; PyTorch's is 1e-6
 * @return     as x without its last dimension
 * @thread     the scope's
 * @cost       a few passes
 * @errors     SHAPE, DTYPE, ARG (p), NOMEM
 * @source     torch.nn.functional.pairwise_distance
 */
TUTTI_API tutti_tensor_t *tutti_pairwise_distance(tutti_scope_t *s, tutti_tensor_t *x,
                                                  tutti_tensor_t *y, double p, double eps);

/** x · y / (max(|x|, eps) max(|y|, eps)) along a dimension; PyTorch's eps is 1e-8.
 *  @thread the scope's @errors SHAPE, DTYPE, ARG (dim), NOMEM
 *  @source torch.nn.functional.cosine_similarity */
TUTTI_API tutti_tensor_t *tutti_cosine_similarity(tutti_scope_t *s, tutti_tensor_t *x,
                                                  tutti_tensor_t *y, int dim, double eps);

/**
 * The p-norms of the differences of all pairs of rows: d[i, j] = (Σ |x[i] - y[j]|^p)^(1/p).
 *
 * @param x  [..., P, D], floating
 * @param y  [..., R, D], floating; the sizes in front are broadcast
 * @param p  at least 0; 0: how many elements differ, infinite: the largest difference; PyTorch's
 *           is 2, of many rows by a product of matrices, which loses small distances: not here
 * @return   d [..., P, R]. dx[i] = Σ g[i, j] sign(t) (|t| / d[i, j])^(p-1), t = x[i] - y[j], and dy
 *           as well: 0 where a distance or t is 0, and for p = 0; for an infinite p g sign(t) where
 *           |t| is the largest
 * @thread   the scope's
 * @cost     3 P R D operations, backward for x and y as much each; other p than 0, 1, 2 and
 *           infinity: a power of each difference. A gradient of it has [..., P, R, D] in memory
 * @errors   SHAPE, DTYPE, ARG (p), NOMEM
 * @source   torch.cdist
 */
TUTTI_API tutti_tensor_t *tutti_cdist(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                      double p);

/** tutti_cdist() of each pair of rows i < j of x [N, D], in the order (0, 1) (0, 2) … (1, 2) …:
 *  [N (N - 1) / 2]; PyTorch's p is 2. @thread the scope's @errors SHAPE, DTYPE, ARG (p), NOMEM
 *  @source torch.nn.functional.pdist */
TUTTI_API tutti_tensor_t *tutti_pdist(tutti_scope_t *s, tutti_tensor_t *x, double p);

/* ---- losses ---------------------------------------------------------------------------------- */

typedef struct tutti_triplet_margin_options {
    tutti_loss_reduction_t reduction;
    double margin; /**< 0: 1 */
    double p;      /**< of the distance; 0: 2 */
    double eps;    /**< of the distance; 0: 1e-6 */
    bool swap;     /**< the negative's distance is the smaller one of those from both others */
} tutti_triplet_margin_options_t;

/**
 * max(0, margin + d(anchor, positive) - d(anchor, negative)), reduced.
 *
 * @param anchor, positive, negative  [..., D], floating, of one shape
 * @param options  NULL for the defaults
 * @return         a scalar, or [...] without reduction
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (p), NOMEM
 * @source         torch.nn.functional.triplet_margin_loss; Balntas et al. 2016 for swap
 */
TUTTI_API tutti_tensor_t *tutti_triplet_margin_loss(tutti_scope_t *s, tutti_tensor_t *anchor,
                                                    tutti_tensor_t *positive,
                                                    tutti_tensor_t *negative,
                                                    const tutti_triplet_margin_options_t *options);

/** A distance of one's own: x and y [..., D] give [...]. It is made of operations in s, whose
 *  gradients it has. */
typedef tutti_tensor_t *(*tutti_distance_fn_t)(tutti_scope_t *s, tutti_tensor_t *x,
                                               tutti_tensor_t *y, void *user);

typedef struct tutti_triplet_distance_options {
    tutti_loss_reduction_t reduction;
    double margin;                /**< 0: 1 */
    bool swap;                    /**< as above */
    tutti_distance_fn_t distance; /**< NULL: tutti_pairwise_distance() with p = 2, eps = 1e-6 */
    void *user;                   /**< handed on to it */
} tutti_triplet_distance_options_t;

/**
 * tutti_triplet_margin_loss() of another distance, which is called twice, or three times to swap:
 * (anchor, positive), (anchor, negative), (positive, negative).
 *
 * @param anchor, positive, negative  [..., D], floating, of one shape
 * @param options  NULL for the defaults
 * @return         a scalar, or without reduction what the distance gives
 * @thread         the scope's, in which the distance is called
 * @errors         SHAPE, DTYPE, ARG (reduction), NOMEM; those of the distance
 * @source         torch.nn.functional.triplet_margin_with_distance_loss
 */
TUTTI_API tutti_tensor_t *
tutti_triplet_margin_with_distance_loss(tutti_scope_t *s, tutti_tensor_t *anchor,
                                        tutti_tensor_t *positive, tutti_tensor_t *negative,
                                        const tutti_triplet_distance_options_t *options);

/** What margins have in common. */
typedef struct tutti_margin_options {
    tutti_loss_reduction_t reduction;
    double margin;
} tutti_margin_options_t;

/**
 * Of the cosine c of x and y: 1 - c where the target is 1, max(0, c - margin) where it is -1.
 *
 * @param x, y     [..., D], floating, of one shape
 * @param target   [...], 1 or -1, of any dtype
 * @param options  NULL: a margin of 0, and the mean
 * @return         a scalar, or [...] without reduction
 * @thread         the scope's
 * @errors         SHAPE, DTYPE, ARG (reduction), NOMEM
 * @source         torch.nn.functional.cosine_embedding_loss
 */
TUTTI_API tutti_tensor_t *tutti_cosine_embedding_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                      tutti_tensor_t *y, tutti_tensor_t *target,
                                                      const tutti_margin_options_t *options);

/** x where the target is 1, max(0, margin - x) where it is -1; reduced. The target has x's shape.
 *  @param options NULL: a margin of 1, and the mean @thread the scope's
 *  @errors SHAPE, DTYPE, ARG (reduction), NOMEM @source torch.nn.functional.hinge_embedding_loss */
TUTTI_API tutti_tensor_t *tutti_hinge_embedding_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                     tutti_tensor_t *target,
                                                     const tutti_margin_options_t *options);

/** max(0, margin - target (x - y)), reduced: x should be the larger one where the target is 1, and
 *  the smaller where it is -1. All have x's shape. @param options NULL: a margin of 0, and the mean
 *  @thread the scope's @errors SHAPE, DTYPE, ARG (reduction), NOMEM
 *  @source torch.nn.functional.margin_ranking_loss */
TUTTI_API tutti_tensor_t *tutti_margin_ranking_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                    tutti_tensor_t *y, tutti_tensor_t *target,
                                                    const tutti_margin_options_t *options);

/** log(1 + e^(-target x)), reduced; targets of x's shape are 1 or -1. @thread the scope's
 *  @errors SHAPE, DTYPE, ARG (reduction), NOMEM @source torch.nn.functional.soft_margin_loss */
TUTTI_API tutti_tensor_t *tutti_soft_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                 tutti_tensor_t *target,
                                                 tutti_loss_reduction_t reduction);

typedef struct tutti_multi_margin_options {
    tutti_loss_reduction_t reduction;
    double margin;          /**< 0: 1 */
    int p;                  /**< the power: 1 or 2; 0: 1 */
    tutti_tensor_t *weight; /**< [V] of each class, counted where it is the target; NULL: all 1 */
} tutti_multi_margin_options_t;

/**
 * Σ max(0, margin - x[target] + x[c])^p / V over the classes c but the target, reduced.
 *
 * @param x       [..., V], floating
 * @param target  [...], i64 or i32 in [0, V)
 * @param options NULL for the defaults
 * @return        a scalar, or [...] without reduction
 * @thread        the scope's
 * @errors        SHAPE, DTYPE, ARG (p, reduction, a target outside), NOMEM
 * @source        torch.nn.functional.multi_margin_loss
 */
TUTTI_API tutti_tensor_t *tutti_multi_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                  tutti_tensor_t *target,
                                                  const tutti_multi_margin_options_t *options);

/**
 * Σ max(0, 1 - x[t] + x[c]) / V over targets t and classes c that are none, reduced.
 *
 * @param x        [..., V], floating
 * @param targets  [..., V], i64 or i32 in [-1, V): classes up to the first -1, what is behind it
 *                 does not count; a class counts again if it occurs again
 * @return         a scalar, or [...] without reduction. dx[c] = g n / V, n targets with a margin to
 *                 c; dx[t] = -g n / V, n classes with a margin to t
 * @thread         the scope's
 * @cost           a pass over the row for each of its targets; keeps [..., V]
 * @errors         SHAPE, DTYPE, ARG (reduction, a target outside), NOMEM
 * @source         torch.nn.functional.multilabel_margin_loss
 */
TUTTI_API tutti_tensor_t *tutti_multilabel_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                       tutti_tensor_t *targets,
                                                       tutti_loss_reduction_t reduction);

/** The mean over classes, the last dimension, of -(y log σ(x) + (1 - y) log σ(-x)), times a weight
 *  [V] of each class (NULL: all 1); reduced. @thread the scope's
 *  @errors SHAPE, DTYPE, ARG (reduction), NOMEM
 *  @source torch.nn.functional.multilabel_soft_margin_loss */
TUTTI_API tutti_tensor_t *tutti_multilabel_soft_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                            tutti_tensor_t *y,
                                                            tutti_tensor_t *weight,
                                                            tutti_loss_reduction_t reduction);

#ifdef __cplusplus
}
#endif

#endif
