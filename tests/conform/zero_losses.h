/* Trials of zero_test.c: options of losses. */
#ifndef TT_ZERO_LOSSES_H
#define TT_ZERO_LOSSES_H

#include <tutti/op_likelihood.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_math.h>

#include "zero_trial.h"

/* Anchor, positive and negative differ by little: every option counts. */
static tutti_status_t triplet(trial_t *t, tutti_triplet_margin_options_t o)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(6, 4)), *zeros = tutti_mul_scalar(t->s, x, 0);
    o.reduction = TUTTI_LOSS_NONE;
    return keep_result(
        t, tutti_triplet_margin_loss(t->s, x, zeros, tutti_mul_scalar(t->s, x, 0.5), &o));
}

static tutti_status_t triplet_margin(trial_t *t)
{
    return triplet(t, (tutti_triplet_margin_options_t){.margin = t->value});
}

static tutti_status_t triplet_norm(trial_t *t)
{
    return triplet(t, (tutti_triplet_margin_options_t){.p = t->value});
}

static tutti_status_t triplet_eps(trial_t *t)
{
    return triplet(t, (tutti_triplet_margin_options_t){.margin = 1e-2, .eps = t->value});
}

static tutti_status_t distance_margin(trial_t *t)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(6, 4)), *zeros = tutti_mul_scalar(t->s, x, 0);
    const tutti_triplet_distance_options_t o = {.reduction = TUTTI_LOSS_NONE, .margin = t->value};
    tutti_tensor_t *half = tutti_mul_scalar(t->s, x, 0.5);
    return keep_result(t, tutti_triplet_margin_with_distance_loss(t->s, x, zeros, half, &o));
}

static tutti_status_t multi_margin(trial_t *t)
{
    const tutti_multi_margin_options_t o = {.margin = t->value};
    tutti_tensor_t *classes = tutti_zeros(t->s, TUTTI_I64, TUTTI_SHAPE(6));
    return keep_result(
        t, tutti_multi_margin_loss(t->s, numbers(t->s, TUTTI_SHAPE(6, 4)), classes, &o));
}

static tutti_status_t poisson(trial_t *t)
{
    const tutti_poisson_nll_options_t o = {.is_rate = true, .eps = t->value};
    tutti_tensor_t *rate = tutti_full(t->s, TUTTI_F64, TUTTI_SHAPE(4), 1e-8);
    return keep_result(
        t, tutti_poisson_nll_loss(t->s, rate, tutti_ones(t->s, TUTTI_F64, TUTTI_SHAPE(4)), &o));
}

static tutti_status_t gaussian(trial_t *t)
{
    const tutti_gaussian_nll_options_t o = {.eps = t->value};
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(4));
    tutti_tensor_t *var = tutti_full(t->s, TUTTI_F32, TUTTI_SHAPE(4), 1e-8);
    return keep_result(t, tutti_gaussian_nll_loss(t->s, x, tutti_neg(t->s, x), var, &o));
}

static tutti_status_t focal(trial_t *t, tutti_focal_options_t o)
{
    tutti_tensor_t *y = tutti_full(t->s, TUTTI_F32, TUTTI_SHAPE(6, 4), 1);
    return keep_result(t, tutti_focal_loss(t->s, numbers(t->s, TUTTI_SHAPE(6, 4)), y, &o));
}

static tutti_status_t focal_alpha(trial_t *t)
{
    return focal(t, (tutti_focal_options_t){.alpha = t->value});
}

static tutti_status_t focal_gamma(trial_t *t)
{
    return focal(t, (tutti_focal_options_t){.gamma = t->value});
}

#endif
