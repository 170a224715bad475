/* For tests: what an algorithm does for all ranks, simulated, against the definition of the
 * collective. Header only, so that it is no part of the library.
 *
 *     tt_plan_expect_right(request, (tt_plan_case_t){.algorithm = &tt_algorithm_pairwise});
 */
#ifndef TT_PLAN_EXPECT_TEST_H
#define TT_PLAN_EXPECT_TEST_H

#include <math.h>
#include <string.h>

#include "comm/plan/plan_sim.h"
#include "core/base/alloc.h"
#include "core/base/draw_testing.h"
#include "core/base/testing.h"

enum { TT_PLAN_RANKS_TESTED = 17, TT_PLAN_PIECES_TESTED = 12, TT_PLAN_SAMPLES = 40 };

typedef struct {
    tt_plan_request_t requests[TT_PLAN_RANKS_TESTED];
    tt_plan_t *plans[TT_PLAN_RANKS_TESTED];
    tt_sim_rank_t ranks[TT_PLAN_RANKS_TESTED];
    float *pieces[TT_PLAN_RANKS_TESTED][TT_PLAN_PIECES_TESTED];
    int piece_count[TT_PLAN_RANKS_TESTED];
    size_t table[2][TT_PLAN_RANKS_TESTED]
                [TT_PLAN_RANKS_TESTED];  /* of an all_to_all: given, taken */
    float *memory[TT_PLAN_RANKS_TESTED]; /* of pieces and out, where they are the same */
} tt_plan_world_t;

typedef struct {
    const tt_algorithm_t *algorithm;
    uint64_t seed;
    bool is_in_place, has_tables;
    unsigned staged_hosts; /* a bit for each host that uses bounce buffers where others do not */
} tt_plan_case_t;

/* Numbers of very different sizes, so that the order of a sum shows in its bits. */
static inline float leaf_value(int leaf, size_t i)
{
    uint64_t x = (uint64_t)leaf * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xc2b2ae3d27d4eb4f);
    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ((float)(x & 0xffff) - 32768.0F) * (1.0F / (float)(1 << (x >> 16 & 15)));
}

static inline float sum_of(int lo, int hi, size_t i)
{
    if (hi - lo == 1) {
        return leaf_value(lo, i);
    }
    const int mid = tt_tree_mid(lo, hi);
    return sum_of(lo, mid, i) + sum_of(mid, hi, i);
}

static inline int leaves_of(const tt_plan_request_t *request)
{
    return request->leaves > 0 ? request->leaves : request->size;
}

/* What each rank gives to each: some of it nothing. */
static inline void fill_tables(tt_plan_world_t *world, int size)
{
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size; j++) {
            const size_t count = (size_t)((i * 7 + j * 13) % 5 * 17);
            world->table[0][i][j] = count;
            world->table[1][j][i] = count;
        }
    }
}

static inline void make_requests(tt_plan_world_t *world, const tt_plan_request_t *request,
                                 const tt_plan_case_t *run)
{
    fill_tables(world, request->size);
    for (int rank = 0; rank < request->size; rank++) {
        world->requests[rank] = *request;
        world->requests[rank].rank = rank;
        world->requests[rank].is_staged =
            request->is_staged || (run->staged_hosts >> tt_plan_host(request, rank) & 1) != 0;
        if (run->has_tables) {
            world->requests[rank].counts = world->table[0][rank];
            world->requests[rank].recv_counts = world->table[1][rank];
        }
    }
}

