/* Batches of another sampler's samples. */
#include "compute/data/sampler_impl.h"

typedef struct {
    tutti_sampler_t *inner;
    int64_t batch;
} state_t;

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_batch_sampler_options_t *o = options;
    state_t *state = tutti_sampler_state(sampler);
    TT_TRY(tt_sampler_check_inner("batch", o->sampler));
    TT_TRY(tt_sampler_check("batch", "batch", o->batch, 1));
    const int64_t count = tutti_sampler_count(o->sampler);
    *state = (state_t){tutti_sampler_retain(o->sampler), o->batch};
    info->count = count / o->batch + (count % o->batch != 0 && !o->drop_last);
    info->width = o->batch;
    return TUTTI_OK;
}

static void fini(tutti_sampler_t *sampler)
{
    const state_t *state = sampler->state;
    tutti_sampler_release(state->inner);
}

static tutti_status_t read_entry(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    const state_t *state = sampler->state;
    const int64_t first = position * state->batch;
    const int64_t left = tutti_sampler_count(state->inner) - first;
    *size = left < state->batch ? left : state->batch;
    for (int64_t i = 0; i < *size; i++) {
        TT_TRY(tutti_sampler_read(state->inner, epoch, first + i, samples + i, NULL));
    }
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_batch_sampler = {
    .name = "batch",
    .about = "batches of another sampler's samples",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_entry,
};
