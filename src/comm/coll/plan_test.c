/* Conformance of algorithms: every one, simulated for 1 to 17 ranks × counts × roots × leaf maps ×
 * interleavings, against the definition of the sum; no deadlock, cost as declared. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "comm/coll/plan_sim.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"

enum { SIZE_MAX_TESTED = 17, COUNT_MAX = 1200, PIECES = 8 };

typedef struct {
    tt_plan_request_t requests[SIZE_MAX_TESTED]; /* every rank's */
    size_t counts[2][SIZE_MAX_TESTED][SIZE_MAX_TESTED];
    tt_plan_t *plans[SIZE_MAX_TESTED];
    tt_sim_rank_t ranks[SIZE_MAX_TESTED];
    float *pieces[SIZE_MAX_TESTED][PIECES];
} world_t;

static float leaf_value(int leaf, size_t i)
{
    return tt_rng_normal(tt_rng_stream(3, 0, 0, 0, 0), (uint64_t)leaf * 100000 + i);
}

static float sum_of(int lo, int hi, size_t i)
{
    if (hi - lo == 1) {
        return leaf_value(lo, i);
    }
    const int mid = tt_tree_mid(lo, hi);
    return sum_of(lo, mid, i) + sum_of(mid, hi, i);
}

static void fill_rank(world_t *world, int rank)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t in = tt_plan_piece_elements(request), out = tt_plan_out_elements(request);
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    tt_leaves_t spans[TT_TREE_DEPTH_MAX] = {{rank, rank + 1}};
    int count = 1;
    if (tt_collective_reduces(request->collective)) {
        count = tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                               tt_plan_first_leaf(request, rank + 1), spans);
    }
    assert_true(count <= PIECES);
    for (int k = 0; k < count; k++) {
        world->pieces[rank][k] = tt_alloc_array(in, sizeof(float), "test");
        for (size_t i = 0; i < in; i++) {
            world->pieces[rank][k][i] = sum_of(spans[k].begin, spans[k].end, i);
        }
    }
    world->ranks[rank] =
        (tt_sim_rank_t){world->pieces[rank], tt_alloc_array(out, sizeof(float), "test")};
}

/* The rank whose part an element of a gathered buffer belongs to. */
static int part_at(const tt_plan_request_t *request, size_t i, tt_slice_t *part,
                   tt_slice_t (*part_of)(const tt_plan_request_t *, int))
{
    for (int rank = 0; rank < request->size; rank++) {
        *part = part_of(request, rank);
        if (i >= part->begin && i < part->begin + part->count) {
            return rank;
        }
    }
    return -1;
}

static float expected(const world_t *world, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    tt_slice_t part = {0, 0};
    int from;
    switch (request->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
        return sum_of(0, leaves, i);
    case TT_REDUCE_SCATTER:
        return sum_of(0, leaves, tt_plan_part(request, rank).begin + i);
    case TT_ALL_GATHER:
    case TT_GATHER:
        from = part_at(request, i, &part, tt_plan_part);
        return leaf_value(from, i - part.begin);
    case TT_BROADCAST:
        return leaf_value(request->root, i);
    case TT_SCATTER:
        return leaf_value(request->root, tt_plan_part(request, rank).begin + i);
    case TT_ALL_TO_ALL:
        from = part_at(request, i, &part, tt_plan_recv_part);
        return leaf_value(from, tt_plan_part(&world->requests[from], rank).begin + i - part.begin);
    default:
        return 0;
    }
}

static void check_rank(const world_t *world, int rank)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t out = tt_plan_out_elements(request);
    for (size_t i = 0; i < out; i += 1 + out / 40) {
        const float want = expected(world, rank, i);
        assert_memory_equal(&world->ranks[rank].out[i], &want, sizeof want);
    }
}

/* Parts of all sizes, some of them empty; of an all_to_all each pair has its own. */
static void make_uneven(world_t *world, tt_plan_request_t *request)
{
    const bool is_exchange = request->collective == TT_ALL_TO_ALL;
    const int rank = request->rank;
    for (int i = 0; i < request->size; i++) {
        const size_t modulus = request->count + 2;
        const size_t row = is_exchange ? (size_t)rank : 0;
        world->counts[0][rank][i] = (row * 7 + (size_t)i * 13 + request->count) % modulus;
        world->counts[1][rank][i] = ((size_t)i * 7 + (size_t)rank * 13 + request->count) % modulus;
    }
    request->counts = world->counts[0][rank];
    request->recv_counts = is_exchange ? world->counts[1][rank] : NULL;
}

