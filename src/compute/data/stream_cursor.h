/* Where a loader stands in one part of a stream. It is a cache of a place: the samples from any
 * number on can be asked for, and are there at once if they are those that come next; else the part
 * is opened again and what stands before them is passed by. One sample is read ahead, so that the
 * end is known with the last one.
 *
 * Batches of one cursor are read in the order in which they were posted: each has a turn.
 */
#ifndef TT_STREAM_CURSOR_H
#define TT_STREAM_CURSOR_H

#include <stdatomic.h>

#include <tutti/data.h>

#include "core/base/fail.h"

typedef struct tt_stream_cursor {
    tutti_dataset_t *dataset;
    int64_t part, parts;

    /* Of whose turn it is: */
    bool is_open, has_ahead, is_ended;
    void *inner;
    int64_t epoch, next; /* the sample that comes next; it may be in `ahead` */
    tutti_sample_t ahead;

    _Atomic int64_t total;   /* samples of the part; TUTTI_ANY: it is not known yet */
    _Atomic uint32_t served; /* turns that are over */
    uint32_t posted;         /* turns that were given: the owner's */
} tt_stream_cursor_t;

void tt_stream_cursor_init(tt_stream_cursor_t *cursor, tutti_dataset_t *d, int64_t part,
                           int64_t parts);
void tt_stream_cursor_fini(tt_stream_cursor_t *cursor);

/* Wait until all turns before are over; then this one is, whatever came of it. */
void tt_stream_cursor_await(tt_stream_cursor_t *cursor, uint32_t turn);
void tt_stream_cursor_pass(tt_stream_cursor_t *cursor);

/* No turn is under way: forget those that were given. */
void tt_stream_cursor_reset(tt_stream_cursor_t *cursor);

/* Stand before a sample, or at the end. */
tutti_status_t tt_stream_cursor_seek(tt_stream_cursor_t *cursor, int64_t epoch, int64_t sample);

/* The next sample, or TUTTI_END. After a failure the next seek opens the part again. */
tutti_status_t tt_stream_cursor_next(tt_stream_cursor_t *cursor, tutti_sample_t *to);

/* Read one sample ahead, if none is there: afterwards `total` is known if there is none. */
tutti_status_t tt_stream_cursor_look(tt_stream_cursor_t *cursor);

#endif
