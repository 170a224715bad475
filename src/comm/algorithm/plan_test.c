/* Conformance of algorithms: every one, simulated for 1 to 17 ranks × counts × roots × leaf maps ×
 * hosts × interleavings, against the definition of the sum; no deadlock; cost as published. */
#include <sys/mman.h>
#include <unistd.h>

#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_expect_test.h"

/* Every algorithm that fits; staged and not; in place where that is possible. */
static void expect_all_right(tt_plan_request_t request, uint64_t seed)
{
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int variant = 0; variant < 4; variant++) {
            const bool is_in_place = (variant & 1) != 0;
            request.is_staged = (variant & 2) != 0;
            if (is_in_place &&
                (request.collective == TT_ALL_TO_ALL || tt_algorithms[a]->travels_in_flags)) {
                continue; /* flags have copies of the pieces */
            }
            tt_plan_expect_right(request, (tt_plan_case_t){.algorithm = tt_algorithms[a],
                                                           .seed = seed + (uint64_t)variant,
                                                           .is_in_place = is_in_place});
        }
    }
}

static void every_algorithm_is_right_for_1_to_17_ranks(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 65, 1200};
    for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
        for (int size = 1; size <= TT_PLAN_RANKS_TESTED; size++) {
            for (int k = 0; k < 4; k++) {
                expect_all_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                     .size = size,
                                                     .root = (size * 2 / 3) % size,
                                                     .count = c == TT_BARRIER ? 0 : counts[k]},
                                 (uint64_t)(size * 10 + k));
            }
        }
    }
}

static void large_counts_travel_in_chunks(void **state)
{
    (void)state;
    for (int c = 0; c < TT_BARRIER; c++) {
        for (int size = 2; size <= 5; size += 1 + (c > 0)) {
            expect_all_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                 .size = size,
                                                 .root = size - 1,
                                                 .count = c == TT_ALL_REDUCE ? 270001 : 50001},
                             7);
        }
    }
    for (int c = TT_REDUCE; c < TT_COLLECTIVE_COUNT; c++) {
        expect_all_right(
            (tt_plan_request_t){
                .collective = (tt_collective_t)c, .size = 3, .root = 1, .count = 200001},
            8);
    }
}

/* The last chunk is shorter than the others, but divides evenly: its last slice is longer. */
static void the_last_chunk_may_have_the_longest_slice(void **state)
{
    (void)state;
    static const int hosts[] = {0, 0, 1};
    const tt_collective_t all[] = {TT_ALL_REDUCE, TT_REDUCE, TT_BROADCAST};
    for (int c = 0; c < 3; c++) {
        for (int k = 0; k < 2; k++) {
            const size_t chunk = k == 0 ? 256 << 10 : 64 << 10;
            expect_all_right((tt_plan_request_t){.collective = all[c],
                                                 .size = 3,
                                                 .count = chunk + chunk / 192 * 192,
                                                 .hosts = k == 0 ? NULL : hosts},
                             4);
        }
    }
}

/* More chunks than there is room for at once. */
static void reductions_use_the_room_of_earlier_chunks_again(void **state)
{
    (void)state;
    const tt_collective_t all[] = {TT_ALL_REDUCE, TT_REDUCE_SCATTER, TT_REDUCE};
    for (int c = 0; c < 3; c++) {
        for (int size = 2; size <= 3; size++) {
            expect_all_right(
                (tt_plan_request_t){.collective = all[c],
                                    .size = size,
                                    .root = 1,
                                    .count = all[c] == TT_REDUCE_SCATTER ? 400001 : 1100001},
                9);
        }
    }
}

static void leaf_maps_of_any_shape_give_the_same_sum(void **state)
{
    (void)state;
    const int uneven[] = {0, 5, 5, 6, 12, 12}; /* two ranks without leaves */
    const tt_collective_t all[] = {TT_ALL_REDUCE, TT_REDUCE_SCATTER, TT_REDUCE};
    for (int c = 0; c < 3; c++) {
        for (int leaves = 1; leaves <= 16; leaves += leaves < 4 ? 1 : 3) {
            for (int size = 1; size <= 8; size++) {
                expect_all_right((tt_plan_request_t){.collective = all[c],
                                                     .size = size,
                                                     .root = size / 2,
                                                     .count = 130,
                                                     .leaves = leaves},
                                 (uint64_t)leaves);
            }
        }
        for (int root = 0; root < 5; root++) {
            expect_all_right((tt_plan_request_t){.collective = all[c],
                                                 .size = 5,
                                                 .root = root,
                                                 .count = 400,
                                                 .leaves = 12,
                                                 .first = uneven},
                             2);
        }
    }
}

