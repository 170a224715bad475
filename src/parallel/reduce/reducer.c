/* Buckets through a step: see reducer.h. Which sums a rank holds follows from its shards alone, so
 * memory is the same in every step, and so is, mostly, the all_reduce that was prepared for it.
 */
#include "parallel/reduce/reducer.h"

#include "comm/group/group_impl.h"
#include "comm/group/transient.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/kernel/elementwise/combine.h"
#include "parallel/reduce/local_sum.h"

/* ---- making and releasing -------------------------------------------------------------------- */

/* Devices are numbered as they come. */
static tutti_status_t number_of(tt_device_t **devices, int *count, tt_device_t *device, int *out)
{
    for (*out = 0; *out < *count && devices[*out] != device; ++*out) {
    }
    if (*out == TT_BUCKET_DEVICES_MAX) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "parameters on more than %d devices",
                       TT_BUCKET_DEVICES_MAX);
    }
    devices[*out] = device;
    *count += *out == *count;
    return TUTTI_OK;
}

static tutti_dtype_t grad_dtype_of(const tt_reducer_options_t *o, const tutti_tensor_t *x)
{
    const bool is_wide = o->is_wide != NULL && o->is_wide(o->user, x);
    return x->dtype == TUTTI_F32 && !is_wide ? o->grad_dtype : x->dtype;
}

static tutti_status_t list_specs(const tt_reducer_t *reducer, const tt_tensor_list_t *params,
                                 tt_bucket_param_t *specs)
{
    tt_device_t *devices[TT_BUCKET_DEVICES_MAX];
    int count = 0;
    for (size_t i = 0; i < params->count; i++) {
        const tutti_tensor_t *x = tt_listed(params, i);
        specs[i] =
            (tt_bucket_param_t){x->numel, grad_dtype_of(&reducer->options, x), 0,
                                reducer->options.units != NULL ? reducer->options.units[i] : 0};
        TT_TRY(number_of(devices, &count, x->storage->device, &specs[i].device));
    }
    return TUTTI_OK;
}

static tutti_status_t plan_buckets(const tt_reducer_t *reducer, const tt_tensor_list_t *params,
                                   const int *order, tt_bucket_plan_t *out)
{
    const tt_reducer_options_t *o = &reducer->options;
    tt_bucket_param_t *specs = tt_alloc_array(params->count, sizeof *specs, "bucket plan");
    TT_TRY_ALLOC(specs);
    tutti_status_t status = list_specs(reducer, params, specs);
    if (status >= 0) {
        status = tt_bucket_plan_init(specs, (int)params->count, order, o->first_bucket_bytes,
                                     o->bucket_bytes, out);
    }
    tt_free(specs);
    return status;
}

/* How many sums this rank needs: the deepest its stack gets while grad is the newest piece. */
static int sum_levels(const tt_reducer_t *reducer)
{
    tt_tree_stack_t stack = {.leaves = reducer->options.shards};
    int deepest = 0;
    for (int shard = reducer->share.begin; shard < reducer->share.end; shard++) {
        tt_tree_push(&stack, shard, shard + 1);
        deepest = stack.depth > deepest ? stack.depth : deepest;
        while (tt_tree_can_merge(&stack)) {
            tt_tree_merge(&stack);
        }
    }
    return deepest;
}

static bool is_wide(tutti_dtype_t dtype)
{
    return tt_combine_dtype(dtype) == dtype;
}

static bool is_mixed(const tt_reducer_t *reducer)
{
    return reducer->options.grad_dtype != TUTTI_F32;
}

static tutti_status_t open_sums(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const tutti_tensor_t *grad = bucket->grad;
    const int hosted = reducer->share.end - reducer->share.begin;
    const bool is_alone = hosted == 1 || tt_reducer_has_rounds(reducer);
    int levels = is_alone ? 0 : sum_levels(reducer);
    if (!is_wide(grad->dtype) && levels == 0) {
        levels = 1; /* what leaves alone, or where the sum comes back */
    }
    for (int i = 0; i < levels; i++) {
        TT_TRY(tt_reducer_new_flat(reducer, tt_combine_dtype(grad->dtype), grad->numel,
                                   &bucket->sums[i]));
    }
    bucket->total = is_wide(grad->dtype) ? bucket->grad : bucket->sums[0];
    bucket->result = is_mixed(reducer) ? bucket->total : bucket->grad;
    return TUTTI_OK;
}

