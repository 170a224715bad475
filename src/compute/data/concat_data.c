/* Data sets one behind another. */
#include <tutti/data.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"

typedef struct {
    tutti_dataset_t **parts;
    int64_t *ends; /* samples of all parts up to this one */
    int count;     /* of the parts that are retained */
} state_t;

static bool is_same(const tutti_dataset_info_t *a, const tutti_dataset_info_t *b)
{
    bool is_same = a->field_count == b->field_count;
    for (int i = 0; i < a->field_count && is_same; i++) {
        is_same = tt_field_equal(&a->fields[i], &b->fields[i]);
    }
    return is_same;
}

static tutti_status_t check_part(const tutti_concat_options_t *o, int part)
{
    if (o->datasets == NULL || o->datasets[part] == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set concat: part %d is missing", part);
    }
    const tutti_dataset_info_t *first = &o->datasets[0]->info, *other = &o->datasets[part]->info;
    TT_TRY(tt_want_numbered("concat", o->datasets[part]));
    if (!is_same(first, other)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "data set concat: part %d (%s) differs from part 0 (%s) in dtype or shape "
                       "of its fields",
                       part, o->datasets[part]->ops->name, o->datasets[0]->ops->name);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_concat_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    if (o->count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set concat: %d data sets: at least one is required",
                       o->count);
    }
    state->parts = tt_alloc_array((size_t)o->count, sizeof *state->parts, "data set");
    TT_TRY_ALLOC(state->parts);
    state->ends = tt_alloc_array((size_t)o->count, sizeof *state->ends, "data set");
    TT_TRY_ALLOC(state->ends);
    int64_t total = 0;
    for (; state->count < o->count; state->count++) {
        const int i = state->count;
        TT_TRY(check_part(o, i));
        if (__builtin_add_overflow(total, o->datasets[i]->info.count, &total)) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set concat: too many samples");
        }
        state->parts[i] = tutti_dataset_retain(o->datasets[i]);
        state->ends[i] = total;
    }
    *info = o->datasets[0]->info;
    info->count = total;
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    for (int i = 0; i < state->count; i++) {
        tutti_dataset_release(state->parts[i]);
    }
    tt_free(state->parts);
    tt_free(state->ends);
}

static tutti_status_t draw_sample(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                  tutti_sample_t *to)
{
    const state_t *state = d->state;
    int low = 0, high = state->count - 1; /* the first part that ends behind the index */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (state->ends[middle] > index) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const int64_t begin = low == 0 ? 0 : state->ends[low - 1];
    return tutti_dataset_read(state->parts[low], index - begin, draw, to);
}

const tutti_dataset_ops_t tutti_concat_dataset = {
    .name = "concat",
    .about = "data sets one behind another",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .draw = draw_sample,
};
