/* Learning rates as pure functions of the step. Source: torch.optim.lr_scheduler, whose recursive
 * forms agree with these closed ones up to rounding.
 */
#include <tutti/averaged.h>

#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/default.h"

static const double pi = 3.14159265358979323846;

/* From a to b along half a cosine, at 0 ≤ share ≤ 1. */
static double along_cosine(double a, double b, double share)
{
    return b + (a - b) * (1 + cos(pi * share)) / 2;
}

static double share_of(int64_t step, int64_t first, int64_t last)
{
    return step >= last ? 1 : (double)(step - first) / (double)(last - first);
}

static tutti_status_t check_at_least(const char *kind, const char *name, int64_t value,
                                     int64_t least)
{
    return value >= least
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "schedule %s: %s is %lld: it must be at least %lld", kind,
                         name, (long long)value, (long long)least);
}

static tutti_status_t check_ratio(const char *kind, double value)
{
    return value >= 0 && value <= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "schedule %s: min_ratio is %g: it must be from 0 to 1",
                         kind, value);
}

static tutti_status_t check_constant(const tutti_schedule_t *s)
{
    (void)s;
    return TUTTI_OK;
}

static double lr_constant(const tutti_schedule_t *s, int64_t step)
{
    (void)step;
    return s->lr;
}

static tutti_status_t check_step(const tutti_schedule_t *s)
{
    TT_TRY(check_at_least("step", "step_size", s->step_size, 1));
    return s->gamma >= 0 && isfinite(s->gamma)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "schedule step: gamma is %g: it must be finite and at least 0", s->gamma);
}

static double lr_step(const tutti_schedule_t *s, int64_t step)
{
    return s->lr * pow(tt_or_default(s->gamma, 0.1), (double)(step / s->step_size));
}

static tutti_status_t check_cosine(const tutti_schedule_t *s)
{
    TT_TRY(check_at_least("cosine", "total_steps", s->total_steps, 1));
    return check_ratio("cosine", s->min_ratio);
}

static double lr_cosine(const tutti_schedule_t *s, int64_t step)
{
    return along_cosine(s->lr, s->lr * s->min_ratio, share_of(step, 0, s->total_steps));
}

static tutti_status_t check_linear_warmup(const tutti_schedule_t *s)
{
    return check_at_least("linear_warmup", "warmup_steps", s->warmup_steps, 0);
}

static double lr_linear_warmup(const tutti_schedule_t *s, int64_t step)
{
    return step >= s->warmup_steps ? s->lr : s->lr * ((double)(step + 1) / (double)s->warmup_steps);
}

static tutti_status_t check_warmup_cosine(const tutti_schedule_t *s)
{
    TT_TRY(check_at_least("warmup_cosine", "warmup_steps", s->warmup_steps, 0));
    TT_TRY(check_at_least("warmup_cosine", "total_steps", s->total_steps, s->warmup_steps + 1));
    return check_ratio("warmup_cosine", s->min_ratio);
}

static double lr_warmup_cosine(const tutti_schedule_t *s, int64_t step)
{
    if (step < s->warmup_steps) {
        return lr_linear_warmup(s, step);
    }
    const double share = share_of(step, s->warmup_steps, s->total_steps);
    return along_cosine(s->lr, s->lr * s->min_ratio, share);
}

static tutti_status_t check_one_cycle(const tutti_schedule_t *s)
{
    const double up = tt_or_default(s->up_share, 0.3);
    TT_TRY(check_at_least("one_cycle", "total_steps", s->total_steps, 2));
    if (!(up > 0 && up < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "schedule one_cycle: up_share is %g: it must be in (0, 1)",
                       up);
    }
    if (!(tt_or_default(s->div_factor, 25) > 0 && tt_or_default(s->final_div_factor, 1e4) > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "schedule one_cycle: div_factor %g, final_div_factor %g: both must be above "
                       "0",
                       s->div_factor, s->final_div_factor);
    }
    return TUTTI_OK;
}

static double lr_one_cycle(const tutti_schedule_t *s, int64_t step)
{
    const double first = s->lr / tt_or_default(s->div_factor, 25);
    const double last = first / tt_or_default(s->final_div_factor, 1e4);
    const double top = tt_or_default(s->up_share, 0.3) * (double)s->total_steps - 1;
    const double end = (double)s->total_steps - 1;
    const double at = fmin((double)step, end);
    if (at <= top) {
        return along_cosine(first, s->lr, top > 0 ? at / top : 1);
    }
    return along_cosine(s->lr, last, (at - fmax(top, 0)) / (end - fmax(top, 0)));
}

#define X(name, what)                                                                              \
    static const tt_schedule_ops_t name##_ops = {#name, what, check_##name, lr_##name};
#include "compute/optim/schedules.def"
#undef X

const tt_schedule_ops_t *const tt_schedules[] = {
#define X(name, what) &name##_ops,
#include "compute/optim/schedules.def"
#undef X
};

const size_t tt_schedule_count = sizeof tt_schedules / sizeof tt_schedules[0];

tutti_status_t tutti_schedule_check(const tutti_schedule_t *schedule)
{
    if ((int)schedule->kind < 0 || (size_t)schedule->kind >= tt_schedule_count) {
        return TT_FAIL(TUTTI_ERR_ARG, "there is no schedule %d, only 0 to %zu", (int)schedule->kind,
                       tt_schedule_count - 1);
    }
    if (!(schedule->lr >= 0 && isfinite(schedule->lr))) {
        return TT_FAIL(TUTTI_ERR_ARG, "schedule %s: lr is %g: it must be finite and at least 0",
                       tt_schedules[schedule->kind]->name, schedule->lr);
    }
    return tt_schedules[schedule->kind]->check(schedule);
}

double tutti_schedule_lr(const tutti_schedule_t *schedule, int64_t step)
{
    return tutti_schedule_check(schedule) < 0
               ? NAN
               : tt_schedules[schedule->kind]->lr(schedule, step < 0 ? 0 : step);
}

/* ---- SWA ------------------------------------------------------------------------------------- */

tutti_status_t tutti_swa_check(const tutti_swa_schedule_t *schedule)
{
    TT_TRY(tutti_schedule_check(&schedule->before));
    TT_TRY(check_at_least("swa", "start", schedule->start, 0));
    TT_TRY(check_at_least("swa", "anneal_steps", schedule->anneal_steps, 0));
    return schedule->lr >= 0 && isfinite(schedule->lr)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "schedule swa: lr is %g: it must be finite and at least 0",
                         schedule->lr);
}

double tutti_swa_lr(const tutti_swa_schedule_t *schedule, int64_t step)
{
    if (tutti_swa_check(schedule) < 0) {
        return NAN;
    }
    if (step < schedule->start) {
        return tutti_schedule_lr(&schedule->before, step);
    }
    const double first = tutti_schedule_lr(&schedule->before, schedule->start);
    const double share = share_of(step - schedule->start, 0, schedule->anneal_steps);
    return schedule->linear ? first + (schedule->lr - first) * share
                            : along_cosine(first, schedule->lr, share);
}
