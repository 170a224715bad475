/* Buckets that come and go.
 *
 *     away ──want──> there ── gradients, push, start ──> under way ──back──> away
 *
 * What a rank needs of a bucket is there from its first gradient until the ranks have read it. A
 * backward that is faster than the wire, or than another rank, would have all of them there at
 * once; so who wants one more than a few waits for the oldest. Another rank may not have sent that
 * one before it gets something from this one: the wait ends, and the first one in vain is the last
 * one of the step. Where ranks have as many shards, which all have data, that would be a program
 * that goes another way on each of them, and the wait is longer than a rank is late. Where one has
 * less to compute it happens in every step, and the wait is short.
 */
#include "comm/group/group_impl.h"
#include "comm/group/transient.h"
#include "core/base/integers.h"
#include "parallel/reduce/reducer.h"

enum { LONG_PATIENCE_MS = 10000, LOOK_MS = 100 };

static const char reason[] =
    "it is a part of a bucket of gradients, which ranks have only until it "
    "is averaged (options.stage 2 or 3)";

tutti_status_t tt_reducer_new_flat(const tt_reducer_t *reducer, tutti_dtype_t dtype, int64_t numel,
                                   tutti_tensor_t **out)
{
    const tutti_shape_t shape = TUTTI_SHAPE(numel);
    return reducer->options.is_transient
               ? tt_group_tensor_away(dtype, shape, reason, out)
               : tutti_group_tensor(reducer->options.group, dtype, shape, out);
}

static bool is_away(const tutti_tensor_t *x)
{
    return x->storage->away != NULL;
}

static void evict(const tutti_tensor_t *x)
{
    if (x != NULL && !is_away(x)) {
        (void)tt_storage_evict(x->storage, reason); /* it is there */
    }
}

/* The oldest bucket that is under way; `count` of all those. */
static int oldest_under_way(const tt_reducer_t *reducer, int *count)
{
    int oldest = -1;
    *count = 0;
    for (int b = reducer->plan.bucket_count; b-- > 0;) {
        if (reducer->buckets[b].state == TT_BUCKET_SENT) {
            oldest = b;
            ++*count;
        }
    }
    return oldest;
}

static int64_t patience_ms(const tt_reducer_t *reducer)
{
    const tt_reducer_options_t *o = &reducer->options;
    const bool is_even = !o->is_weighted && o->shards % tutti_group_size(o->group) == 0;
    return is_even ? LONG_PATIENCE_MS : TT_REDUCER_PATIENCE_MS;
}

static tutti_status_t hold_back(tt_reducer_t *reducer)
{
    const int64_t patience = patience_ms(reducer);
    int count, oldest;
    tt_reducer_collect(reducer, reducer->plan.bucket_count);
    while ((oldest = oldest_under_way(reducer, &count)) >= 0 && count >= TT_REDUCER_UNDER_WAY_MAX &&
           reducer->impatient != reducer->step) {
        const tutti_status_t status = tutti_work_wait(reducer->buckets[oldest].work, patience);
        TT_TRY(status);
        reducer->impatient = status == TUTTI_PENDING ? reducer->step : reducer->impatient;
        tt_reducer_collect(reducer, oldest + 1);
    }
    return TUTTI_OK;
}

static tutti_status_t refill(const tt_reducer_t *reducer, const tutti_tensor_t *x)
{
    return x != NULL && is_away(x) ? tt_group_tensor_refill(reducer->options.group, x) : TUTTI_OK;
}

static tutti_status_t refill_all(const tt_reducer_t *reducer, const tt_bucket_t *bucket)
{
    TT_TRY(refill(reducer, bucket->grad));
    TT_TRY(refill(reducer, bucket->travel));
    const bool has_sums = !tt_reducer_is_narrow(reducer, bucket);
    for (int i = 0; i < TT_TREE_DEPTH_MAX && has_sums; i++) {
        TT_TRY(refill(reducer, bucket->sums[i]));
    }
    return TUTTI_OK;
}

static void let_go(const tt_bucket_t *bucket)
{
    const bool comes_and_goes = bucket->own_result->storage != bucket->result->storage;
    for (int i = 0; i < TT_TREE_DEPTH_MAX && comes_and_goes; i++) {
        evict(bucket->sums[i]);
    }
    if (comes_and_goes) {
        evict(bucket->grad);
        evict(bucket->travel);
    }
}

tutti_status_t tt_reducer_new_result(const tt_reducer_t *reducer, tutti_dtype_t dtype,
                                     int64_t numel, tutti_tensor_t **out)
{
    const tutti_shape_t shape = TUTTI_SHAPE(numel);
    return reducer->options.gives_results
               ? tt_group_tensor_away(dtype, shape, reason, out)
               : tutti_group_tensor(reducer->options.group, dtype, shape, out);
}

