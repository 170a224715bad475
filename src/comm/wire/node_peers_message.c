/* What host-local ranks say to each other: messages of 64 bytes over SOCK_SEQPACKET, so that each
 * read gives one whole message with its descriptor. Nothing in them is trusted beyond what is
 * checked here: sizes, ranges, seals (core/device), and the token of the peer info. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/node_peers_impl.h"
#include "core/base/log.h"

int tt_node_peers_name(const tt_node_peers_t *node_peers, int rank)
{
    return node_peers->names != NULL ? node_peers->names[rank] : rank;
}

int tt_node_peers_send(int socket, const tt_node_peer_message_t *message, int fd, int flags)
{
    tt_node_peer_message_t copy = *message;
    struct iovec part = {.iov_base = &copy, .iov_len = sizeof copy};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        header.msg_control = &control;
        header.msg_controllen = sizeof control;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

void tt_node_peers_send_wake(const tt_node_peers_t *node_peers, int rank)
{
    const tt_node_peer_message_t wake = {
        .magic = TT_NODE_PEER_MAGIC, .kind = TT_NODE_PEER_WAKE, .rank = node_peers->rank};
    if (node_peers->node_peers[rank].fd >= 0) {
        /* a local rank that does not read its socket is not waited for; its sleep ends by itself */
        (void)tt_node_peers_send(node_peers->node_peers[rank].fd, &wake, -1, MSG_DONTWAIT);
    }
}

/* Any thread may make a segment: each is announced once, in order. */
static int tell_one(tt_node_peers_t *node_peers, tt_node_peer_t *node_peer, int segment, int flags)
{
    int fd;
    tt_node_peer_message_t message = {.magic = TT_NODE_PEER_MAGIC,
                                      .kind = TT_NODE_PEER_SEGMENT,
                                      .rank = node_peers->rank,
                                      .segment = segment};
    size_t bytes;
    tt_heap_segment(node_peers->heap, segment, &fd, &bytes);
    message.bytes = bytes;
    int failed = 0;
    pthread_mutex_lock(&node_peers->telling);
    if (node_peer->fd < 0) {
        failed = EPIPE; /* it is gone, and gets no messages any more */
    } else if (node_peer->told == segment) {
        failed = tt_node_peers_send(node_peer->fd, &message, fd, flags);
        node_peer->told += failed == 0;
    }
    pthread_mutex_unlock(&node_peers->telling);
    return failed;
}

/* Of the segments from `told` on; flags and result as of tt_node_peers_send(). */
static int tell(tt_node_peers_t *node_peers, int rank, int flags)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    const int count = tt_heap_segment_count(node_peers->heap);
    int failed = 0;
    while (node_peer->told < count && failed == 0) {
        failed = tell_one(node_peers, node_peer, node_peer->told, flags);
    }
    return failed;
}

static tutti_status_t fail_greeting(const tt_node_peers_t *node_peers, int rank, int error)
{
    const int mine = tt_node_peers_name(node_peers, node_peers->rank),
              other = tt_node_peers_name(node_peers, rank);
    if (error == EAGAIN || error == EWOULDBLOCK) {
        return TT_FAIL(TUTTI_ERR_TIMEOUT,
                       "while joining: rank %d takes no message of rank %d in time", other, mine);
    }
    errno = error;
    return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "while joining: rank %d greets rank %d", mine, other);
}

tutti_status_t tt_node_peers_greet(tt_node_peers_t *node_peers, int rank)
{
    tt_node_peer_message_t message = {.magic = TT_NODE_PEER_MAGIC,
                                      .kind = TT_NODE_PEER_HELLO,
                                      .rank = node_peers->rank,
                                      .segment = tt_heap_segment_count(node_peers->heap)};
    message.block = tt_heap_address(node_peers->heap, node_peers->block, sizeof *node_peers->block);
    memcpy(message.token, node_peers->info.token, TT_TOKEN_BYTES);
    int failed = tt_node_peers_send(node_peers->node_peers[rank].fd, &message, -1, 0);
    if (failed == 0) {
        node_peers->node_peers[rank].told = 0;
        failed = tell(node_peers, rank, 0);
    }
    return failed == 0 ? TUTTI_OK : fail_greeting(node_peers, rank, failed);
}

/* A local rank that is gone is noticed by the rank that waits for it; one that reads nothing is
 * told later. */
