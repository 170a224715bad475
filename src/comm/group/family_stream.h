/* The stream of a family of groups: calls on tensors of devices, in the order in which they were
 * issued, each between two events of its device's stream. */
#ifndef TT_FAMILY_STREAM_H
#define TT_FAMILY_STREAM_H

#include <tutti/tensor.h>

#include "core/device/device.h"

typedef struct tt_group_stream tt_group_stream_t;

/* The head of a call in memory of tt_alloc(), which the stream frees. */
typedef struct tt_streamed {
    struct tt_streamed *next;
    tt_event_t end;         /* without a stream: it was not pushed */
    tutti_tensor_t **views; /* [view_count] owned */
    int view_count;
} tt_streamed_t;

/* Its tensors go, by the call itself; and all of it. */
void tt_streamed_drop(tt_streamed_t *call);
void tt_streamed_free(tt_streamed_t *call);

/* The one in *stream, made if there is none. */
tutti_status_t tt_group_stream_find(tt_group_stream_t **stream, tt_group_stream_t **out);

/* Behind what was launched on the device, and before what will be. Takes the call over where
 * call->end has a stream afterwards, also when it fails. */
tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    tt_streamed_t *call, const tt_work_t *work);

/* Until it has nothing to do; at once for its own work. Errors: of a call that nobody was told of.
 */
tutti_status_t tt_stream_settle(tt_group_stream_t *stream);

/* Waits; devices do not look at it any more. */
void tt_group_stream_free(tt_group_stream_t *stream);

#endif
