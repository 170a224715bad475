/* RMSprop: steps divided by a moving root mean square. Source: torch.optim.RMSprop. */
#include <tutti/optim_kinds.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/steps.h"

static tutti_status_t resolve(void *options)
{
    tutti_rmsprop_options_t *o = options;
    o->lr = tt_or_default(o->lr, 1e-2);
    o->alpha = tt_or_default(o->alpha, 0.99);
    o->eps = tt_or_default(o->eps, 1e-8);
    TT_TRY(tt_optim_check_range("rmsprop", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("rmsprop", "alpha", o->alpha, 0, 1));
    TT_TRY(tt_optim_check_range("rmsprop", "eps", o->eps, 0, INFINITY));
    TT_TRY(tt_optim_check_range("rmsprop", "momentum", o->momentum, 0, 1));
    return tt_optim_check_range("rmsprop", "weight_decay", o->weight_decay, 0, INFINITY);
}

static double lr(const void *options)
{
    return ((const tutti_rmsprop_options_t *)options)->lr;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    const tutti_rmsprop_options_t *o = options;
    (void)shape;
    return i == 0 || (i == 1 && o->momentum != 0) || (i == 2 && o->centered);
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_rmsprop_options_t *o = piece->options;
    const tt_rmsprop_t rmsprop = {.lr = piece->lr,
                                  .alpha = o->alpha,
                                  .eps = o->eps,
                                  .weight_decay = o->weight_decay,
                                  .momentum = o->momentum,
                                  .maximize = o->maximize};
    const tt_steps_buffers_t at = {piece->weight, piece->gradient, piece->moments[0],
                                   piece->moments[1], piece->moments[2]};
    tt_steps_rmsprop(piece->pool, &rmsprop, &at, piece->count);
}

const tutti_optim_ops_t tutti_rmsprop = {
    .name = "rmsprop",
    .about = "steps divided by a moving root mean square",
    .options_bytes = sizeof(tutti_rmsprop_options_t),
    .moments = {"square_avg", "momentum_buffer", "grad_avg"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
};
