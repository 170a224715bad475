/* Plans of many ranks and many elements: what they take, and that they end. */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_ends_test.h"

enum { RANKS = 4096, FEW = 512 };

/* Bytes that a plan of rank 1 takes. */
static size_t bytes_of(tt_plan_request_t request, const tt_algorithm_t *algorithm)
{
    const size_t before = tt_alloc_stats().bytes;
    tt_plan_t *plan;
    request.rank = 1;
    assert_int_equal(tt_plan_create(&request, algorithm, &plan), TUTTI_OK);
    const size_t bytes = tt_alloc_stats().bytes - before;
    tt_plan_release(plan);
    return bytes;
}

static void a_plan_does_not_grow_with_the_count(void **state)
{
    (void)state;
    static const int hosts[] = {0, 0, 1, 1};
    const tt_plan_request_t large = {
        .collective = TT_ALL_REDUCE, .size = 256, .count = (size_t)1 << 28};
    assert_true(bytes_of(large, &tt_algorithm_pairwise) <= 64 << 10);
    for (int c = 0; c < TT_BARRIER; c++) {
        for (int a = 0; tt_algorithms[a] != NULL; a++) {
            tt_plan_request_t request = {.collective = (tt_collective_t)c, .size = 4, .root = 2};
            request.hosts = tt_algorithms[a] == &tt_algorithm_two_level ? hosts : NULL;
            request.count = (size_t)1 << 36;
            if (tt_algorithm_fits(tt_algorithms[a], &request)) {
                assert_true(bytes_of(request, tt_algorithms[a]) <= 64 << 10);
            }
        }
    }
}

static bool is_same_part(tt_part_t a, tt_part_t b)
{
    return a.buffer == b.buffer && a.index == b.index && a.offset == b.offset;
}

static void expect_same_step(const tt_step_t *a, const tt_step_t *b)
{
    assert_true(a->kind == b->kind && a->peer == b->peer);
    assert_true(is_same_part(a->src, b->src) && is_same_part(a->dst, b->dst));
    assert_true(a->count == b->count && a->sum == b->sum && a->shift == b->shift && a->to == b->to);
}

static void expect_same_rounds(const tt_plan_t *plan)
{
    tt_plan_round_t kept = {0}, made = {0};
    assert_false(plan->is_made_by_rounds);
    for (int round = 0; round < plan->rounds && plan->loop_count > 0; round++) {
        assert_int_equal(tt_plan_round(plan, round, &kept), TUTTI_OK);
        assert_int_equal(tt_plan_make_round(plan, round, &made), TUTTI_OK);
        assert_int_equal(kept.count, made.count);
        for (int i = 0; i < kept.count; i++) {
            expect_same_step(&kept.steps[i], &made.steps[i]);
        }
    }
    tt_plan_round_close(&made);
}

static void rounds_that_are_made_are_those_that_are_kept(void **state)
{
    (void)state;
    static const int hosts[] = {0, 1, 1, 0, 2};
    int looped = 0;
    for (int k = 0; k < TT_COLLECTIVE_COUNT * 10; k++) {
        tt_plan_request_t request = {.collective = (tt_collective_t)(k / 10),
                                     .rank = k % 5,
                                     .size = 5,
                                     .root = 3,
                                     .count = k / 10 == TT_BARRIER ? 0 : 90001,
                                     .is_staged = k % 10 >= 5};
        for (int a = 0; tt_algorithms[a] != NULL; a++) {
            request.hosts = tt_algorithms[a] == &tt_algorithm_two_level ? hosts : NULL;
            if (tt_algorithm_fits(tt_algorithms[a], &request)) {
                tt_plan_t *plan;
                assert_int_equal(tt_plan_create(&request, tt_algorithms[a], &plan), TUTTI_OK);
                expect_same_rounds(plan);
                looped += plan->loop_count > 0;
                tt_plan_release(plan);
            }
        }
    }
    assert_true(looped > 100);
}

static void plans_of_4096_ranks_end(void **state)
{
    (void)state;
    const tt_plan_request_t sum = {.collective = TT_ALL_REDUCE, .size = RANKS, .count = FEW};
    const tt_plan_request_t barrier = {.collective = TT_BARRIER, .size = RANKS};
    const tt_plan_request_t broadcast = {.collective = TT_BROADCAST, .size = RANKS, .count = FEW};
    const tt_plan_request_t gather = {.collective = TT_ALL_GATHER, .size = RANKS, .count = 3};
    tt_plan_expect_ends(sum, &tt_algorithm_recursive_doubling);
    tt_plan_expect_ends(sum, &tt_algorithm_recursive_halving);
    tt_plan_expect_ends(sum, &tt_algorithm_tree);
    tt_plan_expect_ends(barrier, &tt_algorithm_dissemination);
    tt_plan_expect_ends(broadcast, &tt_algorithm_chain);
    tt_plan_expect_ends(gather, &tt_algorithm_bruck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_does_not_grow_with_the_count),
        cmocka_unit_test(rounds_that_are_made_are_those_that_are_kept),
        cmocka_unit_test(plans_of_4096_ranks_end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
