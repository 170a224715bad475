/* Stochastic gradient descent. Source: torch.optim.SGD. */
#include "compute/optim/optimizer.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_sgd_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1e-3, 0, INFINITY),
    OPTION(momentum, 0, 0, 1),
    OPTION(dampening, 0, -INFINITY, INFINITY),
    OPTION(weight_decay, 0, 0, INFINITY),
    {0},
};

static tutti_status_t resolve(void *options)
{
    const tutti_sgd_options_t *o = options;
    return o->nesterov && (o->momentum == 0 || o->dampening != 0)
               ? TT_FAIL(TUTTI_ERR_ARG,
                         "sgd: nesterov with momentum %g and dampening %g: it wants momentum above "
                         "0 and no dampening",
                         o->momentum, o->dampening)
               : TUTTI_OK;
}

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    (void)i, (void)shape;
    return ((const tutti_sgd_options_t *)options)->momentum != 0;
}

static void update(const tutti_optim_piece_t *piece)
{
    const tutti_sgd_options_t *o = piece->options;
    const tt_update_numbers_t numbers = {.sign = o->maximize ? -1 : 1,
                                         .decay = o->weight_decay,
                                         .minus_lr = -piece->lr,
                                         .gain1 = 1 - o->dampening,
                                         .momentum = o->momentum,
                                         .first = piece->step == 1,
                                         .nesterov = o->nesterov};
    tt_optim_update(piece, TT_UPDATE_SGD, &numbers);
}

const tutti_optim_ops_t tutti_sgd = {
    .name = "sgd",
    .about = "stochastic gradient descent, with momentum, Nesterov's too",
    .options_bytes = sizeof(tutti_sgd_options_t),
    .options = options_table,
    .moments = {"momentum_buffer"},
    .resolve = resolve,
    .has_moment = has_moment,
    .update = update,
};
