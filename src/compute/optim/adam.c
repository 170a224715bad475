/* Adam and AdamW: the same update, which differs in where the weight decay goes.
 * Source: torch.optim.Adam and torch.optim.AdamW.
 */
#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/flat.h"

static tutti_status_t resolve_common(const char *name, tutti_adam_options_t *o)
{
    o->lr = tt_or_default(o->lr, 1e-3);
    o->beta1 = tt_or_default(o->beta1, 0.9);
    o->beta2 = tt_or_default(o->beta2, 0.999);
    o->eps = tt_or_default(o->eps, 1e-8);
    TT_TRY(tt_optim_check_range(name, "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range(name, "beta1", o->beta1, 0, 1));
    TT_TRY(tt_optim_check_range(name, "beta2", o->beta2, 0, 1));
    TT_TRY(tt_optim_check_range(name, "eps", o->eps, 0, INFINITY));
    return tt_optim_check_range(name, "weight_decay", o->weight_decay, 0, INFINITY);
}

static tutti_adam_options_t common_of(const tutti_adamw_options_t *o)
{
    return (tutti_adam_options_t){.lr = o->lr,
                                  .beta1 = o->beta1,
                                  .beta2 = o->beta2,
                                  .eps = o->eps,
                                  .weight_decay = o->weight_decay,
                                  .amsgrad = o->amsgrad,
                                  .maximize = o->maximize};
}

static tutti_status_t resolve_adam(void *options)
{
    return resolve_common("adam", options);
}

static tutti_status_t resolve_adamw(void *options)
{
    tutti_adamw_options_t *o = options;
    tutti_adam_options_t common = common_of(o);
    common.weight_decay = o->no_weight_decay ? 0 : tt_or_default(o->weight_decay, 0.01);
    TT_TRY(resolve_common("adamw", &common));
    *o = (tutti_adamw_options_t){.lr = common.lr,
                                 .beta1 = common.beta1,
                                 .beta2 = common.beta2,
                                 .eps = common.eps,
                                 .weight_decay = common.weight_decay,
                                 .no_weight_decay = o->no_weight_decay,
                                 .amsgrad = o->amsgrad,
                                 .maximize = o->maximize};
    return TUTTI_OK;
}

static double lr_adam(const void *options)
{
    return ((const tutti_adam_options_t *)options)->lr;
}

static double lr_adamw(const void *options)
{
    return ((const tutti_adamw_options_t *)options)->lr;
}

static bool has_moment_adam(const void *options, int i, tutti_shape_t *shape)
{
    (void)shape;
    return i < 2 || ((const tutti_adam_options_t *)options)->amsgrad;
}

static bool has_moment_adamw(const void *options, int i, tutti_shape_t *shape)
{
    (void)shape;
    return i < 2 || ((const tutti_adamw_options_t *)options)->amsgrad;
}

static void update(const tt_optim_piece_t *piece, const tutti_adam_options_t *o, bool decoupled)
{
    const tt_adam_t adam = {.lr = piece->lr,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay,
                            .decoupled = decoupled,
                            .maximize = o->maximize,
                            .step = piece->step};
    const tt_adam_buffers_t at = {.weight = piece->weight,
                                  .gradient = piece->gradient,
                                  .first = piece->moments[0],
                                  .second = piece->moments[1],
                                  .second_max = piece->moments[2]};
    tt_flat_adam(piece->pool, &adam, &at, piece->count);
}

static void update_adam(const tt_optim_piece_t *piece)
{
    update(piece, piece->options, false);
}

static void update_adamw(const tt_optim_piece_t *piece)
{
    const tutti_adam_options_t common = common_of(piece->options);
    update(piece, &common, true);
}

const tutti_optim_ops_t tutti_adam = {
    .name = "adam",
    .about = "steps scaled by moving means of gradient and square",
    .options_bytes = sizeof(tutti_adam_options_t),
    .moments = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .resolve = resolve_adam,
    .lr = lr_adam,
    .has_moment = has_moment_adam,
    .update = update_adam,
};

const tutti_optim_ops_t tutti_adamw = {
    .name = "adamw",
    .about = "Adam with the weight decay apart from the gradient",
    .options_bytes = sizeof(tutti_adamw_options_t),
    .moments = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .resolve = resolve_adamw,
    .lr = lr_adamw,
    .has_moment = has_moment_adamw,
    .update = update_adamw,
};
