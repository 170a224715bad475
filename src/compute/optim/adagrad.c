/* Adagrad: steps divided by the root of the sum of squares so far. Source: torch.optim.Adagrad. */
#include <tutti/optim_kinds.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/steps.h"

static tutti_status_t resolve(void *options)
{
    tutti_adagrad_options_t *o = options;
    o->lr = tt_or_default(o->lr, 1e-2);
    o->eps = tt_or_default(o->eps, 1e-10);
    TT_TRY(tt_optim_check_range("adagrad", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adagrad", "lr_decay", o->lr_decay, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adagrad", "eps", o->eps, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adagrad", "initial_accumulator", o->initial_accumulator, 0,
                                INFINITY));
    return tt_optim_check_range("adagrad", "weight_decay", o->weight_decay, 0, INFINITY);
}

static double lr(const void *options)
{
    return ((const tutti_adagrad_options_t *)options)->lr;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    (void)options;
    (void)shape;
    return i == 0;
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_adagrad_options_t *o = piece->options;
    const tt_adagrad_t adagrad = {.lr = piece->lr,
                                  .lr_decay = o->lr_decay,
                                  .weight_decay = o->weight_decay,
                                  .initial = o->initial_accumulator,
                                  .eps = o->eps,
                                  .maximize = o->maximize,
                                  .step = piece->step};
    const tt_steps_buffers_t at = {
        .weight = piece->weight, .gradient = piece->gradient, .first = piece->moments[0]};
    tt_steps_adagrad(piece->pool, &adagrad, &at, piece->count);
}

const tutti_optim_ops_t tutti_adagrad = {
    .name = "adagrad",
    .about = "steps divided by the root of the sum of squares so far",
    .options_bytes = sizeof(tutti_adagrad_options_t),
    .moments = {"sum"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
};
