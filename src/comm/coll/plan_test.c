/* Conformance of algorithms: every one, simulated for 1 to 17 ranks × counts × roots × leaf maps ×
 * hosts × interleavings, against the definition of the sum; no deadlock, cost as declared. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "comm/coll/plan_sim.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

enum { SIZE_MAX_TESTED = 17, PIECES = 12, SAMPLES = 40 };

typedef struct {
    tt_plan_request_t requests[SIZE_MAX_TESTED];
    tt_plan_t *plans[SIZE_MAX_TESTED];
    tt_sim_rank_t ranks[SIZE_MAX_TESTED];
    float *pieces[SIZE_MAX_TESTED][PIECES];
    int piece_count[SIZE_MAX_TESTED];
    size_t table[2][SIZE_MAX_TESTED][SIZE_MAX_TESTED]; /* of an all_to_all: given, taken */
    float *memory[SIZE_MAX_TESTED]; /* of pieces and out, where they are the same */
} world_t;

typedef struct {
    const tt_algorithm_t *algorithm;
    uint64_t seed;
    bool is_in_place, has_tables;
} run_t;

/* Numbers of very different sizes, so that the order of a sum shows in its bits. */
static float leaf_value(int leaf, size_t i)
{
    uint64_t x = (uint64_t)leaf * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xc2b2ae3d27d4eb4f);
    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ((float)(x & 0xffff) - 32768.0F) * (1.0F / (float)(1 << (x >> 16 & 15)));
}

static float sum_of(int lo, int hi, size_t i)
{
    if (hi - lo == 1) {
        return leaf_value(lo, i);
    }
    const int mid = tt_tree_mid(lo, hi);
    return sum_of(lo, mid, i) + sum_of(mid, hi, i);
}

static int leaves_of(const tt_plan_request_t *request)
{
    return request->leaves > 0 ? request->leaves : request->size;
}

/* What each rank gives to each: some of it nothing. */
static void fill_tables(world_t *world, int size)
{
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size; j++) {
            const size_t count = (size_t)((i * 7 + j * 13) % 5 * 17);
            world->table[0][i][j] = count;
            world->table[1][j][i] = count;
        }
    }
}

static void make_requests(world_t *world, const tt_plan_request_t *request, const run_t *run)
{
    fill_tables(world, request->size);
    for (int rank = 0; rank < request->size; rank++) {
        world->requests[rank] = *request;
        world->requests[rank].rank = rank;
        if (run->has_tables) {
            world->requests[rank].counts = world->table[0][rank];
            world->requests[rank].recv_counts = world->table[1][rank];
        }
    }
}

static void fill_pieces(world_t *world, int rank, size_t elements)
{
    const tt_plan_request_t *request = &world->requests[rank];
    tt_leaves_t spans[TT_TREE_DEPTH_MAX] = {{rank, rank + 1}};
    int count = 1;
    if (tt_collective_reduces(request->collective)) {
        count = tt_tree_pieces(leaves_of(request), tt_plan_first_leaf(request, rank),
                               tt_plan_first_leaf(request, rank + 1), spans);
    }
    assert_true(count <= PIECES);
    world->piece_count[rank] = count;
    for (int k = 0; k < count; k++) {
        if (world->pieces[rank][k] == NULL) {
            world->pieces[rank][k] = tt_alloc_array(elements, sizeof(float), "test");
        }
        for (size_t i = 0; i < elements; i++) {
            world->pieces[rank][k][i] = sum_of(spans[k].begin, spans[k].end, i);
        }
    }
}

/* Pieces and out in one block, as calls in place have them; false if there is no such thing. */
static bool share_memory(world_t *world, int rank, size_t in, size_t out)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t part = tt_plan_part(request, rank).begin;
    float *memory = tt_alloc_array((in > out ? in : out) + 1, sizeof(float), "test");
    for (size_t i = 0; i < out; i++) {
        memory[i] = NAN;
    }
    world->memory[rank] = world->ranks[rank].out = world->pieces[rank][0] = memory;
    switch (request->collective) {
    case TT_ALL_GATHER:
    case TT_GATHER:
        if (out > 0) {
            world->pieces[rank][0] = memory + part;
        }
        return true;
    case TT_REDUCE_SCATTER:
    case TT_SCATTER:
        if (in > 0) {
            world->ranks[rank].out = memory + part;
        }
        return true;
    default:
        return request->collective != TT_ALL_TO_ALL;
    }
}

