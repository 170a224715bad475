/* The event loop over libuv. Every object begins with its uv handle and is freed by the handle's
 * close callback, so that closing is one call for the owner; libuv calls nothing else of a handle
 * that is closing, except a cancelled write, which is silenced here.
 */
#include "comm/net/net.h"

#include <stdbool.h>

#include <uv.h>

#include "comm/net/socket.h"
#include "core/base/alloc.h"

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
    void (*readable)(void *user);
    void *user;
};

struct tt_listener {
    uv_tcp_t uv;
    void (*connected)(void *user);
    void *user;
    int port;
};

struct tt_stream {
    uv_tcp_t uv;
    uv_write_t write;
    uv_buf_t buffer;
    bool is_wanted; /* the owner asked to receive and has not been given anything yet */
    const tt_stream_events_t *events;
    void *user;
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

/* An error of the poll counts as readable: the owner's read says what it is. */
static void on_poll(uv_poll_t *uv, int status, int events)
{
    (void)status;
    (void)events;
    const tt_watch_t *watch = (const tt_watch_t *)(const void *)uv;
    watch->readable(watch->user);
}

tutti_status_t tt_watch_create(tt_loop_t *loop, int fd, void (*readable)(void *user), void *user,
                               tt_watch_t **out)
{
    tt_watch_t *watch = tt_alloc(sizeof *watch, "watch");
    TT_TRY_ALLOC(watch);
    watch->readable = readable;
    watch->user = user;
    const int code = uv_poll_init(&loop->uv, &watch->uv, fd);
    if (code != 0) {
        tt_free(watch);
        return fail_uv(code, "watching a descriptor");
    }
    watch->uv.data = watch;
    uv_poll_start(&watch->uv, UV_READABLE | UV_DISCONNECT, on_poll);
    *out = watch;
    return TUTTI_OK;
}

void tt_watch_close(tt_watch_t *watch)
{
    if (watch != NULL) {
        close_handle((uv_handle_t *)&watch->uv);
    }
}

static void on_connection(uv_stream_t *uv, int status)
{
    const tt_listener_t *listener = (const tt_listener_t *)(const void *)uv;
    if (status == 0) {
        listener->connected(listener->user);
    }
}

static int bind_listener(tt_listener_t *listener, const char *host, int port)
{
    struct sockaddr_storage address = {0};
    int length = sizeof address;
    int code = uv_ip4_addr(host, port, (struct sockaddr_in *)&address);
    if (code != 0) {
        code = uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address);
    }
    code = code != 0 ? code : uv_tcp_bind(&listener->uv, (struct sockaddr *)&address, 0);
    code = code != 0 ? code : uv_listen((uv_stream_t *)&listener->uv, 2048, on_connection);
    code =
        code != 0 ? code : uv_tcp_getsockname(&listener->uv, (struct sockaddr *)&address, &length);
    /* The port lies at the same place in both kinds of address. */
    const struct sockaddr_in *bound = (const struct sockaddr_in *)&address;
    listener->port = ntohs(bound->sin_port);
    return code;
}

tutti_status_t tt_listener_open(tt_loop_t *loop, const char *host, int port,
                                void (*connected)(void *user), void *user, tt_listener_t **out)
{
    tt_listener_t *listener = tt_alloc(sizeof *listener, "listener");
    TT_TRY_ALLOC(listener);
    listener->connected = connected;
    listener->user = user;
    int code = uv_tcp_init(&loop->uv, &listener->uv);
    TT_ASSERT(code == 0);
    listener->uv.data = listener;
    code = bind_listener(listener, host, port);
    if (code != 0) {
        close_handle((uv_handle_t *)&listener->uv);
        return TT_FAIL(TUTTI_ERR_IO, "cannot listen on %s, port %d: %s", host, port,
                       uv_strerror(code));
    }
    *out = listener;
    return TUTTI_OK;
}

int tt_listener_port(const tt_listener_t *listener)
{
    return listener->port;
}

tutti_status_t tt_stream_accept(tt_listener_t *listener, const tt_stream_events_t *events,
                                void *user, tt_stream_t **out)
{
    tt_stream_t *stream = tt_alloc(sizeof *stream, "stream");
    TT_TRY_ALLOC(stream);
    stream->events = events;
    stream->user = user;
    int code = uv_tcp_init(listener->uv.loop, &stream->uv);
    TT_ASSERT(code == 0);
    stream->uv.data = stream;
    code = uv_accept((uv_stream_t *)&listener->uv, (uv_stream_t *)&stream->uv);
    if (code != 0) {
        close_handle((uv_handle_t *)&stream->uv);
        return fail_uv(code, "accepting a connection");
    }
    uv_tcp_nodelay(&stream->uv, 1);
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&stream->uv, &fd) == 0) {
        tt_socket_keep_alive(fd);
    }
    *out = stream;
    return TUTTI_OK;
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    *buffer = ((tt_stream_t *)(void *)handle)->buffer;
}

/* Reading is stopped only if the owner did not ask for more meanwhile: that saves two system calls
 * per message. */
static void on_read(uv_stream_t *uv, ssize_t bytes, const uv_buf_t *buffer)
{
    (void)buffer;
    tt_stream_t *stream = (tt_stream_t *)(void *)uv;
    if (bytes == 0) { /* nothing to read just now */
        return;
    }
    stream->is_wanted = false;
    stream->events->received(stream->user, bytes < 0 ? 0 : (size_t)bytes);
    if (!stream->is_wanted && !uv_is_closing((uv_handle_t *)uv)) {
        uv_read_stop(uv);
    }
}

void tt_stream_receive(tt_stream_t *stream, void *buffer, size_t bytes)
{
    TT_ASSERT(bytes > 0);
    stream->buffer = uv_buf_init(buffer, bytes > INT32_MAX ? INT32_MAX : (unsigned)bytes);
    stream->is_wanted = true;
    if (!uv_is_active((uv_handle_t *)&stream->uv)) {
        uv_read_start((uv_stream_t *)&stream->uv, give_buffer, on_read);
    }
}

static void on_written(uv_write_t *write, int status)
{
    const tt_stream_t *stream = (const tt_stream_t *)(const void *)write->handle;
    if (uv_is_closing((const uv_handle_t *)write->handle)) {
        return;
    }
    if (status == 0) {
        stream->events->sent(stream->user);
    } else {
        stream->events->received(stream->user, 0);
    }
}

void tt_stream_send(tt_stream_t *stream, const void *data, size_t bytes)
{
    TT_ASSERT(bytes <= INT32_MAX);
    uv_buf_t buffer = {.base = (char *)(uintptr_t)data, .len = bytes};
    const int code = uv_write(&stream->write, (uv_stream_t *)&stream->uv, &buffer, 1, on_written);
    TT_ASSERT(code == 0 || code == UV_EPIPE || code == UV_EBADF);
}

void tt_stream_close(tt_stream_t *stream)
{
    if (stream != NULL) {
        close_handle((uv_handle_t *)&stream->uv);
    }
}