static void every_algorithm_can_do_something(void **state)
{
    (void)state;
    static const int hosts[] = {0, 1, 1, 2};
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        int fits = 0;
        for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
            tt_plan_request_t request = {.collective = (tt_collective_t)c, .size = 4, .count = 4};
            fits += tt_algorithm_fits(tt_algorithms[a], &request);
            request.hosts = hosts;
            fits += tt_algorithm_fits(tt_algorithms[a], &request);
        }
        assert_true(fits > 0);
        assert_ptr_equal(tt_algorithm_find(tt_algorithms[a]->name), tt_algorithms[a]);
        assert_non_null(tt_algorithms[a]->about);
        assert_non_null(tt_algorithms[a]->source);
    }
}

/* Eight ranks, 4096 elements of a vector or a part; sent and read in eighths of that. */
static void costs_are_those_of_the_papers(void **state)
{
    (void)state;
    static const int pairs[] = {0, 0, 0, 0, 1, 1, 1, 1}, apart[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const struct {
        const char *algorithm;
        tt_collective_t collective;
        const int *hosts;
        int rounds;
        size_t sent, read;
    } all[] = {
        {"pairwise", TT_ALL_REDUCE, NULL, 3, 2 * 7, 0},
        {"pairwise", TT_ALL_TO_ALL, NULL, 1, 7 * 8, 0},
        {"ring", TT_ALL_REDUCE, NULL, 3 * 7, 2 * 7, 0},
        {"ring", TT_ALL_GATHER, NULL, 7, 7 * 8, 0},
        {"recursive_halving", TT_ALL_REDUCE, NULL, 3 * 3, 2 * 7, 0},
        {"recursive_halving", TT_REDUCE_SCATTER, NULL, 2 * 3, 7 * 8, 0},
        {"recursive_doubling", TT_ALL_REDUCE, NULL, 2 * 3, 3 * 8, 0},
        {"recursive_doubling", TT_ALL_GATHER, NULL, 3, 7 * 8, 0},
        {"tree", TT_BROADCAST, NULL, 3, 3 * 8, 0},
        {"tree", TT_REDUCE, NULL, 2 * 3, 8, 0},
        {"tree", TT_GATHER, NULL, 3, 4 * 8, 0},
        {"tree", TT_SCATTER, NULL, 3, 7 * 8, 0},
        {"bruck", TT_ALL_GATHER, NULL, 3, 7 * 8, 0},
        {"bruck", TT_ALL_TO_ALL, NULL, 2 * 3 + 1, 3 * 4 * 8, 0},
        {"chain", TT_BROADCAST, NULL, 7, 8, 0},
        {"scatter_gather", TT_BROADCAST, NULL, 3 + 7, 2 * 7, 0},
        {"dissemination", TT_BARRIER, NULL, 3, 0, 0},
        {"direct", TT_ALL_REDUCE, NULL, 1, 0, 7},
        {"flag", TT_ALL_REDUCE, NULL, 1, 0, 7 * 8},
        {"staged", TT_ALL_REDUCE, NULL, 5, 0, 7},
        {"prefix", TT_SCAN, NULL, 8, 0, 7 + 7 + 6 + 5 + 4 + 3 + 2 + 1},
        {"prefix", TT_SCAN, apart, 4, 2 * 7, 0},
        {"two_level", TT_ALL_REDUCE, pairs, 6, 2, 2 * 3 + 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const bool is_barrier = all[i].collective == TT_BARRIER;
        tt_plan_request_t request = {.collective = all[i].collective,
                                     .size = 8,
                                     .count = is_barrier ? 0 : 4096,
                                     .hosts = all[i].hosts};
        tt_plan_cost_t cost = {0};
        for (request.rank = 0; request.rank < 8; request.rank++) {
            tt_plan_t *plan;
            assert_int_equal(tt_plan_create(&request, tt_algorithm_find(all[i].algorithm), &plan),
                             TUTTI_OK);
            assert_int_equal(tt_plan_raise_cost(plan, &cost), TUTTI_OK);
            tt_plan_release(plan);
        }
        assert_int_equal(cost.rounds, all[i].rounds);
        assert_int_equal(cost.sent, all[i].sent * 512);
        assert_int_equal(cost.read, all[i].read * 512);
    }
}

static void every_root_is_served(void **state)
{
    (void)state;
    const tt_collective_t all[] = {TT_BROADCAST, TT_REDUCE, TT_GATHER, TT_SCATTER};
    for (int c = 0; c < 4; c++) {
        for (int size = 2; size <= 9; size++) {
            for (int root = 0; root < size; root++) {
                expect_all_right(
                    (tt_plan_request_t){
                        .collective = all[c], .size = size, .root = root, .count = 600},
                    (uint64_t)root);
            }
        }
    }
}

static void parts_may_be_of_any_length(void **state)
{
    (void)state;
    const size_t counts[] = {0, 100, 1, 0, 777, 64, 3, 3, 0, 90};
    const tt_collective_t all[] = {TT_REDUCE_SCATTER, TT_ALL_GATHER, TT_GATHER, TT_SCATTER};
    for (int c = 0; c < 4; c++) {
        for (int size = 1; size <= 10; size++) {
            for (int root = 0; root < size; root += 2) {
                expect_all_right(
                    (tt_plan_request_t){
                        .collective = all[c], .size = size, .root = root, .counts = counts},
                    (uint64_t)size);
            }
        }
    }
    for (int size = 1; size <= 9; size++) {
        for (int a = 0; tt_algorithms[a] != NULL; a++) {
            tt_plan_expect_right(
                (tt_plan_request_t){.collective = TT_ALL_TO_ALL, .size = size},
                (tt_plan_case_t){.algorithm = tt_algorithms[a], .has_tables = true});
        }
    }
}

/* Of 8 hosts so many, in front of memory that cannot be read. */
static const int *copy_to_edge(char *edge, const int *hosts, int size)
{
    const size_t bytes = (size_t)size * sizeof *hosts;
    return memcpy(edge - bytes, hosts, bytes);
}

static void ranks_may_be_on_any_hosts(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    static const int layouts[][8] = {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 0, 1, 0, 1, 0, 1},
                                     {0, 0, 0, 0, 0, 1, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7},
                                     {0, 1, 1, 0, 2, 0, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}};
    static const size_t counts[8] = {10, 0, 300, 7, 64, 65, 1, 2};
    for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
        for (int layout = 0; layout < 6; layout++) {
            for (int size = 2; size <= 8; size++) {
                tt_plan_request_t request = {
                    .collective = (tt_collective_t)c,
                    .size = size,
                    .root = (size - 1 + layout) % size,
                    .count = c == TT_BARRIER ? 0 : 700,
                    .hosts = copy_to_edge(memory + page, layouts[layout], size)};
                expect_all_right(request, (uint64_t)(layout * 10 + size));
                request.leaves = c == TT_ALL_REDUCE || c == TT_REDUCE_SCATTER ? 13 : 0;
                request.count = c == TT_BARRIER ? 0 : 5;
                expect_all_right(request, (uint64_t)(layout * 10 + size));
                if (c == TT_REDUCE_SCATTER || c == TT_ALL_GATHER) {
                    request.counts = counts;
                    expect_all_right(request, 3);
                }
            }
        }
        if (c <= TT_BROADCAST) {
            expect_all_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                 .size = 4,
                                                 .root = 2,
                                                 .count = c == TT_ALL_REDUCE ? 400001 : 150000,
                                                 .hosts = layouts[4]},
                             5);
        }
    }
    munmap(memory, 2 * page);
}

