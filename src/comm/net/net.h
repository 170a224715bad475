/* The seam between Tutti and the outside: an event loop, its timers and watched
 * descriptors. net_uv.c implements it with libuv, so nothing above this folder knows libuv.
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

#endif
