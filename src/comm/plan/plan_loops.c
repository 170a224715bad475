/* Rounds that repeat: steps are made out of the phases of chunks, all at once if they are few, else
 * those of one round at a time.
 *
 *     round    0    1    2    3    4       three chunks of three phases; what began earlier goes
 *     chunk 0  p0   p1   p2                first, so that round 2 adds p2 of chunk 0, p1 of
 *     chunk 1       p0   p1   p2           chunk 1 and p0 of chunk 2
 *     chunk 2            p0   p1   p2
 */
#include "comm/plan/plan_steps.h"
#include "core/base/alloc.h"

/* 24 KiB: what calls that fit into a cache have. */
enum { STEPS_KEPT = 384 };

void tt_plan_add_loop(tt_plan_t *plan, tt_plan_loop_t loop)
{
    TT_ASSERT(plan->loop_count < TT_PLAN_LOOPS);
    loop.stride = loop.stride > 0 ? loop.stride : 1;
    plan->loops[plan->loop_count++] = loop;
}

static void add_phases(tt_plan_t *plan, const tt_plan_loop_t *loop, int round)
{
    for (int phase = TT_PLAN_PHASES - 1; phase >= 0; phase--) {
        const int since = round - loop->begin - phase;
        if (loop->phases[phase] != NULL && since >= 0 && since % loop->stride == 0 &&
            since / loop->stride < loop->chunks) {
            loop->phases[phase](plan, since / loop->stride);
        }
    }
}

static void add_round(tt_plan_t *plan, int round)
{
    for (int i = 0; i < plan->loop_count; i++) {
        add_phases(plan, &plan->loops[i], round);
    }
}

tutti_status_t tt_plan_make_round(const tt_plan_t *plan, int round, tt_plan_round_t *out)
{
    tt_plan_t target = *plan; /* which owns nothing but the steps */
    target.steps = out->made;
    target.step_capacity = out->capacity;
    target.step_count = 0;
    add_round(&target, round);
    TT_ASSERT(target.sum_count == plan->sum_count);
    *out = (tt_plan_round_t){target.steps, target.step_count, target.steps, target.step_capacity};
    return target.status;
}

void tt_plan_round_close(tt_plan_round_t *round)
{
    tt_free(round->made);
    *round = (tt_plan_round_t){0};
}

/* As many as the loops have, at most. */
static int count_rounds(const tt_plan_t *plan)
{
    int rounds = 0;
    for (int i = 0; i < plan->loop_count; i++) {
        const tt_plan_loop_t *loop = &plan->loops[i];
        const int end = loop->begin + (loop->chunks - 1) * loop->stride + TT_PLAN_PHASES;
        rounds = loop->chunks > 0 && end > rounds ? end : rounds;
    }
    return rounds;
}

/* Rounds at the end in which this rank does nothing are none. */
static tutti_status_t drop_empty_rounds(tt_plan_t *plan)
{
    tt_plan_round_t last = {0};
    tutti_status_t status = TUTTI_OK;
    while (plan->rounds > 0 && status >= 0 && last.count == 0) {
        status = tt_plan_round(plan, plan->rounds - 1, &last);
        plan->rounds -= status >= 0 && last.count == 0;
    }
    tt_plan_round_close(&last);
    return status;
}

tutti_status_t tt_plan_unroll(tt_plan_t *plan)
{
    const int rounds = count_rounds(plan);
    for (int round = 0; round < rounds && plan->step_count <= STEPS_KEPT; round++) {
        tt_plan_open_round(plan, round);
        add_round(plan, round);
    }
    if (plan->loop_count > 0 && plan->step_count > STEPS_KEPT) {
        tt_free(plan->steps);
        tt_free(plan->round_starts);
        plan->steps = NULL;
        plan->round_starts = NULL;
        plan->step_count = plan->step_capacity = 0;
        plan->is_made_by_rounds = true;
        plan->rounds = rounds;
    } else {
        tt_plan_open_round(plan, plan->rounds); /* where the last one ends */
        plan->rounds = plan->step_count > 0 ? plan->rounds - 1 : 0;
    }
    return plan->status < 0 ? plan->status : drop_empty_rounds(plan);
}
