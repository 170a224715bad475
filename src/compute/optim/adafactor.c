/* Adafactor: the second moment of a matrix kept as one number a row and one a column, and steps
 * relative to the size of the parameter. Source: Shazeer and Stern, ICML 2018, algorithms 4 and 5;
 * options and defaults as in Hugging Face's Adafactor. */
#include <tutti/optim_kinds.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"
#include "core/kernel/optim/flat.h"
#include "core/kernel/optim/steps.h"

static tutti_status_t resolve(void *options)
{
    tutti_adafactor_options_t *o = options;
    if (o->no_relative_step && !tt_is_given(o->lr)) {
        return TT_FAIL(TUTTI_ERR_ARG, "adafactor: lr is 0: without the relative step it must be "
                                      "given");
    }
    o->lr = tt_or_default(o->lr, 1);
    o->eps1 = tt_or_default(o->eps1, 1e-30);
    o->eps2 = tt_or_default(o->eps2, 1e-3);
    o->clip = tt_or_default(o->clip, 1);
    o->decay_rate = tt_or_default(o->decay_rate, -0.8);
    TT_TRY(tt_optim_check_range("adafactor", "lr", o->lr, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adafactor", "eps1", o->eps1, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adafactor", "eps2", o->eps2, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adafactor", "clip", o->clip, 0, INFINITY));
    TT_TRY(tt_optim_check_range("adafactor", "decay_rate", o->decay_rate, -1, 0));
    TT_TRY(tt_optim_check_range("adafactor", "beta1", o->beta1, 0, 1));
    return tt_optim_check_range("adafactor", "weight_decay", o->weight_decay, 0, INFINITY);
}

static double lr(const void *options)
{
    return ((const tutti_adafactor_options_t *)options)->lr;
}

enum { AVG, AVG_SQ, AVG_SQ_ROW, AVG_SQ_COL };

static bool has_moment(const void *options, int i, tutti_shape_t *shape)
{
    const tutti_adafactor_options_t *o = options;
    const bool is_factored = shape->rank >= 2;
    if (i == AVG || i == AVG_SQ) {
        return i == AVG ? o->beta1 != 0 : !is_factored;
    }
    if (is_factored) {
        if (i == AVG_SQ_COL) {
            shape->dims[shape->rank - 2] = shape->dims[shape->rank - 1];
        }
        shape->rank--;
    }
    return is_factored;
}

static double step_of(const tt_optim_piece_t *piece)
{
    const tutti_adafactor_options_t *o = piece->options;
    const double t = (double)piece->step;
    double step = piece->lr;
    if (!o->no_relative_step) {
        step *= fmin(o->warmup_init ? 1e-6 * t : 1e-2, 1 / sqrt(t));
    }
    if (!o->no_scale_parameter && piece->count > 0) {
        const double squares = tt_flat_sum_squares(piece->pool, piece->weight, piece->count);
        step *= fmax(o->eps2, sqrt(squares / (double)piece->count));
    }
    return step;
}

static void update(const tt_optim_piece_t *piece)
{
    const tutti_adafactor_options_t *o = piece->options;
    const tutti_shape_t *shape = &piece->shape;
    tt_adafactor_t adafactor = {.lr = step_of(piece),
                                .beta1 = o->beta1,
                                .beta2 = 1 - pow((double)piece->step, o->decay_rate),
                                .eps = o->eps1,
                                .weight_decay = o->weight_decay,
                                .clip = o->clip,
                                .maximize = o->maximize,
                                .columns = piece->count};
    tt_steps_buffers_t at = {.weight = piece->weight,
                             .gradient = piece->gradient,
                             .first = piece->moments[AVG],
                             .second = piece->moments[AVG_SQ]};
    if (shape->rank >= 2 && piece->count > 0) {
        adafactor.rows = (size_t)shape->dims[shape->rank - 2];
        adafactor.columns = (size_t)shape->dims[shape->rank - 1];
        adafactor.matrices = piece->count / adafactor.rows / adafactor.columns;
        at.second = piece->moments[AVG_SQ_ROW];
        at.third = piece->moments[AVG_SQ_COL];
    }
    tt_steps_adafactor(piece->pool, &adafactor, &at);
}

const tutti_optim_ops_t tutti_adafactor = {
    .name = "adafactor",
    .about = "second moments by row and column, steps relative to the parameter",
    .options_bytes = sizeof(tutti_adafactor_options_t),
    .moments = {"exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"},
    .resolve = resolve,
    .lr = lr,
    .has_moment = has_moment,
    .update = update,
    .wants_whole = true,
};
