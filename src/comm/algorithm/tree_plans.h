/* The parts of the tree algorithm. */
#ifndef TT_TREE_PLANS_H
#define TT_TREE_PLANS_H

#include "comm/plan/plan_steps.h"

/* The sum at `root`, in its out; 2 ceil(log2(size)) rounds, or 1 for one rank. */
void tt_tree_plan_reduce(tt_plan_t *plan, const tt_plan_request_t *request, int root);

/* What `rank` sends in it. */
size_t tt_tree_reduce_sent(const tt_plan_request_t *request, int root, int rank);

/* gather and scatter. */
void tt_tree_plan_parts(tt_plan_t *plan, const tt_plan_request_t *request);
tt_plan_cost_t tt_tree_parts_cost(const tt_plan_request_t *request);

#endif
