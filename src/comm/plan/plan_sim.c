/* The simulator of plans. Each pass lets some of the ranks, in an order drawn from the seed, go as
 * far as they can; a pass in which all could go on and none did anything is a deadlock. */
#include "comm/plan/plan_sim.h"

#include <math.h>
#include <string.h>

#include "comm/plan/plan_check.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/reduce/tree_reduce.h"

enum { RANKS_MAX = 1 << 16 };

/* The steps of a rank's round, so that a message is found without a search: the first that is not
 * done to and from each rank, and the next one to the same rank behind each. */
enum { TO, FROM, DIRECTIONS };

typedef struct {
    const tt_plan_t *plan;
    const tt_plan_request_t *request;
    tt_sim_rank_t memory;
    float *buffers[TT_BUFFER_COUNT]; /* but pieces */
    float *tree_scratch;
    const void **sources;
    uint64_t *heard; /* a bit for each rank whose arrival this one knows of (barrier) */
    int round;
    tt_plan_round_t steps; /* of the round */
    bool *is_done;         /* [steps.count] */
    int *next;             /* [steps.count] */
    int capacity, left;    /* left: steps that are not done */
    int *open[DIRECTIONS]; /* [size] -1: none */
    tt_plan_cost_t cost;
} rank_t;

typedef struct {
    rank_t *ranks;
    int size;
    size_t words; /* of `heard` */
    void **dst;   /* [size] */
    tt_plan_check_t check;
    bool has_memory;
    bool is_backward; /* steps of a round */
} sim_t;

static float *part_of(const rank_t *rank, tt_part_t part)
{
    if (rank->memory.pieces == NULL || rank->plan->collective == TT_BARRIER) {
        return NULL;
    }
    return (part.buffer == TT_BUFFER_PIECE ? rank->memory.pieces[part.index]
                                           : rank->buffers[part.buffer]) +
           part.offset;
}

static bool are_node_peers(const rank_t *a, const rank_t *b)
{
    return tt_plan_host(a->request, a->plan->rank) == tt_plan_host(a->request, b->plan->rank);
}

static int find_dst(const sim_t *sim, const rank_t *rank, const tt_step_t *step)
{
    int count = 0;
    if (step->to != TT_TO_LOCAL_RANKS) {
        sim->dst[0] = part_of(&sim->ranks[tt_plan_target(rank->plan, step)], step->dst);
        return 1;
    }
    for (int i = 0; i < sim->size; i++) {
        if (are_node_peers(rank, &sim->ranks[i])) {
            sim->dst[count++] = part_of(&sim->ranks[i], step->dst);
        }
    }
    return count;
}

static void run_reduce(const sim_t *sim, const rank_t *rank, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &rank->plan->sums[step->sum];
    if (!sim->has_memory) {
        return;
    }
    for (int i = 0; i < sum->count; i++) {
        const tt_source_t source = tt_plan_source(rank->plan, step, i);
        rank->sources[i] = part_of(&sim->ranks[source.rank], source.part);
    }
    tt_tree_reduce(&(tt_tree_reduce_t){.kernels = tt_combine_kernels(),
                                       .leaves = sum->leaves,
                                       .source_count = sum->count,
                                       .sources = rank->sources,
                                       .merges = sum->merges,
                                       .dst_count = find_dst(sim, rank, step),
                                       .dst = sim->dst,
                                       .scratch = rank->tree_scratch},
                   0, step->count);
}

static void copy(const sim_t *sim, float *dst, const float *src, size_t count)
{
    if (sim->has_memory && count > 0) {
        memmove(dst, src, count * sizeof *dst);
    }
}

/* COPY, GET and PUT. */
static int run_move(const sim_t *sim, const rank_t *rank, const tt_step_t *step)
{
    const rank_t *from = &sim->ranks[tt_plan_read(rank->plan, step, 0).rank];
    const rank_t *to = &sim->ranks[tt_plan_target(rank->plan, step)];
    tt_part_t src = step->src;
    if (src.index == TT_FROM_TABLE) {
        const tt_slice_t given = tt_plan_part(from->request, rank->plan->rank);
        if (given.count != step->count) {
            return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d gives %zu elements, rank %d wants %zu",
                           step->peer, given.count, rank->plan->rank, step->count);
        }
        src.index = 0;
        src.offset = given.begin;
    }
    copy(sim, part_of(to, step->dst), part_of(from, src), step->count);
    return 1;
}

