/* For tests: ranks as threads of one process, meeting as peers through a table in memory, on as
 * many "hosts" as the test likes. Header only, so that it is no part of the library.
 *
 *     tt_peers_team_t team = {.size = 3, .body = talk, .hosts = {"a", "a", "b"}};
 *     tt_run_peers(&team);
 */
#ifndef TT_PEERS_TEAM_TEST_H
#define TT_PEERS_TEAM_TEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "comm/wire/peers.h"
#include "core/base/futex.h"
#include "core/base/testing.h"

enum { TT_TABLE_RANKS = 256 };

/* Infos that threads, and forked processes, share. */
typedef struct {
    _Atomic uint32_t is_there[TT_INFO_KINDS][TT_TABLE_RANKS];
    unsigned char infos[TT_INFO_KINDS][TT_TABLE_RANKS][TT_PEER_INFO_BYTES];
    _Atomic uint32_t step; /* for tests that go in steps */
} tt_info_table_t;

static inline tutti_status_t tt_table_put(void *user, tt_info_kind_t kind, int rank,
                                          const void *info)
{
    tt_info_table_t *table = user;
    memcpy(table->infos[kind][rank], info, tt_info_bytes(kind));
    atomic_store(&table->is_there[kind][rank], 1);
    tt_futex_wake_all(&table->is_there[kind][rank]);
    return TUTTI_OK;
}

static inline tutti_status_t tt_table_get(void *user, tt_info_kind_t kind, int rank,
                                          tt_deadline_t deadline, void *info)
{
    tt_info_table_t *table = user;
    while (!atomic_load(&table->is_there[kind][rank])) {
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d has not come", rank);
        }
        tt_futex_wait(&table->is_there[kind][rank], 0, deadline);
    }
    memcpy(info, table->infos[kind][rank], tt_info_bytes(kind));
    return TUTTI_OK;
}

static inline tt_info_table_t *tt_table_open(void)
{
    void *table = mmap(NULL, sizeof(tt_info_table_t), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(table != MAP_FAILED);
    return table;
}

static inline void tt_table_close(tt_info_table_t *table)
{
    munmap(table, sizeof *table);
}

typedef struct tt_peers_team tt_peers_team_t;

typedef struct {
    pthread_t thread;
    tt_peers_team_t *team;
    int rank, size;
    tutti_status_t joined; /* what joining gave */
    tt_peers_t *peers;
    char failure[900]; /* "" as long as all is well */
} tt_peer_t;

struct tt_peers_team {
    int size;
    void (*prepare)(tt_peer_t *self); /* before it joins; NULL: nothing */
    void (*body)(tt_peer_t *self);
    const char *hosts[8]; /* NULL: each rank on a host of its own (wires = "tcp") */
    const char *wires[8]; /* NULL: as hosts says */
    uint32_t epochs[8];
    int timeout_ms; /* 0: 20 s */
    void *user;
    tt_info_table_t *table;
};

/* Note the first failure of this rank and go on. */
#define TT_EXPECT_PEER(self, condition)                                                            \
    do {                                                                                           \
        if (!(condition) && (self)->failure[0] == 0) {                                             \
            snprintf((self)->failure, sizeof(self)->failure, "rank %d, line %d: %s: %s",           \
                     (self)->rank, __LINE__, #condition, tutti_last_error());                      \
        }                                                                                          \
    } while (0)

static inline tutti_status_t tt_peer_join(tt_peer_t *self, const char *host, const char *wires,
                                          uint32_t epoch, int timeout_ms)
{
    const tt_peers_options_t options = {
        .rank = self->rank,
        .size = self->size,
        .directory = {.put = tt_table_put, .get = tt_table_get, .user = self->team->table},
        .epoch = epoch,
        .wires = wires != NULL  ? wires
                 : host == NULL ? "tcp"
                                : "auto",
        .host = host,
    };
    return tt_peers_join(&options, tt_deadline_in_ms(timeout_ms), &self->peers);
}

static inline void *tt_peer_thread(void *arg)
{
    tt_peer_t *self = arg;
    const tt_peers_team_t *team = self->team;
    const int slot = self->rank < 8 ? self->rank : 0;
    if (team->prepare != NULL) {
        team->prepare(self);
    }
    self->joined = tt_peer_join(self, team->hosts[slot], team->wires[slot], team->epochs[slot],
                                team->timeout_ms > 0 ? team->timeout_ms : 20000);
    if (self->joined < 0 && team->timeout_ms == 0) {
        TT_EXPECT_PEER(self, self->joined == TUTTI_OK);
        return NULL;
    }
    team->body(self);
    tt_peers_release(self->peers);
    return NULL;
}

static inline void tt_run_peers(tt_peers_team_t *team)
{
    tt_peer_t *ranks = tt_alloc_array((size_t)team->size, sizeof *ranks, "test team");
    assert_non_null(ranks);
    team->table = tt_table_open();
    for (int i = 0; i < team->size; i++) {
        ranks[i].team = team;
        ranks[i].rank = i;
        ranks[i].size = team->size;
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, tt_peer_thread, &ranks[i]), 0);
    }
    char failure[900] = "";
    for (int i = 0; i < team->size; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (ranks[i].failure[0] != 0 && failure[0] == 0) {
            snprintf(failure, sizeof failure, "%s", ranks[i].failure);
        }
    }
    tt_table_close(team->table);
    tt_free(ranks);
    if (failure[0] != 0) {
        fail_msg("%s", failure);
    }
}

