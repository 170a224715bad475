/* The scheduler and the clock of simulated ranks. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fail.h"
#include "core/base/futex.h"

enum { TICK_NS = 20, NAP_NS_MAX = 200000, DRAW_STREAM = 77, CALLS_NS = 2500000, SHIFT_MAX = 8 };

static const int64_t HOUR_NS = INT64_C(3600) * 1000000000;

uint64_t sim_draw(sim_t *sim, uint64_t limit)
{
    const tt_rng_t rng = tt_rng_stream(sim->seed, DRAW_STREAM, 0, 0, 0);
    return limit > 0 ? tt_rng_below(rng, sim->draws++, limit) : 0;
}

/* Each look at the clock takes a moment, so that nobody waits for it in vain. */
static int64_t read_clock(void *user)
{
    sim_rank_t *self = user;
    self->sim->now_ns += TICK_NS;
    return self->sim->now_ns;
}

bool sim_has_crashed(const sim_t *sim, int rank)
{
    return sim->fault == SIM_CRASH && rank == sim->victim && sim->now_ns >= sim->fault_ns;
}

/* In a partition, ranks below `victim` are on one side. */
bool sim_is_lost(const sim_t *sim, int from, int to)
{
    return sim->fault == SIM_PARTITION && sim->now_ns >= sim->fault_ns &&
           (from < sim->victim) != (to < sim->victim);
}

static int64_t awake_from(const sim_t *sim, const sim_rank_t *rank)
{
    const bool sleeps = sim->fault == SIM_PAUSE && rank->rank == sim->victim &&
                        rank->wake_ns >= sim->fault_ns && rank->wake_ns < sim->fault_end_ns;
    return sleeps ? sim->fault_end_ns : rank->wake_ns;
}

/* Who runs next: the one who wakes first; -1 when all are over. */
static int pick_next(sim_t *sim)
{
    int next = -1;
    int64_t first_ns = INT64_MAX;
    const int start = (int)sim_draw(sim, (uint64_t)sim->size);
    for (int i = 0; i < sim->size; i++) {
        const sim_rank_t *rank = &sim->ranks[(start + i) % sim->size];
        const int64_t wake_ns = awake_from(sim, rank);
        if (!rank->is_over && wake_ns < first_ns) {
            first_ns = wake_ns;
            next = rank->rank;
        }
    }
    if (next >= 0 && first_ns > sim->now_ns) {
        sim->now_ns = first_ns;
    }
    return next;
}

static void pass_on(sim_t *sim)
{
    sim->running = pick_next(sim);
    sim->trace = (sim->trace ^ (uint64_t)sim->running ^ (uint64_t)sim->now_ns << 8) *
                 UINT64_C(0x9e3779b97f4a7c15);
    if (sim->now_ns > HOUR_NS) {
        fprintf(stderr, "seed %llu: an hour has passed, and nothing ends\n",
                (unsigned long long)sim->seed);
        abort();
    }
    if (sim->running >= 0) {
        sim_rank_t *next = &sim->ranks[sim->running];
        atomic_store_explicit(&next->has_turn, 1, memory_order_release);
        tt_futex_wake_all(&next->has_turn);
    }
}

static void await_turn(sim_rank_t *self)
{
    while (atomic_load_explicit(&self->has_turn, memory_order_acquire) == 0) {
        tt_futex_wait(&self->has_turn, 0, TT_NEVER);
    }
    atomic_store_explicit(&self->has_turn, 0, memory_order_relaxed);
}

void sim_sleep_until(sim_rank_t *self, int64_t until_ns)
{
    self->wake_ns = until_ns;
    pass_on(self->sim);
    await_turn(self);
}

/* A rank that waits long looks seldom. */
static void idle(void *user, tt_deadline_t deadline)
{
    sim_rank_t *self = user;
    sim_t *sim = self->sim;
    const uint64_t shift = self->naps / 4 < SHIFT_MAX ? self->naps / 4 : SHIFT_MAX;
    const int64_t nap_ns = 1000 + (int64_t)sim_draw(sim, (uint64_t)NAP_NS_MAX << shift);
    self->naps++;
    const int64_t until_ns = sim->now_ns + nap_ns;
    sim_sleep_until(self, deadline < until_ns ? deadline : until_ns);
}

static void *run_rank(void *user)
{
    sim_rank_t *self = user;
    sim_t *sim = self->sim;
    tt_clock_set_source(read_clock, self);
    await_turn(self);
    self->body(sim, self->rank, self->user);
    self->is_over = true;
    pass_on(sim);
    return NULL;
}

static void draw_fault(sim_t *sim, int64_t within_ns)
{
    sim->fault_ns = 1 + (int64_t)sim_draw(sim, (uint64_t)within_ns);
    const uint64_t longest_ns = sim->fault == SIM_STORE_PAUSE ? 12000000000 : 4000000000;
    sim->fault_end_ns = sim->fault_ns + (int64_t)sim_draw(sim, longest_ns);
    sim->victim = (int)sim_draw(sim, (uint64_t)sim->size);
    sim->other = (int)sim_draw(sim, (uint64_t)sim->size);
    sim->is_store_high = sim_draw(sim, 2) == 0;
}

static void start_rank(sim_t *sim, const sim_plan_t *plan, int rank)
{
    sim_rank_t *self = &sim->ranks[rank];
    *self = (sim_rank_t){.sim = sim, .rank = rank, .body = plan->body, .user = plan->user};
    self->wake_ns = 1 + (int64_t)sim_draw(sim, NAP_NS_MAX);
    self->hooks = (tt_peers_simulation_t){self, sim_open_wire, idle};
    TT_ASSERT(pthread_create(&self->thread, NULL, run_rank, self) == 0);
}

uint64_t sim_run(sim_t *sim, const sim_plan_t *plan)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = plan->seed;
    sim->size = plan->size;
    sim->fault = plan->fault;
    sim->running = -1;
    draw_fault(sim, plan->fault_within_ns > 0 ? plan->fault_within_ns : CALLS_NS);
    for (int rank = 0; rank < sim->size; rank++) {
        start_rank(sim, plan, rank);
    }
    pass_on(sim);
    for (int rank = 0; rank < sim->size; rank++) {
        pthread_join(sim->ranks[rank].thread, NULL);
    }
    sim_close_connections(sim);
    tt_table_release(sim->table);
    return sim->trace;
}
