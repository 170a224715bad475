/* Given samples, shuffled or not. */
#include <string.h>

#include "compute/data/shuffle.h"
#include "compute/data/sampler_impl.h"
#include "core/base/alloc.h"

typedef struct {
    int64_t *samples;
    uint64_t count, seed;
    bool in_order;
} state_t;

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_subset_sampler_options_t *o = options;
    state_t *state = tutti_sampler_state(sampler);
    TT_TRY(tt_sampler_check("subset", "count", o->count, 0));
    if (o->samples == NULL && o->count > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler subset: there are no samples");
    }
    for (int64_t i = 0; i < o->count; i++) {
        TT_TRY(tt_sampler_check("subset", "a sample", o->samples[i], 0));
    }
    *state = (state_t){.count = (uint64_t)o->count, .seed = o->seed, .in_order = o->in_order};
    state->samples = tt_alloc_array(state->count, sizeof *state->samples, "sampler");
    TT_TRY_ALLOC(state->samples);
    if (state->count > 0) {
        memcpy(state->samples, o->samples, state->count * sizeof *state->samples);
    }
    info->count = o->count;
    return TUTTI_OK;
}

static void fini(tutti_sampler_t *sampler)
{
    const state_t *state = sampler->state;
    tt_free(state->samples);
}

static tutti_status_t read_entry(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    const state_t *state = sampler->state;
    const uint64_t p = (uint64_t)position;
    *samples =
        state->samples[state->in_order ? p
                                       : tt_permute(state->seed, (uint64_t)epoch, state->count, p)];
    *size = 1;
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_subset_sampler = {
    .name = "subset",
    .about = "given samples, shuffled or not",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_entry,
};
