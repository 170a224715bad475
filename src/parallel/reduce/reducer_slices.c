/* Buckets that are scattered: where they are cut, and this rank's slices of their tensors. */
#include <stdlib.h>

#include "core/base/alloc.h"
#include "parallel/reduce/reducer.h"

static int by_offset(const void *a, const void *b)
{
    const tt_slice_param_t *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Members as they lie. */
static tutti_status_t list_members(const tt_reducer_t *reducer, const tt_bucket_spec_t *spec,
                                   const tt_tensor_list_t *params, tt_slice_param_t **out)
{
    tt_slice_param_t *members =
        tt_alloc_array((size_t)spec->param_count, sizeof *members, "slices");
    TT_TRY_ALLOC(members);
    for (int k = 0; k < spec->param_count; k++) {
        const int member = reducer->plan.members[spec->first + k];
        const tutti_tensor_t *x = tt_listed(params, (size_t)member);
        members[k] = (tt_slice_param_t){reducer->plan.slots[member].offset, x->numel,
                                        reducer->options.grain(reducer->options.user, x)};
    }
    qsort(members, (size_t)spec->param_count, sizeof *members, by_offset);
    *out = members;
    return TUTTI_OK;
}

static tutti_status_t cut_bucket(const tt_reducer_t *reducer, int index,
                                 const tt_tensor_list_t *params)
{
    const tt_bucket_spec_t *spec = &reducer->plan.buckets[index];
    tt_bucket_t *bucket = &reducer->buckets[index];
    const int ranks = tutti_group_size(reducer->options.group);
    tt_slice_param_t *members;
    bucket->cuts = tt_alloc_array((size_t)ranks + 1, sizeof *bucket->cuts, "slices");
    TT_TRY_ALLOC(bucket->cuts);
    bucket->counts = tt_alloc_array((size_t)ranks, sizeof *bucket->counts, "slices");
    TT_TRY_ALLOC(bucket->counts);
    TT_TRY(list_members(reducer, spec, params, &members));
    const tt_slice_flat_t flat = {members, spec->param_count, spec->numel};
    tt_slice_plan(&flat, ranks, reducer->totals, bucket->cuts);
    for (int i = 0; i < ranks; i++) {
        bucket->counts[i] = bucket->cuts[i + 1] - bucket->cuts[i];
    }
    tt_free(members);
    return TUTTI_OK;
}

static tutti_status_t open_own(const tt_reducer_t *reducer, const tt_bucket_t *bucket,
                               tutti_tensor_t *flat, tutti_tensor_t **out)
{
    const int rank = tutti_group_rank(reducer->options.group);
    if (flat == NULL || bucket->cuts == NULL) {
        *out = flat == NULL ? NULL : tutti_tensor_retain(flat);
        return TUTTI_OK;
    }
    return tt_tensor_over(flat->storage, flat->dtype, TUTTI_SHAPE(bucket->counts[rank]), NULL,
                          flat->offset + bucket->cuts[rank], out);
}

/* Of a bucket that comes and goes: what comes back stays. Where the average is of another dtype
 * than the sums, no sum comes back, unless it is divided here. */
static tutti_status_t open_apart(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const tt_reducer_options_t *o = &reducer->options;
    const int64_t count = bucket->counts[tutti_group_rank(o->group)];
    TT_TRY(tt_reducer_new_result(reducer, bucket->result->dtype, count, &bucket->own_result));
    if (bucket->total->dtype == bucket->result->dtype) {
        bucket->own_total = tutti_tensor_retain(bucket->own_result);
    } else if (o->divides_late || o->adds_locally || tt_reducer_has_rounds(reducer)) {
        TT_TRY(tt_reducer_new_result(reducer, bucket->total->dtype, count, &bucket->own_total));
    }
    if (bucket->travel == NULL) {
        return TUTTI_OK;
    }
    if (bucket->travel->dtype == bucket->result->dtype) {
        bucket->own_travel = tutti_tensor_retain(bucket->own_result);
        return TUTTI_OK;
    }
    return tt_reducer_new_result(reducer, bucket->travel->dtype, count, &bucket->own_travel);
}

tutti_status_t tt_reducer_open_slices(const tt_reducer_t *reducer, int index,
                                      const tt_tensor_list_t *params)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    TT_TRY(reducer->options.grain != NULL ? cut_bucket(reducer, index, params) : TUTTI_OK);
    if (reducer->options.is_transient) {
        return open_apart(reducer, bucket);
    }
    TT_TRY(open_own(reducer, bucket, bucket->total, &bucket->own_total));
    TT_TRY(open_own(reducer, bucket, bucket->result, &bucket->own_result));
    return open_own(reducer, bucket, bucket->travel, &bucket->own_travel);
}

void tt_reducer_close_slices(tt_bucket_t *bucket)
{
    tutti_tensor_release(bucket->own_total);
    tutti_tensor_release(bucket->own_result);
    tutti_tensor_release(bucket->own_travel);
    tt_free(bucket->cuts);
    tt_free(bucket->counts);
}
