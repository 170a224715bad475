/* The streams of a device: its own, and those that users make beside it. Each thread has one that
 * its work goes to, at first the device's own.
 *
 *     a stream       | work | work | work |      the block that is released here is used again
 *     another one    | work | copy … |           when both are past what they had been given by
 *                              ^ free            then: it waits in a list, in order
 *
 * While there is one stream, a block that is released is free at once: who uses it next stands
 * behind. A stream that is given back stays, for who asks for one next; all end with the device.
 *
 * Cost of a release where there are several and one is at work: an allocation and a lock.
 * Source: the stream pool and the events of PyTorch's CUDACachingAllocator.
 */
#ifndef TT_STREAMS_H
#define TT_STREAMS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/threads.h"
#include "core/exec/stream.h"

enum { TT_DEVICE_STREAMS_MAX = 32 };

/* What is the same for all of a device; borrowed until they close. */
typedef struct {
    const char *name; /* of the device */
    int threads;      /* of each one's kernels, with its own; at least 1 */
    void (*give_back)(void *user, void *memory, size_t bytes); /* of a block; uses no stream */
    void *user;
} tt_streams_options_t;

typedef struct {
    tt_streams_options_t options;
    pthread_mutex_t lock;
    pthread_key_t key;                           /* a thread's stream; none: the first */
    tt_stream_t *streams[TT_DEVICE_STREAMS_MAX]; /* the first is the device's own */
    _Atomic int count;                           /* never less again; 0: not open */
    struct tt_streams_block *blocks, **last;     /* that are released, and in use; oldest first */
} tt_streams_t;

tutti_status_t tt_streams_open(tt_streams_t *streams, const tt_streams_options_t *options);

/* Waits for all work. What was not opened, or not wholly, too. */
void tt_streams_close(tt_streams_t *streams);

/* Borrowed: the calling thread's. */
tt_stream_t *tt_streams_current(tt_streams_t *streams);

/* Make it the calling thread's; NULL: the device's own. Errors: ARG (it is not one of these). */
tutti_status_t tt_streams_use(tt_streams_t *streams, tt_stream_t *stream);

/* One that nobody holds, for the caller, who lets it go. It begins behind the device's own. */
tutti_status_t tt_streams_take(tt_streams_t *streams, tt_stream_t **out);

/* Until all is done that they were given. Ends the failures of all, and returns the first. */
tutti_status_t tt_streams_wait(tt_streams_t *streams, tt_deadline_t deadline);

/* Give a block back when it is not in use. */
void tt_streams_free(tt_streams_t *streams, void *memory, size_t bytes);

/* Give back the blocks that are not in use any more. */
void tt_streams_reclaim(tt_streams_t *streams);

/* The same of all blocks that have been released, also of those that another thread gives back just
 * now: waits, TUTTI_TIMEOUT_MS at most. False: there is one stream, so that there were none. */
bool tt_streams_settle(tt_streams_t *streams);

/* Of the stream that the work is pushed to. */
static inline tt_threads_t *tt_streams_threads(const tt_stream_t *stream)
{
    return tt_stream_user(stream);
}

#endif
