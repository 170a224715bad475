/* Stochastic gradient descent. Source: torch.optim.SGD. */
#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/flat.h"

static tutti_status_t resolve(void *options)
{
    tutti_sgd_options_t *o = options;
    o->lr = tt_or_default(o->lr, 1e-3);
    TT_TRY(tt_optim_check_range("sgd", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("sgd", "momentum", o->momentum, 0, 1));
    TT_TRY(tt_optim_check_range("sgd", "weight_decay", o->weight_decay, 0, INFINITY));
    if (!isfinite(o->dampening)) {
        return TT_FAIL(TUTTI_ERR_ARG, "sgd: dampening is %g: it must be finite", o->dampening);
    }
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sgd: nesterov with momentum %g and dampening %g: it wants momentum above 0 "
                       "and no dampening",
                       o->momentum, o->dampening);
    }
    return TUTTI_OK;
}

static double lr(const void *options)
{
    return ((const tutti_sgd_options_t *)options)->lr;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    (void)shape;
    return i == 0 && ((const tutti_sgd_options_t *)options)->momentum != 0;
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_sgd_options_t *o = piece->options;
    const tt_sgd_t sgd = {.lr = piece->lr,
                          .momentum = o->momentum,
                          .dampening = o->dampening,
                          .weight_decay = o->weight_decay,
                          .nesterov = o->nesterov,
                          .maximize = o->maximize,
                          .is_first_step = piece->step == 1};
    tt_flat_sgd(piece->pool, &sgd, piece->weight, piece->gradient, piece->moments[0], piece->count);
}

const tutti_optim_ops_t tutti_sgd = {
    .name = "sgd",
    .about = "stochastic gradient descent, with momentum, Nesterov's too",
    .options_bytes = sizeof(tutti_sgd_options_t),
    .moments = {"momentum_buffer"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
};
