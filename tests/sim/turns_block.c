/* Versions of a host block, of ranks that take turns in an order that a seed draws. Who reads
 * version v finds nothing but v, however ranks get ahead of each other; a rank that is stopped or
 * dies, while it writes or reads, lets the others hear of it; without a fault nobody fails, and no
 * sleep ends by itself. TUTTI_SEED=N looks at one seed alone. */
#include "turns_block.h"

#include <stdio.h>
#include <string.h>

#include "comm/coll/coll_block.h"
#include "comm/exec/coll_exec.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "turns.h"

enum { VERSIONS = 6, SLICE = 4, RANKS_MAX = 4, TIMEOUT_MS = 300 };

typedef struct {
    tt_block_flags_t flags[RANKS_MAX];
    _Atomic uint32_t data[RANKS_MAX * SLICE];
} block_t;

typedef struct {
    tt_coll_t *coll;
    block_t *block; /* as this rank sees it */
    uint64_t version;
    tutti_status_t status;
} member_t;

typedef struct {
    uint64_t first, seeds;
    turns_t turns;
    bool is_oversubscribed;
    uint64_t abort_at;
    _Atomic tt_heap_address_t flags[RANKS_MAX], place;
    member_t members[RANKS_MAX];
} world_t;

static void draw(world_t *w, uint64_t seed, int size)
{
    turns_open(&w->turns, seed, size);
    memset(w->members, 0, sizeof w->members);
    w->turns.fault = (turns_fault_t)turns_draw(&w->turns, TURNS_FAULTS);
    w->turns.victim = (int)turns_draw(&w->turns, (uint64_t)size);
    w->turns.fault_turn = turns_draw(&w->turns, 300);
    w->is_oversubscribed = turns_draw(&w->turns, 2) == 0;
    w->abort_at = turns_draw(&w->turns, VERSIONS);
}

static tt_device_t *heap_of(const tt_peer_t *self)
{
    return tt_node_peers_heap(tt_peers_node_peers(self->peers));
}

static void open_member(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    const tt_coll_options_t options = {.rank = self->rank,
                                       .size = self->size,
                                       .peers = self->peers,
                                       .name = "turns",
                                       .timeout_ms = TIMEOUT_MS};
    TT_EXPECT_PEER(self, tt_coll_create(&options, &m->coll) == TUTTI_OK);
    atomic_store(&w->flags[self->rank], tt_coll_address(m->coll));
    if (self->rank == 0) {
        m->block = tt_device_alloc(heap_of(self), sizeof *m->block, "test");
        memset(m->block, 0, sizeof *m->block);
        atomic_store(&w->place, tt_heap_address(heap_of(self), m->block, sizeof *m->block));
    }
}

static void connect_member(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    for (int i = 0; i < self->size; i++) {
        if (i != self->rank) {
            TT_EXPECT_PEER(self,
                           tt_coll_connect(m->coll, i, atomic_load(&w->flags[i])) == TUTTI_OK);
        }
    }
    if (self->rank != 0) {
        const tt_heap_span_t span = {atomic_load(&w->place), sizeof(block_t), _Alignof(block_t)};
        void *block = NULL;
        TT_EXPECT_PEER(self, tt_coll_find_block(m->coll, 0, span, &block) == TUTTI_OK);
        m->block = block;
    }
    tt_node_peers_set_oversubscribed(tt_peers_node_peers(self->peers), w->is_oversubscribed);
}

static void await(member_t *m, tt_block_word_t word)
{
    tt_block_wait_t wait = {
        .flags = m->block->flags, .word = word, .version = m->version, .what = "block"};
    if (m->status == TUTTI_OK) {
        m->status = tt_coll_block_await(m->coll, &wait, TT_NEVER);
    }
}

/* The turn may pass at each element. */
static void write_slice(tt_peer_t *self, member_t *m)
{
    for (int i = 0; i < SLICE && m->status == TUTTI_OK; i++) {
        (void)tt_coll_is_given_up(m->coll);
        atomic_store_explicit(&m->block->data[self->rank * SLICE + i], (uint32_t)m->version + 1,
                              memory_order_relaxed);
    }
}

static void read_whole(tt_peer_t *self, member_t *m)
{
    for (int i = 0; i < self->size * SLICE && m->status == TUTTI_OK; i++) {
        TT_EXPECT_PEER(self, atomic_load_explicit(&m->block->data[i], memory_order_relaxed) ==
                                 m->version);
        (void)tt_coll_is_given_up(m->coll);
    }
}

static void go_round(tt_peer_t *self, world_t *w)
{
    member_t *m = &w->members[self->rank];
    if (w->turns.fault == TURNS_ABORT && w->turns.victim == self->rank &&
        m->version == w->abort_at) {
        tt_coll_abort(m->coll, "");
    }
    await(m, TT_BLOCK_FINISHED);
    write_slice(self, m);
    if (m->status == TUTTI_OK) {
        tt_coll_block_set(m->coll, m->block->flags, TT_BLOCK_POSTED, ++m->version);
    }
    await(m, TT_BLOCK_POSTED);
    read_whole(self, m);
    if (m->status == TUTTI_OK) {
        tt_coll_block_set(m->coll, m->block->flags, TT_BLOCK_FINISHED, m->version);
    }
}

/* A fault is one of the victim, or of all. */
static void check_together(tt_peer_t *self, const world_t *w)
{
    const member_t *m = &w->members[self->rank];
    const turns_fault_t fault = w->turns.fault;
    const bool has_struck = w->turns.has_struck || fault == TURNS_ABORT;
    TT_EXPECT_PEER(self, m->status == TUTTI_OK || has_struck);
    TT_EXPECT_PEER(self, fault != TURNS_NO_FAULT || w->turns.timers == 0);
    TT_EXPECT_PEER(self, m->status != TUTTI_OK || m->version == VERSIONS);
    const bool is_victim = w->turns.victim == self->rank;
    if (fault == TURNS_ABORT) {
        TT_EXPECT_PEER(self, m->status == TUTTI_ERR_ABORTED && m->version <= w->abort_at + 1);
    } else if (!is_victim && m->status < 0 && fault == TURNS_DEATH) {
        TT_EXPECT_PEER(self, m->status == TUTTI_ERR_PEER);
    } else if (!is_victim && m->status < 0) { /* it was stopped, or slept for long */
        TT_EXPECT_PEER(self, m->status == TUTTI_ERR_TIMEOUT);
    }
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
    const member_t *m = &w->members[self->rank];
    check_together(self, w);
    note_seed(self, w);
    tt_coll_release(m->coll);
    if (self->rank == 0) {
        tt_device_free(heap_of(self), m->block, sizeof *m->block);
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
        for (int i = 0; i < VERSIONS; i++) {
            go_round(self, w);
        }
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
    for (int size = 2; size <= RANKS_MAX; size++) {
        static world_t world;
        world.first = first;
        world.seeds = count;
        tt_peers_team_t team = {
            .size = size, .body = run, .user = &world, .hosts = {"a", "a", "a", "a"}};
        tt_run_peers(&team);
    }
    tt_log_set_sink(NULL, NULL);
}

static uint64_t seeds;

static void nobody_reads_what_is_being_written(void **state)
{
    (void)state;
    int64_t seed;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
        check((uint64_t)seed, 1);
        return;
    }
    check(0, seeds);
}

int turns_block_main(uint64_t count)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_reads_what_is_being_written),
    };
    seeds = count;
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
