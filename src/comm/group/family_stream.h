/* The stream of a family of groups: calls on tensors of devices, in the order in which they were
 * issued, each behind an event of its device's stream, and an event itself.
 *
 * The stream itself never fails: what became of a call is the call's, for its work and for the
 * devices that wait for it. The next one is made whatever that was.
 */
#ifndef TT_FAMILY_STREAM_H
#define TT_FAMILY_STREAM_H

#include <tutti/tensor.h>

#include "core/base/ref.h"
#include "core/device/device.h"

typedef struct tt_group_stream tt_group_stream_t;

/* The head of a call in memory of tt_alloc(), which the stream frees. */
typedef struct tt_streamed {
    struct tt_streamed *next;  /* in the stream's list, or of the parts of one call */
    struct tt_streamed *parts; /* or NULL */
    tt_ref_t ref;              /* of the stream's list, of a work, of devices that wait for it */
    const char *name;          /* a literal: "all_reduce" */
    tt_group_stream_t *stream;
    tt_event_t begin; /* of the device's stream: what the call waits for */
    tt_event_t end;   /* without a stream: it was not pushed */
    int used;         /* the stream's number of the device */
    bool is_joined;   /* the device's stream waits for it */

    /* On the stream's thread: waits for the device, and makes the call. */
    tutti_status_t (*run)(struct tt_streamed *call);

    tutti_status_t status; /* and the text, once `end` is done */
    char *error;
    int source, tag;        /* of a message that was received alone */
    tutti_tensor_t **views; /* [view_count] owned */
    int view_count;
} tt_streamed_t;

/* All of a call that was not pushed, with its parts. */
void tt_streamed_free(tt_streamed_t *call);

/* What is launched from now on, on the stream of the call and on that of the calling thread, waits
 * for it, and is lost if it fails. Errors: STATE (forked). */
tutti_status_t tt_streamed_join(tt_streamed_t *call);

/* PENDING, OK or its failure, whose text is borrowed from it. */
tutti_status_t tt_streamed_status(const tt_streamed_t *call);

/* Who has a `ref` of it drops that. */
void tt_streamed_let_go(tt_streamed_t *call);

/* The one in *stream, made if there is none. */
tutti_status_t tt_group_stream_find(tt_group_stream_t **stream, tt_group_stream_t **out);

/* Behind what was launched on the device; nothing there waits for it before tt_streamed_join().
 * Takes the call over, unless it fails. The device stays open as long as the stream. */
tutti_status_t tt_group_stream_push(tt_group_stream_t *stream, tt_device_t *device,
                                    tt_streamed_t *call);

/* Whether it has nothing to do by the deadline, or is the caller; 0: by now. */
bool tt_stream_pass(tt_group_stream_t *stream, tt_deadline_t deadline);

/* Whether the caller is its work. */
bool tt_group_stream_is_inside(const tt_group_stream_t *stream);

/* Waits; devices do not look at it any more. */
void tt_group_stream_free(tt_group_stream_t *stream);

#endif
