/* Connections that end: how long the peer may still say why. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "comm/wire/peers_impl.h"
#include "comm/wire/peers_team_test.h"

enum { CHANNEL = 77 };

/* Rank 1 ends the connection that it sends on: why may still come, for half a second. */
static void end_without_a_word(tt_peer_t *self)
{
    enum { GRACE_MS = 490, GUARD_MS = 5000 };
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    const tt_tcp_wire_t *own = wire.state;
    char byte = 1;
    size_t done;
    TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &byte, 1));
    TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &byte, 1));
    tt_peer_step(self, 1);
    if (self->rank == 1) {
        (void)shutdown(tt_channel_fd(own->out[0]), SHUT_WR);
    }
    const tt_deadline_t deadline = tt_deadline_in_ms(GUARD_MS);
    while (self->rank == 0 && !own->is_in_cut && !tt_deadline_is_past(deadline)) {
        (void)wire.ops->recv(wire.state, &byte, 1, &done);
    }
    tutti_status_t status = TUTTI_OK;
    while (self->rank == 0 && status == TUTTI_OK && !tt_deadline_is_past(deadline)) {
        status = wire.ops->probe(wire.state);
        TT_EXPECT_PEER(self, status == TUTTI_OK ||
                                 tt_clock_ns() - own->broken_ns > GRACE_MS * TT_NS_PER_MS);
    }
    TT_EXPECT_PEER(self, self->rank == 1 || status == TUTTI_ERR_PEER);
    tt_peer_step(self, 2);
    tt_wire_close(&wire);
}

static void a_word_has_half_a_second_when_a_connection_has_ended(void **state)
{
    (void)state;
    tt_run_two_peers(end_without_a_word);
}

/* Rank 1 says why it leaves, and goes. */
static void say_why_and_go(tt_peer_t *self)
{
    enum { REASON = 4711, GUARD_MS = 20000 };
    tt_wire_t wire = tt_peer_open(self, 1 - self->rank, CHANNEL);
    char byte = 1;
    TT_EXPECT_PEER(self, tt_peer_send(self, &wire, &byte, 1));
    TT_EXPECT_PEER(self, tt_peer_recv(self, &wire, &byte, 1));
    if (self->rank == 1) {
        wire.ops->goaway(wire.state, REASON);
    }
    const tt_deadline_t deadline = tt_deadline_in_ms(GUARD_MS);
    while (self->rank == 0 && tt_wire_peer_reason(&wire) == 0 && !tt_deadline_is_past(deadline)) {
    }
    TT_EXPECT_PEER(self, wire.ops->probe(wire.state) == TUTTI_OK);
    tt_peer_step(self, 1);
    if (self->rank == 1) {
        tt_wire_close(&wire);
    }
    tutti_status_t status = TUTTI_OK;
    while (self->rank == 0 && status == TUTTI_OK && !tt_deadline_is_past(deadline)) {
        TT_EXPECT_PEER(self, tt_wire_peer_reason(&wire) == REASON);
        status = wire.ops->probe(wire.state);
    }
    TT_EXPECT_PEER(self, self->rank == 1 || status == TUTTI_ERR_PEER);
    tt_peer_step(self, 2);
    tt_wire_close(&wire);
}

static void who_has_said_why_and_dies_is_noticed(void **state)
{
    (void)state;
    tt_run_two_peers(say_why_and_go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_has_half_a_second_when_a_connection_has_ended),
        cmocka_unit_test(who_has_said_why_and_dies_is_noticed),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
