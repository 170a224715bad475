/* The stream of a family. It keeps the devices whose tensors it was given, and for each the event
 * behind which the device's stream does not look at this one. */
#include "comm/group/family_stream.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { DEVICES_MAX = 16, HEED_NS = 2000000 };

/* Retained. `last` has been reached when the device does not look at the family's stream. */
typedef struct {
    tt_device_t *device;
    tt_event_t last;
} used_t;

struct tt_group_stream {
    tt_stream_t *stream;
    tt_streamed_t *first, **end; /* in order */
    used_t used[DEVICES_MAX];
    int used_count;
    tutti_status_t status; /* of the last call that failed; the stream's thread alone */
    char cause[TT_ERROR_TEXT_BYTES];
};

static void drop_tensors(tt_streamed_t *call)
{
    for (tt_streamed_t *part = call->parts; part != NULL; part = part->next) {
        drop_tensors(part);
    }
    tt_tensors_release(call->views, (size_t)call->view_count);
    call->view_count = 0;
}

void tt_streamed_free(tt_streamed_t *call)
{
    while (call->parts != NULL) {
        tt_streamed_t *part = call->parts;
        call->parts = part->next;
        tt_streamed_free(part);
    }
    drop_tensors(call);
    tt_free(call->error);
    tt_free(call);
}

void tt_streamed_let_go(tt_streamed_t *call)
{
    call->is_held = false;
    if (call->is_reaped) {
        tt_streamed_free(call);
    }
}

tutti_status_t tt_group_stream_find(tt_group_stream_t **stream, tt_group_stream_t **out)
{
    if (*stream == NULL) {
        tt_group_stream_t *made = tt_alloc(sizeof *made, "stream of groups");
        TT_TRY_ALLOC(made);
        made->end = &made->first;
        const tutti_status_t status =
            tt_stream_create(&(tt_stream_options_t){.name = "collectives"}, &made->stream);
        if (status < 0) {
            tt_free(made);
            return status;
        }
        *stream = made;
    }
    *out = *stream;
    return TUTTI_OK;
}

static tutti_status_t find_used(tt_group_stream_t *stream, tt_device_t *device, int *out)
{
    int i = 0;
    while (i < stream->used_count && stream->used[i].device != device) {
        i++;
    }
    if (i == DEVICES_MAX) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "calls on tensors of more than %d devices",
                       DEVICES_MAX);
    }
    if (i == stream->used_count) {
        stream->used[stream->used_count++].device = tutti_device_retain(device);
    }
    *out = i;
    return TUTTI_OK;
}

/* Calls that are done, or skipped. */
static void reap(tt_group_stream_t *stream)
{
    while (stream->first != NULL && tt_event_is_done(stream->first->end)) {
        tt_streamed_t *call = stream->first;
        stream->first = call->next;
        call->is_reaped = true;
        if (!call->is_held) {
            tt_streamed_free(call);
        }
    }
    stream->end = stream->first == NULL ? &stream->first : stream->end;
}

/* ---- on the stream's thread ------------------------------------------------------------------ */

/* What the device failed to do is what the call was to work with. */
static tutti_status_t await_device(tt_streamed_t *call)
{
    const tt_event_t begin = call->begin;
    tutti_status_t status = call->heed(call);
    while (status >= 0 && !tt_event_is_done(begin)) {
        (void)tt_event_pass(begin, tt_clock_ns() + HEED_NS);
        status = call->heed(call);
    }
    TT_TRY(status);
    const uint64_t last = begin.count == 0 ? 0 : begin.count - 1;
    return tt_stream_check((tt_event_t){.stream = begin.stream, .count = last}, begin);
}

static tutti_status_t run_call(void *arguments)
{
    tt_streamed_t *call = *(tt_streamed_t **)arguments;
    call->status = await_device(call);
    if (call->status >= 0) {
        call->status = call->run(call);
    }
    if (call->status < 0) {
        call->stream->status = call->status;
        snprintf(call->stream->cause, sizeof call->stream->cause, "%s", tutti_last_error());
    }
    return call->status;
}

/* Also behind a failure. */
static void finish_call(void *object)
{
    tt_streamed_t *call = object;
    const tt_group_stream_t *stream = call->stream;
    if (call->status == TUTTI_PENDING) {
        call->status = stream->status;
    }
    if (call->status < 0) {
        call->error = tt_strdup(stream->cause, "failure of a call");
        (void)tt_fail_again(call->status, stream->cause);
    }
    call->finish(call, call->status);
    drop_tensors(call); /* what uses the memory again does so behind the call */
}

/* ---- the caller's side ----------------------------------------------------------------------- */

tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    const char *name, tt_streamed_t *call)
{
    reap(stream);
    TT_TRY(find_used(stream, device, &call->used));
    call->stream = stream;
    call->status = TUTTI_PENDING;
    call->begin = tt_stream_event(tt_device_stream(device));
    TT_TRY(
        tt_stream_push(stream->stream, &(tt_work_t){name, run_call, &call, sizeof call, 0, false}));
    (void)tt_stream_push_release(stream->stream, finish_call, call); /* where that could be, too */
    call->end = tt_stream_event(stream->stream);
    *stream->end = call;
    stream->end = &call->next;
    return TUTTI_OK;
}

tutti_status_t tt_streamed_join(tt_streamed_t *call)
{
    tt_stream_t *callers = tt_device_stream(call->stream->used[call->used].device);
    if (!call->is_joined) {
        call->is_joined = true;
        TT_TRY(tt_stream_wait_event(call->begin.stream, call->end));
        call->stream->used[call->used].last = tt_stream_event(call->begin.stream);
    }
    return callers == call->begin.stream ? TUTTI_OK : tt_stream_wait_event(callers, call->end);
}

tutti_status_t tt_streamed_status(const tt_streamed_t *call)
{
    if (!tt_event_is_done(call->end)) {
        return TUTTI_PENDING;
    }
    return call->status < 0 ? tt_fail_again(call->status, call->error != NULL ? call->error : "")
                            : TUTTI_OK;
}

tutti_status_t tt_stream_settle(tt_group_stream_t *stream)
{
    if (tt_stream_is_inside(stream->stream)) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_event_wait(tt_stream_event(stream->stream), TT_NEVER);
    reap(stream);
    return status;
}

bool tt_stream_pass(tt_group_stream_t *stream, tt_deadline_t deadline)
{
    return tt_group_stream_is_inside(stream) ||
           tt_event_pass(tt_stream_event(stream->stream), deadline) != TUTTI_ERR_TIMEOUT;
}

bool tt_group_stream_is_inside(const tt_group_stream_t *stream)
{
    return tt_stream_is_inside(stream->stream);
}

void tt_group_stream_free(tt_group_stream_t *stream)
{
    if (stream == NULL) {
        return;
    }
    for (int i = 0; i < stream->used_count; i++) {
        if (stream->used[i].last.stream != NULL) {
            (void)tt_event_pass(stream->used[i].last, TT_NEVER); /* forked: nobody looks */
        }
    }
    tt_stream_release(stream->stream);
    reap(stream);
    for (int i = 0; i < stream->used_count; i++) {
        tutti_device_release(stream->used[i].device);
    }
    tt_free(stream);
}
