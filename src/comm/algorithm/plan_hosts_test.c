/* Hosts of any shape, each with bounce buffers or without: between hosts that makes no difference.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_expect_test.h"

/* Every root, every set of hosts that use bounce buffers while the others do not. */
static void expect_any_stages(tt_plan_request_t request, int host_count)
{
    const int roots = tt_collective_has_root(request.collective) ? request.size : 1;
    for (unsigned staged = 0; staged < 1U << host_count; staged++) {
        for (request.root = 0; request.root < roots; request.root++) {
            tt_plan_expect_right(request,
                                 (tt_plan_case_t){.algorithm = &tt_algorithm_two_level,
                                                  .seed = staged + request.count,
                                                  .is_in_place = (staged + request.count) % 2 == 1,
                                                  .staged_hosts = staged});
        }
    }
}

static void hosts_need_not_agree_on_stages(void **state)
{
    (void)state;
    static const struct {
        int size, host_count, hosts[5];
    } shapes[] = {{3, 2, {0, 0, 1}},       {3, 2, {0, 1, 1}},      {4, 2, {0, 0, 0, 1}},
                  {5, 2, {0, 1, 1, 1, 1}}, {4, 3, {0, 1, 2, 2}},   {5, 2, {0, 0, 0, 1, 1}},
                  {4, 2, {0, 0, 1, 1}},    {5, 3, {0, 1, 0, 2, 1}}};
    const size_t counts[] = {0, 1, 5, 700, 70001, 200001};
    for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
        for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++) {
            for (int k = 0; k < (c == TT_BARRIER ? 1 : 6); k++) {
                expect_any_stages((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                      .size = shapes[shape].size,
                                                      .count = counts[k],
                                                      .hosts = shapes[shape].hosts},
                                  shapes[shape].host_count);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_need_not_agree_on_stages),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
