/* Adagrad: steps divided by the root of the sum of squares so far. Source: torch.optim.Adagrad. */
#include "compute/optim/optimizer.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_adagrad_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1e-2, 0, INFINITY),        OPTION(lr_decay, 0, 0, INFINITY),
    OPTION(weight_decay, 0, 0, INFINITY), OPTION(initial_accumulator, 0, 0, INFINITY),
    OPTION(eps, 1e-10, 0, INFINITY),      {0},
};

static void update(const tutti_optim_piece_t *piece)
{
    const tutti_adagrad_options_t *o = piece->options;
    const double lr = piece->lr / (1 + (double)(piece->step - 1) * o->lr_decay);
    const tt_update_numbers_t numbers = {.sign = o->maximize ? -1 : 1,
                                         .decay = o->weight_decay,
                                         .minus_lr = -lr,
                                         .eps = o->eps,
                                         .initial = piece->step == 1 ? o->initial_accumulator : 0};
    tt_optim_update(piece, TT_UPDATE_ADAGRAD, &numbers);
}

const tutti_optim_ops_t tutti_adagrad = {
    .name = "adagrad",
    .about = "steps divided by the root of the sum of squares so far",
    .options_bytes = sizeof(tutti_adagrad_options_t),
    .options = options_table,
    .moments = {"sum"},
    .update = update,
};
