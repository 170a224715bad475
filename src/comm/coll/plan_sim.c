/* The simulator of plans. Each pass lets some of the ranks, in an order drawn from the seed, go as
 * far as they can; a pass in which all were let and nobody did anything is a deadlock. */
#include "comm/coll/plan_sim.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/tree_reduce.h"

enum { RANKS_MAX = 64 };

typedef struct {
    const tt_plan_t *plan;
    const tt_plan_request_t *request;
    tt_sim_rank_t memory;
    float *scratch, *sums, *stage, *stage_out, *tree_scratch;
    bool *is_done; /* [step_count] */
    const void **sources;
    uint64_t heard; /* from whom this rank knows, directly or not, that they have come */
    int round;
} rank_t;

typedef struct {
    rank_t *ranks;
    int size;
    bool is_backward; /* steps of a round */
} sim_t;

static float *part_of(const rank_t *rank, tt_part_t part)
{
    if (rank->plan->collective == TT_BARRIER) {
        return NULL;
    }
    switch (part.buffer) {
    case TT_BUFFER_PIECE:
        return rank->memory.pieces[part.index] + part.offset;
    case TT_BUFFER_OUT:
        return rank->memory.out + part.offset;
    case TT_BUFFER_SCRATCH:
        return rank->scratch + part.offset;
    case TT_BUFFER_SUM:
        return rank->sums + part.offset;
    case TT_BUFFER_STAGE:
    case TT_BUFFER_STAGE_BACK:
        return rank->stage + part.offset;
    case TT_BUFFER_STAGE_OUT:
        break;
    }
    return rank->stage_out + part.offset;
}

static bool are_mates(const rank_t *a, const rank_t *b)
{
    return tt_plan_host(a->request, a->plan->rank) == tt_plan_host(a->request, b->plan->rank);
}

static void run_reduce(sim_t *sim, rank_t *rank, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &rank->plan->sums[step->sum];
    const int target = step->to == TT_TO_PEER ? step->peer : rank->plan->rank;
    void *dst[RANKS_MAX];
    int dst_count = 0;
    for (int i = 0; i < sim->size; i++) {
        rank_t *other = &sim->ranks[i];
        if (step->to == TT_TO_MATES ? are_mates(rank, other) : i == target) {
            dst[dst_count++] = part_of(other, step->dst);
        }
    }
    for (int i = 0; i < sum->count; i++) {
        tt_part_t part = sum->sources[i].part;
        part.offset += step->src.offset;
        rank->sources[i] = part_of(&sim->ranks[sum->sources[i].rank], part);
    }
    tt_tree_reduce(&(tt_tree_reduce_t){.kernels = tt_combine_kernels(),
                                       .leaves = rank->plan->leaves,
                                       .source_count = sum->count,
                                       .sources = rank->sources,
                                       .merges = sum->merges,
                                       .dst_count = dst_count,
                                       .dst = dst,
                                       .scratch = rank->tree_scratch},
                   0, step->count);
}

static int run_pull(const sim_t *sim, const rank_t *rank, const tt_step_t *step)
{
    const rank_t *peer = &sim->ranks[step->peer];
    tt_part_t src = step->src;
    if (src.index == TT_FROM_TABLE) {
        const tt_slice_t given = tt_plan_part(peer->request, rank->plan->rank);
        if (given.count != step->count) {
            return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d gives %zu elements, rank %d wants %zu",
                           step->peer, given.count, rank->plan->rank, step->count);
        }
        src.index = 0;
        src.offset = given.begin;
    }
    memmove(part_of(rank, step->dst), part_of(peer, src), step->count * sizeof(float));
    return 1;
}

/* All mates are in this round or past it: then this rank knows what they know. */
static bool meet(const sim_t *sim, rank_t *rank)
{
    uint64_t heard = 0;
    for (int i = 0; i < sim->size; i++) {
        const rank_t *mate = &sim->ranks[i];
        if (!are_mates(rank, mate)) {
            continue;
        }
        if (mate->round < rank->round) {
            return false;
        }
        heard |= mate->heard;
    }
    rank->heard |= heard;
    return true;
}

/* The first step of a kind between two ranks that is not done in this round. */
static int find_open(const rank_t *rank, tt_step_kind_t kind, int peer)
{
    if (rank->round >= rank->plan->rounds) {
        return -1;
    }
    const int *starts = &rank->plan->round_starts[rank->round];
    for (int i = starts[0]; i < starts[1]; i++) {
        const tt_step_t *step = &rank->plan->steps[i];
        if (step->kind == kind && step->peer == peer && !rank->is_done[i]) {
            return i;
        }
    }
    return -1;
}

static bool is_sum(tt_part_t part)
{
    return part.buffer == TT_BUFFER_SUM;
}

