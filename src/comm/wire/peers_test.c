/* Peers: who is on which host; connections that are made when needed and not before; goaways; a
 * rank that is killed and one that only stands still; what 256 ranks cost. */
#include "core/base/testing.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/wire/peers_impl.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/log.h"

enum { CHANNEL = 77 };

/* ---- who is where ---- */

static void look_who_is_where(tt_peer_t *self)
{
    static const int hosts[] = {0, 1, 0, 2, 1, 0, 2, 2}, node_peers[] = {0, 0, 1, 0, 1, 2, 1, 2};
    for (int i = 0; i < 8; i++) {
        const bool is_here = hosts[i] == hosts[self->rank];
        TT_EXPECT_PEER(self, tt_peers_host(self->peers, i) == hosts[i]);
        TT_EXPECT_PEER(self, tt_peers_node_peer(self->peers, i) == (is_here ? node_peers[i] : -1));
    }
    TT_EXPECT_PEER(self, tt_node_peers_size(tt_peers_node_peers(self->peers)) ==
                             (hosts[self->rank] == 1 ? 2 : 3));
    tt_peer_step(self, 1);
}

static void hosts_are_numbered_by_their_lowest_rank(void **state)
{
    (void)state;
    tt_peers_team_t team = {
        .size = 8, .body = look_who_is_where, .hosts = {"x", "a", "x", "m", "a", "x", "m", "m"}};
    tt_run_peers(&team);
}

static void look_for_oversubscription(tt_peer_t *self)
{
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    const bool is_oversubscribed = self->size > CPU_COUNT(&cpus);
    TT_EXPECT_PEER(self, tt_node_peers_size(tt_peers_node_peers(self->peers)) == 1);
    TT_EXPECT_PEER(self, tt_node_peers_is_oversubscribed(tt_peers_node_peers(self->peers)) ==
                             is_oversubscribed);
    tt_peer_step(self, 1);
}

static void hosts_on_one_machine_share_its_cores(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size++) {
        tt_peers_team_t team = {.size = size, .body = look_for_oversubscription};
        tt_run_peers(&team);
    }
}

/* The C library's, with a boot id of its own for rank 1. */
static _Thread_local bool has_booted_elsewhere;

int open(const char *path, int flags, ...)
{
    const bool is_boot_id = strstr(path, "/boot_id") != NULL;
    va_list rest;
    va_start(rest, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
    va_end(rest);
    return (int)syscall(SYS_openat, AT_FDCWD,
                        is_boot_id && has_booted_elsewhere ? "/proc/version" : path, flags, mode);
}

static void look_for_one_host(tt_peer_t *self)
{
    TT_EXPECT_PEER(self, tt_peers_host(self->peers, 0) == 0);
    TT_EXPECT_PEER(self, tt_peers_host(self->peers, 1) == 1);
    tt_peer_step(self, 1);
}

static void boot_elsewhere(tt_peer_t *self)
{
    has_booted_elsewhere = self->rank == 1;
}

/* Containers of two machines may have the same number of their network namespace. */
static void another_boot_id_is_another_host(void **state)
{
    (void)state;
    tt_peers_team_t team = {
        .size = 2, .prepare = boot_elsewhere, .body = look_for_one_host, .hosts = {"a", "a"}};
    tt_run_peers(&team);
}

/* ---- connections ---- */

static int count_connections(const tt_peers_t *peers)
{
    int count = peers->parked_count + peers->admission.count;
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        for (int i = 0; i < TT_STREAMS_MAX; i++) {
            count += (wire->in[i] != NULL) + (wire->out[i] != NULL);
        }
    }
    return count;
}

/* 0 → 1 → 2 → 3, and nobody else. */
static void talk_in_a_line(tt_peer_t *self)
{
    tt_wire_t wires[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        TT_EXPECT_PEER(self, i == self->rank || tt_peers_open_wire(self->peers, i, CHANNEL,
                                                                   &wires[i]) == TUTTI_OK);
    }
    tt_peer_step(self, 1);
    TT_EXPECT_PEER(self, count_connections(self->peers) == 0);
    tt_peer_step(self, 2);
    int word = 41;
    if (self->rank > 0) {
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wires[self->rank - 1], &word, sizeof word));
    }
    word++;
    if (self->rank < 3) {
        TT_EXPECT_PEER(self, tt_peer_send(self, &wires[self->rank + 1], &word, sizeof word));
    }
    TT_EXPECT_PEER(self, word == 42 + self->rank);
    tt_peer_step(self, 3);
    TT_EXPECT_PEER(self,
                   count_connections(self->peers) == (self->rank == 0 || self->rank == 3 ? 1 : 2));
    for (int i = 0; i < 4; i++) {
        tt_wire_close(&wires[i]);
    }
}

