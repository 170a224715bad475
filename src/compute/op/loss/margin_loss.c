/* Losses of distances, margins and rankings, made of other operations. Source: op_margin_loss.h.
 * The hinge is relu, which has no gradient at 0. */
#include <tutti/op_margin_loss.h>

#include <math.h>

#include <tutti/op_activation.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "compute/op/loss/loss_reduction.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/math/flat_power.h"
#include "core/base/default.h"

/* ---- distances ------------------------------------------------------------------------------- */

/* The norm of a difference along the last dimension. */
static tutti_tensor_t *norm_of(tutti_scope_t *s, tutti_tensor_t *d, double p)
{
    if (p == 2) {
        return tt_flat_power(s, tutti_sum_over(s, tutti_square(s, d), TUTTI_DIMS(-1), false), 0.5);
    }
    d = tutti_abs(s, d);
    if (isinf(p)) {
        return tutti_max_over(s, d, TUTTI_DIMS(-1), false);
    }
    d = tutti_sum_over(s, tt_flat_power(s, d, p), TUTTI_DIMS(-1), false);
    return tt_flat_power(s, d, 1 / p);
}

static tutti_tensor_t *distance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y, double p,
                                double eps)
{
    return norm_of(s, tutti_add_scalar(s, tutti_sub(s, tt_wide(s, x), tt_wide(s, y)), eps), p);
}

static tutti_status_t check_vectors(const char *name, const tutti_tensor_t *x,
                                    const tutti_tensor_t *y, const char *what)
{
    TT_TRY(tt_tensor_status(x));
    if (x->shape.rank == 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: a scalar is no vector", name);
    }
    return tt_loss_check_pair(name, x, y, x->shape, what);
}

static tutti_status_t check_norm(const char *name, double p)
{
    return p > 0 ? TUTTI_OK : TT_FAIL(TUTTI_ERR_ARG, "%s: p must be above 0, not %g", name, p);
}

tutti_tensor_t *tutti_pairwise_distance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                        double p, double eps)
{
    tutti_status_t status = check_vectors("pairwise_distance", x, y, "the second input");
    if (status >= 0) {
        status = check_norm("pairwise_distance", p);
    }
    return status < 0 ? tutti_scope_fail(s, status) : distance(s, x, y, p, eps);
}

/* The length along a dimension, at least eps. */
static tutti_tensor_t *length_of(tutti_scope_t *s, tutti_tensor_t *x, int dim, double eps)
{
    tutti_tensor_t *squares = tutti_sum_over(s, tutti_square(s, x), TUTTI_DIMS(dim), false);
    /* At 0 the root has no slope: the square is bounded instead. */
    return tutti_sqrt(s, tutti_clamp(s, squares, eps * eps, (double)INFINITY));
}

tutti_tensor_t *tutti_cosine_similarity(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                        int dim, double eps)
{
    const tutti_status_t status = check_vectors("cosine_similarity", x, y, "the second input");
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    y = tt_wide(s, y);
    tutti_tensor_t *product = tutti_sum_over(s, tutti_mul(s, x, y), TUTTI_DIMS(dim), false);
    return tutti_div(s, tutti_div(s, product, length_of(s, x, dim, eps)),
                     length_of(s, y, dim, eps));
}

/* ---- triplets -------------------------------------------------------------------------------- */

/* A norm as a distance. */
typedef struct {
    double p, eps;
} norm_t;

static tutti_tensor_t *norm_distance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                     void *user)
{
    const norm_t *norm = user;
    return distance(s, x, y, norm->p, norm->eps);
}

static tutti_status_t check_triplet(const char *name, const tutti_tensor_t *anchor,
                                    const tutti_tensor_t *positive, const tutti_tensor_t *negative)
{
    TT_TRY(check_vectors(name, anchor, positive, "the positive"));
    return check_vectors(name, anchor, negative, "the negative");
}

/* Of inputs that were checked; options have a distance. */
static tutti_tensor_t *triplet_loss(tutti_scope_t *s, tutti_tensor_t *anchor,
                                    tutti_tensor_t *positive, tutti_tensor_t *negative,
                                    const tutti_triplet_distance_options_t *o)
{
    tutti_tensor_t *near = o->distance(s, anchor, positive, o->user),
                   *far = o->distance(s, anchor, negative, o->user);
    if (o->swap) {
        far = tutti_minimum(s, far, o->distance(s, positive, negative, o->user));
    }
    tutti_tensor_t *beyond =
        tutti_add_scalar(s, tutti_sub(s, near, far), tt_or_default(o->margin, 1));
    return tt_loss_reduce(s, tutti_relu(s, beyond), o->reduction);
}

