/* Daly's estimate, and what the log says of it. */
#include "runtime/checkpoint/save_advice.h"

#include <math.h>
#include <stdio.h>

#include "core/base/reals.h"
#include "core/base/units.h"

double tt_advice_interval(double cost, double mtbf)
{
    if (cost >= 2 * mtbf) { /* hardly a save would ever end */
        return mtbf;
    }
    const double share = cost / (2 * mtbf);
    return sqrt(2 * cost * mtbf) * (1 + sqrt(share) / 3 + share / 9) - cost;
}

double tt_advice_lost(double interval, double cost, double mtbf)
{
    return 1 - interval / (mtbf * expm1((interval + cost) / mtbf));
}

bool tt_advice_has_changed(double interval, double before)
{
    return interval > 1.5 * before || before > 1.5 * interval;
}

/* Nothing has failed: mtbf is no less than the time so far, but nobody knows how much more. */
static int print_failures(const tt_save_facts_t *facts, double mtbf, char *text, size_t bytes)
{
    char each[TT_UNITS_TEXT_BYTES];
    tt_units_seconds(mtbf, each);
    return facts->mtbf > 0 || facts->failures > 0
               ? snprintf(text, bytes, "with a failure each %s", each)
               : snprintf(text, bytes, "no failure in %s; if one came each %s", each, each);
}

double tt_advice_text(const tt_save_facts_t *facts, char text[TT_ADVICE_BYTES])
{
    char cost[TT_UNITS_TEXT_BYTES], each[TT_UNITS_TEXT_BYTES], now[TT_UNITS_TEXT_BYTES];
    char least[TT_UNITS_TEXT_BYTES], lost[TT_UNITS_TEXT_BYTES], steps[TT_UNITS_TEXT_BYTES] = "";
    char failures[3 * TT_UNITS_TEXT_BYTES];
    const double seconds = facts->job_seconds / (facts->failures > 0 ? facts->failures : 1);
    const double mtbf = facts->mtbf > 0 ? facts->mtbf : seconds;
    const double best = fmax(tt_advice_interval(facts->cost, mtbf), facts->least);
    print_failures(facts, mtbf, failures, sizeof failures);
    if (facts->steps > 0) {
        tt_format(steps, sizeof steps, " (%.0f steps)",
                  fmax(1, round(facts->steps * best / facts->interval)));
    }
    tt_units_percent(tt_advice_lost(best, facts->cost, mtbf), least);
    tt_units_percent(tt_advice_lost(facts->interval, facts->cost, mtbf), lost);
    snprintf(text, TT_ADVICE_BYTES,
             "checkpoint: a save costs %s; %s, one each %s%s loses least: %s of the time; now each "
             "%s: %s",
             tt_units_seconds(facts->cost, cost), failures, tt_units_seconds(best, each), steps,
             least, tt_units_seconds(facts->interval, now), lost);
    return best;
}
