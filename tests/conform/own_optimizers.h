/* Optimizers as a user writes them: C that is C++, too, and public headers alone.
 *
 *     own_adam    torch.optim.Adam without flags; must have the bits of tutti_adam
 *     own_trust   steps of a length in proportion to the weight's, by a measure
 *     own_whole   the same, over the whole parameter at once
 */
#ifndef TT_OWN_OPTIMIZERS_H
#define TT_OWN_OPTIMIZERS_H

#include <tutti/own_optimizer.h>

#ifdef __cplusplus
#define OWN_OPTIMIZER extern const
#else
#define OWN_OPTIMIZER static const
#endif

/* A hundred bytes and more. */
typedef struct own_adam_options {
    char name[80];
    double lr, beta1, beta2, eps, weight_decay;
} own_adam_options_t;

static const tutti_optim_option_t own_adam_table[] = {
    {"lr", offsetof(own_adam_options_t, lr), 1e-3, 0, INFINITY},
    {"beta1", offsetof(own_adam_options_t, beta1), 0.9, 0, 1},
    {"beta2", offsetof(own_adam_options_t, beta2), 0.999, 0, 1},
    {"eps", offsetof(own_adam_options_t, eps), 1e-8, 0, INFINITY},
    {"weight_decay", offsetof(own_adam_options_t, weight_decay), 0, 0, INFINITY},
    {NULL, 0, 0, 0, 0},
};

static void own_adam_update(const tutti_optim_piece_t *piece)
{
    const own_adam_options_t *o = (const own_adam_options_t *)piece->options;
    const double step = (double)piece->step;
    const float gain1 = (float)(1 - o->beta1), gain2 = (float)(1 - o->beta2);
    const float beta2 = (float)o->beta2, decay = (float)o->weight_decay, eps = (float)o->eps;
    const float root2 = (float)sqrt(1 - pow(o->beta2, step));
    const float factor = (float)(-piece->lr / (1 - pow(o->beta1, step)));
    float *w = piece->weight, *m = piece->moments[0], *v = piece->moments[1];
    for (size_t i = 0; i < piece->count; i++) {
        const float g = piece->gradient[i] + w[i] * decay;
        m[i] = m[i] + (g - m[i]) * gain1;
        v[i] = v[i] * beta2 + (g * gain2) * g;
        w[i] = w[i] + (m[i] / (sqrtf(v[i]) / root2 + eps)) * factor;
    }
}

OWN_OPTIMIZER tutti_optim_ops_t own_adam = {"own_adam",
                                            "Adam by a user",
                                            sizeof(own_adam_options_t),
                                            own_adam_table,
                                            {"exp_avg", "exp_avg_sq"},
                                            NULL,
                                            NULL,
                                            NULL,
                                            own_adam_update,
                                            false};

typedef struct own_trust_options {
    double lr;
} own_trust_options_t;

static const tutti_optim_option_t own_trust_table[] = {
    {"lr", offsetof(own_trust_options_t, lr), 0.1, 0, INFINITY},
    {NULL, 0, 0, 0, 0},
};

static void own_trust_measure(const tutti_optim_piece_t *section, double *sums)
{
    for (size_t i = 0; i < section->count; i++) {
        sums[0] += (double)section->weight[i] * (double)section->weight[i];
        sums[1] += (double)section->gradient[i] * (double)section->gradient[i];
    }
}

static void own_trust_step(const tutti_optim_piece_t *piece, const double *sums)
{
    const float factor = (float)(-piece->lr * sqrt(sums[0]) / (sqrt(sums[1]) + 1e-8));
    for (size_t i = 0; i < piece->count; i++) {
        piece->weight[i] += factor * piece->gradient[i];
    }
}

static void own_trust_update(const tutti_optim_piece_t *piece)
{
    own_trust_step(piece, piece->sums);
}

/* Sums of 16384 elements at a time, which are the sections of up to 4 Mi elements. */
static void own_whole_update(const tutti_optim_piece_t *piece)
{
    double sums[TUTTI_OPTIM_SUMS_MAX] = {0, 0, 0, 0};
    for (size_t i = 0; i < piece->count; i += TUTTI_OPTIM_SECTION) {
        double part[TUTTI_OPTIM_SUMS_MAX] = {0, 0, 0, 0};
        tutti_optim_piece_t section = *piece;
        section.weight += i;
        section.gradient += i;
        section.count = piece->count - i;
        if (section.count > TUTTI_OPTIM_SECTION) {
            section.count = TUTTI_OPTIM_SECTION;
        }
        own_trust_measure(&section, part);
        sums[0] += part[0];
        sums[1] += part[1];
    }
    own_trust_step(piece, sums);
}

OWN_OPTIMIZER tutti_optim_ops_t own_trust = {"own_trust",
                                             "steps in proportion to the weight",
                                             sizeof(own_trust_options_t),
                                             own_trust_table,
                                             {NULL},
                                             NULL,
                                             NULL,
                                             own_trust_measure,
                                             own_trust_update,
                                             false};

OWN_OPTIMIZER tutti_optim_ops_t own_whole = {"own_whole",
                                             "the same, at once",
                                             sizeof(own_trust_options_t),
                                             own_trust_table,
                                             {NULL},
                                             NULL,
                                             NULL,
                                             NULL,
                                             own_whole_update,
                                             true};

#endif
