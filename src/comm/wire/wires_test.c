/* Every wire of wires.def: two ranks (or one, to itself) stream bytes both ways at
 * once, in spans and into buffers of all sizes, through a table that is walked by name, so that a
 * new wire fails here until it is opened here. */
#include "core/base/testing.h"

#include <stdlib.h>

#include "comm/wire/peers_team_test.h"
#include "comm/wire/shm_wire.h"
#include "core/base/rng.h"

enum { STREAM_BYTES = 3000000, CHANNEL = 5, BOX_BYTES = 16 };

typedef struct {
    const char *name;
    int size;
    const char *hosts[2]; /* NULL: by tcp */
    const char *streams;
} way_t;

static const way_t WAYS[] = {
    {"shm", 1, {"a"}, "1"},
    {"shm", 2, {"a", "a"}, "1"},
    {"tcp", 2, {NULL, NULL}, "1"},
    {"tcp", 2, {NULL, NULL}, "3"},
};

/* Both ranks allocate in the same way, so that the boxes lie at the same place of both heaps. */
static tutti_status_t open_shm(tt_peer_t *self, void **box, tt_wire_t *out)
{
    const int other = self->size - 1 - self->rank;
    tt_node_peers_t *node_peers = tt_peers_node_peers(self->peers);
    *box = tt_device_alloc(tt_node_peers_heap(node_peers), BOX_BYTES, "outbox");
    TT_TRY_ALLOC(*box);
    memset(*box, 0, BOX_BYTES);
    const tt_heap_address_t place =
        tt_heap_address(tt_node_peers_heap(node_peers), *box, BOX_BYTES);
    tt_peer_step(self, 1);
    const tt_shm_pair_t pair = {.node_peers = node_peers,
                                .peer = other,
                                .outbox = *box,
                                .inbox = tt_node_peers_at(node_peers, other, place, BOX_BYTES)};
    return tt_wire_open_shm(&pair, out);
}

static tutti_status_t open_wire(tt_peer_t *self, const way_t *way, void **box, tt_wire_t *out)
{
    *box = NULL;
    if (strcmp(way->name, "shm") == 0) {
        return open_shm(self, box, out);
    }
    tt_peer_step(self, 1);
    return tt_peers_open_wire(self->peers, 1 - self->rank, CHANNEL, out);
}

static void close_wire(tt_peer_t *self, void *box, tt_wire_t *wire)
{
    tt_wire_close(wire);
    if (box != NULL) {
        tt_device_free(tt_node_peers_heap(tt_peers_node_peers(self->peers)), box, BOX_BYTES);
    }
}

static unsigned char byte_at(uint64_t index, int from)
{
    return (unsigned char)(index * 7 + index / 251 + (uint64_t)from * 100);
}

/* Mostly small, now and then large. */
static size_t some_bytes(uint64_t *turn)
{
    const tt_rng_t rng = tt_rng_stream(9, 0, 0, 0, 0);
    const uint32_t number = tt_rng_u32(rng, (*turn)++);
    return number % 4 == 0 ? number % 300000 : number % 60;
}

static size_t send_some(tt_peer_t *self, tt_wire_t *wire, const unsigned char *data, size_t sent,
                        uint64_t *turn)
{
    tt_span_t spans[TT_WIRE_SPANS_MAX];
    const int count = 1 + (int)(*turn % TT_WIRE_SPANS_MAX);
    size_t offered = sent, done = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = some_bytes(turn);
        bytes = bytes < STREAM_BYTES - offered ? bytes : STREAM_BYTES - offered;
        spans[i] = (tt_span_t){data + offered, i + 1 == count ? STREAM_BYTES - offered : bytes};
        offered += spans[i].bytes;
    }
    TT_EXPECT_PEER(self, wire->ops->send(wire->state, spans, count, &done) == TUTTI_OK);
    TT_EXPECT_PEER(self, done <= STREAM_BYTES - sent);
    return done;
}

static size_t recv_some(tt_peer_t *self, tt_wire_t *wire, unsigned char *data, size_t got, int from,
                        uint64_t *turn)
{
    size_t want = 1 + some_bytes(turn), done = 0;
    want = want < STREAM_BYTES - got ? want : STREAM_BYTES - got;
    TT_EXPECT_PEER(self, wire->ops->recv(wire->state, data, want, &done) == TUTTI_OK);
    TT_EXPECT_PEER(self, done <= want);
    for (size_t i = 0; i < done; i++) {
        TT_EXPECT_PEER(self, data[i] == byte_at(got + i, from));
    }
    return done;
}