static tutti_status_t open_near(tt_bucket_t *bucket, tt_device_t *device)
{
    const tutti_tensor_t *grad = bucket->grad, *result = bucket->result;
    TT_TRY(tt_tensor_new(device, grad->dtype, grad->shape, true, &bucket->near_grad));
    if (result->dtype != grad->dtype) {
        return tt_tensor_new(device, result->dtype, result->shape, true, &bucket->near_result);
    }
    bucket->near_result = tutti_tensor_retain(bucket->near_grad);
    return TUTTI_OK;
}

static tutti_status_t open_bucket(const tt_reducer_t *reducer, tt_bucket_t *bucket,
                                  const tt_bucket_spec_t *spec, tt_device_t *device)
{
    const tt_reducer_options_t *o = &reducer->options;
    const tutti_dtype_t reduce =
        is_mixed(reducer) || spec->dtype == TUTTI_F32 ? o->reduce_dtype : spec->dtype;
    bucket->stack.leaves = o->shards;
    TT_TRY(tt_reducer_new_flat(reducer, spec->dtype, spec->numel, &bucket->grad));
    TT_TRY(open_sums(reducer, bucket));
    TT_TRY(device != NULL ? open_near(bucket, device) : TUTTI_OK);
    if (reduce == spec->dtype && !is_wide(reduce)) {
        bucket->travel = tutti_tensor_retain(bucket->grad);
    } else if (!is_wide(reduce)) {
        TT_TRY(tt_reducer_new_flat(reducer, reduce, spec->numel, &bucket->travel));
    }
    return TUTTI_OK;
}

