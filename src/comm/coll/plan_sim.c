/* The simulator of plans. Each pass lets the ranks, in an order drawn from the seed, do whichever
 * steps of their round can be done; a pass in which nobody did anything is a deadlock. */
#include "comm/coll/plan_sim.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/tree_reduce.h"

typedef struct {
    const tt_plan_t *plan;
    tt_sim_rank_t memory;
    float *scratch, *sums, *stage, *stage_out, *tree_scratch;
    bool *is_done; /* [step_count] */
    const void **sources;
    int round;
} rank_t;

typedef struct {
    rank_t *ranks;
    int size;
    tt_plan_cost_t *cost;
} sim_t;

static float *part_of(const rank_t *rank, tt_part_t part)
{
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
        return rank->stage + part.offset;
    case TT_BUFFER_STAGE_OUT:
        break;
    }
    return rank->stage_out + part.offset;
}

static void run_reduce(sim_t *sim, rank_t *rank, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &rank->plan->sums[step->sum];
    void *dst[64];
    int dst_count = 0;
    for (int i = 0; i < sim->size && dst_count < 64; i++) {
        const int only = step->to == TT_TO_PEER ? step->peer : rank->plan->rank;
        if (step->to == TT_TO_MATES || i == only) {
            dst[dst_count++] = part_of(&sim->ranks[i], step->dst);
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

/* All ranks are in this round or past it. */
static bool have_met(const sim_t *sim, int round)
{
    for (int i = 0; i < sim->size; i++) {
        if (sim->ranks[i].round < round) {
            return false;
        }
    }
    return true;
}

/* The first step of a kind between two ranks that is not done in this round. */
static int find_open(const rank_t *rank, tt_step_kind_t kind, int peer)
{
    for (int i = 0; i < rank->plan->step_count; i++) {
        const tt_step_t *step = &rank->plan->steps[i];
        if (step->round == rank->round && step->kind == kind && step->peer == peer &&
            !rank->is_done[i]) {
            return i;
        }
    }
    return -1;
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
    if (recv->count != send->count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d sends %zu elements, rank %d wants %zu",
                       from->plan->rank, send->count, to->plan->rank, recv->count);
    }
    memcpy(part_of(to, recv->dst), part_of(from, send->src), send->count * sizeof(float));
    from->is_done[index] = to->is_done[match] = true;
    return 1;
}

static int run_pull(sim_t *sim, rank_t *rank, int index)
{
    const tt_step_t *step = &rank->plan->steps[index];
    const rank_t *peer = &sim->ranks[step->peer];
    tt_part_t src = step->src;
    if (src.index == TT_FROM_TABLE) {
        const size_t *at = peer->plan->parts + rank->plan->rank;
        if (at[1] - at[0] != step->count) {
            return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d gives %zu elements, rank %d wants %zu",
                           step->peer, at[1] - at[0], rank->plan->rank, step->count);
        }
        src = (tt_part_t){src.buffer, 0, at[0]};
    }
    memmove(part_of(rank, step->dst), part_of(peer, src), step->count * sizeof(float));
    rank->is_done[index] = true;
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
    case TT_STEP_PULL:
        return run_pull(sim, rank, index);
    case TT_STEP_REDUCE:
        run_reduce(sim, rank, step);
        break;
    case TT_STEP_MEET:
        if (!have_met(sim, rank->round)) {
            return 0;
        }
        break;
    }
    rank->is_done[index] = true;
    return 1;
}

/* Does what can be done in the rank's round; moves on when it is complete. */
static int run_rank(sim_t *sim, rank_t *rank)
{
    if (rank->round >= rank->plan->rounds) {
        return 0;
    }
    int moved = 0;
    bool is_complete = true;
    for (int i = 0; i < rank->plan->step_count; i++) {
        if (rank->plan->steps[i].round == rank->round && !rank->is_done[i]) {
            const int result = run_step(sim, rank, i);
            if (result < 0) {
                return result;
            }
            moved |= result;
            is_complete = is_complete && rank->is_done[i];
        }
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
        for (int i = 0; i < rank->plan->step_count; i++) {
            const tt_step_t *step = &rank->plan->steps[i];
            if (step->round == rank->round && !rank->is_done[i]) {
                return TT_FAIL(TUTTI_ERR_STATE, "deadlock: rank %d waits in round %d for %s %d", r,
                               rank->round, step->kind == TT_STEP_SEND ? "a receive by" : "rank",
                               step->peer);
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t run_all(sim_t *sim, uint64_t seed)
{
    const tt_rng_t rng = tt_rng_stream(seed, 0, 0, 0, 0);
    for (uint64_t pass = 0;; pass++) {
        int moved = 0;
        const int start = (int)tt_rng_below(rng, pass, (uint64_t)sim->size);
        const int step = tt_rng_u32(rng, pass + (UINT64_C(1) << 32)) & 1 ? 1 : sim->size - 1;
        for (int i = 0; i < sim->size; i++) {
            const int result = run_rank(sim, &sim->ranks[(start + i * step) % sim->size]);
            if (result < 0) {
                return (tutti_status_t)result;
            }
            moved |= result;
        }
        if (!moved) {
            return name_deadlock(sim);
        }
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

static tutti_status_t open_rank(rank_t *rank, const tt_plan_t *plan, tt_sim_rank_t memory)
{
    rank->plan = plan;
    rank->memory = memory;
    rank->scratch = tt_alloc_array(plan->scratch_count, sizeof(float), "simulated rank");
    rank->sums = tt_alloc_array(plan->sum_elements, sizeof(float), "simulated rank");
    rank->stage = tt_alloc_array(plan->stage_count, sizeof(float), "simulated rank");
    rank->stage_out = tt_alloc_array(plan->stage_out_count, sizeof(float), "simulated rank");
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

tutti_status_t tt_plan_simulate(tt_plan_t *const *plans, const tt_sim_rank_t *ranks, uint64_t seed,
                                tt_plan_cost_t *cost)
{
    sim_t sim = {.size = plans[0]->size};
    sim.ranks = tt_alloc_array((size_t)sim.size, sizeof *sim.ranks, "simulated ranks");
    TT_TRY_ALLOC(sim.ranks);
    *cost = (tt_plan_cost_t){0};
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < sim.size && status >= 0; i++) {
        status = open_rank(&sim.ranks[i], plans[i], ranks[i]);
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