static bool has_parts(tt_collective_t collective)
{
    return collective == TT_REDUCE_SCATTER || collective == TT_ALL_GATHER ||
           collective == TT_GATHER || collective == TT_SCATTER || collective == TT_ALL_TO_ALL;
}

static void expect_right_parts(tt_plan_request_t request, const tt_algorithm_t *algorithm,
                               uint64_t seed, bool is_uneven)
{
    static world_t world;
    memset(&world, 0, sizeof world);
    if (is_uneven) {
        make_uneven(&world, &request);
    }
    request.is_staged = strcmp(algorithm->name, "staged") == 0;
    if (!algorithm->fits(&request)) {
        return;
    }
    for (int rank = 0; rank < request.size; rank++) {
        request.rank = rank;
        if (is_uneven) {
            make_uneven(&world, &request);
        }
        world.requests[rank] = request;
        assert_int_equal(tt_plan_create(&request, algorithm, &world.plans[rank]), TUTTI_OK);
        fill_rank(&world, rank);
    }
    tt_plan_cost_t cost, declared = algorithm->cost(&request);
    if (tt_plan_simulate(world.plans, world.ranks, seed, &cost) != TUTTI_OK) {
        fail_msg("%s %s over %d ranks: %s", tt_collective_name(request.collective), algorithm->name,
                 request.size, tutti_last_error());
    }
    for (int rank = 0; rank < request.size; rank++) {
        check_rank(&world, rank);
        tt_plan_release(world.plans[rank]);
        tt_free(world.ranks[rank].out);
        for (int k = 0; k < PIECES; k++) {
            tt_free(world.pieces[rank][k]);
        }
    }
    if (is_uneven && request.collective == TT_ALL_TO_ALL) {
        return; /* no rank knows what the others exchange */
    }
    assert_int_equal(cost.sent, declared.sent);
    assert_int_equal(cost.read, declared.read);
    if (cost.rounds > declared.rounds) { /* rounds whose slices are empty fall away */
        fail_msg("%s %s over %d ranks, count %zu: %d rounds, %d declared",
                 tt_collective_name(request.collective), algorithm->name, request.size,
                 request.count, cost.rounds, declared.rounds);
    }
    if (request.count >= 64 * (size_t)request.size && request.size > 1) {
        assert_int_equal(cost.rounds, declared.rounds);
    }
}

static void expect_right(tt_plan_request_t request, const tt_algorithm_t *algorithm, uint64_t seed)
{
    expect_right_parts(request, algorithm, seed, false);
    if (has_parts(request.collective) && request.count > 0) {
        expect_right_parts(request, algorithm, seed, true);
    }
}

static void expect_no_leak(void)
{
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void every_algorithm_is_right_for_1_to_17_ranks(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 63, 64, 65, COUNT_MAX};
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
            for (int size = 1; size <= SIZE_MAX_TESTED; size++) {
                for (int k = 0; k < 6; k++) {
                    const size_t count = c == TT_BARRIER ? 0 : counts[k] / (size > 5 ? 4 : 1);
                    expect_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                     .size = size,
                                                     .root = (size * 2 / 3) % size,
                                                     .count = count},
                                 tt_algorithms[a], (uint64_t)(size * 10 + k));
                }
            }
        }
    }
    expect_no_leak();
}

static void leaf_maps_of_any_shape_give_the_same_sum(void **state)
{
    (void)state;
    const int uneven[] = {0, 5, 5, 6, 12, 12}; /* two ranks without leaves */
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
            if (!tt_collective_reduces((tt_collective_t)c)) {
                continue;
            }
            for (int leaves = 1; leaves <= 13; leaves += 3) {
                for (int size = 1; size <= 5; size++) {
                    expect_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                     .size = size,
                                                     .count = 130,
                                                     .leaves = leaves},
                                 tt_algorithms[a], 1);
                }
            }
            expect_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                             .size = 5,
                                             .count = 200,
                                             .leaves = 12,
                                             .first = uneven},
                         tt_algorithms[a], 2);
        }
    }
    expect_no_leak();
}

static void every_rank_can_be_root(void **state)
{
    (void)state;
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
            for (int root = 0; root < 6 && tt_collective_has_root((tt_collective_t)c); root++) {
                expect_right(
                    (tt_plan_request_t){
                        .collective = (tt_collective_t)c, .size = 6, .root = root, .count = 500},
                    tt_algorithms[a], (uint64_t)root);
            }
        }
    }
    expect_no_leak();
}

