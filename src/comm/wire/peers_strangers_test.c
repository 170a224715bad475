/* Connections that nobody asked for: strangers, other epochs, wrong first messages, second
 * connections, floods; the ranks of the job go on, and get in. */
#include "core/base/testing.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/strangers_test.h"
#include "comm/wire/peers_impl.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/log.h"

enum { CHANNEL = 77 };

static int knock(const tt_peers_t *peers, int rank)
{
    const tt_peer_info_t *info = &peers->infos[rank];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(info->port)};
    memcpy(&address.sin_addr, info->address, sizeof address.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        return -1;
    }
    return fd;
}

static void go_away(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        tt_socket_close(fds[i]);
    }
}

/* Take connections in, and make them, until it is so; the time is a guard against hanging. */
#define UNTIL(self, wire, condition)                                                               \
    for (const tt_deadline_t until = tt_deadline_in_ms(20000);                                     \
         !(condition) && !tt_deadline_is_past(until); take_part(self, wire))

static void take_part(tt_peer_t *self, const tt_wire_t *wire)
{
    tt_peers_progress(self->peers);
    if (wire != NULL) {
        (void)wire->ops->probe(wire->state);
        (void)wire->ops->peer_reason(wire->state);
    }
    usleep(100);
}

/* As tt_peer_step, but no connection is taken in meanwhile. */
static void step_blindly(tt_peer_t *self, int step)
{
    _Atomic uint32_t *at = &self->team->table->step;
    const uint32_t all = (uint32_t)(step * self->size);
    if (atomic_fetch_add(at, 1) + 1 == all) {
        tt_futex_wake_all(at);
    }
    for (uint32_t seen = atomic_load(at); seen < all; seen = atomic_load(at)) {
        tt_futex_wait(at, seen, TT_NEVER);
    }
}

static bool exchange(tt_peer_t *self, tt_wire_t *wire, uint32_t number)
{
    uint32_t word = number + (uint32_t)self->rank;
    return tt_peer_send(self, wire, &word, sizeof word) &&
           tt_peer_recv(self, wire, &word, sizeof word) &&
           word == number + 1 - (uint32_t)self->rank;
}

/* Rank 1 plays the strangers; the two exchange words all the while. */
static void be_flooded(tt_peer_t *self)
{
    enum { FLOOD = 1000 };
    static int fds[FLOOD];
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    TT_EXPECT_PEER(self, exchange(self, &wire, 1));
    for (int i = 0; i < FLOOD; i++) {
        if (self->rank == 1) {
            fds[i] = knock(self->peers, 0);
            TT_EXPECT_PEER(self, fds[i] >= 0);
            (void)!write(fds[i], "GET / HTTP/1.0\r\n\r\n", i % 3 * 9);
        }
        TT_EXPECT_PEER(self, i % 10 != 0 || exchange(self, &wire, (uint32_t)i));
        TT_EXPECT_PEER(self, self->peers->admission.count <= TT_HALF_OPEN_MAX + 2 * TT_STREAMS_MAX);
    }
    UNTIL(self, NULL,
          self->rank == 1 || self->peers->admission.silent > 0); /* a third of them is */
    TT_EXPECT_PEER(self, self->rank == 1 || self->peers->admission.silent > 0);
    tt_wire_t late = tt_peer_open(self, 1 - self->rank, CHANNEL + 1); /* somebody new gets in */
    TT_EXPECT_PEER(self, exchange(self, &late, 5));
    for (int i = 0; self->rank == 1 && i < FLOOD; i++) {
        close(fds[i]);
    }
    tt_peer_step(self, 1);
    UNTIL(self, NULL, self->peers->admission.count == 0);
    TT_EXPECT_PEER(self, self->peers->admission.count == 0);
    TT_EXPECT_PEER(self, self->peers->admission.strangers == (self->rank == 0 ? FLOOD : 0));
    tt_wire_close(&wire);
    tt_wire_close(&late);
}

static void a_flood_of_strangers_harms_nobody(void **state)
{
    (void)state;
    tt_run_two_peers(be_flooded);
}

