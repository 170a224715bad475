/* RMSprop: steps divided by a moving root mean square. Source: torch.optim.RMSprop. */
#include "compute/optim/optimizer.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_rmsprop_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1e-2, 0, INFINITY),        OPTION(alpha, 0.99, 0, 1),
    OPTION(eps, 1e-8, 0, INFINITY),       OPTION(momentum, 0, 0, 1),
    OPTION(weight_decay, 0, 0, INFINITY), {0},
};

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    const tutti_rmsprop_options_t *o = options;
    (void)shape;
    return i == 0 || (i == 1 ? o->momentum != 0 : o->centered);
}

static void update(const tutti_optim_piece_t *piece)
{
    const tutti_rmsprop_options_t *o = piece->options;
    const tt_update_numbers_t numbers = {.sign = o->maximize ? -1 : 1,
                                         .decay = o->weight_decay,
                                         .minus_lr = -piece->lr,
                                         .beta1 = o->alpha,
                                         .gain1 = 1 - o->alpha,
                                         .eps = o->eps,
                                         .momentum = o->momentum};
    tt_optim_update(piece, TT_UPDATE_RMSPROP, &numbers);
}

const tutti_optim_ops_t tutti_rmsprop = {
    .name = "rmsprop",
    .about = "steps divided by a moving root mean square",
    .options_bytes = sizeof(tutti_rmsprop_options_t),
    .options = options_table,
    .moments = {"square_avg", "momentum_buffer", "grad_avg"},
    .has_moment = has_moment,
    .update = update,
};