static void stream_both_ways(tt_peer_t *self, tt_wire_t *wire, unsigned char *out,
                             unsigned char *in)
{
    const int from = self->size - 1 - self->rank;
    const tt_deadline_t deadline = tt_deadline_in_ms(30000);
    uint64_t turn = (uint64_t)self->rank * 1000;
    tt_idle_t idle = {0};
    size_t sent = 0, got = 0;
    while ((sent < STREAM_BYTES || got < STREAM_BYTES) && self->failure[0] == 0) {
        const size_t n = sent < STREAM_BYTES ? send_some(self, wire, out, sent, &turn) : 0;
        const size_t m = got < STREAM_BYTES ? recv_some(self, wire, in, got, from, &turn) : 0;
        sent += n;
        got += m;
        TT_EXPECT_PEER(self, !tt_deadline_is_past(deadline));
        if (n + m == 0) {
            tt_peers_progress(self->peers);
            tt_peers_idle(self->peers, &idle, deadline);
        }
    }
    tt_peers_idle_end(self->peers, &idle);
}

/* What was sent before its sender closed is still given; then nothing more comes. */
static void send_and_close(tt_peer_t *self, tt_wire_t *wire)
{
    char word[6] = "word", got[6] = "";
    if (self->rank == 0) {
        TT_EXPECT_PEER(self, tt_peer_send(self, wire, word, sizeof word));
        tt_wire_close(wire);
    } else {
        size_t done = 1;
        TT_EXPECT_PEER(self, tt_peer_recv(self, wire, got, sizeof got));
        TT_EXPECT_PEER(self, strcmp(got, word) == 0);
        TT_EXPECT_PEER(self, wire->ops->recv(wire->state, got, 1, &done) == TUTTI_OK && done == 0);
    }
}

static void use_wire(tt_peer_t *self)
{
    const way_t *way = self->team->user;
    tt_wire_t wire = {0};
    void *box;
    unsigned char *out = tt_alloc_raw(STREAM_BYTES, "test"), *in = tt_alloc_raw(300001, "test");
    for (size_t i = 0; i < STREAM_BYTES; i++) {
        out[i] = byte_at(i, self->rank);
    }
    TT_EXPECT_PEER(self, open_wire(self, way, &box, &wire) == TUTTI_OK);
    size_t done = 1;
    TT_EXPECT_PEER(self, wire.ops->recv(wire.state, in, 9, &done) == TUTTI_OK && done == 0);
    tt_peer_step(self, 2);
    stream_both_ways(self, &wire, out, in);
    if (self->size > 1) {
        send_and_close(self, &wire);
        tt_peer_step(self, 3);
    }
    close_wire(self, box, &wire);
    tt_free(out);
    tt_free(in);
}

static void every_wire_keeps_order(void **state)
{
    (void)state;
    for (int i = 0; tt_wires[i] != NULL; i++) {
        int tried = 0;
        for (size_t way = 0; way < sizeof WAYS / sizeof *WAYS; way++) {
            if (strcmp(WAYS[way].name, tt_wires[i]->name) == 0) {
                setenv("TUTTI_TCP_STREAMS", WAYS[way].streams, 1);
                way_t copy = WAYS[way];
                tt_peers_team_t team = {.size = copy.size,
                                        .body = use_wire,
                                        .hosts = {copy.hosts[0], copy.hosts[1]},
                                        .user = &copy};
                tt_run_peers(&team);
                tried++;
            }
        }
        if (tried == 0) {
            fail_msg("no test opens the wire %s", tt_wires[i]->name);
        }
    }
}

/* Rank 1 says that its ring is where none can be: nothing is touched there. */
static void announce_wrongly(tt_peer_t *self)
{
    tt_device_t *heap = tt_node_peers_heap(tt_peers_node_peers(self->peers));
    tt_wire_t wire = {0};
    void *box;
    TT_EXPECT_PEER(self, open_shm(self, &box, &wire) == TUTTI_OK);
    int fd;
    size_t segment_bytes;
    tt_heap_segment(heap, 0, &fd, &segment_bytes);
    const tt_heap_address_t wrong[] = {
        tt_heap_address(heap, box, BOX_BYTES) + 1,          /* not aligned */
        ((tt_heap_address_t)1 << 48) + segment_bytes - 128, /* leaves its segment */
        (tt_heap_address_t)(TT_HEAP_SEGMENTS_MAX + 1) << 48 /* of a segment that no heap has */
    };
    for (int i = 0; i < 3; i++) {
        if (self->rank == 1) {
            atomic_store((_Atomic tt_heap_address_t *)box, wrong[i]);
        }
        tt_peer_step(self, 2 + 2 * i);
        if (self->rank == 0) {
            char byte;
            size_t done;
            TT_EXPECT_PEER(self, wire.ops->recv(wire.state, &byte, 1, &done) == TUTTI_ERR_FORMAT);
            TT_EXPECT_PEER(self, strstr(tutti_last_error(), "rank 1 shows an address") != NULL);
        }
        tt_peer_step(self, 3 + 2 * i);
    }
    close_wire(self, box, &wire);
}

static void a_wrong_address_is_an_error_of_its_rank(void **state)
{
    (void)state;
    tt_peers_team_t team = {.size = 2, .body = announce_wrongly, .hosts = {"a", "a"}};
    tt_run_peers(&team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_wire_keeps_order),
                                       cmocka_unit_test(a_wrong_address_is_an_error_of_its_rank)};
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