/* Nobody takes them in: rank 1 computes. */
static void crowd_a_port(tt_peer_t *self)
{
    enum { KNOCKS = 1500, GUARD_MS = 10000 };
    static struct pollfd knocks[KNOCKS];
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons(self->peers->infos[1].port)};
    memcpy(&where.sin_addr, self->peers->infos[1].address, sizeof where.sin_addr);
    for (int i = 0; i < KNOCKS && self->rank == 0; i++) {
        knocks[i] =
            (struct pollfd){tt_socket_open(AF_INET, SOCK_STREAM | SOCK_NONBLOCK), POLLOUT, 0};
        (void)connect(knocks[i].fd, (const struct sockaddr *)&where, sizeof where);
    }
    for (int i = 0; i < KNOCKS && self->rank == 0; i++) {
        TT_EXPECT_PEER(self, poll(&knocks[i], 1, i == 0 ? GUARD_MS : 100) == 1);
    }
    step_blindly(self, 1);
    for (int i = 0; i < KNOCKS && self->rank == 0; i++) {
        close(knocks[i].fd);
    }
}

static void a_rank_that_computes_is_there_for_all_who_connect(void **state)
{
    (void)state;
    int64_t most = 0; /* what the system keeps at most */
    FILE *file = fopen("/proc/sys/net/core/somaxconn", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%" SCNd64, &most), 1);
    fclose(file);
    if (most < 2000) {
        print_message("somaxconn is %" PRId64 "\n", most);
        skip();
    }
    tt_run_two_peers(crowd_a_port);
}

/* ---- no descriptor is left ---- */

/* A stranger waits whom nobody can take in: rank 0 sleeps all the same, and takes the stranger in
 * when there is a descriptor again. */
static void wait_without_descriptors(tt_peer_t *self)
{
    struct rlimit before;
    step_blindly(self, 1); /* both have joined */
    if (self->rank == 1) {
        step_blindly(self, 2);
        return;
    }
    tt_wire_t wire = tt_peer_open(self, 1, CHANNEL);
    const int stranger = knock(self->peers, 0), next = dup(stranger);
    close(next);
    TT_EXPECT_PEER(self, stranger >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit full = {(rlim_t)next, before.rlim_max};
    TT_EXPECT_PEER(self, setrlimit(RLIMIT_NOFILE, &full) == 0);
    const unsigned wakeups = self->peers->wakeups;
    tt_idle_t idle = {0};
    for (const tt_deadline_t until = tt_deadline_in_ms(200); !tt_deadline_is_past(until);) {
        char byte;
        size_t done;
        TT_EXPECT_PEER(self, wire.ops->recv(wire.state, &byte, 1, &done) == TUTTI_OK);
        tt_peers_progress(self->peers);
        tt_peers_idle(self->peers, &idle, until);
    }
    tt_peers_idle_end(self->peers, &idle);
    TT_EXPECT_PEER(self, setrlimit(RLIMIT_NOFILE, &before) == 0);
    TT_EXPECT_PEER(self, self->peers->admission.is_resting && self->peers->admission.has_warned);
    TT_EXPECT_PEER(self, self->peers->wakeups - wakeups < 5); /* thousands where each poll ends */
    UNTIL(self, NULL, self->peers->admission.count == 1);
    TT_EXPECT_PEER(self, self->peers->admission.count == 1 && !self->peers->admission.is_resting);
    close(stranger);
    step_blindly(self, 2);
    tt_wire_close(&wire);
}

static void a_rank_without_descriptors_does_not_spin(void **state)
{
    (void)state;
    tt_run_two_peers(wait_without_descriptors);
}

/* ---- a queue that is full ---- */

enum { FEW = 4 };

/* Connects until the queue of a listener takes no more. */
static void fill_queue(tt_peer_t *self, const struct sockaddr *where, int *fds)
{
    struct pollfd item = {.events = POLLOUT};
    for (int i = 0; i < FEW; i++) {
        fds[i] = item.fd = tt_socket_open(where->sa_family, SOCK_STREAM | SOCK_NONBLOCK);
        (void)connect(item.fd, where, sizeof(struct sockaddr_in));
        if (poll(&item, 1, 200) == 0) {
            return;
        }
    }
    TT_EXPECT_PEER(self, false);
}

/* A socket like that of a rank whose queue is full; its port stands in for the door of a host that
 * is gone, which says nothing either. */
static int open_mute(tt_peer_t *self, int *fds, uint16_t *port)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof where;
    const int mute = tt_socket_open(AF_INET, SOCK_STREAM);
    TT_EXPECT_PEER(self, bind(mute, (const struct sockaddr *)&where, sizeof where) == 0);
    TT_EXPECT_PEER(self, listen(mute, 1) == 0);
    TT_EXPECT_PEER(self, getsockname(mute, (struct sockaddr *)&where, &bytes) == 0);
    fill_queue(self, (const struct sockaddr *)&where, fds);
    *port = where.sin_port;
    return mute;
}

/* Rank 0 connects to rank 1, whose queue is full. Time is made up by moving what is noted back. */
static void judge_by_the_door(tt_peer_t *self, tt_wire_t *wire)
{
    tt_tcp_wire_t *inside = wire->state;
    tt_peer_info_t *info = &self->peers->infos[1];
    int fds[FEW] = {-1, -1, -1, -1};
    uint16_t mute_port;
    TT_EXPECT_PEER(self, wire->ops->probe(wire->state) == TUTTI_OK);
    const int64_t start_ns = inside->unheard_ns -= 6000 * TT_NS_PER_MS;
    tutti_status_t status = TUTTI_OK;
    UNTIL(self, NULL, inside->unheard_ns > start_ns || status < 0)
    {
        status = wire->ops->probe(wire->state);
    }
    TT_EXPECT_PEER(self, status == TUTTI_OK && inside->unheard_ns > start_ns);

    const uint16_t door = info->door;
    const int mute = open_mute(self, fds, &mute_port);
    info->door = ntohs(mute_port);
    inside->unheard_ns -= 2000 * TT_NS_PER_MS;
    UNTIL(self, wire, inside->knocked_ns != 0);
    inside->knocked_ns -= 3900 * TT_NS_PER_MS;
    TT_EXPECT_PEER(self, wire->ops->probe(wire->state) == TUTTI_OK);
    inside->knocked_ns -= 3900 * TT_NS_PER_MS;
    TT_EXPECT_PEER(self, wire->ops->probe(wire->state) == TUTTI_ERR_PEER);
    TT_EXPECT_PEER(self, strstr(tutti_last_error(), "its host has not answered for 5 s") != NULL);
    info->door = door;
    tt_socket_close(mute);
    go_away(fds, FEW);
}

static void be_crowded_out(tt_peer_t *self)
{
    int fds[FEW] = {-1, -1, -1, -1};
    const tt_peer_info_t *info = &self->peers->infos[1];
    if (self->rank == 1) {
        TT_EXPECT_PEER(self, listen(self->peers->admission.listener, 1) == 0);
    }
    step_blindly(self, 1);
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    if (self->rank == 0) {
        tt_inet_t where;
        (void)tt_peer_address(info, info->port, &where);
        fill_queue(self, &where.any, fds);
        judge_by_the_door(self, &wire);
    }
    step_blindly(self, 2); /* rank 1 has computed until now */
    go_away(fds, FEW);
    uint32_t word = 6;
    if (self->rank == 0) {
        TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &word, sizeof word));
    } else {
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &word, sizeof word) && word == 6);
    }
    tt_peer_step(self, 3);
    tt_wire_close(&wire);
}