/* 1: handed over; 0: the receiver is not there yet; or the failure. */
static int hand_over(sim_t *sim, rank_t *from, int index)
{
    const tt_step_t *send = &from->plan->steps[index];
    rank_t *to = &sim->ranks[send->peer];
    const int match = find_open(to, TT_STEP_RECV, from->plan->rank);
    if (match < 0 || find_open(from, TT_STEP_SEND, send->peer) != index) {
        return 0;
    }
    const tt_step_t *recv = &to->plan->steps[match];
    const bool share_rounds = from->request->is_staged == to->request->is_staged;
    if (recv->count != send->count || (share_rounds && recv->round != send->round) ||
        is_sum(recv->dst) != is_sum(send->src)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "rank %d sends %zu elements in round %d, rank %d wants %zu in round %d",
                       from->plan->rank, send->count, send->round, to->plan->rank, recv->count,
                       recv->round);
    }
    if (send->count > 0) {
        memcpy(part_of(to, recv->dst), part_of(from, send->src), send->count * sizeof(float));
    }
    from->is_done[index] = to->is_done[match] = true;
    to->heard |= from->heard;
    return 1;
}

static int run_step(sim_t *sim, rank_t *rank, int index)
{
    const tt_step_t *step = &rank->plan->steps[index];
    switch (step->kind) {
    case TT_STEP_SEND:
        return hand_over(sim, rank, index);
    case TT_STEP_RECV:
        return 0; /* the sender does it */
    case TT_STEP_COPY:
        memmove(part_of(rank, step->dst), part_of(rank, step->src), step->count * sizeof(float));
        break;
    case TT_STEP_PULL: {
        const int result = run_pull(sim, rank, step);
        if (result < 0) {
            return result;
        }
        break;
    }
    case TT_STEP_REDUCE:
        run_reduce(sim, rank, step);
        break;
    case TT_STEP_MEET:
        if (!meet(sim, rank)) {
            return 0;
        }
        break;
    }
    rank->is_done[index] = true;
    return 1;
}

/* Does what can be done in the rank's round; moves on when it is complete. */
static int run_round(sim_t *sim, rank_t *rank)
{
    if (rank->round >= rank->plan->rounds) {
        return 0;
    }
    const int begin = rank->plan->round_starts[rank->round];
    const int count = rank->plan->round_starts[rank->round + 1] - begin;
    int moved = 0;
    bool is_complete = true;
    for (int k = 0; k < count; k++) {
        const int i = sim->is_backward ? begin + count - 1 - k : begin + k;
        if (!rank->is_done[i]) {
            const int result = run_step(sim, rank, i);
            if (result < 0) {
                return result;
            }
            moved |= result;
        }
    }
    for (int i = begin; i < begin + count; i++) {
        is_complete = is_complete && rank->is_done[i];
    }
    if (is_complete) {
        rank->round++;
        moved = 1;
    }
    return moved;
}

