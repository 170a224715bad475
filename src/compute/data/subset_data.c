/* Some samples of a data set, and splitting one at random. */
#include <string.h>

#include <tutti/data.h>

#include "compute/data/dataset.h"
#include "compute/data/shuffle.h"
#include "core/base/alloc.h"

typedef struct {
    tutti_dataset_t *inner;
    int64_t *samples;
} state_t;

static tutti_status_t check(const tutti_subset_options_t *o)
{
    if (o->dataset == NULL || o->count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set subset: a data set and a count of at least 0 are required, not "
                       "%lld",
                       (long long)o->count);
    }
    if (o->samples == NULL && o->count > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set subset: there are no samples");
    }
    TT_TRY(tt_want_numbered("subset", o->dataset));
    for (int64_t i = 0; i < o->count; i++) {
        if (o->samples[i] < 0 || o->samples[i] >= o->dataset->info.count) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set subset: entry %lld is sample %lld: %s has %lld",
                           (long long)i, (long long)o->samples[i], o->dataset->ops->name,
                           (long long)o->dataset->info.count);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_subset_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    TT_TRY(check(o));
    const size_t count = (size_t)o->count;
    state->samples = tt_alloc_array(count, sizeof *state->samples, "data set");
    TT_TRY_ALLOC(state->samples);
    if (count > 0) {
        memcpy(state->samples, o->samples, count * sizeof *state->samples);
    }
    state->inner = tutti_dataset_retain(o->dataset);
    *info = o->dataset->info;
    info->count = o->count;
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    tutti_dataset_release(state->inner);
    tt_free(state->samples);
}

static tutti_status_t draw_sample(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                  tutti_sample_t *to)
{
    const state_t *state = d->state;
    return tutti_dataset_read(state->inner, state->samples[index], draw, to);
}

const tutti_dataset_ops_t tutti_subset_dataset = {
    .name = "subset",
    .about = "some samples of a data set",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .draw = draw_sample,
};

/* ---- splitting ------------------------------------------------------------------------------- */

static tutti_status_t check_lengths(int64_t total, const int64_t *lengths, int count)
{
    int64_t left = total;
    for (int i = 0; i < count; i++) {
        if (lengths[i] < 0 || lengths[i] > left) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "random_split: part %d is to have %lld samples: %lld of %lld are left",
                           i, (long long)lengths[i], (long long)left, (long long)total);
        }
        left -= lengths[i];
    }
    return left == 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_ARG,
                               "random_split: the parts leave %lld of %lld samples: together they "
                               "must have all",
                               (long long)left, (long long)total);
}

static tutti_status_t make_parts(tutti_dataset_t *d, const int64_t *order, const int64_t *lengths,
                                 int count, tutti_dataset_t **out)
{
    for (int i = 0; i < count; i++) {
        const tutti_subset_options_t part = {d, order, lengths[i]};
        const tutti_status_t status = tutti_dataset_create(&tutti_subset_dataset, &part, &out[i]);
        if (status < 0) {
            while (i-- > 0) {
                tutti_dataset_release(out[i]);
                out[i] = NULL;
            }
            return status;
        }
        order += lengths[i];
    }
    return TUTTI_OK;
}

tutti_status_t tutti_random_split(tutti_dataset_t *d, const int64_t *lengths, int count,
                                  uint64_t seed, tutti_dataset_t **out)
{
    const int64_t total = d->info.count;
    TT_TRY(tt_want_numbered("random_split", d));
    TT_TRY(check_lengths(total, lengths, count));
    int64_t *order = tt_alloc_array((size_t)total, sizeof *order, "data set");
    TT_TRY_ALLOC(order);
    for (int64_t i = 0; i < total; i++) {
        order[i] = (int64_t)tt_permute(seed, 0, (uint64_t)total, (uint64_t)i);
    }
    const tutti_status_t status = make_parts(d, order, lengths, count, out);
    tt_free(order);
    return status;
}