static void hear(const sim_t *sim, rank_t *rank, const rank_t *from)
{
    for (size_t i = 0; i < sim->words && rank->heard != NULL; i++) {
        rank->heard[i] |= from->heard[i];
    }
}

/* All local ranks are in this round or past it: then this rank knows what they know. */
static bool meet(const sim_t *sim, rank_t *rank)
{
    for (int i = 0; i < sim->size; i++) {
        if (are_node_peers(rank, &sim->ranks[i]) && sim->ranks[i].round < rank->round) {
            return false;
        }
    }
    for (int i = 0; i < sim->size && rank->heard != NULL; i++) {
        if (are_node_peers(rank, &sim->ranks[i])) {
            hear(sim, rank, &sim->ranks[i]);
        }
    }
    return true;
}

/* ---- the steps of a round ---- */

static bool has_messages(const tt_step_t *step, int direction)
{
    return step->kind == (direction == TO ? TT_STEP_SEND : TT_STEP_RECV);
}

static tutti_status_t make_room(rank_t *rank)
{
    const int count = rank->steps.count;
    if (count <= rank->capacity) {
        return TUTTI_OK;
    }
    bool *is_done = tt_realloc(rank->is_done, (size_t)count * sizeof *is_done, "simulated rank");
    TT_TRY_ALLOC(is_done);
    rank->is_done = is_done;
    int *next = tt_realloc(rank->next, (size_t)count * sizeof *next, "simulated rank");
    TT_TRY_ALLOC(next);
    rank->next = next;
    rank->capacity = count;
    return TUTTI_OK;
}

/* Checks and counts what the next round has. From the last step to the first one, so that the first
 * one is found first. */
static tutti_status_t enter_round(sim_t *sim, rank_t *rank)
{
    rank->steps.count = rank->left = 0;
    if (rank->round >= rank->plan->rounds) {
        return TUTTI_OK;
    }
    TT_TRY(tt_plan_round(rank->plan, rank->round, &rank->steps));
    TT_TRY(tt_plan_check_round(&sim->check, rank->plan, rank->request, rank->round, &rank->steps));
    TT_TRY(make_room(rank));
    tt_plan_add_cost(rank->plan, &rank->steps, &rank->cost);
    rank->left = rank->steps.count;
    for (int i = rank->steps.count - 1; i >= 0; i--) {
        const tt_step_t *step = &rank->steps.steps[i];
        rank->is_done[i] = false;
        for (int direction = 0; direction < DIRECTIONS; direction++) {
            if (has_messages(step, direction)) {
                int *open = &rank->open[direction][step->peer];
                rank->next[i] = *open;
                *open = i;
            }
        }
    }
    return TUTTI_OK;
}

static void end_message(rank_t *rank, int direction, int index)
{
    rank->open[direction][rank->steps.steps[index].peer] = rank->next[index];
    rank->is_done[index] = true;
    rank->left--;
}

static bool is_sum(tt_part_t part)
{
    return part.buffer == TT_BUFFER_SUM;
}

/* 1: handed over; 0: the receiver is not there yet; or the failure. */
static int hand_over(const sim_t *sim, rank_t *from, int index)
{
    const tt_step_t *send = &from->steps.steps[index];
    rank_t *to = &sim->ranks[send->peer];
    const int match = to->open[FROM][from->plan->rank];
    if (match < 0 || from->open[TO][send->peer] != index) {
        return 0;
    }
    const tt_step_t *recv = &to->steps.steps[match];
    const bool share_rounds = from->request->is_staged == to->request->is_staged;
    if (recv->count != send->count || (share_rounds && to->round != from->round) ||
        is_sum(recv->dst) != is_sum(send->src)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "rank %d sends %zu elements in round %d, rank %d wants %zu in round %d",
                       from->plan->rank, send->count, from->round, to->plan->rank, recv->count,
                       to->round);
    }
    copy(sim, part_of(to, recv->dst), part_of(from, send->src), send->count);
    end_message(from, TO, index);
    end_message(to, FROM, match);
    hear(sim, to, from);
    return 1;
}