static inline void fill_pieces(tt_plan_world_t *world, int rank, size_t elements)
{
    const tt_plan_request_t *request = &world->requests[rank];
    tt_leaves_t spans[TT_TREE_DEPTH_MAX] = {{rank, rank + 1}};
    int count = 1;
    if (tt_collective_reduces(request->collective)) {
        count = tt_tree_pieces(leaves_of(request), tt_plan_first_leaf(request, rank),
                               tt_plan_first_leaf(request, rank + 1), spans);
    }
    assert_true(count <= TT_PLAN_PIECES_TESTED);
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
static inline bool share_memory(tt_plan_world_t *world, int rank, size_t in, size_t out)
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

static inline void fill_rank(tt_plan_world_t *world, int rank, bool is_in_place)
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
static inline int owner_of(const tt_plan_request_t *request, size_t i)
{
    int rank = 0;
    while (tt_plan_part(request, rank).begin + tt_plan_part(request, rank).count <= i) {
        rank++;
    }
    return rank;
}

static inline float exchanged(const tt_plan_world_t *world, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    int from = 0;
    while (tt_plan_recv_part(request, from).begin + tt_plan_recv_part(request, from).count <= i) {
        from++;
    }
    const size_t at = i - tt_plan_recv_part(request, from).begin;
    return leaf_value(from, tt_plan_part(&world->requests[from], rank).begin + at);
}

static inline float expected(const tt_plan_world_t *world, int rank, size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const size_t begin = tt_plan_part(request, rank).begin;
    switch (request->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
        return sum_of(0, leaves_of(request), i);
    case TT_SCAN:
        return sum_of(0, rank + 1, i);
    case TT_EXSCAN:
        return sum_of(0, rank, i);
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

static inline void check_element(const tt_plan_world_t *world, const tt_plan_case_t *run, int rank,
                                 size_t i)
{
    const tt_plan_request_t *request = &world->requests[rank];
    const float want = expected(world, rank, i), got = world->ranks[rank].out[i];
    const bool is_exact =
        run->algorithm->is_canonical || !tt_collective_reduces(request->collective);
    const bool is_right =
        is_exact ? memcmp(&want, &got, sizeof want) == 0 : fabsf(want - got) <= 0.05F;
    const bool is_same = request->collective != TT_ALL_REDUCE ||
                         memcmp(&got, &world->ranks[0].out[i], sizeof got) == 0;
    if (!is_right || !is_same) {
        fail_msg("%s %s rank %d of %d, count %zu, leaves %d, root %d: [%zu] is %g, not %g",
                 tt_collective_name(request->collective), run->algorithm->name, rank, request->size,
                 request->count, request->leaves, request->root, i, (double)got, (double)want);
    }
}

static inline void check_rank(const tt_plan_world_t *world, const tt_plan_case_t *run, int rank)
{
    const bool gets_it = tt_plan_contributors(&world->requests[rank], rank) > 0;
    const size_t out = gets_it ? tt_plan_out_elements(&world->requests[rank]) : 0;
    const size_t stride = out > 4 * TT_PLAN_SAMPLES ? out / TT_PLAN_SAMPLES - 1 : 1;
    for (size_t i = 0; i < out; i += stride) {
        check_element(world, run, rank, i);
    }
    if (out > 0) {
        check_element(world, run, rank, out - 1);
    }
}

/* No step adds up one thing into itself. */
static inline void check_use(const tt_plan_t *plan)
{
    tt_plan_round_t round = {0};
    for (int r = 0; r < plan->rounds; r++) {
        assert_int_equal(tt_plan_round(plan, r, &round), TUTTI_OK);
        for (int i = 0; i < round.count; i++) {
            const tt_step_t *step = &round.steps[i];
            if (step->kind == TT_STEP_REDUCE && step->to == TT_TO_ME) {
                const tt_plan_sum_t *sum = &plan->sums[step->sum];
                const tt_part_t *part = &sum->sources[0].part;
                assert_false(sum->count == 1 && part->buffer == TT_BUFFER_SUM &&
                             step->dst.buffer == TT_BUFFER_SUM && part->offset == step->dst.offset);
            }
        }
    }
    tt_plan_round_close(&round);
}

static inline void free_rank(tt_plan_world_t *world, int rank)
{
    tt_plan_release(world->plans[rank]);
    if (world->memory[rank] != NULL) {
        world->pieces[rank][0] = world->memory[rank];
    } else {
        tt_free(world->ranks[rank].out);
    }
    for (int k = 0; k < TT_PLAN_PIECES_TESTED; k++) {
        tt_free(world->pieces[rank][k]);
    }
}

static inline void tt_plan_expect_right(tt_plan_request_t request, tt_plan_case_t run)
{
    static uint64_t number;
    tt_plan_world_t world = {0};
    make_requests(&world, &request, &run);
    if (!tt_algorithm_fits(run.algorithm, &world.requests[0]) || !tt_test_takes(number++)) {
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
        check_use(world.plans[rank]);
    }
    for (int rank = 0; rank < request.size; rank++) {
        free_rank(&world, rank);
    }
}

#endif