static void fill_rank(world_t *world, int rank, bool is_in_place)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t in = tt_plan_piece_elements(request), out = tt_plan_out_elements(request);
    if (is_in_place) {
        assert_true(share_memory(world, rank, in, out));
    } else {
        world->ranks[rank].out = tt_alloc_array(out, sizeof(float), "test");
        for (size_t i = 0; i < out; i++) {
            world->ranks[rank].out[i] = NAN;
        }
    }
    fill_pieces(world, rank, in);
    world->ranks[rank].pieces = world->pieces[rank];
}

/* Whose part element i of a buffer with the parts of all belongs to. */
static int owner_of(const tt_plan_request_t *request, size_t i)
{
    int rank = 0;
    while (tt_plan_part(request, rank).begin + tt_plan_part(request, rank).count <= i) {
        rank++;
    }
    return rank;
}

static float exchanged(const world_t *world, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    int from = 0;
    while (tt_plan_recv_part(request, from).begin + tt_plan_recv_part(request, from).count <= i) {
        from++;
    }
    const size_t at = i - tt_plan_recv_part(request, from).begin;
    return leaf_value(from, tt_plan_part(&world->requests[from], rank).begin + at);
}

static float expected(const world_t *world, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t begin = tt_plan_part(request, rank).begin;
    switch (request->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
        return sum_of(0, leaves_of(request), i);
    case TT_REDUCE_SCATTER:
        return sum_of(0, leaves_of(request), begin + i);
    case TT_ALL_GATHER:
    case TT_GATHER: {
        const int owner = owner_of(request, i);
        return leaf_value(owner, i - tt_plan_part(request, owner).begin);
    }
    case TT_BROADCAST:
        return leaf_value(request->root, i);
    case TT_SCATTER:
        return leaf_value(request->root, begin + i);
    case TT_ALL_TO_ALL:
        return exchanged(world, rank, i);
    default:
        return 0;
    }
}

static void check_element(const world_t *world, const run_t *run, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const float want = expected(world, rank, i), got = world->ranks[rank].out[i];
    const bool is_exact =
        run->algorithm->is_canonical || !tt_collective_reduces(request->collective);
    const bool is_right =
        is_exact ? memcmp(&want, &got, sizeof want) == 0 : fabsf(want - got) <= 0.05F;
    const bool is_alike = request->collective != TT_ALL_REDUCE ||
                          memcmp(&got, &world->ranks[0].out[i], sizeof got) == 0;
    if (!is_right || !is_alike) {
        fail_msg("%s %s rank %d of %d, count %zu, leaves %d, root %d: [%zu] is %g, not %g",
                 tt_collective_name(request->collective), run->algorithm->name, rank, request->size,
                 request->count, request->leaves, request->root, i, (double)got, (double)want);
    }
}

static void check_rank(const world_t *world, const run_t *run, int rank)
{
    const size_t out = tt_plan_out_elements(&world->requests[rank]);
    const size_t stride = out > 4 * SAMPLES ? out / SAMPLES - 1 : 1;
    for (size_t i = 0; i < out; i += stride) {
        check_element(world, run, rank, i);
    }
    if (out > 0) {
        check_element(world, run, rank, out - 1);
    }
}

static void check_cost(const world_t *world, const run_t *run, const tt_plan_cost_t *cost)
{
    const tt_plan_request_t *request = &world->requests[0];
    tt_plan_cost_t declared = {0};
    for (int rank = 0; rank < request->size; rank++) {
        const tt_plan_cost_t one = run->algorithm->cost(&world->requests[rank]);
        declared.rounds = one.rounds > declared.rounds ? one.rounds : declared.rounds;
        declared.sent = one.sent > declared.sent ? one.sent : declared.sent;
        declared.read = one.read > declared.read ? one.read : declared.read;
    }
    /* rounds in which slices are empty fall away */
    const bool is_full = request->count >= 64 * (size_t)request->size && request->size > 1 &&
                         request->counts == NULL;
    if (cost->sent != declared.sent || cost->read != declared.read ||
        cost->rounds > declared.rounds || (is_full && cost->rounds != declared.rounds)) {
        fail_msg("%s %s, %d ranks, count %zu, leaves %d, root %d: sent %zu, read %zu, %d rounds; "
                 "declared %zu, %zu, %d",
                 tt_collective_name(request->collective), run->algorithm->name, request->size,
                 request->count, request->leaves, request->root, cost->sent, cost->read,
                 cost->rounds, declared.sent, declared.read, declared.rounds);
    }
}

