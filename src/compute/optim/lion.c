/* Lion: steps of one size, along the sign of a moving mean. Source: Chen et al., "Symbolic
 * discovery of optimization algorithms", NeurIPS 2023, program 1. */
#include <tutti/optim_kinds.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/steps.h"

static tutti_status_t resolve(void *options)
{
    tutti_lion_options_t *o = options;
    o->lr = tt_or_default(o->lr, 1e-4);
    o->beta1 = tt_or_default(o->beta1, 0.9);
    o->beta2 = tt_or_default(o->beta2, 0.99);
    TT_TRY(tt_optim_check_range("lion", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("lion", "beta1", o->beta1, 0, 1));
    TT_TRY(tt_optim_check_range("lion", "beta2", o->beta2, 0, 1));
    return tt_optim_check_range("lion", "weight_decay", o->weight_decay, 0, INFINITY);
}

static double lr(const void *options)
{
    return ((const tutti_lion_options_t *)options)->lr;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    (void)options;
    (void)shape;
    return i == 0;
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_lion_options_t *o = piece->options;
    const tt_lion_t lion = {.lr = piece->lr,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .weight_decay = o->weight_decay,
                            .maximize = o->maximize};
    const tt_steps_buffers_t at = {
        .weight = piece->weight, .gradient = piece->gradient, .first = piece->moments[0]};
    tt_steps_lion(piece->pool, &lion, &at, piece->count);
}

const tutti_optim_ops_t tutti_lion = {
    .name = "lion",
    .about = "steps of one size along the sign of a moving mean",
    .options_bytes = sizeof(tutti_lion_options_t),
    .moments = {"exp_avg"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
};