static void connections_are_made_when_something_is_sent(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 4, .body = talk_in_a_line};
    tt_run_peers(&team);
}

/* What was sent before the receiver had a wire is there when it has one. */
static void send_early(tt_peer_t *self)
{
    tt_wire_t wire = {0};
    char text[6] = "early";
    if (self->rank == 0) {
        wire = tt_peer_open(self, 1, CHANNEL);
        TT_EXPECT_PEER(self, tt_peer_send(self, &wire, text, sizeof text));
    }
    while (self->rank == 1 && self->peers->parked_count == 0) {
        tt_peers_progress(self->peers);
    }
    tt_peer_step(self, 1);
    if (self->rank == 1) {
        char got[6] = "";
        wire = tt_peer_open(self, 0, CHANNEL);
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, got, sizeof got));
        TT_EXPECT_PEER(self, strcmp(got, text) == 0);
        TT_EXPECT_PEER(self, self->peers->parked_count == 0);
    }
    tt_peer_step(self, 2);
    tt_wire_close(&wire);
}

static void what_comes_early_is_kept(void **state)
{
    (void)state;
    tt_run_two_peers(send_early);
}

static void what_comes_to_descriptor_0_is_heard(void **state)
{
    (void)state;
    const int kept = fcntl(0, F_DUPFD_CLOEXEC, 10);
    close(0); /* a listener is the next to get its number */
    tt_run_two_peers(send_early);
    assert_int_equal(dup2(kept, 0), 0);
    close(kept);
}

/* Groups that were sent to but never asked: their connections do not pile up. */
static void send_and_go(tt_peer_t *self)
{
    enum { GROUPS = 100 };
    for (int i = 0; i < GROUPS; i++) {
        tt_wire_t wire = {0};
        if (self->rank == 0) {
            TT_EXPECT_PEER(self, tt_peers_open_wire(self->peers, 1, 1000 + (uint64_t)i, &wire) ==
                                     TUTTI_OK);
            while (wire.ops->probe(wire.state) == TUTTI_OK &&
                   ((tt_tcp_wire_t *)wire.state)->opened[0] < sizeof(tt_opening_t)) {
            }
        }
        tt_peer_step(self, i + 1);
        tt_wire_close(&wire);
    }
    TT_EXPECT_PEER(self, self->peers->parked_count <= 70);
}

static void unwanted_connections_are_swept_out(void **state)
{
    (void)state;
    tt_run_two_peers(send_and_go);
}

/* ---- leaving ---- */

/* Channels that nobody connects to. */
static void leave_others(tt_peer_t *self)
{
    for (int i = 0; i < 1000; i++) {
        tt_wire_t wire = tt_peer_open(self, 2, 1000 + (uint64_t)i);
        wire.ops->goaway(wire.state, 1 + (uint64_t)i);
        tt_wire_close(&wire);
    }
}

/* Rank 0 leaves with a reason: 1 is connected, 2 connects afterwards, to a closed wire. */
static void part(tt_peer_t *self)
{
    tt_wire_t wires[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        if ((i == 0) != (self->rank == 0)) {
            wires[i] = tt_peer_open(self, i, CHANNEL);
        }
    }
    if (self->rank == 0) {
        char word[4];
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wires[1], word, 4));
        TT_EXPECT_PEER(self, tt_peer_send(self, &wires[1], "last", 4));
        wires[1].ops->goaway(wires[1].state, 4711);
        wires[2].ops->goaway(wires[2].state, 4711);
        tt_wire_close(&wires[1]);
        tt_wire_close(&wires[2]);
        leave_others(self);
        tt_peer_step(self, 1);
    } else {
        const tt_wire_t *wire = &wires[0];
        TT_EXPECT_PEER(self, self->rank == 2 || tt_peer_send(self, &wires[0], "word", 4));
        TT_EXPECT_PEER(self, self->rank == 1 || wire->ops->peer_reason(wire->state) == 0);
        tt_peer_step(self, 1);
        char word[4];
        TT_EXPECT_PEER(self, self->rank == 2 || (tt_peer_recv(self, &wires[0], word, 4) &&
                                                 memcmp(word, "last", 4) == 0));
        uint64_t peer_reason = 0;
        const tt_deadline_t deadline = tt_deadline_in_ms(20000);
        while (peer_reason == 0 && !tt_deadline_is_past(deadline)) {
            peer_reason = wire->ops->peer_reason(wire->state);
            TT_EXPECT_PEER(self, peer_reason != 0 || wire->ops->probe(wire->state) == TUTTI_OK ||
                                     wire->ops->peer_reason(wire->state) != 0);
            usleep(100);
        }
        TT_EXPECT_PEER(self, peer_reason == 4711);
        tt_wire_close(&wires[0]);
    }
    tt_peer_step(self, 2);
    TT_EXPECT_PEER(self,
                   self->rank != 0 || count_connections(self->peers) == 0); /* 2 has been told */
}

