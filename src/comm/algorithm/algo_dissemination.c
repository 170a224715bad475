/* dissemination: a barrier in which everyone, in round k, tells the rank 2^k further on.
 *
 * Cost: ceil(log2(size)) rounds of one empty message. Source: Hensgen, Finkel, Manber, "Two
 * Algorithms for Barrier Synchronization", 1988.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static void plan_dissemination(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int size = request->size;
    for (int k = 0; 1 << k < size; k++) {
        const int step = 1 << k;
        tt_plan_send(plan, k, (plan->rank + step) % size, tt_piece_at(0, 0), 0);
        tt_plan_recv(plan, k, (plan->rank - step + size) % size, tt_piece_at(0, 0), 0);
    }
}

static bool fits_dissemination(const tt_plan_request_t *request)
{
    return request->collective == TT_BARRIER && !request->is_staged;
}

static tt_plan_cost_t cost_dissemination(const tt_plan_request_t *request)
{
    return (tt_plan_cost_t){.rounds = tt_log2_ceil(request->size)};
}

const tt_algorithm_t tt_algorithm_dissemination = {
    .name = "dissemination",
    .about = "everyone tells the rank 1, 2, 4, ... further on",
    .source = "Hensgen, Finkel, Manber 1988",
    .is_canonical = true,
    .fits = fits_dissemination,
    .plan = plan_dissemination,
    .cost = cost_dissemination,
};