static tutti_status_t view_of(const tutti_tensor_t *flat, int64_t offset, tutti_shape_t shape,
                              tutti_tensor_t **out)
{
    return tt_tensor_over(flat->storage, flat->dtype, shape, NULL, flat->offset + offset, out);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* The place in a tensor: a view, or the one that there is of another tensor, if it is the same. */
static tutti_status_t open_view(const tutti_tensor_t *flat, const tutti_tensor_t *other,
                                tutti_tensor_t *there_is, int64_t offset, tutti_tensor_t **out)
{
    if (flat == other) {
        *out = tutti_tensor_retain(there_is);
        return TUTTI_OK;
    }
    return view_of(flat, offset, there_is->shape, out);
}

static tutti_status_t open_slot(tt_reducer_t *reducer, int index, tutti_shape_t shape)
{
    tt_reducer_slot_t *slot = &reducer->slots[index];
    const tt_bucket_slot_t place = reducer->plan.slots[index];
    const tt_bucket_t *bucket = &reducer->buckets[place.bucket];
    const bool is_near = bucket->near_grad != NULL;
    const tutti_tensor_t *grad = is_near ? bucket->near_grad : bucket->grad,
                         *result = is_near ? bucket->near_result : bucket->result;
    TT_TRY(view_of(grad, place.offset, shape, &slot->grad));
    TT_TRY(open_view(bucket->grad, grad, slot->grad, place.offset, &slot->shared));
    return open_view(result, grad, slot->grad, place.offset, &slot->result);
}

static tutti_status_t open_buckets(tt_reducer_t *reducer, const tt_tensor_list_t *params)
{
    const tt_bucket_plan_t *plan = &reducer->plan;
    const size_t buckets = (size_t)plan->bucket_count, slots = (size_t)plan->param_count;
    reducer->buckets = tt_alloc_array(buckets, sizeof *reducer->buckets, "reducer");
    TT_TRY_ALLOC(reducer->buckets);
    reducer->slots = tt_alloc_array(slots, sizeof *reducer->slots, "reducer");
    TT_TRY_ALLOC(reducer->slots);
    reducer->tensors = tt_alloc_array(2 * slots, sizeof(tutti_tensor_t *), "reducer");
    TT_TRY_ALLOC(reducer->tensors);
    reducer->totals = tt_alloc_array((size_t)tutti_group_size(reducer->options.group),
                                     sizeof *reducer->totals, "reducer");
    TT_TRY_ALLOC(reducer->totals);
    reducer->first_leaves = tt_alloc_array((size_t)tutti_group_size(reducer->options.group) + 1,
                                           sizeof *reducer->first_leaves, "reducer");
    TT_TRY_ALLOC(reducer->first_leaves);
    for (int b = 0; b < plan->bucket_count; b++) {
        const int member = plan->members[plan->buckets[b].first];
        TT_TRY(open_bucket(reducer, &reducer->buckets[b], &plan->buckets[b],
                           tt_listed(params, (size_t)member)->storage->device));
        TT_TRY(tt_reducer_open_slices(reducer, b, params));
        TT_TRY(tt_reducer_open_rounds(reducer, b));
    }
    for (size_t i = 0; i < slots; i++) {
        TT_TRY(open_slot(reducer, (int)i, tt_listed(params, i)->shape));
    }
    for (size_t k = 0; k < slots; k++) {
        reducer->tensors[k] = tt_listed(params, (size_t)plan->members[k]);
        reducer->tensors[slots + k] = reducer->slots[plan->members[k]].shared;
    }
    return TUTTI_OK;
}

static void close_buckets(tt_reducer_t *reducer)
{
    tt_reducer_drop_hook_data(reducer);
    for (int i = 0; reducer->slots != NULL && i < reducer->plan.param_count; i++) {
        tutti_tensor_release(reducer->slots[i].grad);
        tutti_tensor_release(reducer->slots[i].shared);
        tutti_tensor_release(reducer->slots[i].result);
    }
    for (int b = 0; reducer->buckets != NULL && b < reducer->plan.bucket_count; b++) {
        tt_bucket_t *bucket = &reducer->buckets[b];
        tutti_work_release(bucket->work);
        tutti_prepared_release(bucket->prepared);
        tt_reducer_close_rounds(bucket);
        tt_reducer_close_slices(bucket);
        tutti_tensor_release(bucket->travel);
        tutti_tensor_release(bucket->grad);
        tutti_tensor_release(bucket->near_grad);
        tutti_tensor_release(bucket->near_result);
        for (int i = 0; i < TT_TREE_DEPTH_MAX; i++) {
            tutti_tensor_release(bucket->sums[i]);
        }
    }
    tt_free(reducer->tensors);
    tt_free(reducer->slots);
    tt_free(reducer->buckets);
    tt_free(reducer->totals);
    tt_free(reducer->first_leaves);
    reducer->totals = NULL;
    reducer->first_leaves = NULL;
    reducer->tensors = NULL;
    reducer->slots = NULL;
    reducer->buckets = NULL;
    tt_bucket_plan_fini(&reducer->plan);
    tt_reducer_give_memory(reducer);
}

tutti_status_t tt_reducer_fill(tt_reducer_t *reducer, const tt_tensor_list_t *params,
                               const int *order, bool *is_new)
{
    tt_bucket_plan_t plan;
    TT_TRY(plan_buckets(reducer, params, order, &plan));
    *is_new = reducer->buckets == NULL || !tt_bucket_plan_equal(&plan, &reducer->plan);
    if (!*is_new) {
        tt_bucket_plan_fini(&plan);
        return TUTTI_OK;
    }
    close_buckets(reducer);
    reducer->plan = plan;
    const tutti_status_t status = open_buckets(reducer, params);
    if (status < 0) {
        close_buckets(reducer);
        return status;
    }
    tt_reducer_keep_memory(reducer);
    return TUTTI_OK;
}

tutti_status_t tt_reducer_open(const tt_reducer_options_t *options, tt_reducer_t **out)
{
    tutti_group_t *group = options->group;
    tt_reducer_t *reducer = tt_alloc(sizeof *reducer, "reducer");
    TT_TRY_ALLOC(reducer);
    reducer->options = *options;
    reducer->share =
        tt_tree_share(options->shards, tutti_group_size(group), tutti_group_rank(group));
    *out = reducer;
    return TUTTI_OK;
}

void tt_reducer_close(tt_reducer_t *reducer)
{
    if (reducer != NULL) {
        (void)tt_reducer_set_hook(reducer, NULL, NULL);
        close_buckets(reducer);
        tt_free(reducer);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void copy_values(const tt_reducer_t *reducer, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    if (to != from) {
        tt_tensor_convert_now(reducer->options.threads, to, from);
    }
}

/* Values become those of another dtype, on the way through a tensor of it; NULL: they stay. */
static void round_values(const tt_reducer_t *reducer, tutti_tensor_t *through, tutti_tensor_t *x)
{
    if (through != NULL && through != x) {
        copy_values(reducer, through, x);
        copy_values(reducer, x, through);
    }
}

/* ---- shards fill a bucket -------------------------------------------------------------------- */

void tt_reducer_begin_step(tt_reducer_t *reducer)
{
    reducer->step++;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        reducer->buckets[b].state = TT_BUCKET_FILLING;
        reducer->buckets[b].rounds.started = reducer->buckets[b].rounds.returned = 0;
    }
}

/* What is in grad moves to a sum of its own. */
static void flush_grad(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const int top = bucket->stack.depth - 1;
    if (top >= 0 && bucket->pieces[top] == bucket->grad) {
        bucket->pieces[top] = bucket->sums[top];
        copy_values(reducer, bucket->sums[top], bucket->grad);
    }
}

void tt_reducer_begin_shard(tt_reducer_t *reducer, int shard)
{
    reducer->shard = shard;
    reducer->turn = 0;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        if (!tt_reducer_has_rounds(reducer)) {
            flush_grad(reducer, &reducer->buckets[b]);
        }
        reducer->buckets[b].pending = reducer->plan.buckets[b].param_count;
    }
    for (int i = 0; i < reducer->plan.param_count; i++) {
        reducer->slots[i].state = TT_SLOT_EMPTY;
    }
}

bool tt_reducer_note(tt_reducer_t *reducer, int index, bool is_last)
{
    tt_reducer_slot_t *slot = &reducer->slots[index];
    if (!is_last || slot->state == TT_SLOT_WHOLE) {
        slot->state = slot->state == TT_SLOT_EMPTY ? TT_SLOT_SOME : slot->state;
        return false;
    }
    slot->state = TT_SLOT_WHOLE;
    slot->turn = reducer->turn++;
    reducer->buckets[reducer->plan.slots[index].bucket].pending--;
    return true;
}

static tutti_status_t fill_empty_slots(tt_reducer_t *reducer, const tt_bucket_spec_t *spec)
{
    for (int k = 0; k < spec->param_count; k++) {
        const tt_reducer_slot_t *slot = &reducer->slots[reducer->plan.members[spec->first + k]];
        if (slot->state == TT_SLOT_EMPTY) {
            TT_TRY(tutti_tensor_fill(slot->grad, 0));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t scale(tutti_tensor_t *x, int64_t weight)
{
    if (weight == 0) {
        return tutti_tensor_fill(x, 0);
    }
    if (weight != 1) {
        tt_combine_scale(tutti_tensor_data(x), tutti_tensor_data(x), x->dtype, (double)weight,
                         (size_t)x->numel);
    }
    return TUTTI_OK;
}

static void merge_top(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const int left = bucket->stack.depth - 2;
    tt_local_sum(reducer->options.threads, bucket->sums[left], &bucket->pieces[left], 2, true);
    bucket->pieces[left] = bucket->sums[left];
    tt_tree_merge(&bucket->stack);
}

/* The shard's part of the sum, which leaves alone. */
static tutti_status_t push_leaf(const tt_reducer_t *reducer, tt_bucket_t *bucket, int64_t weight)
{
    tutti_tensor_t *leaf = is_wide(bucket->grad->dtype) ? bucket->grad : bucket->sums[0];
    copy_values(reducer, leaf, bucket->grad);
    if (bucket->travel != bucket->grad) {
        round_values(reducer, bucket->travel, leaf);
    }
    bucket->rounds.leaf = leaf;
    return scale(leaf, weight);
}

tutti_status_t tt_reducer_push(tt_reducer_t *reducer, int index, int64_t weight)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    TT_TRY(tt_reducer_want(reducer, index));
    TT_TRY(fill_empty_slots(reducer, &reducer->plan.buckets[index]));
    if (bucket->near_grad != NULL) {
        TT_TRY(tutti_tensor_copy(bucket->grad, bucket->near_grad));
    }
    if (tt_reducer_has_rounds(reducer)) {
        return push_leaf(reducer, bucket, weight);
    }
    tutti_tensor_t **piece = &bucket->pieces[bucket->stack.depth];
    tt_tree_push(&bucket->stack, reducer->shard, reducer->shard + 1);
    *piece = bucket->grad;
    if (tt_reducer_is_narrow(reducer, bucket)) {
        *piece = bucket->travel;
        copy_values(reducer, bucket->travel, bucket->grad);
        return TUTTI_OK;
    }
    if (!is_wide(bucket->grad->dtype)) {
        flush_grad(reducer, bucket);
    }
    if (bucket->travel != bucket->grad && reducer->hook == NULL) {
        round_values(reducer, bucket->travel, *piece);
    }
    TT_TRY(scale(*piece, weight));
    while (tt_tree_can_merge(&bucket->stack)) {
        merge_top(reducer, bucket);
    }
    return TUTTI_OK;
}

/* ---- it leaves ------------------------------------------------------------------------------- */

/* The sum over this rank's shards, in `out`: of pieces from left to right, for the caller does not
 * ask for the tree. */
static tutti_status_t add_pieces(const tt_reducer_t *reducer, const tt_bucket_t *bucket,
                                 tutti_tensor_t *out)
{
    const int count = bucket->stack.depth;
    if (count == 0) {
        return tutti_tensor_fill(out, 0);
    }
    if (count > 1) {
        tt_local_sum(reducer->options.threads, out, bucket->pieces, count, false);
    } else {
        copy_values(reducer, out, bucket->pieces[0]);
    }
    return TUTTI_OK;
}

static tutti_contributions_t contributions_of(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const bool narrow = tt_reducer_is_narrow(reducer, bucket);
    return (tutti_contributions_t){.count = reducer->options.shards,
                                   .pieces = bucket->pieces,
                                   .piece_count = bucket->stack.depth,
                                   .dtype = (narrow ? bucket->travel : bucket->total)->dtype};
}

static tutti_status_t prepare(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    const tt_reducer_options_t *o = &reducer->options;
    if (o->adds_locally) {
        return bucket->cuts == NULL
                   ? tutti_prepare_all_reduce(o->group, bucket->out, TUTTI_SUM, &bucket->prepared)
                   : tutti_prepare_reduce_scatter_uneven(o->group, bucket->out, bucket->total,
                                                         bucket->counts, TUTTI_SUM,
                                                         &bucket->prepared);
    }
    const tutti_contributions_t leaves = contributions_of(reducer, bucket);
    const tutti_reduction_t op = o->divides_late ? TUTTI_SUM : TUTTI_AVG;
    return bucket->cuts == NULL
               ? tutti_prepare_all_reduce_contributions(o->group, &leaves, bucket->out, op,
                                                        &bucket->prepared)
               : tutti_prepare_reduce_scatter_contributions_uneven(
                     o->group, &leaves, bucket->out, bucket->counts, op, &bucket->prepared);
}

/* A bucket that has been away lies elsewhere. */
static tutti_status_t bind_again(const tt_reducer_t *reducer, tt_bucket_t *bucket)
{
    if (!reducer->options.is_transient) {
        return TUTTI_OK;
    }
    if (reducer->options.adds_locally) {
        return tutti_prepared_rebind_pair(bucket->prepared, bucket->out, bucket->total);
    }
    const tutti_contributions_t leaves = contributions_of(reducer, bucket);
    return tt_prepared_rebind_leaves(bucket->prepared, &leaves, bucket->out);
}

/* A rank pushes the same shards in every step, so it leaves with the same pieces. */
static tutti_status_t start_pieces(tt_reducer_t *reducer, int index)
{
    const tt_reducer_options_t *o = &reducer->options;
    tt_bucket_t *bucket = &reducer->buckets[index];
    TT_TRY(tt_reducer_want_result(reducer, index));
    bucket->divisor = o->adds_locally ? o->shards : 1;
    bucket->out = tt_reducer_is_narrow(reducer, bucket) ? bucket->own_travel
                  : o->adds_locally || o->divides_late  ? bucket->own_total
                                                        : bucket->own_result;
    if (o->adds_locally) {
        TT_TRY(tt_reducer_want(reducer, index));
        TT_TRY(add_pieces(reducer, bucket, bucket->total));
    }
    TT_TRY(bucket->prepared == NULL ? prepare(reducer, bucket) : bind_again(reducer, bucket));
    return tutti_prepared_start(bucket->prepared, &bucket->work);
}

static tutti_status_t start_hook(const tt_reducer_t *reducer, int index)
{
    const tt_bucket_t *bucket = &reducer->buckets[index];
    TT_TRY(add_pieces(reducer, bucket, bucket->grad));
    return tt_reducer_start_hook(reducer, index);
}

tutti_status_t tt_reducer_start(tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    if (tt_reducer_has_rounds(reducer)) {
        TT_TRY(tt_reducer_wait(reducer, index)); /* the round before, where nothing was pushed */
        TT_TRY(tt_reducer_want_result(reducer, index));
        TT_TRY(tt_reducer_start_round(reducer, index));
        bucket->state = TT_BUCKET_SENT;
        bucket->started_ns = tt_clock_ns();
        return TUTTI_OK;
    }
    TT_ASSERT(bucket->state == TT_BUCKET_FILLING && bucket->work == NULL);
    TT_TRY(reducer->hook != NULL ? start_hook(reducer, index) : start_pieces(reducer, index));
    bucket->stack.depth = 0;
    bucket->state = TT_BUCKET_SENT;
    bucket->started_ns = tt_clock_ns();
    return TUTTI_OK;
}

/* ---- and comes back -------------------------------------------------------------------------- */

static void divide(const tt_reducer_t *reducer, const tt_bucket_t *bucket)
{
    tutti_tensor_t *x = bucket->out, *wide = is_wide(x->dtype) ? x : bucket->own_total;
    if (bucket->divisor != 1) {
        copy_values(reducer, wide, x);
        tt_combine_divide(tt_combine_kernels(), tutti_tensor_data(wide), wide->dtype,
                          bucket->divisor, (size_t)wide->numel);
        copy_values(reducer, x, wide);
    }
}

tutti_status_t tt_reducer_finalize(tt_reducer_t *reducer, int index, double divisor)
{
    const tt_reducer_options_t *o = &reducer->options;
    tt_bucket_t *bucket = &reducer->buckets[index];
    tutti_tensor_t *result = bucket->own_result;
    if (bucket->state >= TT_BUCKET_FINAL) {
        return TUTTI_OK;
    }
    TT_ASSERT(bucket->state == TT_BUCKET_BACK);
    if (reducer->hook != NULL) {
        TT_TRY(tt_reducer_finish_hook(reducer, index));
    } else if (o->divides_late) {
        bucket->divisor = divisor;
    }
    divide(reducer, bucket);
    copy_values(reducer, result, bucket->out);
    if (reducer->hook == NULL && bucket->out != bucket->own_travel) {
        round_values(reducer, bucket->own_travel, result);
    }
    if (bucket->near_result != NULL) {
        TT_TRY(tutti_tensor_copy(bucket->near_result, result));
    }
    tt_tensor_touch(result); /* other ranks wrote it, or what it shares its memory with */
    bucket->state = TT_BUCKET_FINAL;
    return TUTTI_OK;
}

void tt_reducer_take(tt_reducer_t *reducer, int index)
{
    TT_ASSERT(reducer->buckets[index].state == TT_BUCKET_FINAL);
    reducer->buckets[index].state = TT_BUCKET_TAKEN;
}
