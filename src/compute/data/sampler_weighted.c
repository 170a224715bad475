/* Samples drawn by weight. Weights become integers w, the largest 2^(61 - bits of count),
 * so that every step is exact and the order the same on every machine.
 *
 * With replacement: entry i is the sample in whose part of [0, sum) draw i falls.
 *
 *     tree:  partial sums (Fenwick):  t[i] = w of the 2^k samples up to i, 2^k the lowest bit of i
 *
 * Without: the same, but a sample's weight leaves the tree when it is drawn, so that the next is
 * drawn from what is left. An epoch's order is worked out when it is first asked for, and kept.
 *
 * Cost: log2(count) for an entry. Source: Fenwick, "A New Data Structure for Cumulative Frequency
 * Tables" (1994).
 */
#include <math.h>
#include <string.h>

#include "compute/data/shuffle.h"
#include "compute/data/sampler_impl.h"
#include "core/base/alloc.h"

typedef struct {
    uint64_t *tree; /* [count + 1], from 1 on */
    uint64_t *work; /* the same, for what is left */
    int64_t *order; /* [num_samples] of an epoch, without replacement */
    uint64_t count, num_samples, seed, sum;
    int64_t epoch; /* of the order; -1: none */
} state_t;

static uint64_t lowest_bit(uint64_t x)
{
    return x & (~x + 1);
}

static tutti_status_t check_weights(const tutti_weighted_sampler_options_t *o, double *largest,
                                    int64_t *positive)
{
    *largest = 0;
    *positive = 0;
    for (int64_t i = 0; i < o->count; i++) {
        const double weight = o->weights[i];
        if (!(weight >= 0) || isinf(weight)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "sampler weighted: the weight of sample %lld is %g: it must be finite "
                           "and at least 0",
                           (long long)i, weight);
        }
        *largest = weight > *largest ? weight : *largest;
        *positive += weight > 0;
    }
    return *positive > 0 ? TUTTI_OK
                         : TT_FAIL(TUTTI_ERR_ARG, "sampler weighted: no weight is above 0");
}

static tutti_status_t check(const tutti_weighted_sampler_options_t *o, int64_t positive)
{
    const int64_t wanted = o->num_samples == 0 ? o->count : o->num_samples;
    if (o->no_replacement && wanted > positive) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler weighted: %lld samples without replacement, but only %lld of %lld "
                       "weights are above 0: ask for fewer num_samples",
                       (long long)wanted, (long long)positive, (long long)o->count);
    }
    return TUTTI_OK;
}

/* Whole weights: at least 1 where the weight is not 0; their sum is below 2^62. */
static void fill_tree(state_t *state, const double *weights, double largest)
{
    int bits = 0;
    while ((UINT64_C(1) << bits) < state->count) {
        bits++;
    }
    const double top = ldexp(1, 61 - bits);
    for (uint64_t i = 0; i < state->count; i++) {
        const uint64_t whole = (uint64_t)(weights[i] / largest * top);
        state->tree[i + 1] = whole == 0 && weights[i] > 0 ? 1 : whole;
        state->sum += state->tree[i + 1];
    }
    for (uint64_t i = 1; i <= state->count; i++) {
        const uint64_t up = i + lowest_bit(i);
        if (up <= state->count) {
            state->tree[up] += state->tree[i];
        }
    }
}

/* The sample in whose part of the sums `at` falls. */
static uint64_t find(const uint64_t *tree, uint64_t count, uint64_t at)
{
    uint64_t bit = 1, i = 0;
    while (bit <= count / 2) {
        bit *= 2;
    }
    for (; bit > 0; bit /= 2) {
        if (i + bit <= count && tree[i + bit] <= at) {
            i += bit;
            at -= tree[i];
        }
    }
    return i;
}

static uint64_t weight_of(const uint64_t *tree, uint64_t sample)
{
    uint64_t i = sample + 1, weight = tree[i];
    const uint64_t stop = i - lowest_bit(i);
    for (i--; i > stop; i -= lowest_bit(i)) {
        weight -= tree[i];
    }
    return weight;
}

static void take_away(uint64_t *tree, uint64_t count, uint64_t sample, uint64_t weight)
{
    for (uint64_t i = sample + 1; i <= count; i += lowest_bit(i)) {
        tree[i] -= weight;
    }
}

static void draw_epoch(state_t *state, int64_t epoch)
{
    uint64_t left = state->sum;
    memcpy(state->work, state->tree, (state->count + 1) * sizeof *state->work);
    for (uint64_t i = 0; i < state->num_samples; i++) {
        const uint64_t at = tt_draw_in_epoch(state->seed, (uint64_t)epoch, i, left);
        const uint64_t sample = find(state->work, state->count, at);
        const uint64_t weight = weight_of(state->work, sample);
        take_away(state->work, state->count, sample, weight);
        left -= weight;
        state->order[i] = (int64_t)sample;
    }
    state->epoch = epoch;
}

static tutti_status_t allocate(state_t *state, bool keeps_order)
{
    state->tree = tt_alloc_array(state->count + 1, sizeof *state->tree, "sampler");
    TT_TRY_ALLOC(state->tree);
    if (keeps_order) {
        state->work = tt_alloc_array(state->count + 1, sizeof *state->work, "sampler");
        TT_TRY_ALLOC(state->work);
        state->order = tt_alloc_array(state->num_samples, sizeof *state->order, "sampler");
        TT_TRY_ALLOC(state->order);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_sampler_t *sampler, const void *options,
                           tutti_sampler_info_t *info)
{
    const tutti_weighted_sampler_options_t *o = options;
    state_t *state = tutti_sampler_state(sampler);
    double largest;
    int64_t positive;
    TT_TRY(tt_sampler_check("weighted", "count", o->count, 1));
    if (o->weights == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler weighted: there are no weights");
    }
    TT_TRY(tt_sampler_check("weighted", "num_samples", o->num_samples, 0));
    TT_TRY(check_weights(o, &largest, &positive));
    TT_TRY(check(o, positive));
    info->count = o->num_samples == 0 ? o->count : o->num_samples;
    *state = (state_t){.count = (uint64_t)o->count,
                       .num_samples = (uint64_t)info->count,
                       .seed = o->seed,
                       .epoch = -1};
    TT_TRY(allocate(state, o->no_replacement));
    fill_tree(state, o->weights, largest);
    return TUTTI_OK;
}

static void fini(tutti_sampler_t *sampler)
{
    const state_t *state = sampler->state;
    tt_free(state->tree);
    tt_free(state->work);
    tt_free(state->order);
}

static tutti_status_t read_entry(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    state_t *state = sampler->state;
    *size = 1;
    if (state->order == NULL) {
        const uint64_t at =
            tt_draw_in_epoch(state->seed, (uint64_t)epoch, (uint64_t)position, state->sum);
        *samples = (int64_t)find(state->tree, state->count, at);
        return TUTTI_OK;
    }
    if (state->epoch != epoch) {
        draw_epoch(state, epoch);
    }
    *samples = state->order[position];
    return TUTTI_OK;
}

const tutti_sampler_ops_t tutti_weighted_sampler = {
    .name = "weighted",
    .about = "samples drawn by weight, with or without replacement",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_entry,
};
