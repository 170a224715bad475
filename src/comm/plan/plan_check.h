/* Whether the steps of a plan are allowed: the part of the simulator that needs one plan alone. */
#ifndef TT_PLAN_CHECK_H
#define TT_PLAN_CHECK_H

#include "comm/plan/plan.h"

struct tt_touch;

/* Zero at first; used again for the rounds of any plan. */
typedef struct {
    const tt_plan_t *plan;
    const tt_plan_request_t *request;
    const tt_plan_round_t *round;
    struct tt_touch *touches; /* [capacity] */
    int count, capacity;
} tt_plan_check_t;

/* Errors: ARG names rank, step and round; NOMEM. */
tutti_status_t tt_plan_check_round(tt_plan_check_t *check, const tt_plan_t *plan,
                                   const tt_plan_request_t *request, int round,
                                   const tt_plan_round_t *steps);
void tt_plan_check_close(tt_plan_check_t *check);

/* Ranks of several hosts must exchange the same messages with and without bounce buffers: the ranks
 * of each host decide alone whether they use them. Errors: ARG, NOMEM. */
tutti_status_t tt_plan_check_hosts(const tt_plan_t *plan, const tt_plan_request_t *request);

#endif
