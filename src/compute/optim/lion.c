/* Lion: steps of one size, along the sign of a moving mean. Source: Chen et al., "Symbolic
 * discovery of optimization algorithms", NeurIPS 2023, program 1. */
#include "compute/optim/optimizer.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_lion_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1e-4, 0, INFINITY),
    OPTION(beta1, 0.9, 0, 1),
    OPTION(beta2, 0.99, 0, 1),
    OPTION(weight_decay, 0, 0, INFINITY),
    {0},
};

static void update(const tutti_optim_piece_t *piece)
{
    const tutti_lion_options_t *o = piece->options;
    const tt_update_numbers_t numbers = {.sign = o->maximize ? -1 : 1,
                                         .keep = 1 - piece->lr * o->weight_decay,
                                         .minus_lr = -piece->lr,
                                         .beta1 = o->beta1,
                                         .gain1 = 1 - o->beta1,
                                         .beta2 = o->beta2,
                                         .gain2 = 1 - o->beta2};
    tt_optim_update(piece, TT_UPDATE_LION, &numbers);
}

const tutti_optim_ops_t tutti_lion = {
    .name = "lion",
    .about = "steps of one size along the sign of a moving mean",
    .options_bytes = sizeof(tutti_lion_options_t),
    .options = options_table,
    .moments = {"exp_avg"},
    .update = update,
};
