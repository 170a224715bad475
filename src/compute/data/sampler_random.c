/* Permutations, or draws with replacement; both without an array of the order (shuffle.h). */
#include "compute/data/shuffle.h"
#include "compute/data/sampler_impl.h"

typedef struct {
    uint64_t seed, count;
    bool replacement;
} state_t;

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_random_sampler_options_t *o = options;
    state_t *state = tutti_sampler_state(sampler);
    TT_TRY(tt_sampler_check("random", "count", o->count, o->num_samples == 0 ? 0 : 1));
    TT_TRY(tt_sampler_check("random", "num_samples", o->num_samples, 0));
    *state = (state_t){o->seed, (uint64_t)o->count, o->replacement};
    info->count = o->num_samples == 0 ? o->count : o->num_samples;
    return TUTTI_OK;
}

static tutti_status_t read_entry(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    const state_t *state = sampler->state;
    const uint64_t e = (uint64_t)epoch, p = (uint64_t)position;
    *samples = (int64_t)(state->replacement ? tt_draw_in_epoch(state->seed, e, p, state->count)
                                            : tt_permute_on(state->seed, e, state->count, p));
    *size = 1;
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_random_sampler = {
    .name = "random",
    .about = "a permutation for each epoch, or draws with replacement",
    .state_bytes = sizeof(state_t),
    .init = init,
    .read = read_entry,
};
