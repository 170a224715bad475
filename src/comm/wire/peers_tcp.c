/* Connections that come in: accepted, proved, told apart by their first message, and kept
 * ("parked") until the wire that they belong to asks for them. A connection that cannot prove the
 * key, says something else, or comes twice is closed and counted.
 *
 * Strangers can only hold half-open connections without proof. There are few that have said
 * nothing, and few that have begun a handshake: in each of the two lots the oldest makes room for
 * the next, and all have 5 s. Connections are accepted a few at a time, and those that are there
 * looked at in between: a rank sends its whole first message at once, so that it has proved the key
 * before the next few come. One whose handshake was cut short tries again (tcp_wire.c). The first
 * message of a handshake proves the key, and once it is answered the rank may send bytes that
 * are not sent again: from then on nothing but its own end cuts it short. What is parked comes from
 * ranks of the job; those that have ended without a byte are swept out now and then.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/net/address.h"
#include "comm/net/socket.h"
#include "comm/wire/peers_impl.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/log.h"

/* The queue takes a connection of every rank while this one computes, as far as the system's
 * somaxconn lets it. What it does not take is not answered; so there is a door (tcp_wire.c). */
enum { ACCEPTS_AT_ONCE = 32, ROUNDS_MAX = 8, BACKLOG = 8192 };

/* ---- the listener -----------------------------------------------------------------------------
 */

socklen_t tt_peer_address(const tt_peer_info_t *info, uint16_t port, tt_inet_t *out)
{
    *out = (tt_inet_t){.six.sin6_family = AF_INET6};
    if (info->family == 4) {
        *out = (tt_inet_t){.four.sin_family = AF_INET, .four.sin_port = htons(port)};
        memcpy(&out->four.sin_addr, info->address, sizeof out->four.sin_addr);
        return sizeof out->four;
    }
    out->six.sin6_port = htons(port);
    memcpy(&out->six.sin6_addr, info->address, sizeof out->six.sin6_addr);
    return sizeof out->six;
}

/* At the address of `info`; the system chooses the port. False: errno says why. */
static bool bind_port(const tt_peer_info_t *info, int *fd, uint16_t *port)
{
    tt_inet_t where;
    socklen_t bytes = tt_peer_address(info, 0, &where);
    *fd = tt_socket_open(where.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (*fd < 0 || bind(*fd, &where.any, bytes) != 0 || getsockname(*fd, &where.any, &bytes) != 0) {
        return false;
    }
    *port = ntohs(where.four.sin_port); /* at the same place in both kinds of address */
    return true;
}

static tutti_status_t bind_listener(tt_peers_t *peers, const char *address, tt_peer_info_t *info)
{
    info->family = inet_pton(AF_INET, address, info->address) == 1    ? 4
                   : inet_pton(AF_INET6, address, info->address) == 1 ? 6
                                                                      : 0;
    if (info->family == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "\"%s\" is no numeric address to listen on", address);
    }
    if (!bind_port(info, &peers->listener, &info->port) || listen(peers->listener, BACKLOG) != 0 ||
        !bind_port(info, &peers->door, &info->door)) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "rank %d cannot listen on %s", peers->rank, address);
    }
    return TUTTI_OK;
}

tutti_status_t tt_peers_listen(tt_peers_t *peers, const tt_peers_options_t *options,
                               tt_peer_info_t *info)
{
    const char *where = options->address != NULL ? options->address : "127.0.0.1";
    int64_t streams;
    TT_TRY(tt_config_int(TT_CONFIG_TCP_STREAMS, 0, TT_STREAMS_MAX, &streams));
    peers->streams = streams > 0 ? (int)streams : tt_address_is_loopback(where) ? 1 : 2;
    TT_TRY(
        options->credentials != NULL
            ? tt_credentials_derive(options->credentials, where, peers->epoch, &peers->credentials)
            : tt_credentials_find(where, peers->epoch, &peers->credentials));
    return bind_listener(peers, where, info);
}

/* Out of the list. */
static tt_channel_t *take_out(tt_peers_t *peers, tt_incoming_t **at)
{
    tt_incoming_t *incoming = *at;
    tt_channel_t *channel = incoming->channel;
    *(incoming->is_parked ? &peers->parked : &peers->half_open) -= 1;
    peers->proved -= incoming->has_proof;
    peers->silent -= incoming->is_silent;
    *at = incoming->next;
    tt_free(incoming);
    return channel;
}

