/* The stream of a family. It keeps the devices whose tensors it was given, and for each the event
 * behind which the device's stream does not look at this one. */
#include "comm/group/family_stream.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { DEVICES_MORE = 8 };

/* Retained. `last` has been reached when the device does not look at the family's stream. */
typedef struct {
    tt_device_t *device;
    tt_event_t last;
} used_t;

struct tt_group_stream {
    tt_stream_t *stream;
    tt_streamed_t *first, **end; /* in order */
    used_t *used;                /* [used_count], with room for used_capacity */
    int used_count, used_capacity;
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
    if (tt_ref_release(&call->ref)) {
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
            tt_stream_create(&(tt_stream_options_t){.name = "device calls"}, &made->stream);
        if (status < 0) {
            tt_free(made);
            return status;
        }
        *stream = made;
    }
    *out = *stream;
    return TUTTI_OK;
}

static tutti_status_t make_room(tt_group_stream_t *stream)
{
    if (stream->used_count < stream->used_capacity) {
        return TUTTI_OK;
    }
    const int capacity = stream->used_capacity + DEVICES_MORE;
    used_t *used =
        tt_realloc(stream->used, (size_t)capacity * sizeof *used, "devices of calls of groups");
    TT_TRY_ALLOC(used);
    stream->used = used;
    stream->used_capacity = capacity;
    return TUTTI_OK;
}

static tutti_status_t find_used(tt_group_stream_t *stream, tt_device_t *device, int *out)
{
    int i = 0;
    while (i < stream->used_count && stream->used[i].device != device) {
        i++;
    }
    if (i == stream->used_count) {
        TT_TRY(make_room(stream));
        stream->used[stream->used_count++] = (used_t){.device = tutti_device_retain(device)};
    }
    *out = i;
    return TUTTI_OK;
}

/* Calls that have been made. */
static void reap(tt_group_stream_t *stream)
{
    while (stream->first != NULL && tt_event_is_done(stream->first->end)) {
        tt_streamed_t *call = stream->first;
        stream->first = call->next;
        tt_streamed_let_go(call);
    }
    stream->end = stream->first == NULL ? &stream->first : stream->end;
}

/* ---- on the stream's thread ------------------------------------------------------------------ */

static tutti_status_t run_call(void *arguments)
{
    tt_streamed_t *call = *(tt_streamed_t **)arguments;
    const tutti_status_t status = call->run(call);
    if (status < 0) {
        call->error = tt_strdup(tutti_last_error(), "failure of a call");
    }
    call->status = status;
    drop_tensors(call); /* what uses the memory again does so behind the call */
    return TUTTI_OK;
}

/* ---- on a device's stream -------------------------------------------------------------------- */

static tutti_status_t outcome(const tt_streamed_t *call)
{
    return call->status < 0 ? tt_fail_again(call->status, call->error != NULL ? call->error : "")
                            : TUTTI_OK;
}

/* What failed there has spoiled what is launched behind it. */
static tutti_status_t run_wait(void *arguments)
{
    tt_streamed_t *call = *(tt_streamed_t **)arguments;
    tt_stream_t *stream = call->end.stream;
    tutti_status_t status = tt_event_pass(call->end, TT_NEVER);
    status = status < 0 ? status : outcome(call);
    tt_streamed_let_go(call);
    tt_stream_let_go(stream);
    return status;
}

static tutti_status_t push_wait(tt_stream_t *stream, tt_streamed_t *call)
{
    tt_ref_retain(&call->ref);
    tt_stream_retain(call->end.stream);
    const tt_work_t work = {.name = call->name,
                            .run = run_wait,
                            .arguments = &call,
                            .bytes = sizeof(tt_streamed_t *),
                            .is_always = true};
    const tutti_status_t status = tt_stream_push(stream, &work);
    if (status < 0) {
        tt_stream_let_go(call->end.stream);
        tt_streamed_let_go(call);
    }
    return status;
}

/* ---- the caller's side ----------------------------------------------------------------------- */

tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    tt_streamed_t *call)
{
    reap(stream);
    TT_TRY(find_used(stream, device, &call->used));
    call->stream = stream;
    call->status = TUTTI_PENDING;
    call->begin = tt_stream_event(tt_device_stream(device));
    const tt_work_t work = {
        .name = call->name, .run = run_call, .arguments = &call, .bytes = sizeof(tt_streamed_t *)};
    TT_TRY(tt_stream_push_event(stream->stream, &work, &call->end));
    *stream->end = call;
    stream->end = &call->next;
    return TUTTI_OK;
}

tutti_status_t tt_streamed_join(tt_streamed_t *call)
{
    tt_stream_t *callers = tt_device_stream(call->stream->used[call->used].device);
    if (!call->is_joined) {
        TT_TRY(push_wait(call->begin.stream, call));
        call->is_joined = true;
        call->stream->used[call->used].last = tt_stream_event(call->begin.stream);
    }
    return callers == call->begin.stream ? TUTTI_OK : push_wait(callers, call);
}

tutti_status_t tt_streamed_status(const tt_streamed_t *call)
{
    return tt_event_is_done(call->end) ? outcome(call) : TUTTI_PENDING;
}

bool tt_stream_pass(tt_group_stream_t *stream, tt_deadline_t deadline)
{
    const tt_event_t now = tt_stream_event(stream->stream);
    if (tt_group_stream_is_inside(stream)) {
        return true;
    }
    if (!tt_event_is_done(now) &&
        (deadline == 0 || tt_event_pass(now, deadline) == TUTTI_ERR_TIMEOUT)) {
        return false;
    }
    reap(stream);
    return true;
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
    tt_free(stream->used);
    tt_free(stream);
}
