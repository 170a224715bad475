/* Likelihoods, made of other operations. Source: op_likelihood.h. */
#include <tutti/op_likelihood.h>

#include <math.h>

#include <tutti/op_activation.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>
#include <tutti/autograd.h>

#include "compute/op/loss/loss_reduction.h"
#include "compute/op/math/elementwise.h"
#include "core/base/default.h"

static tutti_status_t check(const char *name, const tutti_tensor_t *x, const tutti_tensor_t *y,
                            tutti_loss_reduction_t reduction)
{
    TT_TRY(tt_loss_check(name, reduction));
    return tt_loss_check_pair(name, x, y, tutti_tensor_shape(x), "the target");
}

/* log y! of large y: y log y - y + log(2πy)/2, and 0 up to 1. */
static tutti_tensor_t *stirling(tutti_scope_t *s, tutti_tensor_t *y)
{
    tutti_tensor_t *is_small = tutti_le_scalar(s, y, 1);
    y = tutti_masked_fill(s, y, is_small, 1);
    tutti_tensor_t *rest =
        tutti_mul_scalar(s, tutti_log(s, tutti_mul_scalar(s, y, 6.283185307179586)), 0.5);
    tutti_tensor_t *log_y = tutti_sub(s, tutti_mul(s, y, tutti_log(s, y)), y);
    return tutti_masked_fill(s, tutti_add(s, log_y, rest), is_small, 0);
}

tutti_tensor_t *tutti_poisson_nll_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                       const tutti_poisson_nll_options_t *options)
{
    const tutti_poisson_nll_options_t o =
        options == NULL ? (tutti_poisson_nll_options_t){.eps = 0} : *options;
    const tutti_status_t status = check("poisson_nll_loss", x, y, o.reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    y = tutti_cast(s, y, tutti_tensor_dtype(x));
    tutti_tensor_t *log_rate =
        o.is_rate ? tutti_log(s, tutti_add_scalar(s, x, tt_or_default(o.eps, 1e-8))) : x;
    tutti_tensor_t *rate = o.is_rate ? x : tutti_exp(s, x);
    tutti_tensor_t *losses = tutti_sub(s, rate, tutti_mul(s, y, log_rate));
    losses = o.full ? tutti_add(s, losses, stirling(s, y)) : losses;
    return tt_loss_reduce(s, losses, o.reduction);
}

/* var as it is broadcast to x; the null tensor where it cannot be. */
static tutti_tensor_t *spread_variance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *var)
{
    const char *name = "gaussian_nll_loss";
    if (tutti_tensor_rank(var) == tutti_tensor_rank(x)) {
        const tutti_status_t status = tt_loss_check_spread(name, x, var, "the variance");
        return status < 0 ? tutti_scope_fail(s, status) : var;
    }
    const tutti_status_t status =
        tt_loss_check_pair(name, x, var, tt_loss_rows(tutti_tensor_shape(x)), "the variance");
    return status < 0 ? tutti_scope_fail(s, status) : tutti_unsqueeze(s, var, -1);
}