tutti_status_t tt_reducer_want_result(const tt_reducer_t *reducer, int index)
{
    const tt_bucket_t *bucket = &reducer->buckets[index];
    if (!reducer->options.gives_results) {
        return TUTTI_OK;
    }
    TT_TRY(refill(reducer, bucket->own_result));
    TT_TRY(refill(reducer, bucket->own_total));
    return refill(reducer, bucket->own_travel);
}

void tt_reducer_let_result_go(const tt_reducer_t *reducer, int index)
{
    const tt_bucket_t *bucket = &reducer->buckets[index];
    evict(bucket->own_result);
    evict(bucket->own_total);
    evict(bucket->own_travel);
}

tutti_status_t tt_reducer_want(tt_reducer_t *reducer, int index)
{
    const tt_bucket_t *bucket = &reducer->buckets[index];
    if (tt_reducer_has_rounds(reducer)) {
        TT_TRY(tt_reducer_wait(reducer, index)); /* it leaves once more */
    }
    if (!is_away(bucket->grad)) {
        return TUTTI_OK;
    }
    TT_TRY(hold_back(reducer));
    const tutti_status_t status = refill_all(reducer, bucket);
    if (status < 0) {
        let_go(bucket); /* what has come */
    }
    return status;
}

static int64_t bytes_of(const tt_reducer_t *reducer, const tt_bucket_t *bucket)
{
    const bool has_sums = !tt_reducer_is_narrow(reducer, bucket);
    size_t bytes = tutti_tensor_bytes(bucket->grad);
    if (bucket->travel != NULL && bucket->travel != bucket->grad) {
        bytes += tutti_tensor_bytes(bucket->travel);
    }
    for (int i = 0; i < TT_TREE_DEPTH_MAX && has_sums; i++) {
        bytes += bucket->sums[i] != NULL ? tutti_tensor_bytes(bucket->sums[i]) : 0;
    }
    return (int64_t)bytes;
}

void tt_reducer_keep_memory(tt_reducer_t *reducer)
{
    int64_t most = 0, all = 0;
    for (int b = 0; b < reducer->plan.bucket_count && reducer->options.is_transient; b++) {
        const int64_t bytes = bytes_of(reducer, &reducer->buckets[b]);
        most = tt_max(most, bytes);
        all += bytes;
    }
    reducer->kept_bytes = tt_min((TT_REDUCER_UNDER_WAY_MAX + 1) * most, all);
    tt_group_keep_memory(reducer->options.group, reducer->kept_bytes);
}

void tt_reducer_give_memory(tt_reducer_t *reducer)
{
    tt_group_keep_memory(reducer->options.group, -reducer->kept_bytes);
    reducer->kept_bytes = 0;
}

/* The pieces of this rank's slice have become one. */
static void let_sums_go(const tt_bucket_t *bucket)
{
    for (int i = 1; i < bucket->rounds.sum_count; i++) {
        evict(bucket->rounds.sums[i]);
    }
}

/* Its call has ended. */
static void take_back(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    tutti_work_release(bucket->work);
    bucket->work = NULL;
    bucket->state = TT_BUCKET_BACK;
    let_go(bucket);
    if (!tt_reducer_has_rounds(reducer)) {
        return;
    }
    tt_reducer_end_round(reducer, bucket);
    if (bucket->rounds.returned < tt_reducer_rounds(reducer)) {
        bucket->state = TT_BUCKET_FILLING;
    } else {
        let_sums_go(bucket);
    }
}

/* A hook's call may be one of another group, whose ranks do not hear that this one was given up. */
static tutti_status_t wait_for(const tt_reducer_t *reducer, tutti_work_t *work)
{
    tutti_group_t *group = reducer->options.group;
    tutti_status_t status;
    while ((status = tutti_work_wait(work, LOOK_MS)) == TUTTI_PENDING) {
        TT_TRY(group->backend->status(group->state));
    }
    return status;
}

tutti_status_t tt_reducer_wait(tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    TT_ASSERT(bucket->state != TT_BUCKET_FILLING || tt_reducer_has_rounds(reducer));
    if (bucket->state == TT_BUCKET_SENT) {
        TT_TRY(bucket->work != NULL ? wait_for(reducer, bucket->work) : TUTTI_OK);
        take_back(reducer, bucket);
    }
    return TUTTI_OK;
}

bool tt_reducer_is_back(tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    if (bucket->state == TT_BUCKET_SENT &&
        (bucket->work == NULL || tutti_work_test(bucket->work) == TUTTI_OK)) {
        take_back(reducer, bucket);
    }
    return bucket->state >= TT_BUCKET_BACK;
}

void tt_reducer_collect(tt_reducer_t *reducer, int count)
{
    for (int b = 0; b < count && reducer->options.is_transient; b++) {
        (void)tt_reducer_is_back(reducer, b);
    }
}