void tt_node_peers_tell(tt_node_peers_t *node_peers, int rank)
{
    if (node_peers->node_peers[rank].fd >= 0) {
        (void)tell(node_peers, rank, MSG_DONTWAIT);
    }
}

void tt_node_peers_on_segment(void *user, int segment, int fd, size_t bytes)
{
    tt_node_peers_t *node_peers = user;
    (void)segment;
    (void)fd;
    (void)bytes;
    for (int i = 0; i < node_peers->size; i++) {
        tt_node_peers_tell(node_peers, i);
    }
}

typedef struct {
    tt_node_peer_message_t message;
    ssize_t got;
    int fd;             /* -1: none; owned by the taker */
    int extra;          /* descriptors too many, which are closed */
    bool is_starved;    /* it has one, for which this process has no descriptor left */
    bool has_no_memory; /* for the segment that came: it is to be mapped later */
} received_t;

static void take_descriptors(const struct cmsghdr *part, received_t *out)
{
    const unsigned char *data = CMSG_DATA(part);
    const size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
        int fd;
        memcpy(&fd, data + at, sizeof fd);
        if (out->fd < 0) {
            out->fd = fd;
        } else {
            close(fd);
            out->extra++;
        }
    }
}

/* A peer that closes with something unread leaves an error that comes before the messages which it
 * sent, and comes once: they are read on, up to a BYE or the end of the stream. */
static ssize_t receive_message(int socket, struct msghdr *header, int flags)
{
    bool was_reset = false;
    for (;;) {
        const ssize_t got = recvmsg(socket, header, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        const bool is_reset = got < 0 && errno == ECONNRESET && !was_reset;
        if (got >= 0 || (errno != EINTR && !is_reset)) {
            return got;
        }
        was_reset |= is_reset;
    }
}

/* Looks at the next message without taking it, so that a descriptor that cannot be had now comes
 * with it later. */
static void peek_message(int socket, received_t *out)
{
    struct iovec part = {.iov_base = &out->message, .iov_len = sizeof out->message};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    *out = (received_t){.fd = -1};
    out->got = receive_message(socket, &header, MSG_PEEK);
    if (out->got <= 0) {
        return;
    }
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&header); at != NULL; at = CMSG_NXTHDR(&header, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            take_descriptors(at, out);
        }
    }
    out->is_starved = (header.msg_flags & MSG_CTRUNC) != 0 && out->fd < 0;
}

/* Take what was looked at; its descriptors have come already, and do not come again. */
static void drop_message(int socket)
{
    tt_node_peer_message_t message;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof message};
    (void)receive_message(socket, &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1}, 0);
}

static bool is_well_formed(const received_t *received, int rank)
{
    return received->got == (ssize_t)sizeof received->message && received->extra == 0 &&
           received->message.magic == TT_NODE_PEER_MAGIC && received->message.rank == rank;
}

static bool handle_hello(tt_node_peer_t *node_peer, const tt_node_peer_message_t *message)
{
    if (node_peer->has_greeted ||
        memcmp(message->token, node_peer->info.token, TT_TOKEN_BYTES) != 0) {
        return false;
    }
    node_peer->has_greeted = true;
    node_peer->segments_due = message->segment;
    node_peer->block_address = message->block;
    return true;
}

static bool handle_segment(tt_node_peer_t *node_peer, received_t *received)
{
    const int fd = received->fd;
    received->fd = -1;
    if (fd < 0) {
        return false;
    }
    const tt_node_peer_message_t *message = &received->message;
    const tutti_status_t status =
        tt_heap_peer_map(&node_peer->view, message->segment, fd, message->bytes);
    received->has_no_memory = status == TUTTI_ERR_NOMEM;
    node_peer->segments_seen += status == TUTTI_OK;
    return status == TUTTI_OK || received->has_no_memory;
}

/* Takes the descriptor if it belongs there: then it is -1. */
static bool handle(tt_node_peer_t *node_peer, received_t *received)
{
    const tt_node_peer_message_t *message = &received->message;
    const int given = received->fd;
    switch ((tt_node_peer_message_kind_t)message->kind) {
    case TT_NODE_PEER_HELLO:
        return given < 0 && handle_hello(node_peer, message);
    case TT_NODE_PEER_SEGMENT:
        return handle_segment(node_peer, received);
    case TT_NODE_PEER_BYE:
        node_peer->has_left = true;
        return given < 0;
    case TT_NODE_PEER_WAKE:
        return given < 0; /* it has done its work by coming */
    }
    return false;
}