tutti_tensor_t *tutti_gaussian_nll_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                        tutti_tensor_t *var,
                                        const tutti_gaussian_nll_options_t *options)
{
    const tutti_gaussian_nll_options_t o =
        options == NULL ? (tutti_gaussian_nll_options_t){.eps = 0} : *options;
    const tutti_status_t status = check("gaussian_nll_loss", x, y, o.reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    var = spread_variance(s, x, var);
    if (tutti_tensor_status(var) < 0) {
        return var;
    }
    x = tt_wide(s, x);
    var = tt_wide(s, var);
    const double eps = tt_or_default(o.eps, 1e-6);
    /* The bound is 0, whose gradient is that of var, and eps: exact, however far below var is. */
    tutti_tensor_t *zero = tutti_sub(s, var, tutti_detach(s, var));
    var = tutti_where(s, tutti_lt_scalar(s, var, eps), tutti_add_scalar(s, zero, eps), var);
    tutti_tensor_t *away = tutti_square(s, tutti_sub(s, x, tt_wide(s, y)));
    tutti_tensor_t *twice = tutti_add(s, tutti_log(s, var), tutti_div(s, away, var));
    tutti_tensor_t *losses = tutti_mul_scalar(s, twice, 0.5);
    losses = o.full ? tutti_add_scalar(s, losses, 0.9189385332046727) : losses;
    return tt_loss_reduce(s, losses, o.reduction);
}

tutti_tensor_t *tutti_bce_loss_with(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                    const tutti_bce_options_t *options)
{
    const tutti_bce_options_t o =
        options == NULL ? (tutti_bce_options_t){.weight = NULL} : *options;
    tutti_status_t status = check("bce_loss", x, y, o.reduction);
    if (status >= 0 && o.pos_weight != NULL) {
        status = TT_FAIL(TUTTI_ERR_ARG, "bce_loss: pos_weight goes with logits only");
    }
    if (status >= 0 && o.weight != NULL) {
        status = tt_loss_check_spread("bce_loss", x, o.weight, "the weight");
    }
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    if (o.weight == NULL) {
        return tutti_bce_loss(s, x, y, o.reduction);
    }
    tutti_tensor_t *losses = tutti_bce_loss(s, x, y, TUTTI_LOSS_NONE);
    return tt_loss_reduce(s, tutti_mul(s, losses, tt_wide(s, o.weight)), o.reduction);
}

tutti_tensor_t *tutti_bce_with_logits_with(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                           const tutti_bce_options_t *options)
{
    const tutti_bce_options_t o =
        options == NULL ? (tutti_bce_options_t){.weight = NULL} : *options;
    if (o.weight == NULL && o.pos_weight == NULL) {
        return tutti_bce_with_logits(s, x, y, o.reduction);
    }
    const tutti_status_t status = check("bce_with_logits", x, y, o.reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *losses = tutti_bce_with_logits(s, x, y, TUTTI_LOSS_NONE);
    if (o.pos_weight != NULL) {
        x = tt_wide(s, x);
        y = tt_wide(s, y);
        tutti_tensor_t *more = tutti_sub_scalar(s, tt_wide(s, o.pos_weight), 1);
        more = tutti_add_scalar(s, tutti_mul(s, more, y), 1);
        tutti_tensor_t *missed = tutti_softplus(s, tutti_neg(s, x), 1, (double)INFINITY);
        losses =
            tutti_add(s, tutti_mul(s, tutti_scalar_sub(s, 1, y), x), tutti_mul(s, more, missed));
    }
    losses = o.weight == NULL ? losses : tutti_mul(s, losses, tt_wide(s, o.weight));
    return tt_loss_reduce(s, losses, o.reduction);
}

/* a where y is 1, b where it is 0. */
static tutti_tensor_t *by_target(tutti_scope_t *s, tutti_tensor_t *y, double a, double b)
{
    return tutti_add_scalar(s, tutti_mul_scalar(s, y, a - b), b);
}

tutti_tensor_t *tutti_focal_loss(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                 const tutti_focal_options_t *options)
{
    const tutti_focal_options_t o =
        options == NULL ? (tutti_focal_options_t){.alpha = 0} : *options;
    const double alpha = tt_or_default(o.alpha, 0.25), gamma = tt_or_default(o.gamma, 2);
    const tutti_status_t status = check("focal_loss", x, y, o.reduction);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    x = tt_wide(s, x);
    y = tutti_cast(s, y, tutti_tensor_dtype(x));
    tutti_tensor_t *losses = tutti_bce_with_logits(s, x, y, TUTTI_LOSS_NONE);
    /* 1 - p: σ(-x) where y is 1, σ(x) where it is 0. */
    tutti_tensor_t *wrong = tutti_sigmoid(s, tutti_mul(s, x, by_target(s, y, -1, 1)));
    losses = tutti_mul(s, losses, tutti_pow_scalar(s, wrong, gamma));
    losses = alpha < 0 ? losses : tutti_mul(s, losses, by_target(s, y, alpha, 1 - alpha));
    return tt_loss_reduce(s, losses, o.reduction);
}