static int run_step(const sim_t *sim, rank_t *rank, int index)
{
    const tt_step_t *step = &rank->steps.steps[index];
    int result = 1;
    switch (step->kind) {
    case TT_STEP_SEND:
        return hand_over(sim, rank, index);
    case TT_STEP_RECV:
        return 0; /* the sender does it */
    case TT_STEP_COPY:
    case TT_STEP_GET:
    case TT_STEP_PUT:
        result = run_move(sim, rank, step);
        break;
    case TT_STEP_REDUCE:
        run_reduce(sim, rank, step);
        break;
    case TT_STEP_BARRIER:
        result = meet(sim, rank);
        break;
    }
    rank->is_done[index] = result > 0;
    rank->left -= result > 0;
    return result;
}

/* Does what can be done in the rank's round; moves on when it is complete. */
static int run_round(sim_t *sim, rank_t *rank)
{
    const int count = rank->steps.count;
    int moved = 0;
    if (rank->round >= rank->plan->rounds) {
        return 0;
    }
    for (int k = 0; k < count && rank->left > 0; k++) {
        const int i = sim->is_backward ? count - 1 - k : k;
        if (!rank->is_done[i]) {
            const int result = run_step(sim, rank, i);
            if (result < 0) {
                return result;
            }
            moved |= result;
        }
    }
    if (rank->left == 0) {
        rank->round++;
        TT_TRY(enter_round(sim, rank));
        moved = 1;
    }
    return moved;
}

static tutti_status_t name_deadlock(const sim_t *sim)
{
    for (int r = 0; r < sim->size; r++) {
        const rank_t *rank = &sim->ranks[r];
        for (int i = 0; i < rank->steps.count; i++) {
            const tt_step_t *step = &rank->steps.steps[i];
            if (!rank->is_done[i]) {
                return TT_FAIL(TUTTI_ERR_STATE, "deadlock: rank %d waits in round %d for %s %d", r,
                               rank->round,
                               step->kind == TT_STEP_SEND      ? "a receive by"
                               : step->kind == TT_STEP_BARRIER ? "local ranks, it is rank"
                                                               : "rank",
                               step->kind == TT_STEP_BARRIER ? r : step->peer);
            }
        }
    }
    return TUTTI_OK;
}

static bool has_heard_all(const sim_t *sim, const rank_t *rank)
{
    for (int i = 0; i < sim->size; i++) {
        if ((rank->heard[i / 64] >> i % 64 & 1) == 0) {
            return false;
        }
    }
    return true;
}

