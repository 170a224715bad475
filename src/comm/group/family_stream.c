/* The stream of a family. It keeps the devices whose tensors it was given, and for each the event
 * behind which the device's stream does not look at this one. */
#include "comm/group/family_stream.h"

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

tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    tt_streamed_t *call, const tt_work_t *work)
{
    used_t *used;
    tt_stream_t *devices = tt_device_stream(device);
    reap(stream);
    TT_TRY(find_used(stream, device, &used));
    TT_TRY(tt_stream_wait_event(stream->stream, tt_stream_event(devices)));
    TT_TRY(tt_stream_push(stream->stream, work));
    call->end = tt_stream_event(stream->stream);
    *stream->end = call;
    stream->end = &call->next;
    const tutti_status_t status = tt_stream_wait_event(devices, call->end);
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