static void a_full_queue_is_no_death(void **state)
{
    (void)state;
    tt_run_two_peers(be_crowded_out);
}

/* ---- a thousand, of four kinds ---- */

static tt_strangers_t strangers; /* at rank 0's port */

/* They crowd the port before rank 0 looks at it, and go on; then messages on a wire that is there,
 * and on new ones. Rank 0 tells how long it took. */
static void talk_among_strangers(tt_peer_t *self)
{
    enum { MESSAGES = 50, WIRES = 5, GUARD_MS = 10000 };
    const tt_peer_info_t *info = &self->peers->infos[0];
    struct sockaddr_in *where = (struct sockaddr_in *)&strangers.where;
    tt_wire_t wires[1 + WIRES];
    const int other = 1 - self->rank;
    wires[0] = tt_peer_open(self, other, CHANNEL);
    TT_EXPECT_PEER(self, exchange(self, &wires[0], 1));
    if (self->rank == 1) {
        *where = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(info->port)};
        memcpy(&where->sin_addr, info->address, sizeof where->sin_addr);
        strangers.bytes = sizeof *where;
        tt_strangers_start(&strangers);
    }
    step_blindly(self, 1);
    const int64_t start_ns = tt_clock_ns();
    for (uint32_t i = 0; i < MESSAGES; i++) {
        TT_EXPECT_PEER(self, exchange(self, &wires[0], i));
    }
    for (uint32_t i = 1; i <= WIRES; i++) {
        wires[i] = tt_peer_open(self, other, CHANNEL + i);
        TT_EXPECT_PEER(self, exchange(self, &wires[i], i));
    }
    const int64_t took_ms = (tt_clock_ns() - start_ns) / TT_NS_PER_MS;
    tt_peer_step(self, 2);
    if (self->rank == 1) {
        tt_strangers_stop(&strangers);
    } else {
        print_message("%d strangers, %s: %d messages and %d new wires in %lld ms\n", TT_STRANGERS,
                      tt_strangers_name(strangers.kind), MESSAGES, WIRES, (long long)took_ms);
        TT_EXPECT_PEER(self, took_ms < GUARD_MS);
    }
    for (int i = 0; i <= WIRES; i++) {
        tt_wire_close(&wires[i]);
    }
}

