/* Random calls on simulated ranks. What a call gives is compared with what it must give; a call
 * that fails must do so before its deadline is long past; without a fault none fails. */
#include "sim_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/algorithm/algorithms.h"
#include "comm/backend/backend.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "sim.h"

enum { CALLS = 12, COUNT_MAX = 3000, TIMEOUT_MS = 2000, SLACK_MS = 6000, TEXT_BYTES = 600 };

/* The same for all ranks. */
typedef struct {
    tt_collective_t collective; /* or COLLECTIVE_COUNT: messages around the ring */
    size_t count;
    int root;
    tutti_reduction_t reduction;
} op_t;

typedef struct {
    sim_t *sim;
    uint64_t seed;
    op_t ops[CALLS];
    char failure[TEXT_BYTES]; /* the first thing that is not as it must be */
    int errors[SIM_RANKS_MAX];
} world_t;

typedef struct {
    world_t *world;
    int rank, size;
    void *native; /* state of the backend */
    float *in, *out;
} member_t;

static void note(world_t *world, int rank, int op, const char *what)
{
    if (world->failure[0] == 0) {
        snprintf(world->failure, sizeof world->failure,
                 "seed %llu, rank %d of %d, op %d (%s, %zu elements), fault %d: %s",
                 (unsigned long long)world->seed, rank, world->sim->size, op,
                 tt_collective_name(world->ops[op].collective), world->ops[op].count,
                 world->sim->fault, what);
    }
}

/* Small integers: their sums are exact in any order, as canonical ones are anyway. */
static float value_of(int rank, size_t i)
{
    return (float)((rank * 31 + (int)(i % 97) * 7) % 50 - 20);
}

static tt_plan_request_t request_of(const member_t *m, const op_t *op)
{
    return (tt_plan_request_t){.collective = op->collective,
                               .rank = m->rank,
                               .size = m->size,
                               .root = op->root,
                               .count = op->count};
}

static float sum_at(int size, tutti_reduction_t reduction, size_t i)
{
    float sum = value_of(0, i);
    for (int rank = 1; rank < size; rank++) {
        const float value = value_of(rank, i);
        sum = reduction == TUTTI_SUM ? sum + value : value > sum ? value : sum;
    }
    return sum;
}

static float expected(const member_t *m, const op_t *op, size_t i)
{
    const size_t count = op->count;
    const size_t part = count > 0 ? i / count : 0, within = count > 0 ? i % count : 0;
    switch (op->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE:
        return sum_at(m->size, op->reduction, i);
    case TT_SCAN:
        return sum_at(m->rank + 1, op->reduction, i);
    case TT_EXSCAN: /* rank 0 keeps its own */
        return sum_at(m->rank > 0 ? m->rank : 1, op->reduction, i);
    case TT_REDUCE_SCATTER:
        return sum_at(m->size, op->reduction, (size_t)m->rank * count + i);
    case TT_ALL_GATHER:
    case TT_GATHER:
        return value_of((int)part, within);
    case TT_BROADCAST:
        return value_of(op->root, i);
    case TT_SCATTER:
        return value_of(op->root, (size_t)m->rank * count + i);
    case TT_ALL_TO_ALL:
        return value_of((int)part, (size_t)m->rank * count + within);
    default:
        return value_of((m->rank + m->size - 1) % m->size, i);
    }
}

static void check_result(member_t *m, int index, size_t count)
{
    const op_t *op = &m->world->ops[index];
    for (size_t i = 0; i < count; i++) {
        if (m->out[i] != expected(m, op, i)) {
            note(m->world, m->rank, index, "a wrong result");
            return;
        }
    }
}

static tutti_status_t wait_for(member_t *m, int index, tt_op_t *op)
{
    const int64_t start_ns = tt_clock_ns();
    const tutti_status_t status = tt_backend_native.wait(m->native, op, TT_NEVER);
    if (tt_clock_ns() - start_ns > (TIMEOUT_MS + SLACK_MS) * TT_NS_PER_MS) {
        note(m->world, m->rank, index, "it outlived its deadline");
    }
    if (status == TUTTI_PENDING) {
        note(m->world, m->rank, index, "it came back pending");
    }
    return status;
}

static tutti_status_t call(member_t *m, int index)
{
    const op_t *op = &m->world->ops[index];
    const tt_plan_request_t request = request_of(m, op);
    const size_t in = tt_plan_piece_elements(&request), out = tt_plan_out_elements(&request);
    for (size_t i = 0; i < in; i++) {
        m->in[i] = value_of(m->rank, i);
    }
    const bool is_in_place = op->collective == TT_BROADCAST || op->collective == TT_EXSCAN;
    if (is_in_place) {
        memcpy(m->out, m->in, in * sizeof *m->in);
    }
    const tt_call_t what = {.collective = op->collective,
                            .reduction = op->reduction,
                            .dtype = TUTTI_F32,
                            .out_dtype = TUTTI_F32,
                            .count = op->count,
                            .root = op->root,
                            .pieces = (const void *[]){is_in_place ? m->out : m->in},
                            .piece_count = op->collective != TT_BARRIER,
                            .out = out > 0 ? m->out : NULL};
    tt_run_t run;
    TT_TRY(tt_backend_native.start(m->native, &what, &run));
    TT_TRY(wait_for(m, index, &run.op));
    check_result(m, index, out);
    return TUTTI_OK;
}

