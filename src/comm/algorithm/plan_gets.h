/* Plans in which every rank takes what it wants out of its local ranks' pieces, in one round. */
#ifndef TT_PLAN_GETS_H
#define TT_PLAN_GETS_H

#include "comm/plan/plan_steps.h"

/* Whether the leaf map is one that sums can be made of: prefixes need a leaf for each rank. */
bool tt_plan_can_sum(const tt_plan_request_t *request);

/* The sum over the pieces of all who contribute to this rank's result, wherever in them. */
int tt_plan_sum_pieces(tt_plan_t *plan, const tt_plan_request_t *request);

/* The same over the pieces of ranks [0, end), and of no other rank. */
int tt_plan_sum_prefix(tt_plan_t *plan, const tt_plan_request_t *request, int end);

/* What `rank` takes of a local rank's piece (parts of it, in order of ranks; a count of 0 for
 * nothing), and where in its out it goes. For collectives that do not reduce. */
tt_slice_t tt_plan_wanted(const tt_plan_request_t *request, int rank, int peer, size_t *out_offset);

void tt_plan_get_all(tt_plan_t *plan, const tt_plan_request_t *request);
tt_plan_cost_t tt_plan_get_cost(const tt_plan_request_t *request);

#endif