static void ranks_talk_among_strangers(void **state)
{
    (void)state;
    for (int kind = 0; kind < TT_STRANGERS_KINDS && tt_strangers_may_come(); kind++) {
        strangers = (tt_strangers_t){.kind = (tt_strangers_kind_t)kind, .type = SOCK_STREAM};
        tt_run_two_peers(talk_among_strangers);
    }
}

/* ---- one thing at a time ---- */

static void knock_often(tt_peer_t *self, int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        fds[i] = knock(self->peers, 0);
        TT_EXPECT_PEER(self, fds[i] >= 0);
    }
}

enum { OVERSUBSCRIBED = 2 * (TT_HALF_OPEN_MAX + 2 * TT_STREAMS_MAX) };

/* Rank 1 begins to connect, and strangers follow before rank 0 looks: it has proved the key before
 * they can push it out. Then rank 0 hangs up on it; it tries again. */
static void be_cut_short(tt_peer_t *self)
{
    static int fds[OVERSUBSCRIBED];
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    tt_tcp_wire_t *inside = wire.state;
    uint32_t word = 6;
    if (self->rank == 1) {
        UNTIL(self, &wire, inside->out[0] != NULL && tt_channel_is_connected(inside->out[0]));
        knock_often(self, fds, OVERSUBSCRIBED);
        step_blindly(self, 1);
        step_blindly(self, 2);
        TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &word, 4));
        TT_EXPECT_PEER(self, inside->retries > 0);
    } else {
        step_blindly(self, 1);
        UNTIL(self, NULL, self->peers->admission.strangers >= OVERSUBSCRIBED / 2);
        TT_EXPECT_PEER(self, self->peers->admission.proved == 1);
        tt_caller_t *at;
        TAILQ_FOREACH(at, &self->peers->admission.callers, link)
        {
            if (at->has_proof) {
                shutdown(tt_channel_fd(at->channel), SHUT_RDWR);
            }
        }
        step_blindly(self, 2);
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &word, 4) && word == 6);
    }
    tt_peer_step(self, 3);
    if (self->rank == 1) {
        go_away(fds, OVERSUBSCRIBED);
    }
    tt_wire_close(&wire);
}

static void a_handshake_that_is_cut_short_is_tried_again(void **state)
{
    (void)state;
    tt_run_two_peers(be_cut_short);
}

