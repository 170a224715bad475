/* What pairwise and prefix share. */
#ifndef TT_PAIRWISE_H
#define TT_PAIRWISE_H

#include "comm/plan/plan_steps.h"

/* Calls by messages alone. */
void tt_pairwise_prepare(tt_plan_t *plan);

/* Ranks whose pieces are needed: all, but for the last one's in an exscan. */
static inline int tt_plan_givers(const tt_plan_t *plan)
{
    return tt_plan_contributors(&plan->request, plan->size - 1);
}

/* Sums of scan and exscan: over all pieces, which is only there to be shared, then the results of
 * all ranks that have one. */
void tt_prefix_add_sums(tt_plan_t *plan, tt_others_t others, bool is_partial);
int tt_prefix_sum(const tt_plan_t *plan, int rank);

#endif
