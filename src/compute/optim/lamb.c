/* LAMB: Adam's update, scaled to the norm of the parameter. Source: You et al., "Large batch
 * optimization for deep learning", ICLR 2020, algorithm 2. */
#include <tutti/optim_kinds.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/steps.h"

static tutti_status_t resolve(void *options)
{
    tutti_lamb_options_t *o = options;
    o->lr = tt_or_default(o->lr, 1e-3);
    o->beta1 = tt_or_default(o->beta1, 0.9);
    o->beta2 = tt_or_default(o->beta2, 0.999);
    o->eps = tt_or_default(o->eps, 1e-6);
    TT_TRY(tt_optim_check_range("lamb", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("lamb", "beta1", o->beta1, 0, 1));
    TT_TRY(tt_optim_check_range("lamb", "beta2", o->beta2, 0, 1));
    TT_TRY(tt_optim_check_range("lamb", "eps", o->eps, 0, INFINITY));
    return tt_optim_check_range("lamb", "weight_decay", o->weight_decay, 0, INFINITY);
}

static double lr(const void *options)
{
    return ((const tutti_lamb_options_t *)options)->lr;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    (void)options;
    (void)shape;
    return i < 2;
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_lamb_options_t *o = piece->options;
    const tt_lamb_t lamb = {.lr = piece->lr,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay,
                            .maximize = o->maximize,
                            .step = piece->step};
    const tt_steps_buffers_t at = {.weight = piece->weight,
                                   .gradient = piece->gradient,
                                   .first = piece->moments[0],
                                   .second = piece->moments[1]};
    tt_steps_lamb(piece->pool, &lamb, &at, piece->count);
}

const tutti_optim_ops_t tutti_lamb = {
    .name = "lamb",
    .about = "Adam's update, scaled to the norm of the parameter",
    .options_bytes = sizeof(tutti_lamb_options_t),
    .moments = {"exp_avg", "exp_avg_sq"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
    .wants_whole = true,
};
