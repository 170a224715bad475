/* Threads that take turns. The linker leads calls of the functions below to __wrap_ ones, which may
 * pass the turn before and after the real one. */
#include "turns.h"

#include <stddef.h>

#include "comm/exec/coll_exec.h"
#include "core/base/clock.h"
#include "core/base/rng.h"

enum { STREAM = 78 };

/* What a look at the clock takes: with long ones, ranks are soon asleep. */
static const int64_t TICKS_NS[] = {200, 5000, 30000};

static _Thread_local struct {
    turns_t *turns;
    int rank;
} own;

uint64_t turns_draw(turns_t *turns, uint64_t limit)
{
    return tt_rng_below(tt_rng_stream(turns->seed, STREAM, 0, 0, 0), turns->draws++, limit);
}

static int64_t read_clock(void *user)
{
    turns_t *turns = user;
    turns->now_ns += turns->tick_ns;
    return turns->now_ns;
}

static bool is_held(turns_t *turns, int rank)
{
    if (!turns->has_struck || rank != turns->victim || turns->fault < TURNS_STOP) {
        return false;
    }
    for (int i = 0; i < turns->size; i++) {
        if (i != rank && !turns->ranks[i].is_over) {
            return true;
        }
    }
    return false;
}

static bool can_run(turns_t *turns, int rank)
{
    const turns_rank_t *at = &turns->ranks[rank];
    const bool sleeps = at->word != NULL ? atomic_load(at->word) == at->expected : true;
    return !at->is_over && !is_held(turns, rank) && (at->awake_ns <= turns->now_ns || !sleeps);
}

/* Nobody can go on: the first sleep ends. */
static int jump(turns_t *turns)
{
    int next = -1;
    for (int i = 0; i < turns->size; i++) {
        const turns_rank_t *at = &turns->ranks[i];
        if (!at->is_over && !is_held(turns, i) &&
            (next < 0 || at->awake_ns < turns->ranks[next].awake_ns)) {
            next = i;
        }
    }
    if (next >= 0) {
        turns->now_ns = turns->ranks[next].awake_ns;
        turns->timers++;
    }
    return next;
}

static void pass(turns_t *turns)
{
    const int start = (int)turns_draw(turns, (uint64_t)turns->size);
    turns->running = -1;
    for (int i = 0; i < turns->size && turns->running < 0; i++) {
        const int rank = (start + i) % turns->size;
        turns->running = can_run(turns, rank) ? rank : -1;
    }
    if (turns->running < 0) {
        turns->running = jump(turns);
    }
    pthread_cond_broadcast(&turns->passed);
}

static void strike(turns_t *turns)
{
    turns_rank_t *self = &turns->ranks[own.rank];
    if (own.rank == turns->victim && !turns->has_struck && ++self->taken >= turns->fault_turn &&
        turns->fault >= TURNS_PAUSE) {
        turns->has_struck = true;
        if (turns->fault == TURNS_PAUSE) {
            self->awake_ns = turns->now_ns + (int64_t)turns_draw(turns, TT_NS_PER_S);
        }
    }
}

static void await(turns_t *turns)
{
    while (turns->running != own.rank) {
        pthread_cond_wait(&turns->passed, &turns->lock);
    }
}

static void pass_and_await(turns_t *turns)
{
    pthread_mutex_lock(&turns->lock);
    pass(turns);
    await(turns);
    turns->ranks[own.rank].word = NULL;
    turns->ranks[own.rank].awake_ns = 0;
    pthread_mutex_unlock(&turns->lock);
}

static void may_pass(void)
{
    turns_t *turns = own.turns;
    if (turns != NULL) {
        strike(turns);
        if (turns_draw(turns, 2) == 0 || turns->has_struck) {
            pass_and_await(turns);
        }
    }
}

void turns_open(turns_t *turns, uint64_t seed, int size)
{
    *turns = (turns_t){.seed = seed, .size = size, .running = -1};
    pthread_mutex_init(&turns->lock, NULL);
    pthread_cond_init(&turns->passed, NULL);
    turns->now_ns = TT_NS_PER_S;
    turns->tick_ns = TICKS_NS[turns_draw(turns, sizeof TICKS_NS / sizeof *TICKS_NS)];
}

void turns_close(turns_t *turns)
{
    pthread_cond_destroy(&turns->passed);
    pthread_mutex_destroy(&turns->lock);
}

