/* The tcp wire: channels (net/channel.h) that this side makes to send, and channels that the peer
 * made, from which it receives. Both come into being when they are first needed.
 *
 *     send   connect, prove the key, say what the connection is for, then the bytes
 *     recv   take the connection when it has come in, then the bytes
 *
 * Several streams share a wire's bytes by turns of TT_STRIPE_BYTES, the same at both ends, so that
 * order needs no numbers.
 *
 * Cost: a system call for each record of up to 512 KiB on each side, no copy beyond the kernel's.
 */
#include <errno.h>

#include "comm/net/socket.h"
#include "comm/wire/peers_impl.h"
#include "core/base/alloc.h"
#include "core/base/log.h"

enum {
    ENTRY_GRACE_MS = 30,
    WORD_GRACE_MS = 500,
    RETRY_MS = 50,
    RETRIES_MAX = 200,
    REDIAL_MS = 300, /* twice as long each time, thrice */
    REDIAL_DOUBLINGS = 3,
    KNOCK_MS = 1000, /* without an answer: then its host is asked */
    UNHEARD_MS = 5000
};

static int stream_at(uint64_t bytes, int streams)
{
    return (int)(bytes / TT_STRIPE_BYTES % (uint64_t)streams);
}

static size_t left_of_stripe(uint64_t bytes, int streams)
{
    return streams == 1 ? SIZE_MAX : TT_STRIPE_BYTES - (size_t)(bytes % TT_STRIPE_BYTES);
}

/* A connection broke. */
static void cut(tt_tcp_wire_t *wire, bool *which, const tt_channel_t *channel)
{
    *which = true;
    wire->is_silent = wire->is_silent || (channel != NULL && tt_channel_is_silent(channel));
    wire->broken_ns = wire->broken_ns == 0 ? tt_clock_ns() : wire->broken_ns;
}

/* ---- sending --------------------------------------------------------------------------------- */

static tutti_status_t connect_out(tt_tcp_wire_t *wire, int stream)
{
    tt_inet_t address;
    const tt_peer_info_t *info = &wire->peers->infos[wire->rank];
    const socklen_t bytes = tt_peer_address(info, info->port, &address);
    TT_TRY(tt_channel_connect(&address.any, bytes, wire->peers->credentials, &wire->out[stream]));
    /* the peer answers when it waits next, whenever that is; the call's deadline is enough */
    tt_channel_set_deadline(wire->out[stream], TT_NEVER);
    wire->dialed_ns[stream] = tt_clock_ns();
    wire->unheard_ns = wire->unheard_ns == 0 ? wire->dialed_ns[stream] : wire->unheard_ns;
    return TUTTI_OK;
}

static void stop_knocking(tt_tcp_wire_t *wire)
{
    if (wire->knock >= 0) {
        tt_socket_close(wire->knock);
        wire->knock = -1;
    }
}

static void note_answer(tt_tcp_wire_t *wire)
{
    stop_knocking(wire);
    wire->unheard_ns = wire->knocked_ns = 0;
}

/* Where strangers fill the queue of the peer's listener, the kernel drops what connects, and tries
 * again after 1, 3, 7 … s. Nothing is lost with a connection that was not accepted. */
static void redial_unheard(tt_tcp_wire_t *wire, int stream)
{
    const int doublings = wire->redials < REDIAL_DOUBLINGS ? wire->redials : REDIAL_DOUBLINGS;
    const int64_t waited_ns = tt_clock_ns() - wire->dialed_ns[stream];
    if (waited_ns < (REDIAL_MS << doublings) * TT_NS_PER_MS) {
        return;
    }
    if (!tt_channel_is_unheard(wire->out[stream])) {
        note_answer(wire);
        return;
    }
    tt_channel_close(wire->out[stream]);
    wire->out[stream] = NULL;
    wire->redials++;
}

/* A listener whose queue is full answers as little as a host that is gone. But a host that is there
 * refuses to connect to the door of its rank. What this process lacks says nothing about it. */