tutti_tensor_t *tutti_triplet_margin_loss(tutti_scope_t *s, tutti_tensor_t *anchor,
                                          tutti_tensor_t *positive, tutti_tensor_t *negative,
                                          const tutti_triplet_margin_options_t *options)
{
    static const char name[] = "triplet_margin_loss";
    const tutti_triplet_margin_options_t o =
        options == NULL ? (tutti_triplet_margin_options_t){.p = 0} : *options;
    norm_t norm = {tt_or_default(o.p, 2), tt_or_default(o.eps, 1e-6)};
    tutti_status_t status = tt_loss_check(name, o.reduction);
    if (status >= 0) {
        status = check_triplet(name, anchor, positive, negative);
    }
    if (status >= 0) {
        status = check_norm(name, norm.p);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const tutti_triplet_distance_options_t with = {.reduction = o.reduction,
                                                   .margin = o.margin,
                                                   .swap = o.swap,
                                                   .distance = norm_distance,
                                                   .user = &norm};
    return triplet_loss(s, anchor, positive, negative, &with);
}

tutti_tensor_t *
tutti_triplet_margin_with_distance_loss(tutti_scope_t *s, tutti_tensor_t *anchor,
                                        tutti_tensor_t *positive, tutti_tensor_t *negative,
                                        const tutti_triplet_distance_options_t *options)
{
    static const char name[] = "triplet_margin_with_distance_loss";
    norm_t norm = {2, 1e-6};
    tutti_triplet_distance_options_t o =
        options == NULL ? (tutti_triplet_distance_options_t){.margin = 0} : *options;
    tutti_status_t status = tt_loss_check(name, o.reduction);
    if (status >= 0) {
        status = check_triplet(name, anchor, positive, negative);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (o.distance == NULL) {
        o.distance = norm_distance;
        o.user = &norm;
    }
    return triplet_loss(s, anchor, positive, negative, &o);
}

/* ---- targets of 1 and -1 --------------------------------------------------------------------- */

static tutti_margin_options_t margin_or(const tutti_margin_options_t *options, double margin)
{
    return options == NULL ? (tutti_margin_options_t){TUTTI_LOSS_MEAN, margin} : *options;
}

/* 0 where the target is not `which`. */
static tutti_tensor_t *only_where(tutti_scope_t *s, tutti_tensor_t *losses, tutti_tensor_t *target,
                                  double which)
{
    return tutti_masked_fill(s, losses, tutti_ne_scalar(s, target, which), 0);
}

tutti_tensor_t *tutti_cosine_embedding_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                            tutti_tensor_t *target,
                                            const tutti_margin_options_t *options)
{
    static const char name[] = "cosine_embedding_loss";
    const tutti_margin_options_t o = margin_or(options, 0);
    tutti_status_t status = tt_loss_check(name, o.reduction);
    if (status >= 0) {
        status = check_vectors(name, x, y, "the second input");
    }
    if (status >= 0) {
        status = tt_loss_check_pair(name, x, target, tt_loss_rows(x->shape), "the target");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    y = tt_wide(s, y);
    tutti_tensor_t *squares[2] = {tutti_sum_over(s, tutti_square(s, x), TUTTI_DIMS(-1), false),
                                  tutti_sum_over(s, tutti_square(s, y), TUTTI_DIMS(-1), false)};
    tutti_tensor_t *product = tutti_sum_over(s, tutti_mul(s, x, y), TUTTI_DIMS(-1), false);
    tutti_tensor_t *scale = tutti_mul(s, tutti_add_scalar(s, squares[0], 1e-12),
                                      tutti_add_scalar(s, squares[1], 1e-12));
    tutti_tensor_t *cosine = tutti_div(s, product, tutti_sqrt(s, scale));
    tutti_tensor_t *alike = only_where(s, tutti_scalar_sub(s, 1, cosine), target, 1),
                   *apart = tutti_relu(s, tutti_sub_scalar(s, cosine, o.margin));
    return tt_loss_reduce(s, tutti_add(s, alike, only_where(s, apart, target, -1)), o.reduction);
}

tutti_tensor_t *tutti_hinge_embedding_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *target,
                                           const tutti_margin_options_t *options)
{
    static const char name[] = "hinge_embedding_loss";
    const tutti_margin_options_t o = margin_or(options, 1);
    tutti_status_t status = tt_loss_check(name, o.reduction);
    if (status >= 0) {
        status = tt_loss_check_pair(name, x, target, tutti_tensor_shape(x), "the target");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    /* PyTorch's rule for targets that are neither: both parts count. */
    tutti_tensor_t *apart = tutti_masked_fill(s, tutti_relu(s, tutti_scalar_sub(s, o.margin, x)),
                                              tutti_eq_scalar(s, target, 1), 0);
    tutti_tensor_t *alike = tutti_masked_fill(s, x, tutti_eq_scalar(s, target, -1), 0);
    return tt_loss_reduce(s, tutti_add(s, apart, alike), o.reduction);
}

tutti_tensor_t *tutti_margin_ranking_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                          tutti_tensor_t *target,
                                          const tutti_margin_options_t *options)
{
    static const char name[] = "margin_ranking_loss";
    const tutti_margin_options_t o = margin_or(options, 0);
    tutti_status_t status = tt_loss_check(name, o.reduction);
    if (status >= 0) {
        status = tt_loss_check_pair(name, x, y, tutti_tensor_shape(x), "the second input");
    }
    if (status >= 0) {
        status = tt_loss_check_pair(name, x, target, tutti_tensor_shape(x), "the target");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *lead = tutti_mul(s, tutti_sub(s, tt_wide(s, x), tt_wide(s, y)), target);
    return tt_loss_reduce(s, tutti_relu(s, tutti_scalar_sub(s, o.margin, lead)), o.reduction);
}

tutti_tensor_t *tutti_soft_margin_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *target,
                                       tutti_loss_reduction_t reduction)
{
    static const char name[] = "soft_margin_loss";
    tutti_status_t status = tt_loss_check(name, reduction);
    if (status >= 0) {
        status = tt_loss_check_pair(name, x, target, tutti_tensor_shape(x), "the target");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *against = tutti_neg(s, tutti_mul(s, tt_wide(s, x), target));
    return tt_loss_reduce(s, tutti_softplus(s, against, 1, (double)INFINITY), reduction);
}

/* ---- classes --------------------------------------------------------------------------------- */

static tutti_status_t check_class_weight(const char *name, const tutti_tensor_t *x,
                                         const tutti_tensor_t *weight)
{
    if (weight == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_status(weight));
    const int64_t classes = x->shape.dims[x->shape.rank - 1];
    return weight->shape.rank == 1 && weight->numel == classes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "%s: want a weight for each of %lld classes, not %lld",
                         name, (long long)classes, (long long)weight->numel);
}

static tutti_status_t check_multi(const tutti_tensor_t *x, const tutti_tensor_t *target,
                                  const tutti_multi_margin_options_t *o)
{
    static const char name[] = "multi_margin_loss";
    TT_TRY(tt_loss_check(name, o->reduction));
    TT_TRY(tt_tensor_status(x));
    if (x->shape.rank == 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: a scalar has no classes", name);
    }
    TT_TRY(tt_loss_check_pair(name, x, target, tt_loss_rows(x->shape), "the target"));
    if (o->p < 0 || o->p > 2) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: p must be 1 or 2, not %d", name, o->p);
    }
    return check_class_weight(name, x, o->weight);
}

