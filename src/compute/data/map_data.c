/* Samples that go through a function. Its random numbers are a Philox stream that is named by
 * (seed, epoch, position in the epoch, sample): a sample that an epoch draws twice differs, and
 * nothing depends on who reads it when.
 */
#include <math.h>

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

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_map_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    if (o->dataset == NULL || o->transform == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set map: a data set and a transform are required");
    }
    *state = (state_t){tutti_dataset_retain(o->dataset), o->transform, o->user, o->seed};
    *info = o->dataset->info;
    info->input = o->input == NULL ? info->input : *o->input;
    info->target = o->target == NULL ? info->target : *o->target;
    info->has_target = info->has_target || o->target != NULL;
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
                                const tutti_sample_t *from, const tutti_sample_t *to)
{
    tutti_random_t random = name_random(state->seed, draw, index);
    TT_TRY(tutti_dataset_read(state->inner, index, draw, from->input, from->target));
    return state->transform(state->user, &random, from, to);
}

static tutti_status_t draw_sample(tutti_dataset_t *d, int64_t index, tutti_draw_t draw, void *input,
                                  void *target)
{
    const state_t *state = d->state;
    const tutti_dataset_info_t *inner = &state->inner->info;
    const size_t bytes = (tt_field_bytes(&inner->input) + TT_ALIGN - 1) / TT_ALIGN * TT_ALIGN;
    const size_t target_bytes = inner->has_target ? tt_field_bytes(&inner->target) : 0;
    char *memory = tt_alloc_raw(bytes + target_bytes, "sample");
    TT_TRY_ALLOC(memory);
    const tutti_sample_t from = {memory, inner->has_target ? memory + bytes : NULL};
    const tutti_sample_t to = {input, target};
    const tutti_status_t status = transform(state, index, draw, &from, &to);
    tt_free(memory);
    return status;
}

const tutti_dataset_ops_t tutti_map_dataset = {
    .name = "map",
    .about = "samples that go through a function",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .draw = draw_sample,
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