static tutti_status_t check_barrier(const sim_t *sim)
{
    for (int r = 0; r < sim->size; r++) {
        const rank_t *rank = &sim->ranks[r];
        if (rank->heard != NULL && !has_heard_all(sim, rank)) {
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

/* What is not the caller's. */
static const tt_buffer_t owned[] = {TT_BUFFER_SCRATCH, TT_BUFFER_SUM, TT_BUFFER_BOUNCE,
                                    TT_BUFFER_BOUNCE_OUT};
enum { OWNED = sizeof owned / sizeof *owned };

static tutti_status_t open_memory(rank_t *rank, const tt_plan_t *plan, tt_sim_rank_t memory)
{
    rank->memory = memory;
    for (int k = 0; k < OWNED; k++) {
        const size_t room = plan->room[owned[k]];
        float *buffer = tt_alloc_array(room, sizeof *buffer, "simulated rank");
        TT_TRY_ALLOC(buffer);
        for (size_t i = 0; i < room; i++) {
            buffer[i] = NAN;
        }
        rank->buffers[owned[k]] = buffer;
    }
    rank->buffers[TT_BUFFER_OUT] = memory.out;
    rank->buffers[TT_BUFFER_BOUNCE_BACK] = rank->buffers[TT_BUFFER_BOUNCE];
    rank->tree_scratch = tt_alloc(tt_tree_reduce_scratch_bytes(plan->depth_max), "simulated rank");
    TT_TRY_ALLOC(rank->tree_scratch);
    rank->sources =
        tt_alloc_array((size_t)plan->source_count_max, sizeof *rank->sources, "simulated rank");
    TT_TRY_ALLOC(rank->sources);
    return TUTTI_OK;
}

/* Itself, and with memory in common all its local ranks. */
static tutti_status_t open_heard(const sim_t *sim, rank_t *rank)
{
    rank->heard = tt_alloc_array(sim->words, sizeof *rank->heard, "simulated rank");
    TT_TRY_ALLOC(rank->heard);
    const int self = rank->plan->rank, host = tt_plan_host(rank->request, self);
    for (int i = 0; i < sim->size; i++) {
        const bool is_node_peer =
            rank->plan->algorithm->shares_memory && tt_plan_host(rank->request, i) == host;
        rank->heard[i / 64] |= (uint64_t)(i == self || is_node_peer) << i % 64;
    }
    return TUTTI_OK;
}

static tutti_status_t open_rank(sim_t *sim, rank_t *rank, const tt_plan_t *plan)
{
    rank->plan = plan;
    rank->cost.rounds = plan->rounds;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        rank->open[direction] = tt_alloc_array((size_t)sim->size, sizeof(int), "simulated rank");
        TT_TRY_ALLOC(rank->open[direction]);
        memset(rank->open[direction], -1, (size_t)sim->size * sizeof(int));
    }
    if (plan->collective == TT_BARRIER) {
        TT_TRY(open_heard(sim, rank));
    }
    return enter_round(sim, rank);
}

static void close_rank(rank_t *rank)
{
    for (int k = 0; k < OWNED; k++) {
        tt_free(rank->buffers[owned[k]]);
    }
    tt_free(rank->tree_scratch);
    tt_free(rank->sources);
    tt_free(rank->heard);
    tt_free(rank->is_done);
    tt_free(rank->next);
    tt_free(rank->open[TO]);
    tt_free(rank->open[FROM]);
    tt_plan_round_close(&rank->steps);
}

static void close_sim(sim_t *sim)
{
    for (int i = 0; i < sim->size && sim->ranks != NULL; i++) {
        close_rank(&sim->ranks[i]);
    }
    tt_plan_check_close(&sim->check);
    tt_free(sim->ranks);
    tt_free(sim->dst);
}

static tutti_status_t open_sim(sim_t *sim, tt_plan_t *const *plans,
                               const tt_plan_request_t *requests, const tt_sim_rank_t *ranks)
{
    sim->ranks = tt_alloc_array((size_t)sim->size, sizeof *sim->ranks, "simulated ranks");
    sim->dst = tt_alloc_array((size_t)sim->size, sizeof *sim->dst, "simulated ranks");
    if (sim->ranks == NULL || sim->dst == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    for (int i = 0; i < sim->size; i++) {
        sim->ranks[i].request = &requests[i];
        TT_TRY(tt_plan_check_hosts(plans[i], &requests[i]));
        TT_TRY(open_rank(sim, &sim->ranks[i], plans[i]));
        if (sim->has_memory) {
            TT_TRY(open_memory(&sim->ranks[i], plans[i], ranks[i]));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_plan_simulate(tt_plan_t *const *plans, const tt_plan_request_t *requests,
                                const tt_sim_rank_t *ranks, uint64_t seed, tt_plan_cost_t *cost)
{
    const int size = plans[0]->size;
    sim_t sim = {.size = size, .words = ((size_t)size + 63) / 64, .has_memory = ranks != NULL};
    if (size > RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d ranks are simulated at most", RANKS_MAX);
    }
    *cost = (tt_plan_cost_t){0};
    tutti_status_t status = open_sim(&sim, plans, requests, ranks);
    if (status >= 0) {
        status = run_all(&sim, seed);
    }
    for (int i = 0; i < size && status >= 0; i++) {
        tt_plan_max_cost(cost, sim.ranks[i].cost);
    }
    close_sim(&sim);
    return status;
}
