/* Tree reduction in blocks that stay in the first-level cache.
 *
 * For each block of TT_REDUCE_BLOCK elements the sources are pushed on a stack, a stack entry being
 * a source itself or a scratch buffer, and merged as the compiled tree says; the last result is
 * divided (AVG), rounded (16 bit) and stored into all destinations. Two f32 sources, the common
 * case of two ranks, skip the stack: one loop reads both and stores into all.
 *
 * Cost: reads every source once, writes every destination once; partial sums stay in cache.
 */
#include "core/kernel/reduce/tree_reduce.h"

#include <string.h>

#include "core/base/dtype_bytes.h"
#include "core/base/fail.h"

enum { SLOT_BYTES = TT_REDUCE_BLOCK * 8, SLOTS_EXTRA = 2 };

bool tt_tree_compile(int leaves, const tt_leaves_t *pieces, int piece_count, unsigned char *merges,
                     int *depth)
{
    tt_tree_stack_t stack = {.leaves = leaves};
    *depth = 0;
    for (int i = 0; i < piece_count; i++) {
        if (stack.depth == TT_TREE_DEPTH_MAX) {
            return false;
        }
        tt_tree_push(&stack, pieces[i].begin, pieces[i].end);
        *depth = stack.depth > *depth ? stack.depth : *depth;
        merges[i] = 0;
        while (tt_tree_can_merge(&stack)) {
            tt_tree_merge(&stack);
            merges[i]++;
        }
    }
    return stack.depth == 1 && stack.spans[0].begin == 0 && stack.spans[0].end == leaves;
}

size_t tt_tree_reduce_scratch_bytes(int depth)
{
    return (size_t)(depth + SLOTS_EXTRA) * SLOT_BYTES;
}

static const void *at(const void *base, size_t index, tutti_dtype_t dtype)
{
    return (const char *)base + index * tt_dtype_bytes(dtype);
}

static void *slot(const tt_tree_reduce_t *job, int index)
{
    return (char *)job->scratch + (size_t)index * SLOT_BYTES;
}

/* A source's block in the dtype that is combined; widened into stack slot `depth` if need be. */
static const void *load(const tt_tree_reduce_t *job, int source, int depth, size_t begin,
                        size_t count)
{
    const void *block = at(job->sources[source], begin, job->src_dtype);
    if (tt_combine_dtype(job->src_dtype) == job->src_dtype) {
        return block;
    }
    job->kernels->widen(slot(job, depth), block, job->src_dtype, count);
    return slot(job, depth);
}

/* A function of the program's own takes what is in `left` where it lies. */
static void combine_by(const tutti_custom_reduction_t *custom, tutti_dtype_t dtype, void *sum,
                       const void *left, const void *right, size_t count)
{
    if (sum != left) {
        memcpy(sum, left, count * tt_dtype_bytes(dtype));
    }
    custom->combine(sum, right, (int64_t)count / tt_custom_width(custom), dtype, custom->user);
}

static const void *evaluate(const tt_tree_reduce_t *job, size_t begin, size_t count)
{
    const tutti_reduction_t base = job->reduction == TUTTI_AVG ? TUTTI_SUM : job->reduction;
    const tutti_dtype_t dtype = tt_combine_dtype(job->src_dtype);
    const tt_combine_fn_t combine = job->kernels->combine[dtype][base];
    const void *stack[TT_TREE_DEPTH_MAX];
    int depth = 0;
    for (int i = 0; i < job->source_count; i++) {
        stack[depth] = load(job, i, depth, begin, count);
        depth++;
        for (int m = 0; m < job->merges[i]; m++) {
            depth--;
            void *sum = slot(job, depth - 1);
            if (combine != NULL) {
                combine(sum, stack[depth - 1], stack[depth], count);
            } else {
                combine_by(job->custom, dtype, sum, stack[depth - 1], stack[depth], count);
            }
            stack[depth - 1] = sum;
        }
    }
    return stack[0];
}

/* Divide and round what evaluate() gave; the result may be in place, in a slot, or a source. */
static const void *finish(const tt_tree_reduce_t *job, const void *value, size_t count)
{
    const tutti_dtype_t dtype = tt_combine_dtype(job->src_dtype);
    if (job->reduction == TUTTI_AVG && job->leaves != 1) {
        if (value != slot(job, 0)) {
            memcpy(slot(job, 0), value, count * tt_dtype_bytes(dtype));
            value = slot(job, 0);
        }
        tt_combine_divide(job->kernels, slot(job, 0), dtype, job->leaves, count);
    }
    if (dtype != job->dst_dtype) {
        job->kernels->narrow(slot(job, 1), value, job->dst_dtype, count);
        value = slot(job, 1);
    }
    return value;
}

static void store(const tt_tree_reduce_t *job, const void *value, size_t begin, size_t count)
{
    const size_t bytes = count * tt_dtype_bytes(job->dst_dtype);
    for (int k = 0; k < job->dst_count; k++) {
        char *dst = (char *)job->dst[k] + begin * tt_dtype_bytes(job->dst_dtype);
        if (dst != value) {
            memcpy(dst, value, bytes);
        }
    }
}

static bool is_plain_pair(const tt_tree_reduce_t *job)
{
    return job->source_count == 2 && job->src_dtype == TUTTI_F32 && job->dst_dtype == TUTTI_F32 &&
           job->reduction == TUTTI_SUM && (job->dst_count == 1 || job->dst_count == 2);
}

static void reduce_pair(const tt_tree_reduce_t *job, size_t begin, size_t end)
{
    float *d = (float *)job->dst[0] + begin, *e = (float *)job->dst[job->dst_count - 1] + begin;
    const float *a = (const float *)job->sources[0] + begin;
    const float *b = (const float *)job->sources[1] + begin;
    if (job->dst_count == 1) { /* storing twice at one place takes thrice as long */
        job->kernels->combine[TUTTI_F32][TUTTI_SUM](d, a, b, end - begin);
    } else {
        job->kernels->sum_f32_to_two(d, e, a, b, end - begin);
    }
}

void tt_tree_reduce(const tt_tree_reduce_t *job, size_t begin, size_t end)
{
    TT_ASSERT(job->source_count > 0);
    if (is_plain_pair(job)) {
        reduce_pair(job, begin, end);
        return;
    }
    for (size_t i = begin; i < end; i += TT_REDUCE_BLOCK) {
        const size_t count = end - i < TT_REDUCE_BLOCK ? end - i : TT_REDUCE_BLOCK;
        store(job, finish(job, evaluate(job, i, count), count), i, count);
    }
}
