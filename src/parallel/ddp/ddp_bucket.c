/* A bucket's way through a step.
 *
 *     shard 4   grad ──┐push             pieces: [4,5) = grad
 *     shard 5   vacate: copy to sums[0]; grad = shard 5; push, merge: sums[0] += grad   [4,6)
 *     shard 6   push                     pieces: [4,6) = sums[0], [6,7) = grad
 *     leave     all_reduce of the pieces of all ranks, averaged into grad
 *
 * A rank that hosts one shard copies nothing: its piece is the gradient memory itself. Gradients of
 * 16 bits become f32 sums; but where every rank hosts one shard, nothing but those of a shard
 * travels, and they do so as they are (or rounded to reduce_dtype).
 */
#include "parallel/ddp/ddp_impl.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/kernel/elementwise/combine.h"

static tutti_dtype_t sum_dtype(tutti_dtype_t dtype)
{
    return tt_combine_dtype(dtype);
}

/* How many sums this rank needs: the deepest its stack gets while grad is the newest piece. */
static int sum_levels(const tutti_ddp_t *ddp)
{
    tt_tree_stack_t stack = {.leaves = ddp->options.shards};
    int deepest = 0;
    for (int i = 0; i < ddp->shard_count; i++) {
        const int shard = ddp->first_shard + i;
        tt_tree_push(&stack, shard, shard + 1);
        deepest = stack.depth > deepest ? stack.depth : deepest;
        while (tt_tree_can_merge(&stack)) {
            tt_tree_merge(&stack);
        }
    }
    return deepest;
}

/* Where a sum over all shards comes back: not rounded to 16 bits before it is divided. */
static tutti_tensor_t *sum_of(const tt_bucket_t *bucket)
{
    const tutti_dtype_t dtype = tutti_tensor_dtype(bucket->grad);
    return sum_dtype(dtype) == dtype ? bucket->grad : bucket->sums[0];
}

tutti_status_t tt_bucket_open(tutti_ddp_t *ddp, int index)
{
    tt_bucket_t *bucket = &ddp->buckets[index];
    const tt_bucket_spec_t spec = ddp->plan.buckets[index];
    const tutti_shape_t shape = TUTTI_SHAPE(spec.numel);
    TT_TRY(tutti_group_tensor(ddp->group, spec.dtype, shape, &bucket->grad));
    const bool is_wide = sum_dtype(spec.dtype) == spec.dtype;
    int levels = ddp->shard_count == 1 && is_wide ? 0 : sum_levels(ddp);
    if (!is_wide && levels == 0) {
        levels = 1; /* where the sum comes back */
    }
    for (int i = 0; i < levels; i++) {
        TT_TRY(tutti_group_tensor(ddp->group, sum_dtype(spec.dtype), shape, &bucket->sums[i]));
    }
    const tutti_dtype_t reduce = tt_ddp_reduce_dtype(ddp, spec.dtype);
    bucket->result = ddp->mixed.count > 0 ? sum_of(bucket) : bucket->grad;
    if (reduce == spec.dtype && !is_wide) {
        bucket->travel = tutti_tensor_retain(bucket->grad);
    } else if (sum_dtype(reduce) != reduce) {
        TT_TRY(tutti_group_tensor(ddp->group, reduce, shape, &bucket->travel));
    }
    return TUTTI_OK;
}

void tt_bucket_close(tt_bucket_t *bucket)
{
    tutti_work_release(bucket->work);
    tutti_prepared_release(bucket->prepared);
    tt_free(bucket->tensors);
    tutti_tensor_release(bucket->travel);
    tutti_tensor_release(bucket->grad);
    for (int i = 0; i < TT_TREE_DEPTH_MAX; i++) {
        tutti_tensor_release(bucket->sums[i]);
    }
}

tutti_status_t tt_bucket_vacate(tt_bucket_t *bucket)
{
    const int top = bucket->stack.depth - 1;
    if (top < 0 || bucket->pieces[top] != bucket->grad) {
        return TUTTI_OK;
    }
    bucket->pieces[top] = bucket->sums[top];
    return tutti_tensor_copy(bucket->sums[top], bucket->grad);
}

