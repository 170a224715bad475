/* What host-mates say to each other: messages of 64 bytes over SOCK_SEQPACKET, so that each read
 * gives one whole message with its descriptor. Nothing in them is trusted beyond what is checked
 * here: sizes, ranges, seals (core/device), and the token of the card. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/wire/mates_impl.h"
#include "core/base/log.h"

int tt_mates_name(const tt_mates_t *mates, int rank)
{
    return mates->names != NULL ? mates->names[rank] : rank;
}

tutti_status_t tt_mates_send(int socket, const tt_mate_message_t *message, int fd, int flags)
{
    tt_mate_message_t copy = *message;
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
    if (sent == (ssize_t)sizeof copy) {
        return TUTTI_OK;
    }
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return (flags & MSG_DONTWAIT) != 0
                   ? TUTTI_PENDING
                   : TT_FAIL(TUTTI_ERR_TIMEOUT, "a rank of this host takes no message in time");
    }
    return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "cannot reach a rank of this host");
}

void tt_mates_send_wake(const tt_mates_t *mates, int rank)
{
    const tt_mate_message_t wake = {
        .magic = TT_MATE_MAGIC, .kind = TT_MATE_WAKE, .rank = mates->rank};
    if (mates->mates[rank].fd >= 0) {
        /* a mate that does not read its socket is not waited for; its sleep ends by itself */
        (void)tt_mates_send(mates->mates[rank].fd, &wake, -1, MSG_DONTWAIT);
    }
}

/* Any thread may make a segment: each is told once, in order. */
static tutti_status_t tell_one(tt_mates_t *mates, tt_mate_t *mate, int segment, int flags)
{
    int fd;
    tt_mate_message_t message = {
        .magic = TT_MATE_MAGIC, .kind = TT_MATE_SEGMENT, .rank = mates->rank, .segment = segment};
    size_t bytes;
    tt_heap_segment(mates->heap, segment, &fd, &bytes);
    message.bytes = bytes;
    tutti_status_t status = TUTTI_OK;
    pthread_mutex_lock(&mates->telling);
    if (mate->told == segment) {
        status = tt_mates_send(mate->fd, &message, fd, flags);
        mate->told += status == TUTTI_OK;
    }
    pthread_mutex_unlock(&mates->telling);
    return status;
}

