/* Plans of 4,096 ranks by every algorithm, made, checked and simulated: seconds of a core each. */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_ends_test.h"

enum { RANKS = 4096, VECTOR = 512, PART = 1, EACH = 64 };

/* `per_host` of the ranks share a host; 0: all do. */
static const struct {
    const tt_algorithm_t *algorithm;
    tt_collective_t collective;
    int per_host;
    size_t count;
} cases[] = {
    {&tt_algorithm_flag, TT_ALL_REDUCE, 0, PART},
    {&tt_algorithm_direct, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_direct, TT_SCATTER, 0, PART},
    {&tt_algorithm_staged, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_staged, TT_BROADCAST, 0, VECTOR},
    {&tt_algorithm_pairwise, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_pairwise, TT_REDUCE, 0, VECTOR},
    {&tt_algorithm_pairwise, TT_BROADCAST, 0, VECTOR},
    {&tt_algorithm_pairwise, TT_GATHER, 0, PART},
    {&tt_algorithm_prefix, TT_SCAN, 0, EACH},
    {&tt_algorithm_prefix, TT_EXSCAN, 1, EACH},
    {&tt_algorithm_two_level, TT_ALL_REDUCE, 64, VECTOR},
    {&tt_algorithm_two_level, TT_REDUCE_SCATTER, 64, PART},
    {&tt_algorithm_two_level, TT_ALL_GATHER, 64, PART},
    {&tt_algorithm_two_level, TT_BROADCAST, 64, VECTOR},
    {&tt_algorithm_two_level, TT_BARRIER, 64, 0},
    {&tt_algorithm_recursive_doubling, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_recursive_doubling, TT_ALL_GATHER, 0, PART},
    {&tt_algorithm_recursive_halving, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_recursive_halving, TT_REDUCE_SCATTER, 0, PART},
    {&tt_algorithm_tree, TT_BROADCAST, 0, VECTOR},
    {&tt_algorithm_tree, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_tree, TT_GATHER, 0, PART},
    {&tt_algorithm_tree, TT_SCATTER, 0, PART},
    {&tt_algorithm_ring, TT_ALL_REDUCE, 0, VECTOR},
    {&tt_algorithm_ring, TT_ALL_GATHER, 0, PART},
    {&tt_algorithm_bruck, TT_ALL_GATHER, 0, PART},
    {&tt_algorithm_bruck, TT_ALL_TO_ALL, 0, PART},
    {&tt_algorithm_chain, TT_BROADCAST, 0, VECTOR},
    {&tt_algorithm_scatter_gather, TT_BROADCAST, 0, VECTOR},
    {&tt_algorithm_dissemination, TT_BARRIER, 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static void every_algorithm_is_among_them(void **state)
{
    (void)state;
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        int found = 0;
        for (int i = 0; i < CASES; i++) {
            found += cases[i].algorithm == tt_algorithms[a];
        }
        assert_true(found > 0);
    }
}

static void plans_of_4096_ranks_end(void **state)
{
    (void)state;
    static int hosts[RANKS];
    for (int i = 0; i < CASES; i++) {
        const int per_host = cases[i].per_host;
        for (int rank = 0; rank < RANKS; rank++) {
            hosts[rank] = per_host > 0 ? rank / per_host : 0;
        }
        tt_plan_expect_ends((tt_plan_request_t){.collective = cases[i].collective,
                                                .size = RANKS,
                                                .count = cases[i].count,
                                                .hosts = per_host > 0 ? hosts : NULL},
                            cases[i].algorithm);
    }
}

/* Every rank with every other one at once: as many messages as there are pairs. */
static void plans_of_2048_ranks_with_all_messages_at_once_end(void **state)
{
    (void)state;
    tt_plan_expect_ends(
        (tt_plan_request_t){.collective = TT_ALL_TO_ALL, .size = RANKS / 2, .count = PART},
        &tt_algorithm_pairwise);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_among_them),
        cmocka_unit_test(plans_of_4096_ranks_end),
        cmocka_unit_test(plans_of_2048_ranks_with_all_messages_at_once_end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
