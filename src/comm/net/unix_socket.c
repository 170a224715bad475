/* A connect waits in the kernel, in the order in which callers came. A caller that tried again and
 * again instead would find the queue filled by strangers that do nothing else. SO_SNDTIMEO bounds
 * that wait.
 *
 * The listener accepts a few callers at a time and looks at all who are there before the next few,
 * so that a caller that speaks at once, as ours do, is not pushed out by later ones.
 */
#include "comm/net/unix_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "comm/net/socket.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

enum { BACKLOG = 1024, ACCEPTS_AT_ONCE = 16, NAME_BYTES_MAX = 100 };

tt_unix_address_t tt_unix_address(const char *name)
{
    tt_unix_address_t out = {.where.sun_family = AF_UNIX};
    char *path = out.where.sun_path + 1; /* the leading 0 makes it abstract */
    const int length = snprintf(path, NAME_BYTES_MAX + 1, "%s", name);
    TT_ASSERT(length >= 0 && length <= NAME_BYTES_MAX);
    out.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return out;
}

static tutti_status_t fail_open(void)
{
    return tt_is_out_of_descriptors(errno)
               ? tt_fail_out_of_descriptors("cannot open a Unix socket")
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot open a Unix socket");
}

void tt_unix_set_send_deadline(int fd, tt_deadline_t deadline)
{
    const int left_ms = tt_deadline_left_ms(deadline);
    struct timeval time = {0}; /* for ever */
    if (left_ms >= 0) {
        time.tv_sec = left_ms / 1000;
        time.tv_usec = left_ms % 1000 * 1000 + (left_ms == 0); /* not 0, which is for ever */
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

static tutti_status_t connect_until(int fd, const tt_unix_address_t *address,
                                    tt_deadline_t deadline)
{
    for (;;) {
        tt_unix_set_send_deadline(fd, deadline);
        if (connect(fd, (const struct sockaddr *)&address->where, address->bytes) == 0) {
            return TUTTI_OK;
        }
        if (errno == ECONNREFUSED) {
            return TUTTI_PENDING;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot connect to a Unix socket");
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT,
                           "too many connect to the Unix socket %s (see /proc/net/unix); it had "
                           "no place left in time",
                           address->where.sun_path + 1);
        }
    }
}

tutti_status_t tt_unix_connect(const tt_unix_address_t *address, tt_deadline_t deadline, int *out)
{
    const int fd = tt_socket_open(AF_UNIX, SOCK_SEQPACKET);
    if (fd < 0) {
        return fail_open();
    }
    const tutti_status_t status = connect_until(fd, address, deadline);
    if (status != TUTTI_OK) {
        tt_socket_close(fd);
        return status;
    }
    *out = fd;
    return TUTTI_OK;
}

bool tt_unix_is_same_user(int fd, uid_t *uid)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        return false;
    }
    *uid = peer.uid;
    return peer.uid == geteuid();
}

/* The number of a process that has ended may be given to another one between the two calls of an
 * older kernel: so small a chance is taken there. */
int tt_unix_peer_process(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid == getpid()) {
        return -1;
    }
    int pidfd = -1;
    bytes = sizeof pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0) {
        return pidfd;
    }
    return peer.pid > 0 ? (int)syscall(SYS_pidfd_open, peer.pid, 0) : -1;
}

tutti_status_t tt_unix_listen(const tt_unix_address_t *address, tt_unix_listener_t *out)
{
    const int fd = tt_socket_open(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (fd < 0) {
        return fail_open();
    }
    tutti_status_t status = TUTTI_OK;
    if (bind(fd, (const struct sockaddr *)&address->where, address->bytes) != 0) {
        status = errno == EADDRINUSE ? TUTTI_PENDING
                                     : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot bind a Unix socket");
    } else if (listen(fd, BACKLOG) != 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot listen on a Unix socket");
    }
    if (status != TUTTI_OK) {
        tt_socket_close(fd);
        return status;
    }
    *out = (tt_unix_listener_t){.fd = fd};
    return TUTTI_OK;
}

/* Out of the list. */
static int take_caller(tt_unix_listener_t *listener, int index)
{
    const int fd = listener->callers[index];
    listener->count--;
    memmove(&listener->callers[index], &listener->callers[index + 1],
            (size_t)(listener->count - index) * sizeof fd);
    return fd;
}

static void drop_oldest(tt_unix_listener_t *listener)
{
    tt_socket_close(take_caller(listener, 0));
}

void tt_unix_listener_close(tt_unix_listener_t *listener)
{
    while (listener->count > 0) {
        drop_oldest(listener);
    }
    tt_socket_close(listener->fd);
    listener->fd = -1;
}

int tt_unix_listener_polls(const tt_unix_listener_t *listener, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = listener->fd, .events = POLLIN};
    for (int i = 0; i < listener->count; i++) {
        polls[i + 1] = (struct pollfd){.fd = listener->callers[i], .events = POLLIN};
    }
    return listener->count + 1;
}

/* END: no connection waits. */
static tutti_status_t accept_one(tt_unix_listener_t *listener)
{
    uid_t uid;
    const int fd = tt_socket_accept(listener->fd, 0);
    if (fd < 0 && tt_is_out_of_descriptors(errno)) {
        if (listener->count == 0) {
            return tt_fail_out_of_descriptors("cannot take in another rank of this host");
        }
        drop_oldest(listener);
        return TUTTI_OK;
    }
    if (fd < 0) {
        return TUTTI_END;
    }
    if (!tt_unix_is_same_user(fd, &uid)) {
        tt_socket_close(fd);
        return TUTTI_OK;
    }
    if (listener->count == TT_UNIX_CALLERS_MAX) {
        drop_oldest(listener);
    }
    listener->callers[listener->count++] = fd;
    return TUTTI_OK;
}

/* The first caller who has said what is wanted; who has said something else, or gone, is closed. */
static int find_speaker(tt_unix_listener_t *listener, void *message, size_t bytes)
{
    for (int i = 0; i < listener->count;) {
        const int fd = listener->callers[i];
        const ssize_t got = recv(fd, message, bytes, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
        if (got == (ssize_t)bytes) {
            return take_caller(listener, i);
        }
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            i++;
        } else {
            tt_socket_close(take_caller(listener, i));
        }
    }
    return -1;
}

tutti_status_t tt_unix_listener_next(tt_unix_listener_t *listener, void *message, size_t bytes,
                                     int *out)
{
    *out = find_speaker(listener, message, bytes);
    for (int i = 0; i < ACCEPTS_AT_ONCE && *out < 0; i++) {
        const tutti_status_t status = accept_one(listener);
        if (status != TUTTI_OK) {
            TT_TRY(status);
            break;
        }
        *out = find_speaker(listener, message, bytes);
    }
    return TUTTI_OK;
}