static void drop(tt_peers_t *peers, tt_incoming_t **at)
{
    tt_channel_close(take_out(peers, at));
}

void tt_peers_stop_listening(tt_peers_t *peers)
{
    while (peers->incoming != NULL) {
        drop(peers, &peers->incoming);
    }
    tt_socket_close(peers->listener);
    tt_socket_close(peers->door);
    tt_credentials_release(peers->credentials);
    tt_free(peers->said);
    tt_free(peers->polls);
}

/* ---- what comes in ----------------------------------------------------------------------------
 */

static int half_open_max(const tt_peers_t *peers)
{
    return TT_HALF_OPEN_MAX + peers->size * TT_STREAMS_MAX;
}

/* The oldest half-open connection without proof, of the silent ones or of the others, goes; false
 * if there is none. */
static bool make_room(tt_peers_t *peers, bool is_silent)
{
    tt_incoming_t **oldest = NULL;
    for (tt_incoming_t **at = &peers->incoming; *at != NULL; at = &(*at)->next) {
        if (!(*at)->is_parked && !(*at)->has_proof && (*at)->is_silent == is_silent) {
            oldest = at;
        }
    }
    if (oldest != NULL) {
        peers->strangers++;
        drop(peers, oldest);
    }
    return oldest != NULL;
}

void tt_peers_warn_once(tt_peers_t *peers)
{
    if (!peers->has_warned) {
        peers->has_warned = true;
        tt_log(TT_LOG_WARN, "rank %d: %s", peers->rank, tutti_last_error());
    }
}

/* No descriptor is left: better a half-open connection than the next one of a rank. */
static bool find_descriptor(tt_peers_t *peers)
{
    if (make_room(peers, true) || make_room(peers, false)) {
        return true;
    }
    (void)tt_fail_out_of_descriptors("connections of other ranks cannot be taken");
    tt_peers_warn_once(peers);
    return false;
}

/* False: none waits, or none can be taken. */
static bool accept_one(tt_peers_t *peers)
{
    const int fd = tt_socket_accept(peers->listener, SOCK_NONBLOCK);
    peers->is_full = fd < 0 && tt_is_out_of_descriptors(errno);
    if (fd < 0) {
        return errno == ECONNABORTED || (peers->is_full && find_descriptor(peers));
    }
    if (tt_socket_has_ended(fd)) {
        tt_socket_close(fd);
        peers->strangers++;
        return true;
    }
    if (peers->silent >= half_open_max(peers)) {
        (void)make_room(peers, true);
    }
    tt_incoming_t *incoming = tt_alloc(sizeof *incoming, "connection");
    if (incoming == NULL) {
        tt_socket_close(fd);
        return false;
    }
    if (tt_channel_accept(fd, peers->credentials, &incoming->channel) < 0) {
        tt_free(incoming);
        return false;
    }
    incoming->is_silent = true;
    incoming->next = peers->incoming;
    peers->incoming = incoming;
    peers->half_open++;
    peers->silent++;
    return true;
}

/* True: more may wait. */
static bool accept_some(tt_peers_t *peers)
{
    int count = 0;
    while (count < ACCEPTS_AT_ONCE && accept_one(peers)) {
        count++;
    }
    return count == ACCEPTS_AT_ONCE;
}

static tutti_status_t check_opening(const tt_peers_t *peers, const tt_opening_t *opening)
{
    const bool is_ours = opening->magic == TT_OPENING_MAGIC && opening->epoch == peers->epoch &&
                         opening->to == peers->rank && opening->from >= 0 &&
                         opening->from < peers->size && opening->world == peers->infos[0].token &&
                         opening->stream < opening->stream_count &&
                         opening->stream_count <= TT_STREAMS_MAX;
    return is_ours ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_AUTH,
                             "a connection for another world, epoch or rank (epoch %u, from rank "
                             "%d to rank %d)",
                             opening->epoch, opening->from, opening->to);
}

static bool is_same(const tt_opening_t *a, int from, uint64_t channel, uint32_t stream)
{
    return a->from == from && a->channel == channel && a->stream == stream;
}