static tutti_status_t name_deadlock(const sim_t *sim)
{
    for (int r = 0; r < sim->size; r++) {
        const rank_t *rank = &sim->ranks[r];
        for (int i = 0; rank->round < rank->plan->rounds && i < rank->plan->step_count; i++) {
            const tt_step_t *step = &rank->plan->steps[i];
            if (step->round == rank->round && !rank->is_done[i]) {
                return TT_FAIL(TUTTI_ERR_STATE, "deadlock: rank %d waits in round %d for %s %d", r,
                               rank->round,
                               step->kind == TT_STEP_SEND   ? "a receive by"
                               : step->kind == TT_STEP_MEET ? "mates, it is rank"
                                                            : "rank",
                               step->kind == TT_STEP_MEET ? r : step->peer);
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_barrier(const sim_t *sim)
{
    const uint64_t all = sim->size < 64 ? (UINT64_C(1) << sim->size) - 1 : UINT64_MAX;
    for (int r = 0; r < sim->size; r++) {
        const rank_t *rank = &sim->ranks[r];
        if (rank->plan->collective == TT_BARRIER && rank->heard != all) {
            return TT_FAIL(TUTTI_ERR_STATE, "barrier: rank %d does not wait for all", r);
        }
    }
    return TUTTI_OK;
}

static int run_pass(sim_t *sim, tt_rng_t rng, uint64_t pass, bool is_for_all)
{
    const int start = (int)tt_rng_below(rng, pass, (uint64_t)sim->size);
    const uint32_t draw = tt_rng_u32(rng, pass + (UINT64_C(1) << 32));
    const int direction = draw & 1 ? 1 : sim->size - 1;
    int moved = 0;
    sim->is_backward = (draw & 2) != 0;
    for (int i = 0; i < sim->size; i++) {
        const bool is_held_back = (draw >> (2 + i % 30) & 1) != 0;
        const int stretch = 1 + (int)(draw >> (5 + i % 24) & 7); /* may end before a round begins */
        rank_t *rank = &sim->ranks[(start + i * direction) % sim->size];
        int result = is_for_all || !is_held_back;
        for (int k = 0; k < stretch && result > 0; k++, moved |= result) {
            result = run_round(sim, rank);
            if (result < 0) {
                return result;
            }
        }
    }
    return moved;
}

static tutti_status_t run_all(sim_t *sim, uint64_t seed)
{
    const tt_rng_t rng = tt_rng_stream(seed, 0, 0, 0, 0);
    bool is_for_all = false;
    for (uint64_t pass = 0;; pass++) {
        const int moved = run_pass(sim, rng, pass, is_for_all);
        if (moved < 0) {
            return (tutti_status_t)moved;
        }
        if (!moved && is_for_all) {
            TT_TRY(name_deadlock(sim));
            return check_barrier(sim);
        }
        is_for_all = !moved;
    }
}

static void add_cost(const tt_plan_t *plan, tt_plan_cost_t *cost)
{
    size_t sent = 0, read = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const tt_step_t *step = &plan->steps[i];
        sent += step->kind == TT_STEP_SEND ? step->count : 0;
        read += step->kind == TT_STEP_PULL && step->peer != plan->rank ? step->count : 0;
        for (int k = 0; step->kind == TT_STEP_REDUCE && k < plan->sums[step->sum].count; k++) {
            read += plan->sums[step->sum].sources[k].rank != plan->rank ? step->count : 0;
        }
    }
    cost->rounds = plan->rounds > cost->rounds ? plan->rounds : cost->rounds;
    cost->sent = sent > cost->sent ? sent : cost->sent;
    cost->read = read > cost->read ? read : cost->read;
}

static float *make_poison(size_t count)
{
    float *memory = tt_alloc_array(count, sizeof *memory, "simulated rank");
    for (size_t i = 0; memory != NULL && i < count; i++) {
        memory[i] = NAN;
    }
    return memory;
}

static uint64_t find_mates(const tt_plan_request_t *request)
{
    uint64_t mates = 0;
    for (int i = 0; i < request->size; i++) {
        if (tt_plan_host(request, i) == tt_plan_host(request, request->rank)) {
            mates |= UINT64_C(1) << i;
        }
    }
    return mates;
}

static tutti_status_t open_rank(rank_t *rank, const tt_plan_t *plan, tt_sim_rank_t memory)
{
    rank->plan = plan;
    rank->memory = memory;
    rank->heard =
        plan->algorithm->shares_memory ? find_mates(rank->request) : UINT64_C(1) << plan->rank;
    rank->scratch = make_poison(plan->scratch_count);
    rank->sums = make_poison(plan->sum_elements);
    rank->stage = make_poison(plan->stage_count);
    rank->stage_out = make_poison(plan->stage_out_count);
    rank->tree_scratch = tt_alloc(tt_tree_reduce_scratch_bytes(plan->depth_max), "simulated rank");
    rank->is_done = tt_alloc((size_t)plan->step_count, "simulated rank");
    rank->sources =
        tt_alloc_array((size_t)plan->source_count_max, sizeof *rank->sources, "simulated rank");
    const bool has_all = rank->scratch != NULL && rank->sums != NULL && rank->stage != NULL &&
                         rank->stage_out != NULL && rank->tree_scratch != NULL &&
                         rank->is_done != NULL && rank->sources != NULL;
    return has_all ? TUTTI_OK : TUTTI_ERR_NOMEM;
}

static void close_rank(rank_t *rank)
{
    tt_free(rank->scratch);
    tt_free(rank->sums);
    tt_free(rank->stage);
    tt_free(rank->stage_out);
    tt_free(rank->tree_scratch);
    tt_free(rank->is_done);
    tt_free(rank->sources);
}

tutti_status_t tt_plan_simulate(tt_plan_t *const *plans, const tt_plan_request_t *requests,
                                const tt_sim_rank_t *ranks, uint64_t seed, tt_plan_cost_t *cost)
{
    sim_t sim = {.size = plans[0]->size};
    if (sim.size > RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d ranks are simulated at most", RANKS_MAX);
    }
    sim.ranks = tt_alloc_array((size_t)sim.size, sizeof *sim.ranks, "simulated ranks");
    TT_TRY_ALLOC(sim.ranks);
    *cost = (tt_plan_cost_t){0};
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < sim.size && status >= 0; i++) {
        sim.ranks[i].request = &requests[i];
        status = tt_plan_check(plans[i], &requests[i]);
        if (status >= 0) {
            status = open_rank(&sim.ranks[i], plans[i], ranks[i]);
        }
        add_cost(plans[i], cost);
    }
    if (status >= 0) {
        status = run_all(&sim, seed);
    }
    for (int i = 0; i < sim.size; i++) {
        close_rank(&sim.ranks[i]);
    }
    tt_free(sim.ranks);
    return status;
}