/* Of the segments from `told` on; flags as of tt_mates_send(). */
static tutti_status_t tell(tt_mates_t *mates, int rank, int flags)
{
    tt_mate_t *mate = &mates->mates[rank];
    const int count = tt_heap_segment_count(mates->heap);
    while (mate->told < count) {
        const tutti_status_t status = tell_one(mates, mate, mate->told, flags);
        if (status != TUTTI_OK) {
            return status;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_mates_greet(tt_mates_t *mates, int rank)
{
    tt_mate_message_t message = {.magic = TT_MATE_MAGIC,
                                 .kind = TT_MATE_HELLO,
                                 .rank = mates->rank,
                                 .segment = tt_heap_segment_count(mates->heap)};
    message.block = tt_heap_place(mates->heap, mates->block, sizeof *mates->block);
    memcpy(message.token, mates->card.token, TT_TOKEN_BYTES);
    TT_TRY(tt_mates_send(mates->mates[rank].fd, &message, -1, 0));
    mates->mates[rank].told = 0;
    return tell(mates, rank, 0);
}

/* A mate that is gone is noticed by whoever waits for it; one that reads nothing is told later. */
void tt_mates_tell(tt_mates_t *mates, int rank)
{
    if (mates->mates[rank].fd >= 0) {
        (void)tell(mates, rank, MSG_DONTWAIT);
    }
}

void tt_mates_on_segment(void *user, int segment, int fd, size_t bytes)
{
    tt_mates_t *mates = user;
    (void)segment;
    (void)fd;
    (void)bytes;
    for (int i = 0; i < mates->size; i++) {
        tt_mates_tell(mates, i);
    }
}

typedef struct {
    tt_mate_message_t message;
    ssize_t got;
    int fd;             /* -1: none; of whoever takes it */
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
    do {
        out->got = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (out->got < 0 && errno == EINTR);
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
    tt_mate_message_t message;
    ssize_t got;
    do {
        got = recv(socket, &message, sizeof message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
}

static bool is_well_formed(const received_t *received, int rank)
{
    return received->got == (ssize_t)sizeof received->message && received->extra == 0 &&
           received->message.magic == TT_MATE_MAGIC && received->message.rank == rank;
}

static bool handle_hello(tt_mate_t *mate, const tt_mate_message_t *message)
{
    if (mate->has_greeted || memcmp(message->token, mate->card.token, TT_TOKEN_BYTES) != 0) {
        return false;
    }
    mate->has_greeted = true;
    mate->segments_due = message->segment;
    mate->block_place = message->block;
    return true;
}

static bool handle_segment(tt_mate_t *mate, received_t *received)
{
    const int fd = received->fd;
    received->fd = -1;
    if (fd < 0) {
        return false;
    }
    const tt_mate_message_t *message = &received->message;
    const tutti_status_t status =
        tt_heap_view_add(&mate->view, message->segment, fd, message->bytes);
    received->has_no_memory = status == TUTTI_ERR_NOMEM;
    mate->segments_seen += status == TUTTI_OK;
    return status == TUTTI_OK || received->has_no_memory;
}

/* Takes the descriptor if it belongs there: then it is -1. */
static bool handle(tt_mate_t *mate, received_t *received)
{
    const tt_mate_message_t *message = &received->message;
    const int given = received->fd;
    switch ((tt_mate_message_kind_t)message->kind) {
    case TT_MATE_HELLO:
        return given < 0 && handle_hello(mate, message);
    case TT_MATE_SEGMENT:
        return handle_segment(mate, received);
    case TT_MATE_BYE:
        mate->has_left = true;
        return given < 0;
    case TT_MATE_WAKE:
        return given < 0; /* it has done its work by coming */
    }
    return false;
}

static void hang_up(tt_mate_t *mate)
{
    mate->state = mate->has_left ? TT_MATE_LEFT : TT_MATE_DEAD;
    tt_socket_close(mate->fd);
    mate->fd = -1;
    if (mate->pidfd >= 0) {
        close(mate->pidfd);
        mate->pidfd = -1;
    }
}

static bool take_message(tt_mate_t *mate, received_t *received, int rank)
{
    const bool is_good = is_well_formed(received, rank) && handle(mate, received);
    if (received->fd >= 0) { /* sent with what carries none */
        close(received->fd);
    }
    return is_good;
}

/* The message stays, and is tried again when the socket is looked at the next time. */
static void starve(tt_mates_t *mates, int rank, const char *reason)
{
    mates->starved = rank;
    snprintf(mates->starved_text, sizeof mates->starved_text, "%s", reason);
}

void tt_mates_receive(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    mates->starved = mates->starved == rank ? -1 : mates->starved;
    while (mate->fd >= 0) {
        received_t received;
        peek_message(mate->fd, &received);
        if (received.got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (received.got <= 0) {
            hang_up(mate);
            return;
        }
        const bool is_good = received.is_starved || take_message(mate, &received, rank);
        if (received.is_starved || received.has_no_memory) {
            starve(mates, rank, received.has_no_memory ? tutti_last_error() : "");
            return;
        }
        drop_message(mate->fd);
        if (!is_good) {
            tt_log(TT_LOG_ERROR, "rank %d sent something that is no message of ours: %s",
                   tt_mates_name(mates, rank), tutti_last_error());
            hang_up(mate);
        }
    }
}

void tt_mates_end(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    if (mate->fd >= 0) {
        tt_mates_receive(mates, rank);
    }
    mate->has_ended = true;
    if (mate->fd >= 0) {
        hang_up(mate);
    }
}
