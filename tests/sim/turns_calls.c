/* Random calls of ranks of one host that take turns. A call that returns OK has the right bytes;
 * memory that a call has given back stays as its caller leaves it; after a failure each further
 * call of a rank fails, and so does each that a rank had not started when it failed; without a
 * fault no call fails, and no sleep ends by itself. */
#include "turns_calls.h"

#include <stdio.h>
#include <string.h>

#include "comm/coll/coll.h"
#include "comm/exec/coll_exec.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "turns.h"

enum { CALLS = 6, COUNT_MAX = 4000, TIMEOUT_MS = 300, RANKS_MAX = 4, OTHER = -777 };

static const char *const RULES[] = {NULL, "flag", "direct", "staged"};

typedef struct {
    tt_coll_t *coll;
    float *in[CALLS], *out[CALLS];
    tt_run_t runs[CALLS];
    bool is_back[CALLS];
    int started, ended, fine; /* calls */
    tutti_status_t status;    /* of the calls, in their order */
    bool is_refused;          /* no further one starts */
} member_t;

typedef struct {
    uint64_t first, seeds;
    turns_t turns;
    size_t counts[CALLS];
    bool is_ahead, is_oversubscribed;
    const char *rules;
    int abort_at;
    _Atomic tt_heap_address_t addresses[RANKS_MAX];
    member_t members[RANKS_MAX];
} world_t;

static float value_of(int rank, int call, size_t i)
{
    return (float)((rank * 31 + call * 7 + (int)(i % 97)) % 50);
}

static void draw(world_t *w, uint64_t seed, int size)
{
    turns_open(&w->turns, seed, size);
    memset(w->members, 0, sizeof w->members);
    w->turns.fault = (turns_fault_t)turns_draw(&w->turns, TURNS_FAULTS);
    w->turns.victim = (int)turns_draw(&w->turns, (uint64_t)size);
    w->turns.fault_turn = turns_draw(&w->turns, 300);
    w->is_ahead = turns_draw(&w->turns, 2) == 0;
    w->is_oversubscribed = turns_draw(&w->turns, 2) == 0;
    w->rules = RULES[turns_draw(&w->turns, sizeof RULES / sizeof *RULES)];
    w->abort_at = (int)turns_draw(&w->turns, CALLS + 1);
    for (int i = 0; i < CALLS; i++) {
        w->counts[i] = 1 + turns_draw(&w->turns, turns_draw(&w->turns, 2) == 0 ? 8 : COUNT_MAX);
    }
}

static void open_member(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    const tt_coll_options_t options = {.rank = self->rank,
                                       .size = self->size,
                                       .peers = self->peers,
                                       .name = "turns",
                                       .timeout_ms = TIMEOUT_MS,
                                       .rules = w->rules};
    TT_EXPECT_PEER(self, tt_coll_create(&options, &m->coll) == TUTTI_OK);
    tt_device_t *heap = tt_node_peers_heap(tt_peers_node_peers(self->peers));
    for (int i = 0; i < CALLS; i++) {
        m->in[i] = tt_device_alloc(heap, COUNT_MAX * sizeof(float), "test");
        m->out[i] = tt_device_alloc(heap, COUNT_MAX * sizeof(float), "test");
    }
    atomic_store(&w->addresses[self->rank], tt_coll_address(m->coll));
}

static void connect_member(tt_peer_t *self, world_t *w)
{
    for (int i = 0; i < self->size; i++) {
        if (i != self->rank) {
            TT_EXPECT_PEER(self, tt_coll_connect(w->members[self->rank].coll, i,
                                                 atomic_load(&w->addresses[i])) == TUTTI_OK);
        }
    }
    tt_node_peers_set_oversubscribed(tt_peers_node_peers(self->peers), w->is_oversubscribed);
}

static void use_for_something_else(const member_t *m, int call)
{
    for (size_t i = 0; i < COUNT_MAX; i++) {
        m->in[call][i] = m->out[call][i] = OTHER;
    }
}

static void check_untouched(tt_peer_t *self, const member_t *m)
{
    for (int call = 0; call < CALLS; call++) {
        for (size_t i = 0; i < COUNT_MAX && m->is_back[call]; i++) {
            TT_EXPECT_PEER(self, m->in[call][i] == OTHER && m->out[call][i] == OTHER);
        }
    }
}

static void check_sum(tt_peer_t *self, const world_t *w, int call)
{
    for (size_t i = 0; i < w->counts[call]; i++) {
        float sum = 0;
        for (int rank = 0; rank < self->size; rank++) {
            sum += value_of(rank, call, i);
        }
        TT_EXPECT_PEER(self, w->members[self->rank].out[call][i] == sum);
    }
}