/* Two ranks' plans of an all_gather of 8 elements over wires: copy, send, recv. */
static void make_pair(tt_plan_request_t *requests, tt_plan_t **plans)
{
    for (int rank = 0; rank < 2; rank++) {
        requests[rank] =
            (tt_plan_request_t){.collective = TT_ALL_GATHER, .rank = rank, .size = 2, .count = 8};
        assert_int_equal(tt_plan_create(&requests[rank], &tt_algorithm_pairwise, &plans[rank]),
                         TUTTI_OK);
    }
}

static void mistakes_in_plans_are_found(void **state)
{
    (void)state;
    tt_plan_t *plans[2];
    tt_plan_request_t requests[2];
    float memory[2][64] = {{0}};
    float *pieces[2] = {memory[0], memory[1]};
    const tt_sim_rank_t ranks[2] = {{&pieces[0], memory[0] + 32}, {&pieces[1], memory[1] + 32}};
    tt_plan_cost_t cost;
    make_pair(requests, plans);
    for (int rank = 0; rank < 2; rank++) { /* both send only after receiving */
        const tt_step_t send = plans[rank]->steps[1];
        plans[rank]->steps[1] = plans[rank]->steps[2];
        plans[rank]->steps[2] = send;
        plans[rank]->round_starts[1] = 2;
        plans[rank]->round_starts[2] = 3;
        plans[rank]->rounds = 2;
    }
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "deadlock: rank 0 waits in round 0"));
    tt_plan_release(plans[0]);
    tt_plan_release(plans[1]);

    make_pair(requests, plans);
    plans[0]->steps[2].count = 7;
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_MISMATCH);
    plans[0]->steps[2].count = 8;
    plans[0]->steps[2].dst.offset = 4; /* into what the copy writes */
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "touch the same"));
    plans[0]->steps[2] =
        (tt_step_t){.kind = TT_STEP_GET, .peer = 1, .dst = {TT_BUFFER_OUT, 0, 8}, .count = 8};
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "cannot reach"));
    tt_plan_release(plans[0]);
    tt_plan_release(plans[1]);
}