void turns_begin(turns_t *turns, int rank)
{
    own.rank = rank;
    pthread_mutex_lock(&turns->lock);
    if (++turns->here == turns->size) {
        pass(turns);
    }
    await(turns);
    pthread_mutex_unlock(&turns->lock);
    own.turns = turns;
    tt_clock_set_source(read_clock, turns);
}

void turns_end(void)
{
    turns_t *turns = own.turns;
    own.turns = NULL;
    tt_clock_set_source(NULL, NULL);
    pthread_mutex_lock(&turns->lock);
    turns->ranks[own.rank].is_over = true;
    pass(turns);
    pthread_mutex_unlock(&turns->lock);
}

/* ---- where the turn may pass ----------------------------------------------------------------- */

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        may_pass();                                                                                \
        type result = __real_##name arguments;                                                     \
        may_pass();                                                                                \
        return result;                                                                             \
    }

#define WRAP_VOID(name, parameters, arguments)                                                     \
    void __real_##name parameters;                                                                 \
    void __wrap_##name parameters;                                                                 \
    void __wrap_##name parameters                                                                  \
    {                                                                                              \
        may_pass();                                                                                \
        __real_##name arguments;                                                                   \
        may_pass();                                                                                \
    }

WRAP(bool, tt_coll_enter, (tt_coll_t * coll), (coll))
WRAP(bool, tt_coll_leave, (tt_coll_t * coll), (coll))
WRAP(bool, tt_coll_is_given_up, (const tt_coll_t *coll), (coll))
WRAP(bool, tt_coll_have_arrived, (tt_coll_t * coll, tt_run_t *run), (coll, run))
WRAP(bool, tt_coll_are_all_done, (tt_coll_t * coll, const tt_run_t *run), (coll, run))
WRAP_VOID(tt_coll_give_up, (tt_coll_t * coll, tt_verdict_t verdict), (coll, verdict))
WRAP_VOID(tt_coll_quiesce, (tt_coll_t * coll), (coll))
WRAP_VOID(tt_coll_post, (tt_coll_t * coll, tt_run_t *run), (coll, run))
WRAP_VOID(tt_coll_post_phase, (tt_coll_t * coll, uint64_t phase), (coll, phase))
WRAP_VOID(tt_node_peers_wake, (tt_node_peers_t * node_peers, int rank), (node_peers, rank))
WRAP_VOID(tt_node_peers_idle,
          (tt_node_peers_t * node_peers, tt_idle_t *idle, tt_deadline_t deadline),
          (node_peers, idle, deadline))
WRAP_VOID(tt_tree_reduce, (const tt_tree_reduce_t *job, size_t begin, size_t end),
          (job, begin, end))

static bool is_taken_for_dead(int rank)
{
    const turns_t *turns = own.turns;
    may_pass();
    return turns != NULL && turns->has_struck && turns->fault == TURNS_DEATH &&
           rank == turns->victim;
}

tt_node_peer_state_t __real_tt_node_peers_state(const tt_node_peers_t *node_peers, int rank);
tt_node_peer_state_t __wrap_tt_node_peers_state(const tt_node_peers_t *node_peers, int rank);
tt_node_peer_state_t __wrap_tt_node_peers_state(const tt_node_peers_t *node_peers, int rank)
{
    return is_taken_for_dead(rank) ? TT_NODE_PEER_DEAD
                                   : __real_tt_node_peers_state(node_peers, rank);
}

bool __real_tt_node_peers_is_gone(const tt_node_peers_t *node_peers, int rank);
bool __wrap_tt_node_peers_is_gone(const tt_node_peers_t *node_peers, int rank);
bool __wrap_tt_node_peers_is_gone(const tt_node_peers_t *node_peers, int rank)
{
    return is_taken_for_dead(rank) || __real_tt_node_peers_is_gone(node_peers, rank);
}

void __real_tt_futex_wait(_Atomic uint32_t *word, uint32_t expected, tt_deadline_t deadline);
void __wrap_tt_futex_wait(_Atomic uint32_t *word, uint32_t expected, tt_deadline_t deadline);
void __wrap_tt_futex_wait(_Atomic uint32_t *word, uint32_t expected, tt_deadline_t deadline)
{
    turns_t *turns = own.turns;
    if (turns == NULL) {
        __real_tt_futex_wait(word, expected, deadline);
        return;
    }
    turns_rank_t *self = &turns->ranks[own.rank];
    self->word = word;
    self->expected = expected;
    self->awake_ns = deadline;
    pass_and_await(turns);
}