/* Another thread that has made a segment may be sending through the socket, whose number belongs to
 * another file as soon as it is closed. */
static void close_socket(tt_node_peers_t *node_peers, tt_node_peer_t *node_peer)
{
    pthread_mutex_lock(&node_peers->telling);
    if (node_peer->fd >= 0) {
        tt_socket_close(node_peer->fd);
        node_peer->fd = -1;
    }
    pthread_mutex_unlock(&node_peers->telling);
}

static void forget_process(tt_node_peer_t *node_peer)
{
    if (node_peer->pidfd >= 0) {
        close(node_peer->pidfd);
        node_peer->pidfd = -1;
    }
}

/* A process that ends closes its sockets first, and a rank that strangers have pushed out of a
 * listener lives. */
static bool ends_soon(const tt_node_peer_t *node_peer)
{
    enum { END_MS = 100 };
    struct pollfd process = {.fd = node_peer->pidfd, .events = POLLIN};
    return node_peer->has_greeted && !node_peer->is_refused && process.fd >= 0 &&
           poll(&process, 1, END_MS) > 0;
}

/* A process that lives may be in memory of this host: its pidfd is kept, and tells when it ends. */
static void hang_up(tt_node_peers_t *node_peers, tt_node_peer_t *node_peer)
{
    node_peer->state = node_peer->has_left ? TT_NODE_PEER_LEFT : TT_NODE_PEER_DEAD;
    close_socket(node_peers, node_peer);
    node_peer->has_ended |= !node_peer->has_left && ends_soon(node_peer);
    if (node_peer->has_left || node_peer->has_ended) {
        forget_process(node_peer);
    }
}

void tt_node_peers_say_goodbye(tt_node_peers_t *node_peers, int rank)
{
    enum { BYE_MS = 100 };
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    const tt_node_peer_message_t bye = {
        .magic = TT_NODE_PEER_MAGIC, .kind = TT_NODE_PEER_BYE, .rank = node_peers->rank};
    if (node_peer->fd >= 0) {
        /* one that is stopped, and whose socket is full, is not waited for long */
        tt_unix_set_send_deadline(node_peer->fd, tt_deadline_in_ms(BYE_MS));
        (void)tt_node_peers_send(node_peer->fd, &bye, -1, 0);
    }
    close_socket(node_peers, node_peer); /* the other one is still there */
    forget_process(node_peer);
}

static bool take_message(tt_node_peer_t *node_peer, received_t *received, int rank)
{
    const bool is_good = is_well_formed(received, rank) && handle(node_peer, received);
    if (received->fd >= 0) { /* sent with what carries none */
        close(received->fd);
    }
    return is_good;
}

/* The message stays, and is tried again when the socket is looked at the next time. */
static void starve(tt_node_peers_t *node_peers, int rank, const char *reason)
{
    node_peers->starved = rank;
    snprintf(node_peers->starved_text, sizeof node_peers->starved_text, "%s", reason);
}

void tt_node_peers_receive(tt_node_peers_t *node_peers, int rank)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    node_peers->starved = node_peers->starved == rank ? -1 : node_peers->starved;
    while (node_peer->fd >= 0) {
        received_t received;
        peek_message(node_peer->fd, &received);
        if (received.got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (received.got <= 0) {
            hang_up(node_peers, node_peer);
            return;
        }
        const bool is_good = received.is_starved || take_message(node_peer, &received, rank);
        if (received.is_starved || received.has_no_memory) {
            starve(node_peers, rank, received.has_no_memory ? tutti_last_error() : "");
            return;
        }
        drop_message(node_peer->fd);
        if (!is_good) {
            tt_log(TT_LOG_ERROR, "rank %d sent something that is no message of ours: %s",
                   tt_node_peers_name(node_peers, rank), tutti_last_error());
            node_peer->is_refused = true;
            hang_up(node_peers, node_peer);
        }
    }
}

void tt_node_peers_end(tt_node_peers_t *node_peers, int rank)
{
    tt_node_peer_t *node_peer = &node_peers->node_peers[rank];
    if (node_peer->fd >= 0) {
        tt_node_peers_receive(node_peers, rank);
    }
    node_peer->has_ended = true;
    if (node_peer->fd >= 0) {
        hang_up(node_peers, node_peer);
    }
    forget_process(node_peer);
}
