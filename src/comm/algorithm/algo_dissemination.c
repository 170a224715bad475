/* dissemination: a barrier. In round k every rank sends an empty message to the rank 2^k further
 * on.
 *
 * Cost: ceil(log2(size)) rounds of one empty message. Source: Hensgen, Finkel, Manber, "Two
 * Algorithms for Barrier Synchronization", 1988.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static void prepare_dissemination(tt_plan_t *plan, const tt_plan_request_t *request)
{
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = tt_log2_ceil(request->size)});
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    (void)request;
    tt_plan_send(plan, tt_plan_peer(plan, 1 << at.chunk), tt_piece_at(0, 0), 0);
    tt_plan_recv(plan, tt_plan_peer(plan, -(1 << at.chunk)), tt_piece_at(0, 0), 0);
}

static bool fits_dissemination(const tt_plan_request_t *request)
{
    return request->collective == TT_BARRIER && tt_plan_can_send(request);
}

const tt_algorithm_t tt_algorithm_dissemination = {
    .name = "dissemination",
    .about = "every rank tells the rank 1, 2, 4, ... further on",
    .source = "Hensgen, Finkel, Manber 1988",
    .is_canonical = true,
    .fits = fits_dissemination,
    .prepare = prepare_dissemination,
    .phase = add_phase,
};