static void free_rank(world_t *world, int rank)
{
    tt_plan_release(world->plans[rank]);
    if (world->memory[rank] != NULL) {
        world->pieces[rank][0] = world->memory[rank];
    } else {
        tt_free(world->ranks[rank].out);
    }
    for (int k = 0; k < PIECES; k++) {
        tt_free(world->pieces[rank][k]);
    }
}

static void expect_right(tt_plan_request_t request, run_t run)
{
    world_t world = {0};
    make_requests(&world, &request, &run);
    if (!run.algorithm->fits(&world.requests[0])) {
        return;
    }
    for (int rank = 0; rank < request.size; rank++) {
        if (tt_plan_create(&world.requests[rank], run.algorithm, &world.plans[rank]) < 0) {
            fail_msg("%s: %s", run.algorithm->name, tutti_last_error());
        }
        fill_rank(&world, rank, run.is_in_place);
    }
    tt_plan_cost_t cost;
    if (tt_plan_simulate(world.plans, world.requests, world.ranks, run.seed, &cost) != TUTTI_OK) {
        fail_msg("%s %s over %d ranks, count %zu, leaves %d, root %d: %s",
                 tt_collective_name(request.collective), run.algorithm->name, request.size,
                 request.count, request.leaves, request.root, tutti_last_error());
    }
    for (int rank = 0; rank < request.size; rank++) {
        check_rank(&world, &run, rank);
    }
    check_cost(&world, &run, &cost);
    for (int rank = 0; rank < request.size; rank++) {
        free_rank(&world, rank);
    }
}

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
            expect_right(request, (run_t){.algorithm = tt_algorithms[a],
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
        for (int size = 1; size <= SIZE_MAX_TESTED; size++) {
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
            fits += tt_algorithms[a]->fits(&request);
            request.hosts = hosts;
            fits += tt_algorithms[a]->fits(&request);
        }
        assert_true(fits > 0);
        assert_ptr_equal(tt_algorithm_find(tt_algorithms[a]->name), tt_algorithms[a]);
        assert_non_null(tt_algorithms[a]->about);
        assert_non_null(tt_algorithms[a]->source);
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
            expect_right((tt_plan_request_t){.collective = TT_ALL_TO_ALL, .size = size},
                         (run_t){.algorithm = tt_algorithms[a], .has_tables = true});
        }
    }
}

static void ranks_may_be_on_any_hosts(void **state)
{
    (void)state;
    static const int layouts[][8] = {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 0, 1, 0, 1, 0, 1},
                                     {0, 0, 0, 0, 0, 1, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7},
                                     {0, 1, 1, 0, 2, 0, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}};
    static const size_t counts[8] = {10, 0, 300, 7, 64, 65, 1, 2};
    for (int c = 0; c < TT_COLLECTIVE_COUNT; c++) {
        for (int layout = 0; layout < 6; layout++) {
            for (int size = 2; size <= 8; size++) {
                tt_plan_request_t request = {.collective = (tt_collective_t)c,
                                             .size = size,
                                             .root = (size - 1 + layout) % size,
                                             .count = c == TT_BARRIER ? 0 : 700,
                                             .hosts = layouts[layout]};
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
        plans[rank]->steps[2].round = 1;
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
        (tt_step_t){.kind = TT_STEP_PULL, .peer = 1, .dst = {TT_BUFFER_OUT, 0, 8}, .count = 8};
    assert_int_equal(tt_plan_simulate(plans, requests, ranks, 0, &cost), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "cannot reach"));
    tt_plan_release(plans[0]);
    tt_plan_release(plans[1]);
}

static void a_barrier_that_nobody_waits_in_is_found(void **state)
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
        cmocka_unit_test(reductions_use_the_room_of_earlier_chunks_again),
        cmocka_unit_test(leaf_maps_of_any_shape_give_the_same_sum),
        cmocka_unit_test(every_algorithm_can_do_something),
        cmocka_unit_test(every_root_is_served),
        cmocka_unit_test(parts_may_be_of_any_length),
        cmocka_unit_test(ranks_may_be_on_any_hosts),
        cmocka_unit_test(mistakes_in_plans_are_found),
        cmocka_unit_test(a_barrier_that_nobody_waits_in_is_found),
        cmocka_unit_test(requests_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