/* Rank 0 has answered rank 1, which may send its word now and then knows no more of it: neither
 * strangers nor the time cut it short. */
static void be_kept(tt_peer_t *self)
{
    static int fds[OVERSUBSCRIBED];
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    tt_tcp_wire_t *inside = wire.state;
    uint32_t word = 6;
    if (self->rank == 1) {
        UNTIL(self, &wire, inside->out[0] != NULL && tt_channel_is_connected(inside->out[0]));
        step_blindly(self, 1);
        knock_often(self, fds, OVERSUBSCRIBED);
        step_blindly(self, 2);
        step_blindly(self, 3);
        TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &word, 4));
        TT_EXPECT_PEER(self, inside->retries == 0);
    } else {
        UNTIL(self, NULL, self->peers->admission.proved == 1);
        TT_EXPECT_PEER(self, self->peers->admission.proved == 1);
        if (!TAILQ_EMPTY(&self->peers->admission.callers)) {
            tt_channel_set_deadline(TAILQ_FIRST(&self->peers->admission.callers)->channel,
                                    tt_clock_ns());
        }
        step_blindly(self, 1);
        step_blindly(self, 2);
        UNTIL(self, NULL, self->peers->admission.strangers >= OVERSUBSCRIBED / 2);
        step_blindly(self, 3);
        TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &word, 4) && word == 6);
        TT_EXPECT_PEER(self, self->peers->admission.proved == 0);
    }
    tt_peer_step(self, 4);
    if (self->rank == 1) {
        go_away(fds, OVERSUBSCRIBED);
    }
    tt_wire_close(&wire);
}

static void who_has_shown_the_key_is_not_cut_short(void **state)
{
    (void)state;
    tt_run_two_peers(be_kept);
}

/* A proof can be recorded and sent again: beyond as many as ranks can have, it keeps nobody. */
static void be_one_too_many(tt_peer_t *self)
{
    const int all = TT_HALF_OPEN_MAX + self->size * TT_STREAMS_MAX;
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    tt_tcp_wire_t *inside = wire.state;
    if (self->rank == 1) {
        UNTIL(self, &wire, inside->out[0] != NULL && tt_channel_is_connected(inside->out[0]));
    } else {
        self->peers->admission.count += all; /* so many are there */
        self->peers->admission.proved += all;
        const tt_caller_t *last = NULL;
        UNTIL(self, NULL, last != NULL && tt_channel_has_proof(last->channel))
        {
            last = TAILQ_LAST(&self->peers->admission.callers, tt_callers);
        }
        TT_EXPECT_PEER(self, last != NULL && !last->has_proof);
        TT_EXPECT_PEER(self, self->peers->admission.proved == all);
        self->peers->admission.count -= all;
        self->peers->admission.proved -= all;
    }
    tt_peer_step(self, 1);
    tt_wire_close(&wire);
}

static void proofs_that_are_sent_again_keep_few(void **state)
{
    (void)state;
    tt_run_two_peers(be_one_too_many);
}

static void talk_across_epochs(tt_peer_t *self)
{
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    tutti_status_t status = TUTTI_OK;
    UNTIL(self, NULL, self->rank == 0 || status != TUTTI_OK)
    {
        size_t done;
        status = wire.ops->send(wire.state, &(tt_span_t){"?", 1}, 1, &done);
        TT_EXPECT_PEER(self, done == 0);
    }
    if (self->rank == 1) {
        TT_EXPECT_PEER(self, status == TUTTI_ERR_AUTH);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "rank 0: ") != NULL);
        TT_EXPECT_PEER(self, strstr(tutti_last_error(), "is in another epoch") != NULL);
    }
    UNTIL(self, NULL, self->rank == 1 || self->peers->admission.strangers > 0);
    TT_EXPECT_PEER(self, self->peers->admission.strangers == (self->rank == 0 ? 1 : 0));
    tt_peer_step(self, 1);
    tt_wire_close(&wire);
}

static void another_epoch_does_not_get_in(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 2, .body = talk_across_epochs, .epochs = {8, 7}};
    tt_run_peers(&team);
}

