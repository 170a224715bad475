/* The parts of the tree algorithm. */
#ifndef TT_TREE_PLANS_H
#define TT_TREE_PLANS_H

#include "comm/plan/plan_steps.h"

/* The sum at `root`, in its out; 2 ceil(log2(size)) rounds. */
void tt_tree_list_reduce(tt_plan_t *plan, const tt_plan_request_t *request, int root);

/* gather and scatter. */
void tt_tree_list_parts(tt_plan_t *plan, const tt_plan_request_t *request);

#endif