static void start(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    const int call = m->started;
    if (w->turns.fault == TURNS_ABORT && w->turns.victim == self->rank && call == w->abort_at) {
        tt_coll_abort(m->coll, "");
    }
    for (size_t i = 0; i < w->counts[call]; i++) {
        m->in[call][i] = value_of(self->rank, call, i);
    }
    const tt_call_t what = {.collective = TT_ALL_REDUCE,
                            .reduction = TUTTI_SUM,
                            .dtype = TUTTI_F32,
                            .out_dtype = TUTTI_F32,
                            .count = w->counts[call],
                            .pieces = (const void *[]){m->in[call]},
                            .piece_count = 1,
                            .out = m->out[call],
                            .is_awaited = !w->is_ahead};
    const tutti_status_t status = tt_coll_start(m->coll, &what, &m->runs[call]);
    TT_EXPECT_PEER(self, m->status == TUTTI_OK || status < 0);
    m->is_refused = status < 0;
    m->started += status >= 0;
}

static void wait_for_next(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    const int call = m->ended++;
    const tutti_status_t status = tt_coll_wait(m->coll, &m->runs[call].op, TT_NEVER);
    TT_EXPECT_PEER(self, status == TUTTI_OK || status < 0);
    TT_EXPECT_PEER(self, status < 0 || m->status == TUTTI_OK);
    if (status == TUTTI_OK) {
        check_sum(self, w, call);
        m->fine++;
    } else {
        m->status = status;
    }
    use_for_something_else(m, call);
    m->is_back[call] = true;
}

static void make_calls(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    while (m->started < CALLS && !m->is_refused) {
        start(self, w);
        if (!w->is_ahead && m->ended < m->started) {
            wait_for_next(self, w);
        }
    }
    while (m->ended < m->started) {
        wait_for_next(self, w);
    }
    TT_EXPECT_PEER(self, w->turns.fault != TURNS_NO_FAULT || m->fine == CALLS);
}

/* Nobody gets further than a rank that failed. */
static void check_together(tt_peer_t *self, const world_t *w)
{
    for (int i = 0; i < self->size; i++) {
        const member_t *m = &w->members[i];
        const bool is_well = m->status == TUTTI_OK && !m->is_refused;
        TT_EXPECT_PEER(self, is_well || w->members[self->rank].fine <= m->started);
    }
    TT_EXPECT_PEER(self, w->turns.fault != TURNS_NO_FAULT || w->turns.timers == 0);
}

static void note_seed(tt_peer_t *self, const world_t *w)
{
    const size_t used = strlen(self->failure);
    if (used > 0 && strstr(self->failure, "; seed ") == NULL) {
        snprintf(self->failure + used, sizeof self->failure - used, "; seed %llu, fault %d",
                 (unsigned long long)w->turns.seed, (int)w->turns.fault);
    }
}

static void close_member(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    tt_device_t *heap = tt_node_peers_heap(tt_peers_node_peers(self->peers));
    if (w->turns.fault != TURNS_DEATH) { /* the thread of the dead rank has gone on */
        check_untouched(self, m);
    }
    check_together(self, w);
    note_seed(self, w);
    tt_coll_release(m->coll);
    for (int i = 0; i < CALLS; i++) {
        tt_device_free(heap, m->in[i], COUNT_MAX * sizeof(float));
        tt_device_free(heap, m->out[i], COUNT_MAX * sizeof(float));
    }
}

static void run(tt_peer_t *self)
{
    world_t *w = self->team->user;
    int step = 0;
    for (uint64_t seed = w->first; seed < w->first + w->seeds; seed++) {
        if (self->rank == 0) {
            draw(w, seed, self->size);
        }
        tt_peer_step(self, ++step);
        open_member(self, w);
        tt_peer_step(self, ++step);
        connect_member(self, w);
        turns_begin(&w->turns, self->rank);
        make_calls(self, w);
        check_untouched(self, &w->members[self->rank]);
        turns_end();
        tt_peer_step(self, ++step);
        close_member(self, w);
        tt_peer_step(self, ++step);
        if (self->rank == 0) {
            turns_close(&w->turns);
        }
    }
}

static void ignore_log(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static void check(uint64_t first, uint64_t count)
{
    tt_log_set_sink(ignore_log, NULL);
    for (int size = 2; size <= 3; size++) {
        static world_t world;
        world.first = first;
        world.seeds = count / 2;
        tt_peers_team_t team = {
            .size = size, .body = run, .user = &world, .hosts = {"a", "a", "a"}};
        tt_run_peers(&team);
    }
    tt_log_set_sink(NULL, NULL);
}

static uint64_t seeds;

static void calls_through_memory_end_well_or_fail(void **state)
{
    (void)state;
    int64_t seed;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
        check((uint64_t)seed, 2);
        return;
    }
    check(0, seeds);
}

int turns_main(uint64_t count)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_through_memory_end_well_or_fail),
    };
    seeds = count;
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