/* A proven rank whose first message is wrong in one field. */
static void say_wrong_things(tt_peer_t *self)
{
    tt_wire_t wire;
    for (int field = 0; field < 7; field++) {
        if (self->rank == 1) {
            tt_peer_info_t *first = &self->peers->infos[0];
            const uint64_t world = first->token;
            const int rank = self->peers->rank, streams = self->peers->streams;
            const uint32_t epoch = self->peers->epoch;
            first->token ^= field == 0;
            self->peers->rank = field == 1 ? 2 : field == 2 ? -1 : rank;
            self->peers->epoch = field == 3 ? epoch + 1 : epoch;
            self->peers->streams = field == 4 ? 0 : field == 5 ? TT_STREAMS_MAX + 1 : streams;
            wire = tt_peer_open(self, 0, CHANNEL);
            tt_tcp_wire_t *inside = wire.state;
            const bool is_wrong = field < 6;
            UNTIL(self, &wire, is_wrong ? inside->is_out_cut : inside->opened[0] == 48);
            TT_EXPECT_PEER(self, inside->is_out_cut == is_wrong);
            first->token = world;
            self->peers->rank = rank;
            self->peers->epoch = epoch;
            self->peers->streams = streams;
        }
        UNTIL(self, NULL,
              self->rank == 1 || self->peers->admission.strangers > field ||
                  self->peers->parked_count > 0);
        tt_peer_step(self, field + 1);
        if (self->rank == 1) {
            tt_wire_close(&wire);
        }
    }
    TT_EXPECT_PEER(self, self->peers->admission.strangers == (self->rank == 0 ? 6 : 0));
    TT_EXPECT_PEER(self, self->peers->parked_count == (self->rank == 0 ? 1 : 0));
}

static void a_wrong_first_message_is_refused(void **state)
{
    (void)state;
    tt_run_two_peers(say_wrong_things);
}

/* The second connection is begun when the first one has been taken: of two at the same time, either
 * may be the first. */
static void connect_twice(tt_peer_t *self)
{
    tt_wire_t first, second;
    first = tt_peer_open(self, 1 - self->rank, CHANNEL);
    if (self->rank == 0) {
        second = tt_peer_open(self, 1, CHANNEL);
        TT_EXPECT_PEER(self, tt_peer_send(self, &first, "one", 4));
        tt_peer_step(self, 1);
        const tt_tcp_wire_t *inside = second.state;
        UNTIL(self, &second, inside->is_out_cut);
        TT_EXPECT_PEER(self, inside->is_out_cut);
        tt_wire_close(&second);
    } else {
        char word[4];
        TT_EXPECT_PEER(self, tt_peer_recv(self, &first, word, 4) && strcmp(word, "one") == 0);
        tt_peer_step(self, 1);
        UNTIL(self, NULL, self->peers->admission.strangers > 0);
        TT_EXPECT_PEER(self,
                       self->peers->admission.strangers == 1 && self->peers->parked_count == 0);
    }
    tt_peer_step(self, 2);
    tt_wire_close(&first);
}

static void who_comes_twice_is_refused(void **state)
{
    (void)state;
    tt_run_two_peers(connect_twice);
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
        cmocka_unit_test(a_flood_of_strangers_harms_nobody),
        cmocka_unit_test(a_rank_that_computes_is_there_for_all_who_connect),
        cmocka_unit_test(a_rank_without_descriptors_does_not_spin),
        cmocka_unit_test(a_full_queue_is_no_death),
        cmocka_unit_test(ranks_talk_among_strangers),
        cmocka_unit_test(a_handshake_that_is_cut_short_is_tried_again),
        cmocka_unit_test(who_has_shown_the_key_is_not_cut_short),
        cmocka_unit_test(proofs_that_are_sent_again_keep_few),
        cmocka_unit_test(another_epoch_does_not_get_in),
        cmocka_unit_test(a_wrong_first_message_is_refused),
        cmocka_unit_test(who_comes_twice_is_refused),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    tt_log_set_sink(swallow, NULL);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
