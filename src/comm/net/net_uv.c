/* The event loop over libuv. Every object begins with its uv handle and is freed by the handle's
 * close callback, so that closing is one call for the owner; libuv calls nothing else of a handle
 * that is closing.
 */
#include "comm/net/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <uv.h>

#include "comm/net/socket.h"
#include "core/base/alloc.h"

enum { BACKLOG = 2048, GONE_AT_ONCE = 32, REST_MS = 50 };

struct tt_loop {
    uv_loop_t uv;
    uv_async_t async;
    void (*woken)(void *user);
    void *user;
};

struct tt_timer {
    uv_timer_t uv;
    void (*expired)(void *user);
    void *user;
};

struct tt_watch {
    uv_poll_t uv;
    void (*ready)(void *user);
    void *user;
    int events; /* wanted now */
};

struct tt_listener {
    tt_watch_t *watch;
    tt_timer_t *rest;
    int fd, port;
};

static tutti_status_t fail_uv(int code, const char *what)
{
    return TT_FAIL(code == UV_ENOMEM ? TUTTI_ERR_NOMEM : TUTTI_ERR_IO, "%s: %s", what,
                   uv_strerror(code));
}

static void free_handle(uv_handle_t *handle)
{
    tt_free(handle->data);
}

/* handle->data is the block to free; NULL for the loop's own handle. */
static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle)) {
        uv_close(handle, handle->data != NULL ? free_handle : NULL);
    }
}

static void on_async(uv_async_t *async)
{
    const tt_loop_t *loop = (const tt_loop_t *)(const void *)async->loop;
    if (loop->woken != NULL) {
        loop->woken(loop->user);
    }
}

tutti_status_t tt_loop_create(void (*woken)(void *user), void *user, tt_loop_t **out)
{
    tt_loop_t *loop = tt_alloc(sizeof *loop, "event loop");
    TT_TRY_ALLOC(loop);
    loop->woken = woken;
    loop->user = user;
    int code = uv_loop_init(&loop->uv);
    if (code == 0) {
        code = uv_async_init(&loop->uv, &loop->async, on_async);
        if (code != 0) {
            uv_loop_close(&loop->uv);
        }
    }
    if (code != 0) {
        tt_free(loop);
        return fail_uv(code, "event loop");
    }
    *out = loop;
    return TUTTI_OK;
}