static tutti_status_t pass_around(member_t *m, int index)
{
    const op_t *op = &m->world->ops[index];
    const int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    for (size_t i = 0; i < op->count; i++) {
        m->in[i] = value_of(m->rank, i);
    }
    const tt_message_t send = {TT_MESSAGE_SEND, next, index, TUTTI_F32, op->count, m->in, NULL};
    const tt_message_t recv = {TT_MESSAGE_RECV, before, index, TUTTI_F32, op->count, m->out, NULL};
    tt_message_op_t sent, got;
    TT_TRY(tt_backend_native.start_message(m->native, &send, &sent));
    tutti_status_t status = tt_backend_native.start_message(m->native, &recv, &got);
    if (status >= 0) {
        status = wait_for(m, index, &got.op);
    }
    const tutti_status_t other = wait_for(m, index, &sent.op);
    TT_TRY(status);
    TT_TRY(other);
    check_result(m, index, op->count);
    return TUTTI_OK;
}

/* Must this world go through unharmed? */
static bool is_harmless(const sim_t *sim)
{
    const bool is_short_pause = sim->fault == SIM_PAUSE &&
                                sim->fault_end_ns - sim->fault_ns < TIMEOUT_MS / 2 * TT_NS_PER_MS;
    return sim->fault == SIM_NO_FAULT || sim->fault == SIM_SLOW || is_short_pause;
}

static void run_calls(member_t *m)
{
    for (int i = 0; i < CALLS; i++) {
        const bool is_ring = m->world->ops[i].collective == TT_COLLECTIVE_COUNT;
        const tutti_status_t status = is_ring ? pass_around(m, i) : call(m, i);
        if (status < 0) {
            m->world->errors[m->rank] = status;
            if (is_harmless(m->world->sim)) {
                note(m->world, m->rank, i, tutti_last_error());
            }
            return;
        }
    }
}

static tutti_status_t open_member(member_t *m)
{
    sim_rank_t *self = &m->world->sim->ranks[m->rank];
    tt_peers_t *peers;
    TT_TRY(tt_peers_simulate(m->rank, m->size, &self->hooks, &peers));
    const tt_backend_options_t options = {.name = "world",
                                          .rank = m->rank,
                                          .size = m->size,
                                          .timeout_ms = TIMEOUT_MS,
                                          .peers = peers};
    const size_t floats = (size_t)COUNT_MAX * (size_t)m->size;
    m->native = tt_alloc(tt_backend_native.state_bytes, "test");
    m->in = tt_alloc_array(floats, sizeof *m->in, "test");
    m->out = tt_alloc_array(floats, sizeof *m->out, "test");
    const tutti_status_t status = tt_backend_native.open(m->native, &options);
    tt_peers_release(peers);
    return status;
}

static void live(sim_t *sim, int rank, void *user)
{
    member_t m = {.world = user, .rank = rank, .size = sim->size};
    if (open_member(&m) >= 0) {
        run_calls(&m);
        tt_backend_native.close(m.native);
    } else {
        note(user, rank, 0, tutti_last_error());
    }
    tt_free(m.native);
    tt_free(m.in);
    tt_free(m.out);
}

/* Which algorithm, by rules that only take it where it fits. */
static void choose_algorithm(sim_t *sim)
{
    int count = 0;
    while (tt_algorithms[count] != NULL) {
        count++;
    }
    const uint64_t pick = sim_draw(sim, (uint64_t)count + 1);
    setenv("TUTTI_ALGO", pick < (uint64_t)count ? tt_algorithms[pick]->name : "auto", 1);
}

static void draw_ops(sim_t *sim, world_t *world, int size)
{
    for (int i = 0; i < CALLS; i++) {
        const bool is_long = sim_draw(sim, 6) == 0 && size <= 12;
        world->ops[i] =
            (op_t){.collective = (tt_collective_t)sim_draw(sim, TT_COLLECTIVE_COUNT + 1),
                   .count = (size_t)sim_draw(sim, is_long ? COUNT_MAX : 40),
                   .root = (int)sim_draw(sim, (uint64_t)size),
                   .reduction = sim_draw(sim, 2) == 0 ? TUTTI_SUM : TUTTI_MAX};
        if (world->ops[i].collective == TT_BARRIER) {
            world->ops[i].count = 0;
        }
    }
}

const char *sim_check_seed(uint64_t seed, uint64_t *trace, char *text, size_t text_bytes)
{
    static world_t world;
    static sim_t sim;
    memset(&world, 0, sizeof world);
    sim = (sim_t){.seed = seed ^ UINT64_C(0x5eed)};
    const int size = sim_draw(&sim, 40) == 0 ? SIM_RANKS_MAX : 2 + (int)sim_draw(&sim, 11);
    const sim_fault_t fault = (sim_fault_t)sim_draw(&sim, SIM_FAULTS_OF_WIRES);
    choose_algorithm(&sim);
    draw_ops(&sim, &world, size);
    world.sim = &sim;
    world.seed = seed;
    *trace = sim_run(
        &sim,
        &(sim_plan_t){.seed = seed, .size = size, .fault = fault, .body = live, .user = &world});
    snprintf(text, text_bytes, "%s", world.failure);
    return text;
}