/* A second connection for what has one. */
static tutti_status_t check_single(const tt_peers_t *peers, const tt_opening_t *opening)
{
    bool is_there = false;
    for (const tt_incoming_t *at = peers->incoming; at != NULL; at = at->next) {
        is_there = is_there || (at->is_parked && is_same(&at->opening, opening->from,
                                                         opening->channel, opening->stream));
    }
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        is_there = is_there || (is_same(opening, wire->rank, wire->channel, opening->stream) &&
                                wire->in[opening->stream] != NULL);
    }
    return is_there ? TT_FAIL(TUTTI_ERR_AUTH, "rank %d connected twice", opening->from) : TUTTI_OK;
}

/* OK when it is known whose it is. */
static tutti_status_t read_opening(const tt_peers_t *peers, tt_incoming_t *incoming)
{
    const tutti_status_t status = tt_channel_handshake(incoming->channel);
    if (status != TUTTI_OK) {
        return status;
    }
    while (incoming->opening_done < sizeof incoming->opening) {
        size_t done;
        TT_TRY(tt_channel_recv(incoming->channel,
                               (char *)&incoming->opening + incoming->opening_done,
                               sizeof incoming->opening - incoming->opening_done, &done));
        if (done == 0) {
            return TUTTI_PENDING;
        }
        incoming->opening_done += done;
    }
    TT_TRY(check_opening(peers, &incoming->opening));
    return check_single(peers, &incoming->opening);
}

void tt_send_goaway(tt_channel_t *channel, uint64_t reason)
{
    tt_goaway_t word = {.magic = TT_GOAWAY_MAGIC, .reason = reason};
    size_t done;
    /* so few bytes are taken at once or never; who does not hear them sees the end */
    (void)tt_channel_send(channel, &(struct iovec){&word, sizeof word}, 1, &done);
}

/* The entry of a channel, or the free place for it. */
static tt_said_t *find_said(tt_said_t *table, size_t capacity, uint64_t channel)
{
    size_t at = (size_t)(channel * UINT64_C(0x9e3779b97f4a7c15) >> 32) % capacity;
    while (table[at].reason != 0 && table[at].channel != channel) {
        at = (at + 1) % capacity;
    }
    return &table[at];
}

/* At most half of the table is used. */
static bool grow_said(tt_peers_t *peers)
{
    enum { FEW = 64 };
    const size_t capacity = peers->said_capacity == 0 ? FEW : 2 * peers->said_capacity;
    if (2 * peers->said_count < peers->said_capacity) {
        return true;
    }
    tt_said_t *grown = tt_alloc_array(capacity, sizeof *grown, "goaways");
    for (size_t i = 0; i < peers->said_capacity && grown != NULL; i++) {
        if (peers->said[i].reason != 0) {
            *find_said(grown, capacity, peers->said[i].channel) = peers->said[i];
        }
    }
    if (grown != NULL) {
        tt_free(peers->said);
        peers->said = grown;
        peers->said_capacity = capacity;
    }
    return grown != NULL;
}

void tt_peers_remember_goaway(tt_peers_t *peers, uint64_t channel, uint64_t reason)
{
    if (!grow_said(peers)) {
        tt_log(TT_LOG_ERROR, "rank %d: who connects late is not told that it has left: %s",
               peers->rank, tutti_last_error());
        return;
    }
    tt_said_t *said = find_said(peers->said, peers->said_capacity, channel);
    if (said->reason == 0) { /* else it was said to another rank of the same group */
        *said = (tt_said_t){channel, reason};
        peers->said_count++;
    }
}

/* Why this side has left the channel; 0 if it has not. */
static uint64_t what_was_said(const tt_peers_t *peers, uint64_t channel)
{
    return peers->said_capacity > 0 ? find_said(peers->said, peers->said_capacity, channel)->reason
                                    : 0;
}

/* Parked connections whose sender has gone without a byte (a group that was made and never used)
 * are of no use. Looked for when there are twice as many as the last time. */
static void sweep(tt_peers_t *peers)
{
    enum { FEW = 64 };
    for (tt_incoming_t **at = &peers->incoming; *at != NULL;) {
        if ((*at)->is_parked && tt_socket_has_ended(tt_channel_fd((*at)->channel))) {
            drop(peers, at);
        } else {
            at = &(*at)->next;
        }
    }
    peers->sweep_at = 2 * peers->parked + FEW;
}