static void who_leaves_says_why_to_all(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 3, .body = part};
    tt_run_peers(&team);
}

/* ---- death ---- */

/* A forked rank 1 that sends one word and waits to be killed, and this process as rank 0. */
typedef struct {
    tt_peers_team_t team;
    tt_peer_t self;
    tt_wire_t wire;
    pid_t child;
} pair_t;

static void live_as_child(pair_t *pair)
{
    int word = 5;
    pair->self.rank = 1;
    if (tt_peer_join(&pair->self, NULL, NULL, 0, 20000) == TUTTI_OK &&
        tt_peers_open_wire(pair->self.peers, 0, CHANNEL, &pair->wire) == TUTTI_OK &&
        tt_peer_send(&pair->self, &pair->wire, &word, sizeof word) &&
        tt_peer_recv(&pair->self, &pair->wire, &word, sizeof word) &&
        tt_peer_send(&pair->self, &pair->wire, &word, sizeof word)) {
        for (;;) {
            pause();
        }
    }
    _exit(1);
}

static void start_pair(pair_t *pair)
{
    *pair = (pair_t){.team = {.size = 2, .table = tt_table_open()}};
    pair->self.team = &pair->team;
    pair->self.size = 2;
    pair->child = fork();
    if (pair->child == 0) {
        live_as_child(pair);
    }
    int word;
    assert_int_equal(tt_peer_join(&pair->self, NULL, NULL, 0, 20000), TUTTI_OK);
    assert_int_equal(tt_peers_open_wire(pair->self.peers, 1, CHANNEL, &pair->wire), TUTTI_OK);
    assert_true(tt_peer_recv(&pair->self, &pair->wire, &word, sizeof word));
    assert_int_equal(word, 5);
}

static void end_pair(pair_t *pair)
{
    kill(pair->child, SIGKILL);
    waitpid(pair->child, NULL, 0);
    tt_wire_close(&pair->wire);
    tt_peers_release(pair->self.peers);
    tt_table_close(pair->team.table);
}

/* What a call does that waits for nothing but to be rid of its bytes. */
static void send_some(pair_t *pair)
{
    static const char block[1 << 16];
    const tt_span_t span = {block, sizeof block};
    size_t done = 1;
    while (done > 0) {
        assert_int_equal(pair->wire.ops->send(pair->wire.state, &span, 1, &done), TUTTI_OK);
    }
}

static void receive_nothing(pair_t *pair)
{
    char byte;
    size_t done;
    assert_int_equal(pair->wire.ops->recv(pair->wire.state, &byte, 1, &done), TUTTI_OK);
    assert_int_equal(done, 0);
}

/* As a wait does: receive or send, idle, and look around now and then. */
static int64_t wait_for_death(pair_t *pair, bool sends, int64_t give_up_ms)
{
    tt_wire_t *wire = &pair->wire;
    tt_idle_t idle = {0};
    const int64_t start_ns = tt_clock_ns();
    const tt_deadline_t deadline = tt_deadline_in_ms(give_up_ms);
    int64_t dead_ns = -1;
    while (dead_ns < 0 && !tt_deadline_is_past(deadline)) {
        if (sends) {
            send_some(pair);
        } else {
            receive_nothing(pair);
        }
        assert_int_equal(wire->ops->peer_reason(wire->state), 0);
        if (wire->ops->probe(wire->state) < 0) {
            dead_ns = tt_clock_ns() - start_ns;
        }
        tt_peers_progress(pair->self.peers);
        tt_peers_idle(pair->self.peers, &idle, deadline);
    }
    tt_peers_idle_end(pair->self.peers, &idle);
    return dead_ns;
}

