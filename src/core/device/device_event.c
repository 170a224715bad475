/* Events and streams as users see them. An event refers to a mark: a record in a stream, which
 * writes down when it was passed. Recording the event again makes another mark, so who waits for
 * the first one is not misled. Cost of a record: an allocation and the push.
 */
#include <inttypes.h>
#include <pthread.h>

#include "core/base/alloc.h"
#include "core/base/ref.h"
#include "core/device/device.h"

typedef struct {
    tt_ref_t ref; /* of the event, of the record in the stream, of those who look */
    tt_event_t point;
    _Atomic int64_t passed_ns; /* 0: not yet */
} mark_t;

struct tutti_event {
    tt_ref_t ref;
    pthread_mutex_t lock;
    mark_t *mark; /* NULL: it was not recorded; under the lock */
};

/* ---- marks ----------------------------------------------------------------------------------- */

static void drop(mark_t *mark)
{
    if (mark != NULL && tt_ref_release(&mark->ref)) {
        if (mark->point.stream != NULL) {
            tt_stream_let_go(mark->point.stream);
        }
        tt_free(mark);
    }
}

/* On the stream's thread. */
static tutti_status_t pass(void *arguments)
{
    mark_t *mark = *(mark_t **)arguments;
    atomic_store(&mark->passed_ns, tt_clock_ns());
    drop(mark);
    return TUTTI_OK;
}

static tutti_status_t push_mark(mark_t *mark, tt_stream_t *stream)
{
    if (stream == NULL) {
        atomic_store(&mark->passed_ns, tt_clock_ns());
        return TUTTI_OK;
    }
    tt_stream_retain(stream);
    mark->point.stream = stream;
    tt_ref_retain(&mark->ref);
    const tt_work_t work = {"event", pass, &mark, sizeof mark, 0, .is_always = true};
    const tutti_status_t status = tt_stream_push_event(stream, &work, &mark->point);
    if (status < 0) {
        drop(mark);
    }
    return status;
}

/* Retained; NULL: there is none. */
static mark_t *mark_of(tutti_event_t *event)
{
    pthread_mutex_lock(&event->lock);
    mark_t *mark = event->mark;
    if (mark != NULL) {
        tt_ref_retain(&mark->ref);
    }
    pthread_mutex_unlock(&event->lock);
    return mark;
}

static bool is_passed(const mark_t *mark)
{
    return mark == NULL || mark->point.stream == NULL || tt_event_is_done(mark->point);
}

/* Whether the work before a point was done. */
static tutti_status_t wait_for(tt_event_t point, tt_deadline_t deadline)
{
    TT_TRY(tt_event_pass(point, deadline));
    return tt_event_check(point);
}

/* ---- events ---------------------------------------------------------------------------------- */

tutti_status_t tutti_event_create(tutti_event_t **out)
{
    tutti_event_t *event = tt_alloc(sizeof *event, "event");
    TT_TRY_ALLOC(event);
    tt_ref_init(&event->ref);
    pthread_mutex_init(&event->lock, NULL);
    *out = event;
    return TUTTI_OK;
}

tutti_event_t *tutti_event_retain(tutti_event_t *event)
{
    tt_ref_retain(&event->ref);
    return event;
}

void tutti_event_release(tutti_event_t *event)
{
    if (event != NULL && tt_ref_release(&event->ref)) {
        drop(event->mark);
        pthread_mutex_destroy(&event->lock);
        tt_free(event);
    }
}

tutti_status_t tutti_event_record(tutti_event_t *event, tutti_stream_t *stream)
{
    mark_t *mark = tt_alloc(sizeof *mark, "event");
    TT_TRY_ALLOC(mark);
    tt_ref_init(&mark->ref);
    const tutti_status_t status = push_mark(mark, stream);
    if (status < 0) {
        drop(mark);
        return status;
    }
    pthread_mutex_lock(&event->lock);
    mark_t *before = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&event->lock);
    drop(before);
    return TUTTI_OK;
}

bool tutti_event_is_done(tutti_event_t *event)
{
    mark_t *mark = mark_of(event);
    const bool is_done = is_passed(mark);
    drop(mark);
    return is_done;
}

tutti_status_t tutti_event_synchronize(tutti_event_t *event, int64_t timeout_ms)
{
    tt_deadline_t deadline;
    TT_TRY(tt_device_deadline("event_synchronize", timeout_ms, &deadline));
    mark_t *mark = mark_of(event);
    const bool is_work = mark != NULL && mark->point.stream != NULL;
    const tutti_status_t status = is_work ? wait_for(mark->point, deadline) : TUTTI_OK;
    drop(mark);
    return status;
}

static tutti_status_t read_time(tutti_event_t *event, const char *which, int64_t *out)
{
    mark_t *mark = mark_of(event);
    *out = mark == NULL ? 0 : atomic_load(&mark->passed_ns);
    const bool is_recorded = mark != NULL;
    drop(mark);
    return *out != 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_STATE, "event_elapsed_ns: the %s has not been %s", which,
                               is_recorded ? "passed: synchronize it" : "recorded");
}

tutti_status_t tutti_event_elapsed_ns(tutti_event_t *begin, tutti_event_t *end, int64_t *out)
{
    int64_t from, to;
    TT_TRY(read_time(begin, "begin", &from));
    TT_TRY(read_time(end, "end", &to));
    *out = to - from;
    return TUTTI_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

tutti_status_t tutti_stream_create(tutti_device_t *device, tutti_stream_t **out)
{
    tt_streams_t *streams = tt_device_streams(device);
    if (streams != NULL) {
        return tt_streams_take(streams, out);
    }
    *out = NULL;
    return TUTTI_OK;
}

void tutti_stream_release(tutti_stream_t *stream)
{
    if (stream != NULL) {
        tt_stream_let_go(stream);
    }
}

tutti_status_t tutti_device_set_stream(tutti_device_t *device, tutti_stream_t *stream)
{
    tt_streams_t *streams = tt_device_streams(device);
    if (streams != NULL) {
        return tt_streams_use(streams, stream);
    }
    return stream == NULL ? TUTTI_OK
                          : TT_FAIL(TUTTI_ERR_ARG, "device_set_stream: %s has no streams",
                                    device == NULL ? "the host" : tutti_device_name(device));
}

tutti_stream_t *tutti_device_stream(tutti_device_t *device)
{
    tt_streams_t *streams = tt_device_streams(device);
    return streams == NULL ? NULL : tt_streams_current(streams);
}

tutti_status_t tutti_stream_wait_event(tutti_stream_t *stream, tutti_event_t *event)
{
    if (stream == NULL) {
        return tutti_event_synchronize(event, 0);
    }
    TT_TRY(tt_stream_check_open(stream));
    mark_t *mark = mark_of(event);
    const bool is_work = mark != NULL && mark->point.stream != NULL;
    const tutti_status_t status = is_work ? tt_stream_wait_event(stream, mark->point) : TUTTI_OK;
    drop(mark);
    return status;
}

tutti_status_t tutti_stream_synchronize(tutti_stream_t *stream, int64_t timeout_ms)
{
    tt_deadline_t deadline;
    TT_TRY(tt_device_deadline("stream_synchronize", timeout_ms, &deadline));
    if (stream == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_stream_check_open(stream));
    return wait_for(tt_stream_event(stream), deadline);
}