static void a_barrier_without_rounds_is_found(void **state)
{
    (void)state;
    tt_plan_t *plans[2];
    tt_plan_request_t requests[2];
    const tt_sim_rank_t ranks[2] = {{NULL, NULL}, {NULL, NULL}};
    for (int rank = 0; rank < 2; rank++) {
        requests[rank] = (tt_plan_request_t){.collective = TT_BARRIER, .rank = rank, .size = 2};
        assert_int_equal(tt_plan_create(&requests[rank], &tt_algorithm_pairwise, &plans[rank]),
                         TUTTI_OK);
    }
    tt_plan_cost_t cost;
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_OK);
    plans[0]->rounds = plans[1]->rounds = 0;
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_STATE);
    tt_plan_release(plans[0]);
    tt_plan_release(plans[1]);
}

static void requests_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    tt_plan_t *plan;
    const tt_plan_request_t bad[] = {
        {.collective = TT_BROADCAST, .size = 2, .root = 2},
        {.collective = TT_BROADCAST, .size = 2, .rank = 2},
        {.collective = TT_ALL_REDUCE, .size = 2, .leaves = 4, .first = (int[]){0, 5, 4}},
        {.collective = TT_ALL_REDUCE, .size = 2, .leaves = 4, .first = (int[]){0, 2, 3}},
        {.collective = TT_ALL_REDUCE, .size = 2, .leaves = 4, .first = (int[]){1, 2, 4}},
        {.collective = TT_ALL_REDUCE, .size = 2, .leaves = 2 << 20},
    };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tt_plan_create(&bad[i], &tt_algorithm_direct, &plan), TUTTI_ERR_ARG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_right_for_1_to_17_ranks),
        cmocka_unit_test(large_counts_travel_in_chunks),
        cmocka_unit_test(the_last_chunk_may_have_the_longest_slice),
        cmocka_unit_test(reductions_use_the_room_of_earlier_chunks_again),
        cmocka_unit_test(leaf_maps_of_any_shape_give_the_same_sum),
        cmocka_unit_test(every_algorithm_can_do_something),
        cmocka_unit_test(costs_are_those_of_the_papers),
        cmocka_unit_test(every_root_is_served),
        cmocka_unit_test(parts_may_be_of_any_length),
        cmocka_unit_test(ranks_may_be_on_any_hosts),
        cmocka_unit_test(mistakes_in_plans_are_found),
        cmocka_unit_test(a_barrier_without_rounds_is_found),
        cmocka_unit_test(requests_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