static void who_is_killed_is_noticed_soon(void **state)
{
    (void)state;
    for (int is_two_way = 0; is_two_way < 2; is_two_way++) {
        pair_t pair;
        start_pair(&pair);
        int word = 6;
        if (is_two_way) {
            assert_true(tt_peer_send(&pair.self, &pair.wire, &word, sizeof word));
            assert_true(tt_peer_recv(&pair.self, &pair.wire, &word, sizeof word));
        }
        kill(pair.child, SIGKILL);
        assert_true(wait_for_death(&pair, false, 2000) >= 0); /* 50 ms at rest */
        tt_expect_error("its connections are closed");
        end_pair(&pair);
    }
}

/* Rank 1 has sent exactly what goes through its first stream, and its second one never comes. */
static void who_is_killed_between_streams_is_noticed(void **state)
{
    (void)state;
    setenv("TUTTI_TCP_STREAMS", "3", 1);
    pair_t pair;
    start_pair(&pair);
    tt_tcp_wire_t *wire = pair.wire.state;
    wire->received = TT_STRIPE_BYTES; /* as if the rest of the stripe had come */
    int word = 6;
    assert_true(tt_peer_send(&pair.self, &pair.wire, &word, sizeof word));
    usleep(100000);
    kill(pair.child, SIGKILL);
    assert_true(wait_for_death(&pair, false, 2000) >= 0);
    end_pair(&pair);
    unsetenv("TUTTI_TCP_STREAMS");
}

/* Rank 1 has sent all that is wanted of it, and dies before it has taken what it gets. */
static void who_is_killed_while_it_should_receive_is_noticed(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        pair_t pair;
        start_pair(&pair);
        int word = 6;
        assert_true(tt_peer_send(&pair.self, &pair.wire, &word, sizeof word));
        assert_true(tt_peer_recv(&pair.self, &pair.wire, &word, sizeof word));
        if (is_full) {
            send_some(&pair);
        }
        kill(pair.child, SIGKILL);
        assert_true(wait_for_death(&pair, true, 3000) >= 0);
        tt_expect_error("its connections are closed");
        end_pair(&pair);
    }
}

static void who_stands_still_is_not_dead(void **state)
{
    (void)state;
    pair_t pair;
    start_pair(&pair);
    kill(pair.child, SIGSTOP);
    assert_int_equal(wait_for_death(&pair, false, 400),
                     -1); /* a connection is begun and not answered */
    kill(pair.child, SIGCONT);
    int word = 6;
    assert_true(tt_peer_send(&pair.self, &pair.wire, &word, sizeof word));
    assert_true(tt_peer_recv(&pair.self, &pair.wire, &word, sizeof word));
    kill(pair.child, SIGSTOP);
    assert_int_equal(wait_for_death(&pair, false, 400), -1);
    kill(pair.child, SIGKILL);
    assert_true(wait_for_death(&pair, false, 2000) >= 0);
    end_pair(&pair);
}

/* There is no descriptor for a connection: that is no word about the peer, and is tried again. */
static void a_probe_without_descriptors_cuts_no_wire(void **state)
{
    (void)state;
    pair_t pair;
    struct rlimit before;
    int word = 6;
    start_pair(&pair);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {3, before.rlim_max}; /* more are open */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(pair.wire.ops->probe(pair.wire.state), TUTTI_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(pair.self.peers->has_warned);
    assert_true(tt_peer_send(&pair.self, &pair.wire, &word, sizeof word));
    assert_true(tt_peer_recv(&pair.self, &pair.wire, &word, sizeof word));
    end_pair(&pair);
}

/* ---- cost ---- */

static void ping(tt_peer_t *self)
{
    enum { WARM = 20, ROUNDS = 200, BYTES = 100000 };
    static _Thread_local unsigned char data[BYTES];
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    size_t before = 0;
    for (int i = 0; i < WARM + ROUNDS; i++) {
        if (i == WARM) {
            tt_peer_step(self, 1);
            before = tt_alloc_stats().allocations;
            tt_peer_step(self, 2);
        }
        TT_EXPECT_PEER(self, self->rank == 1 || tt_peer_send(self, &wire, data, sizeof data));
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, data, sizeof data));
        TT_EXPECT_PEER(self, self->rank == 0 || tt_peer_send(self, &wire, data, sizeof data));
    }
    tt_peer_step(self, 3);
    TT_EXPECT_PEER(self, tt_alloc_stats().allocations == before);
    tt_peer_step(self, 4);
    tt_wire_close(&wire);
}

