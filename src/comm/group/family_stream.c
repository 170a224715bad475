/* The stream of a family. It keeps the devices whose tensors it was given, and for each the event
 * behind which the device's stream does not look at this one. */
#include "comm/group/family_stream.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { DEVICES_MAX = 16 };

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

void tt_streamed_drop(tt_streamed_t *call)
{
    tt_tensors_release(call->views, (size_t)call->view_count);
    call->view_count = 0;
}

void tt_streamed_free(tt_streamed_t *call)
{
    tt_streamed_drop(call);
    tt_free(call);
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

static tutti_status_t find_used(tt_group_stream_t *stream, tt_device_t *device, used_t **out)
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
    *out = &stream->used[i];
    return TUTTI_OK;
}

/* Calls that are done, or skipped. */
static void reap(tt_group_stream_t *stream)
{
    while (stream->first != NULL && tt_event_is_done(stream->first->end)) {
        tt_streamed_t *call = stream->first;
        stream->first = call->next;
        tt_streamed_free(call);
    }
    stream->end = stream->first == NULL ? &stream->first : stream->end;
}

/* ---- on the stream's thread ------------------------------------------------------------------ */

/* What the device failed to do is what the call was to work with. */
static tutti_status_t await_device(tt_event_t begin)
{
    TT_TRY(tt_event_pass(begin, TT_NEVER));
    const uint64_t last = begin.count == 0 ? 0 : begin.count - 1;
    return tt_stream_check((tt_event_t){begin.stream, last}, begin);
}

static tutti_status_t run_call(void *arguments)
{
    tt_streamed_t *call = *(tt_streamed_t **)arguments;
    call->status = await_device(call->begin);
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
    const tutti_status_t status = call->status == TUTTI_PENDING ? stream->status : call->status;
    call->finish(call, status < 0 ? tt_fail_again(status, stream->cause) : status);
    tt_streamed_drop(call); /* what uses the memory again does so behind the call */
}

/* ---- the caller's side ----------------------------------------------------------------------- */

tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    const char *name, tt_streamed_t *call)
{
    used_t *used;
    tt_stream_t *devices = tt_device_stream(device);
    reap(stream);
    TT_TRY(find_used(stream, device, &used));
    call->stream = stream;
    call->status = TUTTI_PENDING;
    call->begin = tt_stream_event(devices);
    TT_TRY(tt_stream_push(stream->stream, &(tt_work_t){name, run_call, &call, sizeof call, 0}));
    tutti_status_t status = tt_stream_push_release(stream->stream, finish_call, call);
    call->end = tt_stream_event(stream->stream);
    *stream->end = call;
    stream->end = &call->next;
    status = status < 0 ? status : tt_stream_wait_event(devices, call->end);
    used->last = tt_stream_event(devices);
    return status;
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

void tt_group_stream_free(tt_group_stream_t *stream)
{
    if (stream == NULL) {
        return;
    }
    for (int i = 0; i < stream->used_count; i++) {
        (void)tt_event_pass(stream->used[i].last, TT_NEVER); /* forked: nobody looks */
    }
    tt_stream_release(stream->stream);
    reap(stream);
    for (int i = 0; i < stream->used_count; i++) {
        tutti_device_release(stream->used[i].device);
    }
    tt_free(stream);
}
