/* All ranks' plans in one process, without wires: ranks run far ahead of each other or hang back,
 * steps of a round in either order, messages handed over only when both sides are in the round that
 * has them (no buffering at all, so that what ends here ends on any wire).
 *
 * Finds deadlocks, messages that do not match, steps of one round that touch the same memory,
 * memory of ranks on other hosts, sums over mixed dtypes, barriers that let a rank through too
 * early, and what a plan costs. Private buffers and bounce buffers are full of NaN at first, so
 * that what is read too early spoils the result.
 */
#ifndef TT_PLAN_SIM_H
#define TT_PLAN_SIM_H

#include "comm/plan/plan.h"

/* A rank's memory, f32. */
typedef struct {
    float *const *pieces;
    float *out;
} tt_sim_rank_t;

/* `requests`: of each rank, as its plan was made. `ranks` NULL: without data, for what needs more
 * memory than there is. `cost` (out) is what the ranks did. Errors: STATE
 * (deadlock; names a rank, a round and a step), MISMATCH (a send and its receive differ), ARG (a
 * step that is not allowed), NOMEM. */
tutti_status_t tt_plan_simulate(tt_plan_t *const *plans, const tt_plan_request_t *requests,
                                const tt_sim_rank_t *ranks, uint64_t seed, tt_plan_cost_t *cost);

#endif
