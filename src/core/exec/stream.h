/* Streams: work that a thread of its own does, in the order in which it was handed over.
 *
 *     tt_stream_t *stream;
 *     TT_TRY(tt_stream_create(&(tt_stream_options_t){.name = "strict:0"}, &stream));
 *     TT_TRY(tt_stream_push(stream, &(tt_work_t){"scale", run, &job, sizeof job}));
 *     const tt_event_t event = tt_stream_event(stream);
 *     …
 *     TT_TRY(tt_event_wait(event, deadline));
 *
 *     pushed   | 1 | 2 | 3 | 4 | 5 | 6 |
 *                        ^ done      ^ the event: done when the first six are
 *
 * The first work that fails is kept, with its name and text; what stands behind it is skipped. Who
 * asks for values looks (tt_stream_check()): all are told who ask for some that are lost, and the
 * skipping goes on. tt_event_wait() ends it, and tells all who wait at that time; what is pushed
 * from then on is done again. (CUDA's errors of a kernel stay for ever; here the values are lost,
 * the device is not.)
 *
 * Any thread may push. After fork() the child has no stream thread: pushing and waiting are STATE.
 */
#ifndef TT_STREAM_H
#define TT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/base/fail.h"

typedef struct tutti_stream tt_stream_t;

typedef struct {
    const char *name; /* of the device, in failures; at most 31 bytes */
    void *user;       /* of who makes it: tt_stream_user() */
} tt_stream_options_t;

typedef struct {
    const char *name;                       /* a literal: "matmul" */
    tutti_status_t (*run)(void *arguments); /* on the stream's thread */
    const void *arguments;                  /* copied: aligned to 16 bytes */
    size_t bytes;                           /* at most TT_WORK_BYTES_MAX */
    int64_t least_ns;                       /* it takes at least so long; 0: as long as it does */
    bool is_always;                         /* it is not skipped behind a failure */
} tt_work_t;

enum { TT_WORK_BYTES_MAX = 4096 };

tutti_status_t tt_stream_create(const tt_stream_options_t *options, tt_stream_t **out);

/* Waits for the work that was pushed; a failure that nobody was told of is logged. Those who hold
 * it still may look at its events; who pushes gets STATE. */
void tt_stream_release(tt_stream_t *stream);

/* Hold it beside its owner, and let it go. */
void tt_stream_retain(tt_stream_t *stream);
void tt_stream_let_go(tt_stream_t *stream);
bool tt_stream_is_held(tt_stream_t *stream);

void *tt_stream_user(const tt_stream_t *stream);

/* Errors: STATE (forked; released). */
tutti_status_t tt_stream_check_open(tt_stream_t *stream);

/* A point between two pieces of work: everything that was pushed before. */
typedef struct {
    tt_stream_t *stream;
    uint64_t count;
    uint32_t told; /* failures, by then */
} tt_event_t;

tt_event_t tt_stream_event(tt_stream_t *stream);

/* Returns when the work is in the queue: at once, unless 1 MiB of work is. Errors: STATE (forked,
 * released); TIMEOUT (there was no room in TUTTI_TIMEOUT_MS). */
tutti_status_t tt_stream_push(tt_stream_t *stream, const tt_work_t *work);

/* The same. behind: out, the event directly behind it, before what other threads push. */
tutti_status_t tt_stream_push_event(tt_stream_t *stream, const tt_work_t *work, tt_event_t *behind);

/* Calls release(object) on the stream's thread behind what was pushed, also where that failed: the
 * object is something that the work uses, so room is waited for as long as the work takes. Errors:
 * STATE (forked, released); it is not called then. */
tutti_status_t tt_stream_push_release(tt_stream_t *stream, void (*release)(void *object),
                                      void *object);

bool tt_event_is_done(tt_event_t event);

/* Until everything before the event is done; ends the skipping. Errors: TIMEOUT; STATE (forked);
 * the first failure since the last wait that returned one, also of work behind the event:
 * "strict:0: gather: …"; the one that another thread was told of since the event was made, if it
 * spoiled the last work before it. */
tutti_status_t tt_event_wait(tt_event_t event, tt_deadline_t deadline);

/* The same, whatever came of the work: failures stay, and are not told. Errors: TIMEOUT; STATE
 * (forked). */
tutti_status_t tt_event_pass(tt_event_t event, tt_deadline_t deadline);

/* Whether the work between two events, which has been passed, was done. The skipping goes on.
 * Errors: the failure for which some of it was not, whether that was told or not. Of work before
 * the last four failures nobody knows: it is taken for lost. */
tutti_status_t tt_stream_check(tt_event_t before, tt_event_t after);

/* Whether what is before an event, which has been passed, was done: the values that are there now.
 * Errors: as of tt_stream_check(), but for what had been told when the event was made. */
tutti_status_t tt_event_check(tt_event_t event);

/* Whether the caller is work of the stream. */
bool tt_stream_is_inside(const tt_stream_t *stream);

/* What is pushed to `stream` from now on begins when the event of another one is done. If what is
 * before the event failed there or was skipped, this stream fails, too, also if somebody has been
 * told since the event was made. The other stream may be released before. The wait itself is not
 * skipped behind a failure: what it keeps from being used too early, the other stream uses still.
 * Errors: those of tt_stream_push(). */
tutti_status_t tt_stream_wait_event(tt_stream_t *stream, tt_event_t event);

/* The same, whatever came of the work before the event: it uses memory of this stream's. Errors:
 * those of tt_stream_push_release(). */
tutti_status_t tt_stream_stay_behind(tt_stream_t *stream, tt_event_t event);

/* What becomes of a piece of work, for who measures. Points in time are of tt_clock_ns(). */
typedef struct {
    const char *name;                    /* a literal: "matmul", "wait", "release" */
    uint64_t index;                      /* of all that was pushed; counts from 0, as events do */
    tt_event_t awaited;                  /* of a wait: to be compared, for its stream may be gone */
    int64_t pushed_ns, begin_ns, end_ns; /* end_ns is 0 before it is done */
} tt_stream_moment_t;

/* Called on the stream's thread, before and behind each piece of work. */
typedef struct {
    void (*before)(void *user, const tt_stream_moment_t *moment); /* NULL: nothing */
    void (*behind)(void *user, const tt_stream_moment_t *moment);
    void *user;
} tt_stream_watch_t;

/* From now on; borrowed until it is taken away (NULL), which is what it is at first. Nothing may be
 * under way. Cost: two looks at the clock, and the calls, for each piece. */
void tt_stream_set_watch(tt_stream_t *stream, const tt_stream_watch_t *watch);

/* Pieces of work that were done, and that were skipped behind a failure. */
typedef struct {
    uint64_t done, skipped;
} tt_stream_stats_t;

tt_stream_stats_t tt_stream_stats(tt_stream_t *stream);

#endif
