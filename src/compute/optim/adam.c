/* Adam and AdamW: the same update, which differs in where the weight decay goes.
 * Source: torch.optim.Adam and torch.optim.AdamW.
 */
#include "compute/optim/optimizer.h"

#define TABLE(type, decay)                                                                         \
    {                                                                                              \
        TT_OPTIM_OPTION(type, lr, 1e-3, 0, INFINITY), TT_OPTIM_OPTION(type, beta1, 0.9, 0, 1),     \
            TT_OPTIM_OPTION(type, beta2, 0.999, 0, 1),                                             \
            TT_OPTIM_OPTION(type, eps, 1e-8, 0, INFINITY),                                         \
            TT_OPTIM_OPTION(type, weight_decay, decay, 0, INFINITY),                               \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

static const tutti_optim_option_t adam_table[] = TABLE(tutti_adam_options_t, 0);
static const tutti_optim_option_t adamw_table[] = TABLE(tutti_adamw_options_t, 0.01);

static tutti_status_t resolve_adamw(void *options)
{
    tutti_adamw_options_t *o = options;
    o->weight_decay = o->no_weight_decay ? TUTTI_ZERO : o->weight_decay;
    return TUTTI_OK;
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

static tt_update_numbers_t numbers_of(const tutti_optim_piece_t *piece,
                                      const tutti_adam_options_t *o)
{
    const double step = (double)piece->step;
    return (tt_update_numbers_t){.sign = o->maximize ? -1 : 1,
                                 .keep = 1,
                                 .decay = o->weight_decay,
                                 .minus_lr = -piece->lr / (1 - pow(o->beta1, step)),
                                 .gain1 = 1 - o->beta1,
                                 .beta2 = o->beta2,
                                 .gain2 = 1 - o->beta2,
                                 .root2 = sqrt(1 - pow(o->beta2, step)),
                                 .eps = o->eps};
}

static void update_adam(const tutti_optim_piece_t *piece)
{
    const tt_update_numbers_t numbers = numbers_of(piece, piece->options);
    tt_optim_update(piece, TT_UPDATE_ADAM, &numbers);
}

static void update_adamw(const tutti_optim_piece_t *piece)
{
    const tutti_adamw_options_t *o = piece->options;
    const tutti_adam_options_t adam = {
        .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .maximize = o->maximize};
    tt_update_numbers_t numbers = numbers_of(piece, &adam);
    numbers.keep = 1 - piece->lr * o->weight_decay;
    tt_optim_update(piece, TT_UPDATE_ADAM, &numbers);
}

const tutti_optim_ops_t tutti_adam = {
    .name = "adam",
    .about = "steps scaled by moving means of gradient and square",
    .options_bytes = sizeof(tutti_adam_options_t),
    .options = adam_table,
    .moments = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .has_moment = has_moment_adam,
    .update = update_adam,
};

const tutti_optim_ops_t tutti_adamw = {
    .name = "adamw",
    .about = "Adam with the weight decay apart from the gradient",
    .options_bytes = sizeof(tutti_adamw_options_t),
    .options = adamw_table,
    .moments = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .resolve = resolve_adamw,
    .has_moment = has_moment_adamw,
    .update = update_adamw,
};
