/* A stream out of order, as far as a buffer reaches: it is filled, and each next sample is one of
 * those in it, drawn at random, whose place the next of the stream takes.
 *
 *     slots   [ a ][ b ][ c ][ d ]      drawn: b, which is given; d moves to its place, and the
 *                                       next of the stream comes behind it
 *
 * Which slot is drawn is a random number named by (seed, epoch, part, how many have been given), so
 * that a part gives the same samples whenever and wherever it is opened. What stands before a place
 * is read again to come there: what is in the buffer depends on all of it.
 *
 * Cost: the buffer's samples in memory for each part that is open; a copy of each.
 * Source: torch's ShufflerIterDataPipe.
 */
#include <string.h>

#include <tutti/data.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"

#define BUFFER_STEP (UINT64_MAX - 5) /* as those of shuffle.c, map_data.c and batch_reader.c */
#define SIZE_MOST (INT64_C(1) << 31)

typedef struct {
    tutti_dataset_t *inner;
    int64_t size;
    uint64_t seed;
} state_t;

typedef struct {
    void *inner;
    tt_rng_t rng;
    tutti_sample_t *slots; /* [room]; those behind `count` keep their memory */
    int64_t count, room, given;
    bool is_ended; /* the stream */
} cursor_t;

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_shuffle_buffer_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    if (o->dataset == NULL || o->size < 1 || o->size > SIZE_MOST) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set shuffle_buffer: size is %lld: a stream and a size from 1 to 2^31 "
                       "are required",
                       (long long)o->size);
    }
    if (!tt_is_stream(o->dataset)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set shuffle_buffer: %s has numbered samples: let the loader shuffle "
                       "them",
                       o->dataset->ops->name);
    }
    *state = (state_t){tutti_dataset_retain(o->dataset), o->size, o->seed};
    *info = o->dataset->info;
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    tutti_dataset_release(state->inner);
}

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **out)
{
    const state_t *state = d->state;
    cursor_t *cursor = tt_alloc(sizeof *cursor, "stream");
    TT_TRY_ALLOC(cursor);
    cursor->rng = tt_rng_stream(state->seed, BUFFER_STEP, (uint64_t)epoch, (uint64_t)part, 0);
    const tutti_status_t status =
        state->inner->ops->open(state->inner, epoch, part, parts, &cursor->inner);
    if (status < 0) {
        tt_free(cursor);
        return status;
    }
    *out = cursor;
    return TUTTI_OK;
}

static tutti_status_t reserve_slot(const state_t *state, cursor_t *cursor)
{
    enum { FEW = 16 };
    if (cursor->count < cursor->room) {
        return TUTTI_OK;
    }
    const int64_t wanted = cursor->room == 0 ? FEW : 2 * cursor->room;
    const int64_t room = wanted < state->size ? wanted : state->size;
    tutti_sample_t *grown =
        tt_realloc(cursor->slots, (size_t)room * sizeof *grown, "shuffle buffer");
    TT_TRY_ALLOC(grown);
    memset(grown + cursor->room, 0, (size_t)(room - cursor->room) * sizeof *grown);
    cursor->slots = grown;
    cursor->room = room;
    return TUTTI_OK;
}

static tutti_status_t fill(const state_t *state, cursor_t *cursor)
{
    while (!cursor->is_ended && cursor->count < state->size) {
        TT_TRY(reserve_slot(state, cursor));
        const tutti_status_t status =
            tt_stream_next(state->inner, cursor->inner, &cursor->slots[cursor->count]);
        TT_TRY(status);
        cursor->is_ended = status == TUTTI_END;
        cursor->count += status == TUTTI_OK;
    }
    return TUTTI_OK;
}

/* The slot of the next sample, or -1 at the end. */
static int64_t draw_slot(const cursor_t *cursor)
{
    return cursor->count == 0 ? -1
                              : (int64_t)tt_rng_below(cursor->rng, (uint64_t)cursor->given,
                                                      (uint64_t)cursor->count);
}

static void take_out(cursor_t *cursor, int64_t slot)
{
    const tutti_sample_t given = cursor->slots[slot];
    cursor->slots[slot] = cursor->slots[--cursor->count];
    cursor->slots[cursor->count] = given;
    cursor->given++;
}

static tutti_status_t next(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    cursor_t *cursor = user;
    TT_TRY(fill(d->state, cursor));
    const int64_t slot = draw_slot(cursor);
    if (slot < 0) {
        return TUTTI_END;
    }
    for (int i = 0; i < to->field_count; i++) {
        TT_TRY(tutti_sample_copy(to, &cursor->slots[slot], i));
    }
    take_out(cursor, slot);
    return TUTTI_OK;
}

static tutti_status_t skip(tutti_dataset_t *d, void *user, int64_t count, int64_t *passed)
{
    cursor_t *cursor = user;
    for (*passed = 0; *passed < count; ++*passed) {
        TT_TRY(fill(d->state, cursor));
        const int64_t slot = draw_slot(cursor);
        if (slot < 0) {
            return TUTTI_OK;
        }
        take_out(cursor, slot);
    }
    return TUTTI_OK;
}

static void close_part(tutti_dataset_t *d, void *user)
{
    const state_t *state = d->state;
    cursor_t *cursor = user;
    state->inner->ops->close(state->inner, cursor->inner);
    for (int64_t i = 0; i < cursor->room; i++) {
        tutti_sample_clear(&cursor->slots[i]);
    }
    tt_free(cursor->slots);
    tt_free(cursor);
}

const tutti_dataset_ops_t tutti_shuffle_buffer_dataset = {
    .name = "shuffle_buffer",
    .about = "a stream out of order, as far as a buffer reaches",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .open = open_part,
    .next = next,
    .skip = skip,
    .close = close_part,
};