tutti_tensor_t *tutti_multi_margin_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *target,
                                        const tutti_multi_margin_options_t *options)
{
    const tutti_multi_margin_options_t o =
        options == NULL ? (tutti_multi_margin_options_t){.p = 1} : *options;
    const tutti_status_t status = check_multi(x, target, &o);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const double margin = tt_or_default(o.margin, 1);
    x = tt_wide(s, x);
    tutti_tensor_t *index = tutti_unsqueeze(s, target, -1);
    tutti_tensor_t *ahead = tutti_sub(s, x, tutti_gather_along(s, x, -1, index));
    tutti_tensor_t *losses = tutti_relu(s, tutti_add_scalar(s, ahead, margin));
    losses = o.p == 2 ? tutti_square(s, losses) : losses;
    tutti_tensor_t *classes = tutti_arange(s, TUTTI_I64, 0, 1, tutti_tensor_dim(x, -1));
    losses = tutti_masked_fill(s, losses, tutti_eq(s, index, classes), 0);
    losses = tutti_mean_over(s, losses, TUTTI_DIMS(-1), false);
    if (o.weight != NULL) {
        tutti_tensor_t *own =
            tutti_index_select(s, tt_wide(s, o.weight), 0, tutti_flatten(s, target, 0, -1));
        losses = tutti_mul(s, losses, tutti_reshape(s, own, tutti_tensor_shape(target)));
    }
    return tt_loss_reduce(s, losses, o.reduction);
}

tutti_tensor_t *tutti_multilabel_soft_margin_loss(tutti_scope_t *s, tutti_tensor_t *x,
                                                  tutti_tensor_t *y, tutti_tensor_t *weight,
                                                  tutti_loss_reduction_t reduction)
{
    static const char name[] = "multilabel_soft_margin_loss";
    tutti_status_t status = tt_loss_check(name, reduction);
    if (status >= 0) {
        status = check_vectors(name, x, y, "the labels");
    }
    if (status >= 0) {
        status = check_class_weight(name, x, weight);
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    tutti_tensor_t *yes = tutti_mul(s, tutti_logsigmoid(s, x), y);
    tutti_tensor_t *no =
        tutti_mul(s, tutti_logsigmoid(s, tutti_neg(s, x)), tutti_scalar_sub(s, 1, y));
    tutti_tensor_t *losses = tutti_neg(s, tutti_add(s, yes, no));
    losses = weight == NULL ? losses : tutti_mul(s, losses, weight);
    return tt_loss_reduce(s, tutti_mean_over(s, losses, TUTTI_DIMS(-1), false), reduction);
}