/* It is known whose it is; it may have come too late. False: drop it. */
static bool park(tt_peers_t *peers, tt_incoming_t *incoming)
{
    const uint64_t said = what_was_said(peers, incoming->opening.channel);
    if (said != 0) {
        tt_send_goaway(incoming->channel, said);
        return false;
    }
    if (peers->parked >= TT_PARKED_MAX) {
        tt_log(TT_LOG_ERROR, "rank %d: %d connections wait for groups that do not ask for them",
               peers->rank, peers->parked);
        return false;
    }
    peers->proved -= incoming->has_proof;
    peers->silent -= incoming->is_silent;
    incoming->has_proof = incoming->is_silent = false;
    incoming->is_parked = true;
    peers->half_open--;
    peers->parked++;
    return true;
}

/* From its answer on, the other side may send what it will not send again. A first message that was
 * recorded and is sent once more counts as proof too: so there are no more of these than the ranks
 * can have, with some to spare, and what comes on top makes room as a stranger's does. */
static void note_proof(tt_peers_t *peers, tt_incoming_t *incoming)
{
    if (incoming->is_silent && tt_channel_has_spoken(incoming->channel)) {
        incoming->is_silent = false;
        peers->silent--;
    }
    if (!incoming->has_proof && peers->proved < half_open_max(peers) &&
        tt_channel_has_proof(incoming->channel)) {
        incoming->has_proof = true;
        peers->proved++;
    }
}

/* False: drop it. */
static bool look_at(tt_peers_t *peers, tt_incoming_t *incoming)
{
    if (incoming->is_parked) {
        return true;
    }
    const tutti_status_t status = read_opening(peers, incoming);
    if (status < 0) {
        peers->strangers++;
        tt_log(TT_LOG_INFO, "rank %d refused a connection: %s", peers->rank, tutti_last_error());
        return false;
    }
    if (status == TUTTI_PENDING) {
        note_proof(peers, incoming);
        return true;
    }
    return park(peers, incoming);
}

static void read_openings(tt_peers_t *peers)
{
    for (tt_incoming_t **at = &peers->incoming; *at != NULL && peers->half_open > 0;) {
        if (look_at(peers, *at)) {
            at = &(*at)->next;
        } else {
            drop(peers, at);
        }
    }
    while (peers->half_open - peers->proved - peers->silent > half_open_max(peers) &&
           make_room(peers, false)) {
    }
    if (peers->parked > peers->sweep_at) {
        sweep(peers);
    }
}

tt_channel_t *tt_peers_take(tt_peers_t *peers, int from, uint64_t channel, uint32_t stream,
                            tt_opening_t *opening)
{
    for (tt_incoming_t **at = &peers->incoming; *at != NULL; at = &(*at)->next) {
        if ((*at)->is_parked && is_same(&(*at)->opening, from, channel, stream)) {
            *opening = (*at)->opening;
            return take_out(peers, at);
        }
    }
    return NULL;
}

void tt_peers_forget(tt_peers_t *peers, int from, uint64_t channel)
{
    for (tt_incoming_t **at = &peers->incoming; *at != NULL;) {
        if ((*at)->is_parked && is_same(&(*at)->opening, from, channel, (*at)->opening.stream)) {
            drop(peers, at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* Whether a wire waits for a connection that has not come. */
static bool is_one_awaited(const tt_peers_t *peers)
{
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        if (wire->asked_in == peers->turn && wire->in[0] == NULL) {
            return true;
        }
    }
    return false;
}

void tt_peers_progress(tt_peers_t *peers)
{
    if (peers->listener < 0 ||
        (++peers->calls % TT_CALLS_PER_LOOK != 0 && !is_one_awaited(peers))) {
        return;
    }
    bool has_more = true;
    for (int i = 0; i < ROUNDS_MAX && has_more; i++) {
        has_more = accept_some(peers);
        read_openings(peers);
    }
}

/* ---- room for waiting -------------------------------------------------------------------------
 */

static int count_wires(const tt_peers_t *peers)
{
    int count = 0;
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        count++;
    }
    return count;
}

/* Room for all that may be polled, so that nothing is allocated while waiting; connections that
 * come in all at once beyond that are looked at 10 ms later. */
tutti_status_t tt_peers_reserve_polls(tt_peers_t *peers)
{
    const int count = 1 + 2 * tt_node_peers_size(peers->node_peers) + TT_INCOMING_POLLS +
                      2 * (count_wires(peers) + 1);
    if (count > peers->poll_capacity) {
        struct pollfd *grown = tt_realloc(peers->polls, (size_t)count * 2 * sizeof *grown, "polls");
        TT_TRY_ALLOC(grown);
        peers->polls = grown;
        peers->poll_capacity = 2 * count;
    }
    return TUTTI_OK;
}
