/* All ranks' plans in one process, without wires: rounds in a random order, messages handed over
 * only when both sides are in the round that has them (no buffering at all, so that what ends here
 * ends on any wire). Finds deadlocks, unmatched counts, and what a plan costs. */
#ifndef TT_PLAN_SIM_H
#define TT_PLAN_SIM_H

#include "comm/coll/plan.h"

/* A rank's memory, f32. */
typedef struct {
    float *const *pieces;
    float *out;
} tt_sim_rank_t;

/* Sums; `cost` (out) is what the ranks did. Errors: STATE (deadlock; names a rank, a round and a
 * step), MISMATCH (a send and its receive differ), NOMEM. */
tutti_status_t tt_plan_simulate(tt_plan_t *const *plans, const tt_sim_rank_t *ranks, uint64_t seed,
                                tt_plan_cost_t *cost);

#endif