static void a_warm_wire_allocates_nothing(void **state)
{
    (void)state;
    tt_run_two_peers(ping);
}

/* Until a local rank has ended a sleep of this rank's. */
static bool be_woken(tt_peer_t *self, tt_wire_t *wire)
{
    tt_idle_t idle = {0};
    const unsigned before = self->peers->wakeups;
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    while (self->peers->wakeups == before && !tt_deadline_is_past(deadline)) {
        char byte;
        size_t done;
        TT_EXPECT_PEER(self, wire->ops->recv(wire->state, &byte, 1, &done) == TUTTI_OK);
        tt_peers_idle(self->peers, &idle, deadline);
    }
    tt_peers_idle_end(self->peers, &idle);
    return self->peers->wakeups != before;
}

/* Ranks 0 and 1 are local ranks, and 0 also waits for rank 2, elsewhere, who says nothing. Rank 1
 * wakes whenever 0 sleeps, which otherwise sleeps its 10 ms again and again. */
static void wake_a_poller(tt_peer_t *self)
{
    enum { TIMES = 20 };
    _Atomic uint32_t *times = &self->team->table->step;
    if (self->rank == 0) {
        tt_wire_t wire = {0};
        wire = tt_peer_open(self, 2, CHANNEL);
        while (atomic_load(times) < TIMES && be_woken(self, &wire)) {
            atomic_fetch_add(times, 1);
        }
        TT_EXPECT_PEER(self, atomic_exchange(times, TIMES) == TIMES);
        tt_wire_close(&wire);
    }
    while (atomic_load(times) < TIMES) {
        if (self->rank == 1) {
            tt_node_peers_wake(tt_peers_node_peers(self->peers), 0);
        }
        usleep(50);
    }
}

static void node_peers_wake_who_polls(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 3, .body = wake_a_poller, .hosts = {"a", "a", "b"}};
    tt_run_peers(&team);
}

static void open_all(tt_peer_t *self)
{
    tt_wire_t wires[TT_TABLE_RANKS] = {{0}};
    tt_peer_step(self, 1);
    for (int i = 0; i < self->size; i++) {
        TT_EXPECT_PEER(self, i == self->rank || tt_peers_open_wire(self->peers, i, CHANNEL,
                                                                   &wires[i]) == TUTTI_OK);
    }
    tt_peer_step(self, 2);
    if (self->rank == 0) {
        const size_t bytes = tt_alloc_stats().bytes / (size_t)self->size;
        print_message("%zu bytes per rank\n", bytes);
        TT_EXPECT_PEER(self, bytes < 300000);
    }
    tt_peer_step(self, 3);
    for (int i = 0; i < self->size; i++) {
        tt_wire_close(&wires[i]);
    }
}

static void a_world_of_256_costs_little(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = TT_TABLE_RANKS, .body = open_all};
    tt_run_peers(&team);
}

static void swallow(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_killed_is_noticed_soon),
        cmocka_unit_test(who_is_killed_between_streams_is_noticed),
        cmocka_unit_test(who_is_killed_while_it_should_receive_is_noticed),
        cmocka_unit_test(who_stands_still_is_not_dead),
        cmocka_unit_test(a_probe_without_descriptors_cuts_no_wire),
        cmocka_unit_test(hosts_are_numbered_by_their_lowest_rank),
        cmocka_unit_test(hosts_on_one_machine_share_its_cores),
        cmocka_unit_test(another_boot_id_is_another_host),
        cmocka_unit_test(connections_are_made_when_something_is_sent),
        cmocka_unit_test(what_comes_early_is_kept),
        cmocka_unit_test(what_comes_to_descriptor_0_is_heard),
        cmocka_unit_test(unwanted_connections_are_swept_out),
        cmocka_unit_test(who_leaves_says_why_to_all),
        cmocka_unit_test(a_warm_wire_allocates_nothing),
        cmocka_unit_test(node_peers_wake_who_polls),
        cmocka_unit_test(a_world_of_256_costs_little),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    tt_log_set_sink(swallow, NULL);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
