/* Samples that go through a function. Its random numbers are a Philox stream that is named by
 * (seed, epoch, position in the epoch, sample): a sample that an epoch draws twice differs, and
 * nothing depends on who reads it when.
 */
#include <math.h>
#include <string.h>

#include <tutti/data.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/rng.h"

/* A name that no optimizer step has (a step is not negative), nor an order (shuffle.c). */
#define TRANSFORM_STEP (UINT64_MAX - 3)

typedef struct {
    tutti_dataset_t *inner;
    tutti_transform_fn_t transform;
    void *user;
    uint64_t seed;
} state_t;

static tutti_status_t check(const tutti_map_options_t *o)
{
    if (o->dataset == NULL || o->transform == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set map: a data set and a transform are required");
    }
    if (o->fields != NULL && (o->field_count < 1 || o->field_count > TUTTI_FIELDS_MAX)) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set map: field_count is %d: it must be from 1 to %d",
                       o->field_count, TUTTI_FIELDS_MAX);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_map_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    TT_TRY(check(o));
    *state = (state_t){tutti_dataset_retain(o->dataset), o->transform, o->user, o->seed};
    *info = o->dataset->info;
    if (o->fields != NULL) {
        info->field_count = o->field_count;
        memcpy(info->fields, o->fields, (size_t)o->field_count * sizeof *o->fields);
    }
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    tutti_dataset_release(state->inner);
}

static tutti_random_t name_random(uint64_t seed, tutti_draw_t draw, int64_t index)
{
    const tt_rng_t rng = tt_rng_stream(seed, TRANSFORM_STEP, (uint64_t)draw.epoch,
                                       (uint64_t)draw.position, (uint64_t)index);
    return (tutti_random_t){.name = {rng.key[0], rng.key[1], rng.salt[0], rng.salt[1]}};
}

static tutti_status_t transform(const state_t *state, int64_t index, tutti_draw_t draw,
                                tutti_sample_t *from, tutti_sample_t *to)
{
    tutti_random_t random = name_random(state->seed, draw, index);
    TT_TRY(tutti_dataset_read(state->inner, index, draw, from));
    return state->transform(state->user, &random, from, to);
}

static tutti_status_t draw_sample(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                  tutti_sample_t *to)
{
    tutti_sample_t from = {0};
    const tutti_status_t status = transform(d->state, index, draw, &from, to);
    tutti_sample_clear(&from);
    return status;
}

/* ---- over a stream --------------------------------------------------------------------------- */

/* A sample's name is its part, and where it stands there. */
typedef struct {
    void *inner;
    int64_t epoch, part, position;
    tutti_sample_t from;
} cursor_t;

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **out)
{
    const state_t *state = d->state;
    cursor_t *cursor = tt_alloc(sizeof *cursor, "stream");
    TT_TRY_ALLOC(cursor);
    *cursor = (cursor_t){.epoch = epoch, .part = part};
    const tutti_status_t status =
        state->inner->ops->open(state->inner, epoch, part, parts, &cursor->inner);
    if (status < 0) {
        tt_free(cursor);
        return status;
    }
    *out = cursor;
    return TUTTI_OK;
}

static tutti_status_t next(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    const state_t *state = d->state;
    cursor_t *cursor = user;
    const tutti_status_t status = tt_stream_next(state->inner, cursor->inner, &cursor->from);
    if (status != TUTTI_OK) {
        return status;
    }
    const tutti_draw_t draw = {cursor->epoch, cursor->position++};
    tutti_random_t random = name_random(state->seed, draw, cursor->part);
    return state->transform(state->user, &random, &cursor->from, to);
}

static tutti_status_t skip(tutti_dataset_t *d, void *user, int64_t count, int64_t *passed)
{
    const state_t *state = d->state;
    cursor_t *cursor = user;
    const tutti_status_t status = tt_stream_skip(state->inner, cursor->inner, count, passed);
    cursor->position += *passed;
    return status;
}

static void close_part(tutti_dataset_t *d, void *user)
{
    const state_t *state = d->state;
    cursor_t *cursor = user;
    state->inner->ops->close(state->inner, cursor->inner);
    tutti_sample_clear(&cursor->from);
    tt_free(cursor);
}

const tutti_dataset_ops_t tutti_map_dataset = {
    .name = "map",
    .about = "samples that go through a function",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .draw = draw_sample,
    .open = open_part,
    .next = next,
    .skip = skip,
    .close = close_part,
};

/* ---- random numbers of one sample ------------------------------------------------------------ */

/* The next block of 128 bits: each number takes one. */
static tt_rng_block_t next_block(tutti_random_t *random)
{
    const uint32_t *name = random->name;
    return tt_rng_block((tt_rng_t){{name[0], name[1]}, {name[2], name[3]}}, random->next++);
}

double tutti_random_uniform(tutti_random_t *random)
{
    const tt_rng_block_t block = next_block(random);
    return (double)(((uint64_t)block.v[0] << 32 | block.v[1]) >> 11) * 0x1p-53;
}

int64_t tutti_random_below(tutti_random_t *random, int64_t bound)
{
    const uint32_t *name = random->name;
    const tt_rng_t rng = {{name[0], name[1]}, {name[2], name[3]}};
    return bound < 1 ? 0 : (int64_t)tt_rng_below(rng, random->next++, (uint64_t)bound);
}

double tutti_random_normal(tutti_random_t *random)
{
    const tt_rng_block_t block = next_block(random);
    const double u = ((double)block.v[0] + 1) * 0x1p-32, turn = (double)block.v[1] * 0x1p-32;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * turn);
}
