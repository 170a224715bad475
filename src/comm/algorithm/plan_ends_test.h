/* For tests: plans of many ranks, made, checked and simulated without data. Header only, so that it
 * is no part of the library. */
#ifndef TT_PLAN_ENDS_TEST_H
#define TT_PLAN_ENDS_TEST_H

#include "comm/plan/plan_sim.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"

static inline void tt_plan_expect_ends(tt_plan_request_t request, const tt_algorithm_t *algorithm)
{
    const size_t size = (size_t)request.size;
    tt_plan_request_t *requests = tt_alloc_array(size, sizeof *requests, "test");
    tt_plan_t **plans = tt_alloc_array(size, sizeof(tt_plan_t *), "test");
    tt_plan_cost_t cost;
    assert_true(tt_algorithm_fits(algorithm, &request));
    for (int rank = 0; rank < request.size; rank++) {
        requests[rank] = request;
        requests[rank].rank = rank;
        assert_int_equal(tt_plan_create(&requests[rank], algorithm, &plans[rank]), TUTTI_OK);
    }
    if (tt_plan_simulate(plans, requests, NULL, 1, &cost) != TUTTI_OK) {
        fail_msg("%s %s over %d ranks: %s", tt_collective_name(request.collective), algorithm->name,
                 request.size, tutti_last_error());
    }
    for (int rank = 0; rank < request.size; rank++) {
        tt_plan_release(plans[rank]);
    }
    tt_free(plans);
    tt_free(requests);
}

#endif
