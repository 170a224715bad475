/* Blocking tcp with deadlines: non-blocking sockets and poll. */
#include "comm/net/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static tutti_status_t wait_for(int fd, short events, tt_deadline_t deadline)
{
    struct pollfd item = {.fd = fd, .events = events};
    for (;;) {
        const int n = poll(&item, 1, tt_deadline_left_ms(deadline));
        if (n > 0) {
            return TUTTI_OK;
        }
        if (n < 0 && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "poll");
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "time is up, the other side does not answer");
        }
    }
}

static bool is_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

tutti_status_t tt_socket_send(int fd, const void *data, size_t bytes, tt_deadline_t deadline)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (n > 0) {
            done += (size_t)n;
        } else if (is_later()) {
            TT_TRY(wait_for(fd, POLLOUT, deadline));
        } else {
            return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "sending failed");
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_socket_receive(int fd, void *data, size_t bytes, tt_deadline_t deadline)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = recv(fd, (char *)data + done, bytes - done, 0);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return TT_FAIL(TUTTI_ERR_PEER, "the other side closed the connection");
        } else if (is_later()) {
            TT_TRY(wait_for(fd, POLLIN, deadline));
        } else {
            return TT_FAIL_ERRNO(TUTTI_ERR_PEER, "receiving failed");
        }
    }
    return TUTTI_OK;
}

void tt_socket_keep_alive(int fd)
{
    enum { IDLE_S = 1, BETWEEN_S = 1, PROBES = 5 };
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){IDLE_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){BETWEEN_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){PROBES}, sizeof(int));
}

static tutti_status_t connect_to(const struct addrinfo *address, tt_deadline_t deadline, int *out)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "socket");
    }
    tutti_status_t status = TUTTI_OK;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        int code = errno;
        if (code == EINPROGRESS) {
            status = wait_for(fd, POLLOUT, deadline);
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &(socklen_t){sizeof code});
        }
        errno = code;
        status = status < 0  ? status
                 : code != 0 ? TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot connect")
                             : TUTTI_OK;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    tt_socket_keep_alive(fd);
    *out = fd;
    return TUTTI_OK;
}

/* "localhost" is this host by definition (RFC 6761, 6.3), also where /etc/hosts is missing. */
static const char *numeric_if_local(const char *host)
{
    return strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
}

tutti_status_t tt_socket_connect(const char *host, int port, tt_deadline_t deadline, int *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(numeric_if_local(host), service, &hints, &list);
    if (code != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "host %s: %s", host, gai_strerror(code));
    }
    tutti_status_t status = TUTTI_ERR_IO;
    for (const struct addrinfo *at = list; at != NULL && status < 0; at = at->ai_next) {
        status = connect_to(at, deadline, out);
    }
    freeaddrinfo(list);
    return status;
}
