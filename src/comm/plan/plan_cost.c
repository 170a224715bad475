/* What a plan takes, counted over its steps. */
#include "comm/plan/plan.h"

static size_t count_read(const tt_plan_t *plan, const tt_step_t *step)
{
    size_t parts = step->kind == TT_STEP_PUT && step->peer != plan->rank;
    for (int i = 0; i < tt_plan_reads(plan, step); i++) {
        parts += tt_plan_read(plan, step, i).rank != plan->rank;
    }
    return parts * step->count;
}

void tt_plan_add_cost(const tt_plan_t *plan, const tt_plan_round_t *round, tt_plan_cost_t *cost)
{
    for (int i = 0; i < round->count; i++) {
        const tt_step_t *step = &round->steps[i];
        cost->sent += step->kind == TT_STEP_SEND ? step->count : 0;
        cost->read += count_read(plan, step);
    }
}

tutti_status_t tt_plan_raise_cost(const tt_plan_t *plan, tt_plan_cost_t *cost)
{
    tt_plan_round_t round = {0};
    tt_plan_cost_t own = {.rounds = plan->rounds};
    tutti_status_t status = TUTTI_OK;
    for (int r = 0; r < plan->rounds && status >= 0; r++) {
        status = tt_plan_round(plan, r, &round);
        if (status >= 0) {
            tt_plan_add_cost(plan, &round, &own);
        }
    }
    tt_plan_round_close(&round);
    tt_plan_max_cost(cost, own);
    return status;
}
