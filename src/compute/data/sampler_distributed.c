/* Samples dealt to ranks in turn, by the rules of torch's DistributedSampler. Of N samples and n
 * ranks, rank r gets positions r, r + n, r + 2n … of
 *
 *     pad     ceil(N / n) × n positions; those from N on are 0, 1, … again, and again
 *     drop    floor(N / n) × n positions
 *     exact   N positions
 */
#include "compute/data/shuffle.h"
#include "compute/data/sampler_impl.h"

typedef struct {
    tutti_sampler_t *inner; /* or NULL */
    uint64_t seed;
    bool shuffle;
    int64_t count;         /* N */
    int64_t stride, first; /* positions first + i × stride */
} state_t;

static tutti_status_t check(const tutti_distributed_sampler_options_t *o)
{
    static const char kind[] = "distributed";
    TT_TRY(tt_sampler_check(kind, "count", o->count, 0));
    TT_TRY(tt_sampler_check(kind, "replicas", o->replicas, 1));
    if (o->rank < TUTTI_ALL_RANKS || o->rank >= o->replicas) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler distributed: rank is %lld: it must be from 0 to %lld, one below "
                       "replicas, or TUTTI_ALL_RANKS",
                       (long long)o->rank, (long long)o->replicas - 1);
    }
    if (o->drop_last && o->exact) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler distributed: drop_last and exact exclude each other");
    }
    if (o->sampler == NULL) {
        return TUTTI_OK;
    }
    if (o->count != 0 || o->shuffle || o->seed != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler distributed: count, shuffle and seed are not for "
                                      "the order of another sampler");
    }
    return tt_sampler_check_inner(kind, o->sampler);
}

/* Positions of the whole order, after padding or dropping. */
static tutti_status_t find_total(const tutti_distributed_sampler_options_t *o, int64_t count,
                                 int64_t *total)
{
    const int64_t n = o->replicas, rest = count % n;
    *total = o->exact || rest == 0 ? count : count - rest;
    if (!o->exact && !o->drop_last && rest != 0 && __builtin_add_overflow(*total, n, total)) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler distributed: replicas is %lld: too many",
                       (long long)n);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_distributed_sampler_options_t *o = options;
    state_t *state = tutti_sampler_state(sampler);
    TT_TRY(check(o));
    *state = (state_t){.seed = o->seed, .shuffle = o->shuffle, .count = o->count, .stride = 1};
    if (o->sampler != NULL) {
        state->inner = tutti_sampler_retain(o->sampler);
        state->count = tutti_sampler_count(o->sampler);
    }
    int64_t total;
    TT_TRY(find_total(o, state->count, &total));
    info->count = total;
    if (o->rank != TUTTI_ALL_RANKS) {
        state->stride = o->replicas;
        state->first = o->rank;
        info->count = total / o->replicas + (total % o->replicas > o->rank);
    }
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
    const int64_t at = (state->first + position * state->stride) % state->count;
    *size = 1;
    if (state->inner != NULL) {
        return tutti_sampler_read(state->inner, epoch, at, samples, NULL);
    }
    *samples = at;
    if (state->shuffle) {
        const uint64_t name = state->seed + (uint64_t)epoch; /* as torch seeds its generator */
        *samples = (int64_t)tt_permute(name, 0, (uint64_t)state->count, (uint64_t)at);
    }
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_distributed_sampler = {
    .name = "distributed",
    .about = "samples dealt to ranks: padded, dropped or exact",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_entry,
};
