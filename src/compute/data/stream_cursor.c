/* A place in a part of a stream. */
#include "compute/data/stream_cursor.h"

#include "compute/data/dataset.h"
#include "core/base/futex.h"

void tt_stream_cursor_init(tt_stream_cursor_t *cursor, tutti_dataset_t *d, int64_t part,
                           int64_t parts)
{
    cursor->dataset = d;
    cursor->part = part;
    cursor->parts = parts;
    atomic_init(&cursor->total, TUTTI_ANY);
    atomic_init(&cursor->served, 0);
}

static void close_part(tt_stream_cursor_t *cursor)
{
    if (cursor->is_open) {
        cursor->dataset->ops->close(cursor->dataset, cursor->inner);
    }
    cursor->is_open = cursor->has_ahead = cursor->is_ended = false;
}

void tt_stream_cursor_fini(tt_stream_cursor_t *cursor)
{
    close_part(cursor);
    tutti_sample_clear(&cursor->ahead);
}

/* ---- turns ----------------------------------------------------------------------------------- */

void tt_stream_cursor_await(tt_stream_cursor_t *cursor, uint32_t turn)
{
    for (uint32_t served; (served = atomic_load(&cursor->served)) != turn;) {
        /* Who has the turn before reads, and passes it on; who waits for a batch has a deadline. */
        tt_futex_wait(&cursor->served, served, TT_NEVER);
    }
}

void tt_stream_cursor_pass(tt_stream_cursor_t *cursor)
{
    atomic_fetch_add(&cursor->served, 1);
    tt_futex_wake_all(&cursor->served);
}

void tt_stream_cursor_reset(tt_stream_cursor_t *cursor)
{
    cursor->posted = 0;
    atomic_store(&cursor->served, 0);
    atomic_store(&cursor->total, TUTTI_ANY);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void reach_end(tt_stream_cursor_t *cursor)
{
    cursor->is_ended = true;
    atomic_store(&cursor->total, cursor->next);
}

static tutti_status_t open_part(tt_stream_cursor_t *cursor, int64_t epoch)
{
    const tutti_dataset_ops_t *ops = cursor->dataset->ops;
    close_part(cursor);
    TT_TRY(ops->open(cursor->dataset, epoch, cursor->part, cursor->parts, &cursor->inner));
    cursor->is_open = true;
    cursor->epoch = epoch;
    cursor->next = 0;
    return TUTTI_OK;
}

tutti_status_t tt_stream_cursor_seek(tt_stream_cursor_t *cursor, int64_t epoch, int64_t sample)
{
    if (cursor->is_open && cursor->epoch == epoch &&
        (cursor->next == sample || (cursor->is_ended && cursor->next < sample))) {
        return TUTTI_OK;
    }
    int64_t passed = 0;
    TT_TRY(open_part(cursor, epoch));
    const tutti_status_t status = tt_stream_skip(cursor->dataset, cursor->inner, sample, &passed);
    if (status < 0) {
        close_part(cursor);
        return status;
    }
    cursor->next = passed;
    if (passed < sample) {
        reach_end(cursor);
    }
    return TUTTI_OK;
}

static tutti_status_t copy_ahead(tt_stream_cursor_t *cursor, tutti_sample_t *to)
{
    cursor->has_ahead = false;
    TT_TRY(tt_sample_begin(to, &cursor->dataset->info));
    for (int i = 0; i < to->field_count; i++) {
        TT_TRY(tutti_sample_copy(to, &cursor->ahead, i));
    }
    return TUTTI_OK;
}

tutti_status_t tt_stream_cursor_next(tt_stream_cursor_t *cursor, tutti_sample_t *to)
{
    if (cursor->is_ended) {
        return TUTTI_END;
    }
    const tutti_status_t status = cursor->has_ahead
                                      ? copy_ahead(cursor, to)
                                      : tt_stream_next(cursor->dataset, cursor->inner, to);
    if (status < 0) {
        close_part(cursor);
    } else if (status == TUTTI_OK) {
        cursor->next++;
    } else {
        reach_end(cursor);
    }
    return status;
}

tutti_status_t tt_stream_cursor_look(tt_stream_cursor_t *cursor)
{
    if (cursor->is_ended) {
        reach_end(cursor); /* it may have been forgotten */
    }
    if (cursor->is_ended || cursor->has_ahead) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_stream_next(cursor->dataset, cursor->inner, &cursor->ahead);
    if (status < 0) {
        close_part(cursor);
        return status;
    }
    if (status == TUTTI_OK) {
        cursor->has_ahead = true;
    } else {
        reach_end(cursor);
    }
    return TUTTI_OK;
}
