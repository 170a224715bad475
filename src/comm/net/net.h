/* The seam between Tutti and the outside: an event loop, its timers, watched descriptors and tcp
 * listeners. net_uv.c implements it with libuv, so nothing above this folder knows libuv;
 * channel_stream.h puts channels on it.
 *
 * A loop and everything on it belong to the thread that runs it; tt_loop_wake() alone may be called
 * from anywhere. Once something is closed, none of its callbacks is called any more, and memory
 * that was lent to it (buffers, users) may go.
 */
#ifndef TT_NET_H
#define TT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef struct tt_loop tt_loop_t;
typedef struct tt_timer tt_timer_t;
typedef struct tt_watch tt_watch_t;
typedef struct tt_listener tt_listener_t;

/* `woken` runs in the loop's thread after one or more tt_loop_wake(); it may be NULL. */
tutti_status_t tt_loop_create(void (*woken)(void *user), void *user, tt_loop_t **out);

/* Until tt_loop_stop(). */
void tt_loop_run(tt_loop_t *loop);
void tt_loop_stop(tt_loop_t *loop);

/* Any thread. */
void tt_loop_wake(tt_loop_t *loop);

/* Closes what is still open on it. In the loop's thread, or when none runs it. */
void tt_loop_release(tt_loop_t *loop);

tutti_status_t tt_timer_create(tt_loop_t *loop, void (*expired)(void *user), void *user,
                               tt_timer_t **out);

/* Once, after_ms from now; a running timer starts again. */
void tt_timer_start(tt_timer_t *timer, int64_t after_ms);
void tt_timer_stop(tt_timer_t *timer);
void tt_timer_close(tt_timer_t *timer);

/* A descriptor of the caller's: `ready` is called while it can be read or is at its end. Close the
 * watch before the descriptor. */
tutti_status_t tt_watch_create(tt_loop_t *loop, int fd, void (*ready)(void *user), void *user,
                               tt_watch_t **out);

/* From now on `ready` is called while it can be read, or written, or either. */
void tt_watch_want(tt_watch_t *watch, bool reading, bool writing);
void tt_watch_close(tt_watch_t *watch);

/* A numeric address; port 0 lets the system choose. `connected` is called while connections wait
 * to be accepted; it need not take all of them at once. */
tutti_status_t tt_listener_open(tt_loop_t *loop, const char *host, int port,
                                void (*connected)(void *user), void *user, tt_listener_t **out);
int tt_listener_port(const tt_listener_t *listener);

/* The next connection, non-blocking and closed on exec; PENDING when none waits, NOMEM when the
 * process has no descriptor left. */
tutti_status_t tt_listener_accept(tt_listener_t *listener, int *out);

/* When there is no descriptor left: `connected` is not called for 50 ms. Nothing says when there is
 * one again, and connections that wait would call it at once. */
void tt_listener_rest(tt_listener_t *listener);
void tt_listener_close(tt_listener_t *listener);

#endif