static bool is_host_there(tt_tcp_wire_t *wire)
{
    tt_inet_t door;
    const tt_peer_info_t *info = &wire->peers->infos[wire->rank];
    const socklen_t bytes = tt_peer_address(info, info->door, &door);
    wire->knocked_ns = wire->knocked_ns == 0 ? tt_clock_ns() : wire->knocked_ns;
    if (wire->knock < 0) {
        wire->knock = tt_socket_open(door.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    }
    const int code = wire->knock < 0                               ? ECONNREFUSED
                     : connect(wire->knock, &door.any, bytes) == 0 ? 0
                                                                   : errno;
    if (code == EINPROGRESS || code == EALREADY) {
        return false;
    }
    stop_knocking(wire);
    return code == 0 || code == EISCONN || code == ECONNREFUSED || code == ECONNRESET ||
           code == EADDRNOTAVAIL || code == EAGAIN || code == ENOBUFS || code == ENOMEM;
}

/* The peer's host answers nothing: neither what was sent on a connection, nor a new one, nor at its
 * door. */
static bool is_host_silent(tt_tcp_wire_t *wire)
{
    const int64_t now = tt_clock_ns();
    const bool is_unheard = wire->unheard_ns != 0 && wire->opened[0] == 0 &&
                            (wire->out[0] == NULL || tt_channel_is_unheard(wire->out[0]));
    if (!is_unheard) {
        return wire->out[0] != NULL && tt_channel_is_connected(wire->out[0]) &&
               tt_channel_is_silent(wire->out[0]);
    }
    if (now - wire->unheard_ns < KNOCK_MS * TT_NS_PER_MS) {
        return false;
    }
    if (is_host_there(wire)) {
        note_answer(wire);
        wire->unheard_ns = now;
        return false;
    }
    return now - wire->knocked_ns >= (UNHEARD_MS - KNOCK_MS) * TT_NS_PER_MS;
}

static tutti_status_t send_opening(tt_tcp_wire_t *wire, int stream)
{
    const tt_opening_t opening = {.magic = TT_OPENING_MAGIC,
                                  .epoch = wire->peers->epoch,
                                  .from = wire->peers->rank,
                                  .to = wire->rank,
                                  .stream = (uint32_t)stream,
                                  .stream_count = (uint32_t)wire->streams,
                                  .channel = wire->channel,
                                  .world = wire->peers->infos[0].token};
    return tt_channel_push(wire->out[stream], &opening, sizeof opening, &wire->opened[stream]);
}

/* The peer hung up on a handshake that this side left alone for too long, or to make room: that is
 * no death. One that has died refuses the next try. */
static bool may_retry(tt_tcp_wire_t *wire, int stream, tutti_status_t status)
{
    if (status != TUTTI_ERR_PEER || wire->opened[stream] > 0 || wire->retries >= RETRIES_MAX ||
        !tt_channel_is_connected(wire->out[stream])) {
        return false;
    }
    tt_channel_close(wire->out[stream]);
    wire->out[stream] = NULL;
    wire->retries++;
    wire->retry_ns = tt_clock_ns() + RETRY_MS * TT_NS_PER_MS;
    return true;
}

/* OK when bytes may go. */
static tutti_status_t open_out(tt_tcp_wire_t *wire, int stream)
{
    if (wire->opened[stream] == sizeof(tt_opening_t)) {
        return TUTTI_OK;
    }
    if (wire->out[stream] == NULL) {
        if (wire->retries > 0 && tt_clock_ns() < wire->retry_ns) {
            return TUTTI_PENDING;
        }
        TT_TRY(connect_out(wire, stream));
    }
    tutti_status_t status = tt_channel_handshake(wire->out[stream]);
    status = status == TUTTI_OK ? send_opening(wire, stream) : status;
    if (status == TUTTI_PENDING) {
        redial_unheard(wire, stream);
    } else if (status == TUTTI_OK) {
        note_answer(wire);
    }
    return status < 0 && may_retry(wire, stream, status) ? TUTTI_PENDING : status;
}

static struct iovec to_iovec(tt_span_t span, size_t limit)
{
    union {
        const void *given; /* sendmsg only reads it, but its type does not say so */
        void *plain;
    } data = {span.data};
    return (struct iovec){data.plain, span.bytes < limit ? span.bytes : limit};
}

static tutti_status_t push(tt_tcp_wire_t *wire, const tt_span_t *spans, int span_count,
                           size_t *done)
{
    const int stream = stream_at(wire->sent, wire->streams);
    const tutti_status_t status = open_out(wire, stream);
    if (status != TUTTI_OK) {
        return status;
    }
    struct iovec parts[TT_WIRE_SPANS_MAX];
    size_t left = left_of_stripe(wire->sent, wire->streams);
    int count = 0;
    while (count < span_count && left > 0) {
        parts[count] = to_iovec(spans[count], left);
        left -= parts[count++].iov_len;
    }
    return tt_channel_send(wire->out[stream], parts, count, done);
}

/* That this process has no descriptor or no memory for a connection says nothing about the peer:
 * the next look tries again. */
static bool is_own_lack(const tt_tcp_wire_t *wire, tutti_status_t status)
{
    const bool is_lack = status == TUTTI_ERR_IO || status == TUTTI_ERR_NOMEM;
    if (is_lack && !wire->peers->has_warned) {
        wire->peers->has_warned = true;
        tt_log(TT_LOG_WARN, "%s: %s", wire->peers->name, tutti_last_error());
    }
    return is_lack;
}

/* What breaks a connection is no error of this call: probe() judges, when it is known whether the
 * peer has said why. But a peer without the key is. */
static tutti_status_t send_tcp(void *state, const tt_span_t *spans, int span_count, size_t *done)
{
    tt_tcp_wire_t *wire = state;
    *done = 0;
    wire->asked_out = wire->peers->turn;
    if (wire->is_out_cut) {
        return TUTTI_OK;
    }
    const tutti_status_t status = push(wire, spans, span_count, done);
    const tt_channel_t *out = wire->out[stream_at(wire->sent, wire->streams)];
    if (status == TUTTI_ERR_PEER) {
        cut(wire, &wire->is_out_cut, out);
    } else if (status < 0 && out == NULL && is_own_lack(wire, status)) {
        return TUTTI_OK;
    } else if (status < 0) {
        return TT_FAIL(status, "rank %d: %s", wire->rank, tutti_last_error());
    }
    wire->sent += *done;
    return TUTTI_OK;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Take a connection that has come in. The first one says how many the peer shares its bytes among,
 * which is its own affair. */
static void take_in(tt_tcp_wire_t *wire, int stream)
{
    tt_opening_t opening;
    wire->in[stream] =
        tt_peers_take(wire->peers, wire->rank, wire->channel, (uint32_t)stream, &opening);
    if (wire->in[stream] != NULL && stream == 0) {
        wire->in_streams = (int)opening.stream_count;
    }
}

static tutti_status_t recv_tcp(void *state, void *data, size_t bytes, size_t *done)
{
    tt_tcp_wire_t *wire = state;
    const int stream = stream_at(wire->received, wire->in_streams);
    *done = 0;
    if (wire->in[stream] == NULL) {
        take_in(wire, stream);
    }
    const size_t left = left_of_stripe(wire->received, wire->in_streams);
    wire->asked_in = wire->peers->turn;
    if (wire->in[stream] == NULL || wire->is_in_cut) {
        return TUTTI_OK;
    }
    const tutti_status_t status =
        tt_channel_recv(wire->in[stream], data, bytes < left ? bytes : left, done);
    if (status == TUTTI_ERR_PEER) {
        cut(wire, &wire->is_in_cut, wire->in[stream]);
        return TUTTI_OK;
    }
    wire->received += *done;
    return status < 0 ? TT_FAIL(status, "rank %d: %s", wire->rank, tutti_last_error()) : TUTTI_OK;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void goaway_tcp(void *state, uint64_t reason)
{
    tt_tcp_wire_t *wire = state;
    if (wire->said != 0) {
        return;
    }
    wire->said = reason;
    tt_peers_remember_goaway(wire->peers, wire->channel, reason);
    if (wire->in[0] == NULL) {
        take_in(wire, 0);
    }
    if (wire->in[0] != NULL) {
        tt_send_goaway(wire->in[0], reason);
    }
}

/* The word, and then the end of the connection: a rank that has said why may die, too. */
static tutti_status_t hear(tt_tcp_wire_t *wire)
{
    char beyond;
    size_t done;
    const tutti_status_t status =
        tt_channel_pull(wire->out[0], &wire->word, sizeof wire->word, &wire->word_done);
    return status == TUTTI_OK ? tt_channel_recv(wire->out[0], &beyond, 1, &done) : status;
}

static uint64_t peer_reason_tcp(void *state)
{
    tt_tcp_wire_t *wire = state;
    const bool is_open = wire->opened[0] == sizeof(tt_opening_t);
    if (is_open && hear(wire) < 0) {
        cut(wire, &wire->is_out_cut, wire->out[0]);
    }
    if (wire->word_done > 0 && wire->broken_ns == 0) {
        wire->broken_ns = tt_clock_ns();
    }
    const bool is_whole =
        wire->word_done == sizeof wire->word && wire->word.magic == TT_GOAWAY_MAGIC;
    return is_whole ? wire->word.reason : 0;
}

/* Nothing is wanted of the peer but that it takes what it cannot take any more: its connections are
 * not read then, and their end is not seen. */
static bool sends_in_vain(const tt_tcp_wire_t *wire)
{
    const unsigned turn = wire->peers->turn;
    return wire->is_out_cut && wire->asked_out == turn && wire->asked_in != turn;
}

/* While no call receives, it is not seen that the peer's connection has ended. */
static void look_for_end(tt_tcp_wire_t *wire)
{
    char byte;
    const tt_channel_t *in = wire->in[stream_at(wire->received, wire->in_streams)];
    if (wire->is_out_cut && in != NULL && !wire->is_in_cut && !tt_channel_has_more(in) &&
        recv(tt_channel_fd(in), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        cut(wire, &wire->is_in_cut, in);
    }
}

/* A connection of the peer's may still be on its way in: a moment is given to it. The next bytes
 * may be due on a stream that has not come while others are there; those are not read then, and
 * their end is not seen. */
static bool has_ended_tcp(void *state)
{
    tt_tcp_wire_t *wire = state;
    look_for_end(wire);
    if (sends_in_vain(wire)) {
        return tt_clock_ns() - wire->broken_ns > ENTRY_GRACE_MS * TT_NS_PER_MS;
    }
    if (wire->in[stream_at(wire->received, wire->in_streams)] != NULL || wire->is_in_cut) {
        return wire->is_in_cut;
    }
    return wire->broken_ns != 0 && tt_clock_ns() - wire->broken_ns > ENTRY_GRACE_MS * TT_NS_PER_MS;
}

/* Dead is who can neither hear nor say anything more. When only its own connection has ended, the
 * word why may still come on the other one. */
static tutti_status_t probe_tcp(void *state)
{
    tt_tcp_wire_t *wire = state;
    if (!wire->is_out_cut) {
        const tutti_status_t status = open_out(wire, 0);
        if (status < 0 && is_own_lack(wire, status)) {
            return TUTTI_OK;
        }
        if (status < 0) {
            cut(wire, &wire->is_out_cut, wire->out[0]);
        } else if (is_host_silent(wire)) {
            return TT_FAIL(TUTTI_ERR_PEER, "its host has not answered for 5 s");
        }
    }
    const bool is_late = tt_clock_ns() - wire->broken_ns > WORD_GRACE_MS * TT_NS_PER_MS;
    return has_ended_tcp(wire) && (wire->is_out_cut || is_late)
               ? TT_FAIL(TUTTI_ERR_PEER, "%s",
                         wire->is_silent ? "its host has not answered for 5 s"
                                         : "its connections are closed")
               : TUTTI_OK;
}

static void close_tcp(void *state)
{
    tt_tcp_wire_t *wire = state;
    tt_tcp_wire_t **at = &wire->peers->wires;
    while (*at != wire) {
        at = &(*at)->next;
    }
    *at = wire->next;
    tt_peers_forget(wire->peers, wire->rank, wire->channel);
    stop_knocking(wire);
    for (int i = 0; i < TT_STREAMS_MAX; i++) {
        tt_channel_close(wire->out[i]);
        tt_channel_close(wire->in[i]);
    }
    tt_free(wire);
}

/* ---- the wire -------------------------------------------------------------------------------- */

int tt_tcp_wire_polls(const tt_tcp_wire_t *wire, unsigned turn, struct pollfd *polls)
{
    int count = 0;
    const int in = stream_at(wire->received, wire->in_streams);
    const int out = stream_at(wire->sent, wire->streams);
    if (wire->asked_in == turn && wire->in[in] != NULL && !wire->is_in_cut) {
        polls[count++] = (struct pollfd){.fd = tt_channel_fd(wire->in[in]), .events = POLLIN};
    }
    if (wire->asked_out == turn && wire->out[out] != NULL && !wire->is_out_cut) {
        const bool is_open = wire->opened[out] == sizeof(tt_opening_t);
        polls[count++] =
            (struct pollfd){.fd = tt_channel_fd(wire->out[out]),
                            .events = is_open ? POLLOUT : tt_channel_events(wire->out[out])};
    }
    return count;
}

tutti_status_t tt_peers_open_wire(tt_peers_t *peers, int rank, uint64_t channel, tt_wire_t *out)
{
    if (peers->simulation != NULL) {
        return peers->simulation->open_wire(peers->simulation->user, rank, channel, out);
    }
    if (!peers->admission.is_open || peers->infos[rank].family == 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "rank %d is on another host than rank %d, and TUTTI_WIRES allows no tcp",
                       rank, peers->rank);
    }
    TT_TRY(tt_peers_reserve_polls(peers));
    tt_tcp_wire_t *wire = tt_alloc(sizeof *wire, "tcp wire");
    TT_TRY_ALLOC(wire);
    wire->peers = peers;
    wire->rank = rank;
    wire->channel = channel;
    wire->knock = -1;
    wire->streams = peers->streams;
    wire->in_streams = 1; /* until the peer says */
    wire->asked_in = wire->asked_out = peers->turn - 1;
    wire->next = peers->wires;
    peers->wires = wire;
    *out = (tt_wire_t){&tt_wire_tcp, wire};
    return TUTTI_OK;
}

const tt_wire_ops_t tt_wire_tcp = {
    .name = "tcp",
    .about = "between hosts, over authenticated connections",
    .send = send_tcp,
    .recv = recv_tcp,
    .goaway = goaway_tcp,
    .peer_reason = peer_reason_tcp,
    .has_ended = has_ended_tcp,
    .probe = probe_tcp,
    .close = close_tcp,
};