static void what_is_longer_than_a_chunk_is_right_too(void **state)
{
    (void)state;
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
            for (int size = 1; size <= 3; size++) {
                expect_right((tt_plan_request_t){.collective = (tt_collective_t)c,
                                                 .size = size,
                                                 .root = size - 1,
                                                 .count = c == TT_BARRIER ? 0 : 150001},
                             tt_algorithms[a], 7);
            }
        }
    }
    expect_no_leak();
}

static void a_plan_that_cannot_end_is_found(void **state)
{
    (void)state;
    tt_plan_t *plans[2];
    float memory[2][64] = {{0}};
    float *pieces[2] = {memory[0], memory[1]};
    tt_sim_rank_t ranks[2];
    for (int rank = 0; rank < 2; rank++) {
        const tt_plan_request_t request = {
            .collective = TT_ALL_GATHER, .rank = rank, .size = 2, .count = 8};
        assert_int_equal(tt_plan_create(&request, &tt_algorithm_pairwise, &plans[rank]), TUTTI_OK);
        ranks[rank] = (tt_sim_rank_t){&pieces[rank], memory[rank]};
    }
    for (int rank = 0; rank < 2; rank++) { /* copy, send, recv: both send only after receiving */
        plans[rank]->steps[1].round = 1;
        plans[rank]->rounds = 2;
    }
    tt_plan_cost_t cost;
    assert_int_equal(tt_plan_simulate(plans, ranks, 0, &cost), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "deadlock: rank 0 waits in round 0"));
    for (int rank = 0; rank < 2; rank++) {
        plans[rank]->steps[1].round = 0;
        plans[rank]->steps[2].count = 7;
    }
    assert_int_equal(tt_plan_simulate(plans, ranks, 0, &cost), TUTTI_ERR_MISMATCH);
    tt_plan_release(plans[0]);
    tt_plan_release(plans[1]);
    expect_no_leak();
}

static void plans_print_as_text(void **state)
{
    (void)state;
    const tt_plan_request_t request = {
        .collective = TT_ALL_REDUCE, .rank = 1, .size = 3, .count = 150, .leaves = 4};
    tt_plan_t *plan;
    assert_int_equal(tt_plan_create(&request, &tt_algorithm_pairwise, &plan), TUTTI_OK);
    char text[2000];
    const size_t length = tt_plan_print(plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "all_reduce pairwise: rank 1 of 3, 150 elements, 4 leaves\n"
                              "  round 0: send   piece 0 [128, 150) to 2\n"
                              "  round 0: send   piece 0 [0, 64) to 0\n"
                              "  round 0: recv   scratch [0, 64) from 0\n"
                              "  round 0: recv   scratch [64, 128) from 2\n"
                              "  round 1: reduce scratch [0, 64) + piece 0 [64, 128) + scratch "
                              "[64, 128) to out [64, 128)\n"
                              "  round 2: send   out [64, 128) to 2\n"
                              "  round 2: send   out [64, 128) to 0\n"
                              "  round 2: recv   out [128, 150) from 2\n"
                              "  round 2: recv   out [0, 64) from 0\n");
    char cut[10];
    assert_int_equal(tt_plan_print(plan, cut, sizeof cut), length);
    assert_string_equal(cut, "all_reduc");
    tt_plan_release(plan);
    assert_int_equal(tt_plan_create(&request, &tt_algorithm_direct, &plan), TUTTI_OK);
    tt_plan_print(plan, text, sizeof text);
    assert_string_equal(text, "all_reduce direct: rank 1 of 3, 150 elements, 4 leaves\n"
                              "  round 0: reduce piece 0 [64, 128) of 0 + piece 0 [64, 128) + "
                              "piece 0 [64, 128) of 2 to all out [64, 128)\n");
    tt_plan_release(plan);
    expect_no_leak();
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
    expect_no_leak();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_right_for_1_to_17_ranks),
        cmocka_unit_test(leaf_maps_of_any_shape_give_the_same_sum),
        cmocka_unit_test(every_rank_can_be_root),
        cmocka_unit_test(what_is_longer_than_a_chunk_is_right_too),
        cmocka_unit_test(a_plan_that_cannot_end_is_found),
        cmocka_unit_test(plans_print_as_text),
        cmocka_unit_test(requests_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