/* Two, each on a host of its own. */
static inline void tt_run_two_peers(void (*body)(tt_peer_t *self))
{
    tt_peers_team_t team = {.size = 2, .body = body};
    tt_run_peers(&team);
}

/* All ranks of the team have come to this step; connections are taken in meanwhile, by many ranks
 * less often, or they would keep each other from coming. */
static inline void tt_peer_step(tt_peer_t *self, int step)
{
    _Atomic uint32_t *at = &self->team->table->step;
    const uint32_t all = (uint32_t)(step * self->size);
    if (atomic_fetch_add(at, 1) + 1 == all) {
        tt_futex_wake_all(at);
    }
    for (uint32_t seen = atomic_load(at); seen < all; seen = atomic_load(at)) {
        tt_peers_progress(self->peers);
        tt_futex_wait(at, seen, tt_clock_ns() + self->size * TT_NS_PER_MS / 40);
    }
}

static inline tt_wire_t tt_peer_open(tt_peer_t *self, int rank, uint64_t channel)
{
    tt_wire_t wire = {0};
    TT_EXPECT_PEER(self, tt_peers_open_wire(self->peers, rank, channel, &wire) == TUTTI_OK);
    return wire;
}

static inline bool tt_peer_send(tt_peer_t *self, tt_wire_t *wire, const void *data, size_t bytes)
{
    tt_idle_t idle = {0};
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    size_t sent = 0;
    while (sent < bytes && !tt_deadline_is_past(deadline)) {
        const tt_span_t span = {(const char *)data + sent, bytes - sent};
        size_t done = 0;
        if (wire->ops->send(wire->state, &span, 1, &done) < 0) {
            break;
        }
        sent += done;
        tt_peers_progress(self->peers);
        if (done == 0) {
            tt_peers_idle(self->peers, &idle, deadline);
        }
    }
    tt_peers_idle_end(self->peers, &idle);
    return sent == bytes;
}

static inline bool tt_peer_recv(tt_peer_t *self, tt_wire_t *wire, void *data, size_t bytes)
{
    tt_idle_t idle = {0};
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    size_t got = 0;
    while (got < bytes && !tt_deadline_is_past(deadline)) {
        size_t done = 0;
        if (wire->ops->recv(wire->state, (char *)data + got, bytes - got, &done) < 0) {
            break;
        }
        got += done;
        tt_peers_progress(self->peers);
        if (done == 0) {
            tt_peers_idle(self->peers, &idle, deadline);
        }
    }
    tt_peers_idle_end(self->peers, &idle);
    return got == bytes;
}

#endif
