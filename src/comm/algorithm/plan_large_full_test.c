/* Plans of 4,096 ranks that take longer to check: 64 hosts of 64 ranks, long rings. */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_large.h"

enum { RANKS = 4096, RANKS_OF_HOST = 64 };

static int hosts[RANKS];

static void sixty_four_hosts_of_64_ranks_end(void **state)
{
    (void)state;
    const tt_collective_t all[] = {TT_ALL_REDUCE, TT_BROADCAST, TT_BARRIER};
    for (int rank = 0; rank < RANKS; rank++) {
        hosts[rank] = rank / RANKS_OF_HOST;
    }
    for (int i = 0; i < 3; i++) {
        tt_plan_expect_ends((tt_plan_request_t){.collective = all[i],
                                                .size = RANKS,
                                                .count = all[i] == TT_BARRIER ? 0 : 512,
                                                .hosts = hosts},
                            &tt_algorithm_two_level);
    }
}

static void long_rings_and_chains_end(void **state)
{
    (void)state;
    tt_plan_expect_ends(
        (tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = RANKS / 4, .count = 1 << 20},
        &tt_algorithm_ring);
    tt_plan_expect_ends(
        (tt_plan_request_t){.collective = TT_BROADCAST, .size = RANKS, .count = 512},
        &tt_algorithm_chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_hosts_of_64_ranks_end),
        cmocka_unit_test(long_rings_and_chains_end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
