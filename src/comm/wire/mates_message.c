/* What host-mates say to each other: messages of 64 bytes over SOCK_SEQPACKET, so that each read
 * gives one whole message with its descriptor. Nothing in them is trusted beyond what is checked
 * here: sizes, ranges, seals (core/device), and the token of the card. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/wire/mates_impl.h"
#include "core/base/log.h"

static tutti_status_t send_message(int socket, const tt_mate_message_t *message, int fd, int flags)
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
    if (sent != (ssize_t)sizeof copy) {
        return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "cannot reach a rank of this host");
    }
    return TUTTI_OK;
}

tutti_status_t tt_mates_send(int socket, const tt_mate_message_t *message, int fd)
{
    return send_message(socket, message, fd, 0);
}

void tt_mates_send_wake(const tt_mates_t *mates, int rank)
{
    const tt_mate_message_t wake = {
        .magic = TT_MATE_MAGIC, .kind = TT_MATE_WAKE, .rank = mates->rank};
    if (mates->mates[rank].fd >= 0) {
        /* a mate that does not read its socket is not waited for; its sleep ends by itself */
        (void)send_message(mates->mates[rank].fd, &wake, -1, MSG_DONTWAIT);
    }
}

tutti_status_t tt_mates_greet(tt_mates_t *mates, int socket)
{
    tt_mate_message_t message = {.magic = TT_MATE_MAGIC,
                                 .kind = TT_MATE_HELLO,
                                 .rank = mates->rank,
                                 .segment = tt_heap_segment_count(mates->heap)};
    message.block = tt_heap_place(mates->heap, mates->block, sizeof *mates->block);
    memcpy(message.token, mates->card.token, TT_TOKEN_BYTES);
    TT_TRY(tt_mates_send(socket, &message, -1));
    const int count = message.segment;
    message.kind = TT_MATE_SEGMENT;
    for (int i = 0; i < count; i++) {
        int fd;
        size_t bytes;
        tt_heap_segment(mates->heap, i, &fd, &bytes);
        message.segment = i;
        message.bytes = bytes;
        TT_TRY(tt_mates_send(socket, &message, fd));
    }
    return TUTTI_OK;
}

void tt_mates_on_segment(void *user, int segment, int fd, size_t bytes)
{
    tt_mates_t *mates = user;
    const tt_mate_message_t message = {.magic = TT_MATE_MAGIC,
                                       .kind = TT_MATE_SEGMENT,
                                       .rank = mates->rank,
                                       .segment = segment,
                                       .bytes = bytes};
    for (int i = 0; i < mates->size; i++) {
        if (mates->mates[i].fd >= 0) {
            /* a mate that is gone is noticed by whoever waits for it */
            (void)tt_mates_send(mates->mates[i].fd, &message, fd);
        }
    }
}

/* One message and its descriptor (-1: none). Returns recvmsg's result. */
static ssize_t read_message(int socket, tt_mate_message_t *message, int *fd)
{
    struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    *fd = -1;
    ssize_t got;
    do {
        got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    const struct cmsghdr *first = got > 0 ? CMSG_FIRSTHDR(&header) : NULL;
    if (first != NULL && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS &&
        first->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(fd, CMSG_DATA(first), sizeof *fd);
    }
    return got;
}

static bool is_well_formed(const tt_mate_message_t *message, ssize_t got, int rank)
{
    return got == (ssize_t)sizeof *message && message->magic == TT_MATE_MAGIC &&
           message->rank == rank;
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

static bool handle(tt_mate_t *mate, const tt_mate_message_t *message, int fd)
{
    switch ((tt_mate_message_kind_t)message->kind) {
    case TT_MATE_HELLO:
        return fd < 0 && handle_hello(mate, message);
    case TT_MATE_SEGMENT:
        if (fd < 0 || tt_heap_view_add(&mate->view, message->segment, fd, message->bytes) < 0) {
            return false;
        }
        mate->segments_seen++;
        return true;
    case TT_MATE_BYE:
        mate->has_left = true;
        return fd < 0;
    case TT_MATE_WAKE:
        return fd < 0; /* it has done its work by coming */
    }
    return false;
}

static void hang_up(tt_mate_t *mate)
{
    mate->state = mate->has_left ? TT_MATE_LEFT : TT_MATE_DEAD;
    close(mate->fd);
    mate->fd = -1;
}

void tt_mates_receive(tt_mates_t *mates, int rank)
{
    tt_mate_t *mate = &mates->mates[rank];
    while (mate->fd >= 0) {
        tt_mate_message_t message;
        int fd;
        const ssize_t got = read_message(mate->fd, &message, &fd);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            hang_up(mate);
            return;
        }
        if (!is_well_formed(&message, got, rank) || !handle(mate, &message, fd)) {
            tt_log(TT_LOG_ERROR, "rank %d sent something that is no message of ours: %s", rank,
                   tutti_last_error());
            hang_up(mate);
            return;
        }
    }
}