static void merge_top(tt_bucket_t *bucket)
{
    const int top = bucket->stack.depth - 1;
    const tutti_dtype_t dtype = tutti_tensor_dtype(bucket->sums[0]);
    const tt_combine_fn_t add = tt_combine_kernels()->combine[dtype][TUTTI_SUM];
    add(tutti_tensor_data(bucket->sums[top - 1]), tutti_tensor_data(bucket->pieces[top - 1]),
        tutti_tensor_data(bucket->pieces[top]), (size_t)tutti_tensor_numel(bucket->grad));
    bucket->pieces[top - 1] = bucket->sums[top - 1];
    tt_tree_merge(&bucket->stack);
}

/* A shard's gradient counts so often; without data it is zero, whatever is there. */
static tutti_status_t weigh(tutti_tensor_t *x, int64_t weight)
{
    if (weight == 0) {
        return tutti_tensor_fill(x, 0);
    }
    if (weight != 1) {
        tt_combine_scale(tutti_tensor_data(x), tutti_tensor_data(x), tutti_tensor_dtype(x),
                         (double)weight, (size_t)tutti_tensor_numel(x));
    }
    return TUTTI_OK;
}

/* Whether the ranks' 16-bit gradients, one from each, are what travels. */
static bool is_narrow(const tutti_ddp_t *ddp, const tt_bucket_t *bucket)
{
    return bucket->travel != NULL && ddp->hook == NULL && !tt_ddp_divides_later(ddp) &&
           ddp->options.uneven == TUTTI_DDP_EVEN &&
           ddp->options.shards == tutti_group_size(ddp->group);
}

/* Values become those of travel's dtype. */
static tutti_status_t round_values(const tt_bucket_t *bucket, tutti_tensor_t *x)
{
    if (bucket->travel == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_tensor_copy(bucket->travel, x));
    return tutti_tensor_copy(x, bucket->travel);
}

