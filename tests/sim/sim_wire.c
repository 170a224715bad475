/* The wires of the simulated network. Only the rank that has the baton is here, so nothing locks.
 */
#include "sim.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fail.h"

enum { WINDOW_BYTES = 64 << 10, SEGMENTS = 64, SILENT_NS_MS = 5000, GRACE_MS = 30 };

/* Bytes up to `end` of the stream have arrived from then on. */
typedef struct {
    uint64_t end;
    int64_t at_ns;
} segment_t;

/* One way, from one rank to another. */
struct sim_connection {
    sim_connection_t *next;
    int from, to;
    uint64_t channel;
    unsigned char *bytes; /* [WINDOW_BYTES], from the first ones on */
    uint64_t written, read;
    segment_t segments[SEGMENTS];
    unsigned first, last; /* segments [first, last) are on their way or have arrived */
    int64_t arrive_ns;    /* of what was sent last */
    uint64_t word;        /* the receiver's goaway */
    int64_t word_ns;
    bool is_writer_gone, is_reader_gone;
    int64_t gone_ns, broken_ns, silent_ns; /* 0: not */
};

typedef struct {
    sim_t *sim;
    int rank, peer;
    sim_connection_t *out, *in;
} sim_wire_t;

static sim_connection_t *find(sim_t *sim, int from, int to, uint64_t channel)
{
    const uint64_t hash =
        (channel * SIM_RANKS_MAX * SIM_RANKS_MAX + (uint64_t)(from * SIM_RANKS_MAX + to)) *
        UINT64_C(0x9e3779b97f4a7c15);
    sim_connection_t **bucket = &sim->connections[(hash >> 32) % SIM_BUCKETS];
    for (sim_connection_t *at = *bucket; at != NULL; at = at->next) {
        if (at->from == from && at->to == to && at->channel == channel) {
            return at;
        }
    }
    sim_connection_t *made = tt_alloc(sizeof *made, "simulated connection");
    TT_ASSERT(made != NULL);
    made->from = from;
    made->to = to;
    made->channel = channel;
    made->next = *bucket;
    *bucket = made;
    return made;
}

void sim_close_connections(sim_t *sim)
{
    for (int i = 0; i < SIM_BUCKETS; i++) {
        while (sim->connections[i] != NULL) {
            sim_connection_t *next = sim->connections[i]->next;
            tt_free(sim->connections[i]->bytes);
            tt_free(sim->connections[i]);
            sim->connections[i] = next;
        }
    }
}

static void put_bytes(sim_connection_t *c, const unsigned char *data, size_t count)
{
    if (c->bytes == NULL) {
        c->bytes = tt_alloc(WINDOW_BYTES, "simulated connection");
        TT_ASSERT(c->bytes != NULL);
    }
    for (size_t k = 0; k < count; k++) {
        c->bytes[(c->written + k) % WINDOW_BYTES] = data[k];
    }
    c->written += count;
}

/* What the fault does to a connection takes effect when it is next used. */
static void suffer(sim_t *sim, sim_connection_t *c)
{
    const bool is_struck = sim->now_ns >= sim->fault_ns;
    const bool is_of_pair = (c->from == sim->victim && c->to == sim->other) ||
                            (c->to == sim->victim && c->from == sim->other);
    if (!is_struck) {
        return;
    }
    if ((sim->fault == SIM_RESET && is_of_pair) || sim_has_crashed(sim, c->from) ||
        sim_has_crashed(sim, c->to)) {
        c->broken_ns = c->broken_ns == 0 ? sim->fault_ns : c->broken_ns;
    }
    if ((sim->fault == SIM_HALF_OPEN && is_of_pair) || sim_is_lost(sim, c->from, c->to)) {
        c->silent_ns = c->silent_ns == 0 ? sim->fault_ns : c->silent_ns;
    }
}

static int64_t delay_ns(sim_t *sim)
{
    const uint64_t slow = sim->fault == SIM_SLOW && sim_draw(sim, 4) == 0 ? 20000000 : 0;
    return 500 + (int64_t)sim_draw(sim, 30000 + slow);
}

static size_t odd_length(sim_t *sim, size_t bytes)
{
    return bytes > 0 && sim_draw(sim, 3) == 0 ? 1 + (size_t)sim_draw(sim, bytes) : bytes;
}

static tutti_status_t send_sim(void *state, const tt_span_t *spans, int span_count, size_t *done)
{
    sim_wire_t *wire = state;
    sim_connection_t *c = wire->out;
    sim_t *sim = wire->sim;
    *done = 0;
    suffer(sim, c);
    if (c->broken_ns != 0 || c->is_reader_gone || c->last - c->first == SEGMENTS) {
        return TUTTI_OK;
    }
    size_t room = odd_length(sim, WINDOW_BYTES - (size_t)(c->written - c->read));
    for (int i = 0; i < span_count && room > 0; i++) {
        const size_t part = spans[i].bytes < room ? spans[i].bytes : room;
        put_bytes(c, spans[i].data, part);
        room -= part;
        *done += part;
    }
    if (*done > 0) {
        sim->ranks[wire->rank].naps = 0;
        const int64_t at_ns = sim->now_ns + delay_ns(sim);
        c->arrive_ns = at_ns > c->arrive_ns ? at_ns : c->arrive_ns;
        c->segments[c->last++ % SEGMENTS] = (segment_t){c->written, c->arrive_ns};
    }
    return TUTTI_OK;
}

