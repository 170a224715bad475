/* What a rank wants of the pieces of others, and plans of one round in which it takes that. */
#ifndef TT_PLAN_GETS_H
#define TT_PLAN_GETS_H

#include "comm/plan/plan_steps.h"

/* Whether the leaf map is one that sums can be made of: prefixes need a leaf for each rank. */
bool tt_plan_can_sum(const tt_plan_request_t *request);

/* The finished sum over the pieces of ranks [0, end), wherever in them. */
int tt_plan_sum_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int end);

/* What `rank` takes of a peer's piece (parts of it, in order of ranks; a count of 0 for nothing),
 * and where in its out it goes. For collectives that do not reduce. */
tt_slice_t tt_plan_wanted(const tt_plan_request_t *request, int rank, int peer, size_t *out_offset);

/* What a peer takes of my piece. */
tt_slice_t tt_plan_given(const tt_plan_request_t *request, int peer);

void tt_plan_get_all(tt_plan_t *plan, const tt_plan_request_t *request);

#endif