tutti_status_t tt_bucket_push(tutti_ddp_t *ddp, tt_bucket_t *bucket, int shard, int64_t weight)
{
    const tutti_dtype_t dtype = tutti_tensor_dtype(bucket->grad);
    tutti_tensor_t **piece = &bucket->pieces[bucket->stack.depth];
    bucket->stack.leaves = ddp->options.shards;
    tt_tree_push(&bucket->stack, shard, shard + 1);
    *piece = bucket->grad;
    if (is_narrow(ddp, bucket)) {
        *piece = bucket->travel;
        return bucket->travel != bucket->grad ? tutti_tensor_copy(bucket->travel, bucket->grad)
                                              : TUTTI_OK;
    }
    if (sum_dtype(dtype) != dtype) {
        TT_TRY(tt_bucket_vacate(bucket));
    }
    if (bucket->travel != bucket->grad && ddp->hook == NULL) {
        TT_TRY(round_values(bucket, *piece));
    }
    TT_TRY(weigh(bucket->pieces[bucket->stack.depth - 1], weight));
    while (tt_tree_can_merge(&bucket->stack)) {
        merge_top(bucket);
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(tutti_ddp_t *ddp, const tt_bucket_sum_t *sum, tutti_prepared_t **out)
{
    if (sum->leaves == 0) {
        return tutti_prepare_all_reduce(ddp->group, sum->out, sum->op, out);
    }
    const tutti_leaves_t leaves = {.count = sum->leaves,
                                   .pieces = sum->pieces,
                                   .piece_count = sum->piece_count,
                                   .dtype = sum->dtype};
    return tutti_prepare_all_reduce_leaves(ddp->group, &leaves, sum->out, sum->op, out);
}

static bool is_same_sum(const tt_bucket_sum_t *a, const tt_bucket_sum_t *b)
{
    return a->leaves == b->leaves && a->piece_count == b->piece_count && a->out == b->out &&
           a->op == b->op && a->dtype == b->dtype &&
           memcmp(a->pieces, b->pieces, (size_t)a->piece_count * sizeof(tutti_tensor_t *)) == 0;
}

/* Steps are alike: what was prepared for the last one mostly serves again. */
static tutti_status_t start_sum(tutti_ddp_t *ddp, tt_bucket_t *bucket, const tt_bucket_sum_t *sum)
{
    if (bucket->prepared == NULL || !is_same_sum(&bucket->prepared_sum, sum)) {
        tutti_prepared_release(bucket->prepared);
        bucket->prepared = NULL;
        TT_TRY(prepare(ddp, sum, &bucket->prepared));
        bucket->prepared_sum = *sum;
    }
    return tutti_prepared_start(bucket->prepared, &bucket->work);
}

/* One piece of each rank, whatever it hosts. */
static tutti_status_t start_local_sum(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    tutti_tensor_t *sum = sum_of(bucket);
    TT_TRY(tt_bucket_gather(bucket, sum));
    return start_sum(ddp, bucket,
                     &(tt_bucket_sum_t){.out = sum, .op = TUTTI_SUM, .dtype = sum->dtype});
}

static tutti_status_t start(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    bucket->is_narrow = false;
    if (ddp->hook != NULL) {
        return tt_ddp_start_hook(ddp, bucket);
    }
    if (ddp->adds_locally) {
        return start_local_sum(ddp, bucket);
    }
    bucket->is_narrow = is_narrow(ddp, bucket);
    const bool divides_later = tt_ddp_divides_later(ddp);
    tutti_tensor_t *total = sum_of(bucket);
    tt_bucket_sum_t sum = {.leaves = ddp->options.shards,
                           .piece_count = bucket->stack.depth,
                           .out = bucket->is_narrow ? bucket->travel
                                  : divides_later   ? total
                                                    : bucket->result,
                           .op = divides_later ? TUTTI_SUM : TUTTI_AVG};
    sum.dtype = (bucket->is_narrow ? sum.out : total)->dtype;
    for (int i = 0; i < sum.piece_count; i++) {
        sum.pieces[i] = bucket->pieces[i];
    }
    return start_sum(ddp, bucket, &sum);
}

tutti_status_t tt_bucket_leave(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    TT_TRY(start(ddp, bucket));
    bucket->stack.depth = 0;
    bucket->is_whole = ddp->shard_count > 0 && bucket->pending == 0;
    bucket->has_left = true;
    bucket->left_ns = tt_clock_ns();
    return TUTTI_OK;
}

tutti_status_t tt_bucket_divide(tt_bucket_t *bucket, int64_t divisor)
{
    tutti_tensor_t *sum = sum_of(bucket);
    const size_t count = (size_t)tutti_tensor_numel(sum);
    if (tutti_tensor_dtype(sum) == TUTTI_F64) {
        tt_combine_kernels()->divide_f64(tutti_tensor_data(sum), (double)divisor, count);
    } else {
        tt_combine_kernels()->divide_f32(tutti_tensor_data(sum), (float)divisor, count);
    }
    return sum == bucket->result ? TUTTI_OK : tutti_tensor_copy(bucket->result, sum);
}

tutti_status_t tt_bucket_settle(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    tutti_tensor_t *result = bucket->result;
    if (bucket->is_settled) {
        return TUTTI_OK;
    }
    bucket->is_settled = true;
    if (ddp->hook != NULL) {
        TT_TRY(result == bucket->grad ? TUTTI_OK : tutti_tensor_copy(result, bucket->grad));
    } else if (bucket->is_narrow) {
        TT_TRY(result == bucket->travel ? TUTTI_OK : tutti_tensor_copy(result, bucket->travel));
    } else if (result != bucket->travel) {
        TT_TRY(round_values(bucket, result));
    }
    tt_tensor_touch(result); /* other ranks wrote it, or what it shares its memory with */
    return TUTTI_OK;
}
