/* Connections that have come in, proved the key, and said whose they are (net/admission.h): kept
 * ("parked") until the wire that they belong to asks for them. One that says something else, or
 * comes twice, is closed and counted. What is parked comes from ranks of the job; those that have
 * ended without a byte are swept out now and then.
 */
#include <stdio.h>
#include <string.h>

#include "comm/net/address.h"
#include "comm/net/socket.h"
#include "comm/wire/peers_impl.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/log.h"

/* ---- the listener ---------------------------------------------------------------------------- */

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

static tutti_status_t listen_at(tt_peers_t *peers, const char *address, tt_peer_info_t *info)
{
    snprintf(peers->name, sizeof peers->name, "rank %d", peers->rank);
    peers->admission = (tt_admission_t){.credentials = peers->credentials,
                                        .name = peers->name,
                                        .first_bytes = sizeof(tt_opening_t),
                                        .most = TT_HALF_OPEN_MAX + peers->size * TT_STREAMS_MAX};
    const tutti_status_t status = tt_admission_open(&peers->admission, address, 0);
    if (status < 0) {
        return TT_FAIL(status, "%s: %s", peers->name, tutti_last_error());
    }
    const tt_inet_t *where = &peers->admission.where;
    info->port = ntohs(where->four.sin_port);
    info->family = where->any.sa_family == AF_INET ? 4 : 6;
    if (info->family == 4) {
        memcpy(info->address, &where->four.sin_addr, sizeof where->four.sin_addr);
    } else {
        memcpy(info->address, &where->six.sin6_addr, sizeof where->six.sin6_addr);
    }
    return bind_port(info, &peers->door, &info->door)
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s cannot listen on %s", peers->name, address);
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
    return listen_at(peers, where, info);
}

/* Out of the list. */
static tt_channel_t *take_out(tt_peers_t *peers, tt_parked_t **at)
{
    tt_parked_t *parked = *at;
    tt_channel_t *channel = parked->channel;
    peers->parked_count--;
    *at = parked->next;
    tt_free(parked);
    return channel;
}

static void drop(tt_peers_t *peers, tt_parked_t **at)
{
    tt_channel_close(take_out(peers, at));
}

void tt_peers_stop_listening(tt_peers_t *peers)
{
    while (peers->parked != NULL) {
        drop(peers, &peers->parked);
    }
    tt_free(peers->spare);
    tt_admission_close(&peers->admission);
    tt_socket_close(peers->door);
    tt_credentials_release(peers->credentials);
    tt_free(peers->said);
    tt_free(peers->polls);
}

/* ---- what comes in --------------------------------------------------------------------------- */

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
    for (const tt_parked_t *at = peers->parked; at != NULL; at = at->next) {
        is_there =
            is_there || is_same(&at->opening, opening->from, opening->channel, opening->stream);
    }
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        is_there = is_there || (is_same(opening, wire->rank, wire->channel, opening->stream) &&
                                wire->in[opening->stream] != NULL);
    }
    return is_there ? TT_FAIL(TUTTI_ERR_AUTH, "rank %d connected twice", opening->from) : TUTTI_OK;
}

void tt_send_goaway(tt_channel_t *channel, uint64_t reason)
{
    tt_goaway_t word = {.magic = TT_GOAWAY_MAGIC, .reason = reason};
    size_t done;
    /* so few bytes are taken at once or never; a rank that does not hear them sees the end */
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
        tt_log(TT_LOG_ERROR, "rank %d: a rank that connects late is not told that it has left: %s",
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
    for (tt_parked_t **at = &peers->parked; *at != NULL;) {
        if (tt_socket_has_ended(tt_channel_fd((*at)->channel))) {
            drop(peers, at);
        } else {
            at = &(*at)->next;
        }
    }
    peers->sweep_at = 2 * peers->parked_count + FEW;
}

/* False: it has come too late, or there is no room for it. */
static bool park(tt_peers_t *peers, tt_channel_t *channel, const tt_opening_t *opening)
{
    const uint64_t said = what_was_said(peers, opening->channel);
    if (said != 0) {
        tt_send_goaway(channel, said);
        return false;
    }
    if (peers->parked_count >= TT_PARKED_MAX) {
        tt_log(TT_LOG_ERROR, "rank %d: %d connections wait for groups that do not ask for them",
               peers->rank, peers->parked_count);
        return false;
    }
    tt_parked_t *parked = peers->spare;
    peers->spare = NULL;
    *parked = (tt_parked_t){.next = peers->parked, .channel = channel, .opening = *opening};
    peers->parked = parked;
    peers->parked_count++;
    return true;
}

/* It has said whose it is. */
static void take_in(tt_peers_t *peers, tt_channel_t *channel, const tt_opening_t *opening)
{
    tutti_status_t status = check_opening(peers, opening);
    status = status < 0 ? status : check_single(peers, opening);
    if (status < 0) {
        tt_admission_note_stranger(&peers->admission);
    }
    if (status < 0 || !park(peers, channel, opening)) {
        tt_channel_close(channel);
    }
}

tt_channel_t *tt_peers_take(tt_peers_t *peers, int from, uint64_t channel, uint32_t stream,
                            tt_opening_t *opening)
{
    for (tt_parked_t **at = &peers->parked; *at != NULL; at = &(*at)->next) {
        if (is_same(&(*at)->opening, from, channel, stream)) {
            *opening = (*at)->opening;
            return take_out(peers, at);
        }
    }
    return NULL;
}

void tt_peers_forget(tt_peers_t *peers, int from, uint64_t channel)
{
    for (tt_parked_t **at = &peers->parked; *at != NULL;) {
        if (is_same(&(*at)->opening, from, channel, (*at)->opening.stream)) {
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

/* A connection that was taken in and dropped would be lost on both sides: without memory for it, it
 * waits outside. */
static bool has_spare(tt_peers_t *peers)
{
    if (peers->spare == NULL) {
        peers->spare = tt_alloc(sizeof *peers->spare, "connection");
    }
    return peers->spare != NULL;
}

void tt_peers_progress(tt_peers_t *peers)
{
    if (!peers->admission.is_open ||
        (++peers->calls % TT_CALLS_PER_LOOK != 0 && !is_one_awaited(peers))) {
        return;
    }
    tt_opening_t opening;
    tt_channel_t *channel;
    while (has_spare(peers) &&
           tt_admission_next(&peers->admission, &opening, &channel) == TUTTI_OK) {
        take_in(peers, channel, &opening);
    }
    if (peers->parked_count > peers->sweep_at) {
        sweep(peers);
    }
}

/* ---- room for waiting ------------------------------------------------------------------------ */

static int count_wires(const tt_peers_t *peers)
{
    int count = 0;
    for (const tt_tcp_wire_t *wire = peers->wires; wire != NULL; wire = wire->next) {
        count++;
    }
    return count;
}

/* Room for all that may be polled, so that nothing is allocated while waiting. */
tutti_status_t tt_peers_reserve_polls(tt_peers_t *peers)
{
    const int count = 1 + 2 * tt_node_peers_size(peers->node_peers) + 2 * (count_wires(peers) + 1);
    if (count > peers->poll_capacity) {
        struct pollfd *grown = tt_realloc(peers->polls, (size_t)count * 2 * sizeof *grown, "polls");
        TT_TRY_ALLOC(grown);
        peers->polls = grown;
        peers->poll_capacity = 2 * count;
    }
    return TUTTI_OK;
}