/* How far the stream has arrived. What breaks or falls silent arrives no more. */
static uint64_t arrived(const sim_t *sim, const sim_connection_t *c)
{
    uint64_t end = c->read;
    for (unsigned i = c->first; i != c->last; i++) {
        const segment_t *segment = &c->segments[i % SEGMENTS];
        const bool is_in_time = (c->broken_ns == 0 || segment->at_ns < c->broken_ns) &&
                                (c->silent_ns == 0 || segment->at_ns < c->silent_ns);
        if (segment->at_ns <= sim->now_ns && is_in_time) {
            end = segment->end;
        }
    }
    return end;
}

static tutti_status_t recv_sim(void *state, void *data, size_t bytes, size_t *done)
{
    sim_wire_t *wire = state;
    sim_connection_t *c = wire->in;
    suffer(wire->sim, c);
    const uint64_t there = arrived(wire->sim, c) - c->read;
    *done = there < bytes ? (size_t)there : bytes;
    if (*done > 0) {
        wire->sim->ranks[wire->rank].naps = 0;
        *done = odd_length(wire->sim, *done);
    }
    for (size_t k = 0; k < *done; k++) {
        ((unsigned char *)data)[k] = c->bytes[(c->read + k) % WINDOW_BYTES];
    }
    c->read += *done;
    while (c->first != c->last && c->segments[c->first % SEGMENTS].end <= c->read) {
        c->first++;
    }
    return TUTTI_OK;
}

static void goaway_sim(void *state, uint64_t reason)
{
    sim_wire_t *wire = state;
    suffer(wire->sim, wire->in);
    if (wire->in->word == 0) {
        wire->in->word = reason;
        wire->in->word_ns = wire->sim->now_ns + delay_ns(wire->sim);
    }
}

static uint64_t peer_reason_sim(void *state)
{
    sim_wire_t *wire = state;
    const sim_connection_t *c = wire->out;
    suffer(wire->sim, wire->out);
    const bool is_lost = (c->broken_ns != 0 && c->word_ns >= c->broken_ns) ||
                         (c->silent_ns != 0 && c->word_ns >= c->silent_ns);
    return c->word != 0 && c->word_ns <= wire->sim->now_ns && !is_lost ? c->word : 0;
}

static bool has_ended_sim(void *state)
{
    sim_wire_t *wire = state;
    const sim_connection_t *c = wire->in;
    suffer(wire->sim, wire->in);
    const int64_t end_ns = c->broken_ns != 0 ? c->broken_ns : c->is_writer_gone ? c->gone_ns : 0;
    const bool is_all = c->broken_ns != 0 || c->written == c->read;
    return end_ns != 0 && arrived(wire->sim, c) == c->read && is_all &&
           wire->sim->now_ns > end_ns + GRACE_MS * TT_NS_PER_MS;
}

static tutti_status_t probe_sim(void *state)
{
    sim_wire_t *wire = state;
    const sim_connection_t *c = wire->out;
    suffer(wire->sim, wire->out);
    if (c->silent_ns != 0 && c->written != c->read &&
        wire->sim->now_ns - c->silent_ns > SILENT_NS_MS * TT_NS_PER_MS) {
        return TT_FAIL(TUTTI_ERR_PEER, "its host has not answered for 5 s");
    }
    return has_ended_sim(wire) ? TT_FAIL(TUTTI_ERR_PEER, "its connections are closed") : TUTTI_OK;
}

static void close_sim(void *state)
{
    sim_wire_t *wire = state;
    wire->out->is_writer_gone = wire->in->is_reader_gone = true;
    wire->out->gone_ns =
        wire->out->arrive_ns > wire->sim->now_ns ? wire->out->arrive_ns : wire->sim->now_ns;
    tt_free(wire);
}

static const tt_wire_ops_t sim_wire_ops = {
    .name = "simulated",
    .about = "bytes that are late, lost and cut into pieces as the seed says",
    .send = send_sim,
    .recv = recv_sim,
    .goaway = goaway_sim,
    .peer_reason = peer_reason_sim,
    .has_ended = has_ended_sim,
    .probe = probe_sim,
    .close = close_sim,
};

tutti_status_t sim_open_wire(void *user, int peer, uint64_t channel, tt_wire_t *out)
{
    const sim_rank_t *self = user;
    sim_wire_t *wire = tt_alloc(sizeof *wire, "simulated wire");
    TT_TRY_ALLOC(wire);
    *wire = (sim_wire_t){.sim = self->sim,
                         .rank = self->rank,
                         .peer = peer,
                         .out = find(self->sim, self->rank, peer, channel),
                         .in = find(self->sim, peer, self->rank, channel)};
    *out = (tt_wire_t){&sim_wire_ops, wire};
    return TUTTI_OK;
}
