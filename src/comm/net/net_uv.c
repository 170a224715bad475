/* The event loop over libuv. Every object begins with its uv handle and is freed by the handle's
 * close callback, so that closing is one call for the owner; libuv calls nothing else of a handle
 * that is closing.
 */
#include "comm/net/net.h"

#include <uv.h>

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
    void (*ready)(void *user);
    void *user;
    int events; /* wanted now */
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
