/* What becomes of a step whose loss or gradient is no number: --on-nan. All ranks see the same loss
 * and norm, so they decide alike. */
#include "gpt.h"

#include <math.h>
#include <stdio.h>

static const char *describe(double loss, double norm, char text[96])
{
    const double number = isfinite(loss) ? norm : loss; /* a NaN's sign says nothing */
    snprintf(text, 96, isfinite(loss) ? "the norm of its gradient is %g" : "its loss is %g",
             isnan(number) ? (double)NAN : number);
    return text;
}

tutti_status_t gpt_judge(session_t *session, int64_t step, double loss, double norm, bool *skips)
{
    char what[96];
    *skips = false;
    if (isfinite(loss) && isfinite(norm)) {
        return TUTTI_OK;
    }
    describe(loss, norm, what);
    switch (session->settings.on_nan) {
    case ON_NAN_SKIP:
        *skips = true;
        if (session->rank == 0) {
            fprintf(stderr, "gpt: step %lld is skipped: %s\n", (long long)step, what);
        }
        return TUTTI_OK;
    case ON_NAN_WARN:
        if (session->rank == 0 && !session->has_warned) {
            fprintf(stderr, "gpt: step %lld: %s; more of these are not told\n", (long long)step,
                    what);
        }
        session->has_warned = true;
        return TUTTI_OK;
    default:
        return tutti_fail(TUTTI_ERR_NUMERIC,
                          "step %lld: %s, so training stops; checkpoints of before stay, and "
                          "nothing else is saved. A lower --lr or a --clip may help; "
                          "TUTTI_DETECT_ANOMALY=1 names the operation that began it, --on-nan skip "
                          "goes on",
                          (long long)step, what);
    }
}