void tt_loop_run(tt_loop_t *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void tt_loop_stop(tt_loop_t *loop)
{
    uv_stop(&loop->uv);
}

void tt_loop_wake(tt_loop_t *loop)
{
    uv_async_send(&loop->async);
}

static void close_walked(uv_handle_t *handle, void *arg)
{
    (void)arg;
    close_handle(handle);
}

void tt_loop_release(tt_loop_t *loop)
{
    if (loop == NULL) {
        return;
    }
    uv_walk(&loop->uv, close_walked, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    TT_ASSERT(uv_loop_close(&loop->uv) == 0);
    tt_free(loop);
}

static void on_timer(uv_timer_t *uv)
{
    const tt_timer_t *timer = (const tt_timer_t *)(const void *)uv;
    timer->expired(timer->user);
}

tutti_status_t tt_timer_create(tt_loop_t *loop, void (*expired)(void *user), void *user,
                               tt_timer_t **out)
{
    tt_timer_t *timer = tt_alloc(sizeof *timer, "timer");
    TT_TRY_ALLOC(timer);
    timer->expired = expired;
    timer->user = user;
    uv_timer_init(&loop->uv, &timer->uv);
    timer->uv.data = timer;
    *out = timer;
    return TUTTI_OK;
}

void tt_timer_start(tt_timer_t *timer, int64_t after_ms)
{
    uv_update_time(timer->uv.loop);
    uv_timer_start(&timer->uv, on_timer, after_ms < 0 ? 0 : (uint64_t)after_ms, 0);
}

void tt_timer_stop(tt_timer_t *timer)
{
    uv_timer_stop(&timer->uv);
}

void tt_timer_close(tt_timer_t *timer)
{
    if (timer != NULL) {
        close_handle((uv_handle_t *)&timer->uv);
    }
}

/* An error of the poll counts as ready: the owner's read or write says what it is. */
static void on_poll(uv_poll_t *uv, int status, int events)
{
    (void)status;
    (void)events;
    const tt_watch_t *watch = (const tt_watch_t *)(const void *)uv;
    watch->ready(watch->user);
}

/* To ask again for what is wanted already would cost system calls. */
void tt_watch_want(tt_watch_t *watch, bool reading, bool writing)
{
    const int events =
        (reading ? UV_READABLE | UV_DISCONNECT : 0) | (writing ? (int)UV_WRITABLE : 0);
    if (events == watch->events) {
        return;
    }
    watch->events = events;
    if (events != 0) {
        uv_poll_start(&watch->uv, events, on_poll);
    } else {
        uv_poll_stop(&watch->uv);
    }
}

tutti_status_t tt_watch_create(tt_loop_t *loop, int fd, void (*ready)(void *user), void *user,
                               tt_watch_t **out)
{
    tt_watch_t *watch = tt_alloc(sizeof *watch, "watch");
    TT_TRY_ALLOC(watch);
    watch->ready = ready;
    watch->user = user;
    const int code = uv_poll_init(&loop->uv, &watch->uv, fd);
    if (code != 0) {
        tt_free(watch);
        return fail_uv(code, "watching a descriptor");
    }
    watch->uv.data = watch;
    tt_watch_want(watch, true, false);
    *out = watch;
    return TUTTI_OK;
}

void tt_watch_close(tt_watch_t *watch)
{
    if (watch != NULL) {
        close_handle((uv_handle_t *)&watch->uv);
    }
}

/* The fd; below 0: errno says why. */
static int listen_at(const struct sockaddr *address, socklen_t bytes)
{
    const int fd = tt_socket_open(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, address, bytes) != 0 || listen(fd, BACKLOG) != 0) {
        const int code = errno;
        tt_socket_close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

static tutti_status_t bind_listener(tt_listener_t *listener, const char *host, int port)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof(struct sockaddr_in);
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)&address) != 0) {
        bytes = sizeof(struct sockaddr_in6);
        if (uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address) != 0) {
            return TT_FAIL(TUTTI_ERR_IO,
                           "cannot listen on %s, port %d: want an address in "
                           "numbers",
                           host, port);
        }
    }
    listener->fd = listen_at((const struct sockaddr *)&address, bytes);
    if (listener->fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot listen on %s, port %d", host, port);
    }
    getsockname(listener->fd, (struct sockaddr *)&address, &bytes);
    /* The port lies at the same place in both kinds of address. */
    listener->port = ntohs(((const struct sockaddr_in *)&address)->sin_port);
    return TUTTI_OK;
}

static void end_rest(void *user)
{
    const tt_listener_t *listener = user;
    tt_watch_want(listener->watch, true, false);
}

tutti_status_t tt_listener_open(tt_loop_t *loop, const char *host, int port,
                                void (*connected)(void *user), void *user, tt_listener_t **out)
{
    tutti_status_t status;
    tt_listener_t *listener = tt_alloc(sizeof *listener, "listener");
    TT_TRY_ALLOC(listener);
    TT_TRY_GOTO(status, bind_listener(listener, host, port), free_listener);
    TT_TRY_GOTO(status, tt_timer_create(loop, end_rest, listener, &listener->rest), close_socket);
    TT_TRY_GOTO(status, tt_watch_create(loop, listener->fd, connected, user, &listener->watch),
                close_timer);
    *out = listener;
    return TUTTI_OK;
close_timer:
    tt_timer_close(listener->rest);
close_socket:
    tt_socket_close(listener->fd);
free_listener:
    tt_free(listener);
    return status;
}

int tt_listener_port(const tt_listener_t *listener)
{
    return listener->port;
}

tutti_status_t tt_listener_accept(tt_listener_t *listener, int *out)
{
    int fd = tt_socket_accept(listener->fd, SOCK_NONBLOCK);
    for (int i = 0; i < GONE_AT_ONCE && fd >= 0 && tt_socket_has_ended(fd); i++) {
        tt_socket_close(fd);
        fd = tt_socket_accept(listener->fd, SOCK_NONBLOCK);
    }
    if (fd >= 0) {
        *out = fd;
        return TUTTI_OK;
    }
    /* A connection that ended while it waited is no error. */
    const bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return is_full ? TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "accepting a connection") : TUTTI_PENDING;
}

void tt_listener_rest(tt_listener_t *listener)
{
    tt_watch_want(listener->watch, false, false);
    tt_timer_start(listener->rest, REST_MS);
}

void tt_listener_close(tt_listener_t *listener)
{
    if (listener != NULL) {
        tt_watch_close(listener->watch);
        tt_timer_close(listener->rest);
        tt_socket_close(listener->fd);
        tt_free(listener);
    }
}
