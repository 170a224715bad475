/* dissemination: a barrier. In round k every rank sends an empty message to the rank 2^k further
 * on.
 *
 * Cost: ceil(log2(size)) rounds of one empty message. Source: Hensgen, Finkel, Manber, "Two
 * Algorithms for Barrier Synchronization", 1988.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static void exchange(tt_plan_t *plan, int k)
{
    tt_plan_send(plan, tt_plan_peer(plan, 1 << k), tt_piece_at(0, 0), 0);
    tt_plan_recv(plan, tt_plan_peer(plan, -(1 << k)), tt_piece_at(0, 0), 0);
}

static void prepare_dissemination(tt_plan_t *plan)
{
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = tt_log2_ceil(plan->size), .phases = {exchange}});
}

const tt_algorithm_t tt_algorithm_dissemination = {
    .name = "dissemination",
    .about = "every rank tells the rank 1, 2, 4, ... further on",
    .source = "Hensgen, Finkel, Manber 1988",
    .is_canonical = true,
    .collectives = 1 << TT_BARRIER,
    .needs_several_ranks = true,
    .prepare = prepare_dissemination,
};
