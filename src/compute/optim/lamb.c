/* LAMB: Adam's update, scaled to the norm of the parameter. A measure moves the moments and adds up
 * squares of weights and update; the update is computed anew rather than kept. Source: You et al.,
 * "Large batch optimization for deep learning", ICLR 2020, algorithm 2. */
#include "compute/optim/optimizer.h"
#include "core/kernel/optim/flat.h"

#define OPTION(name, ...) TT_OPTIM_OPTION(tutti_lamb_options_t, name, __VA_ARGS__)

static const tutti_optim_option_t options_table[] = {
    OPTION(lr, 1e-3, 0, INFINITY),        OPTION(beta1, 0.9, 0, 1),
    OPTION(beta2, 0.999, 0, 1),           OPTION(eps, 1e-6, 0, INFINITY),
    OPTION(weight_decay, 0, 0, INFINITY), {0},
};

enum { WEIGHTS, UPDATES }; /* sums of squares */

static tt_update_numbers_t numbers_of(const tutti_optim_piece_t *piece)
{
    const tutti_lamb_options_t *o = piece->options;
    const double step = (double)piece->step;
    return (tt_update_numbers_t){.sign = o->maximize ? -1 : 1,
                                 .decay = o->weight_decay,
                                 .beta1 = o->beta1,
                                 .gain1 = 1 - o->beta1,
                                 .beta2 = o->beta2,
                                 .gain2 = 1 - o->beta2,
                                 .scale1 = 1 / (1 - pow(o->beta1, step)),
                                 .root2 = sqrt(1 - pow(o->beta2, step)),
                                 .eps = o->eps};
}

static size_t block_at(const tutti_optim_piece_t *piece, size_t i)
{
    return piece->count - i < TT_FLAT_BLOCK ? piece->count - i : TT_FLAT_BLOCK;
}

static void measure(const tutti_optim_piece_t *section, double *sums)
{
    const tt_kernels_t *kernels = tt_kernels();
    const tt_update_numbers_t numbers = numbers_of(section);
    float u[TT_FLAT_BLOCK];
    for (size_t i = 0; i < section->count; i += TT_FLAT_BLOCK) {
        const size_t n = block_at(section, i);
        const tt_update_buffers_t at = tt_optim_buffers(section, i);
        kernels->optim_steps->lamb_moments(&numbers, &at, n);
        kernels->optim_steps->lamb_update(&numbers, &at, u, n);
        sums[WEIGHTS] += kernels->flat->squares(at.weight, n);
        sums[UPDATES] += kernels->flat->squares(u, n);
    }
}

static void update(const tutti_optim_piece_t *piece)
{
    const tt_kernels_t *kernels = tt_kernels();
    const tt_update_numbers_t numbers = numbers_of(piece);
    const double weights = sqrt(piece->sums[WEIGHTS]), updates = sqrt(piece->sums[UPDATES]);
    const double trust = weights > 0 && updates > 0 ? weights / updates : 1;
    float u[TT_FLAT_BLOCK];
    for (size_t i = 0; i < piece->count; i += TT_FLAT_BLOCK) {
        const size_t n = block_at(piece, i);
        const tt_update_buffers_t at = tt_optim_buffers(piece, i);
        kernels->optim_steps->lamb_update(&numbers, &at, u, n);
        kernels->flat->axpy(at.weight, u, n, (float)(-piece->lr * trust));
    }
}

const tutti_optim_ops_t tutti_lamb = {
    .name = "lamb",
    .about = "Adam's update, scaled to the norm of the parameter",
    .options_bytes = sizeof(tutti_lamb_options_t),
    .options = options_table,
    .moments = {"exp_avg", "exp_avg_sq"},
    .measure = measure,
    .update = update,
};
