/* The replicas' gradients of each parameter become one: in the first replica's memory, which then
 * becomes the original's gradient without a copy, and added up by the canonical tree.
 *
 * Cost: reads each gradient of each replica once, writes one of each parameter.
 */
#include "core/base/alloc.h"
#include "core/kernel/reduce/tree_reduce.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

enum {
    PIECE = 16 * TT_REDUCE_BLOCK, /* elements that a thread adds up at a time */
    DEPTH_MAX = 8,                /* of a tree over 63 leaves */
    SCRATCH_BYTES = (DEPTH_MAX + 2) * TT_REDUCE_BLOCK * 8
};

typedef struct {
    tt_tree_reduce_t job;
    size_t count;
} sum_t;

static void sum_piece(void *user, size_t piece)
{
    const sum_t *sum = user;
    _Alignas(64) unsigned char scratch[SCRATCH_BYTES];
    tt_tree_reduce_t job = sum->job;
    const size_t begin = piece * PIECE, end = begin + PIECE;
    job.scratch = scratch;
    tt_tree_reduce(&job, begin, end < sum->count ? end : sum->count);
}

/* What adds up one leaf for each replica. */
static void plan_tree(int leaves, unsigned char merges[TUTTI_DATA_PARALLEL_MAX])
{
    tt_leaves_t pieces[TUTTI_DATA_PARALLEL_MAX];
    int depth;
    for (int i = 0; i < leaves; i++) {
        pieces[i] = (tt_leaves_t){i, i + 1};
    }
    const bool is_tree = tt_tree_compile(leaves, pieces, leaves, merges, &depth);
    TT_ASSERT(is_tree && depth <= DEPTH_MAX);
}

/* The gradients of parameter `index`, NULL where none came; returns how many came. */
static int find_gradients(const tt_replica_run_t *run, size_t index, tutti_tensor_t **grads)
{
    int found = 0;
    for (int i = 0; i < run->count; i++) {
        grads[i] = tutti_tensor_grad(tt_listed(&run->team->replicas[i].params, index));
        found += grads[i] != NULL;
    }
    return found;
}

static tutti_status_t sum_parameter(tutti_scope_t *s, const tt_replica_run_t *run,
                                    const unsigned char *merges, tutti_tensor_t **grads,
                                    tutti_tensor_t **out)
{
    const void *sources[TUTTI_DATA_PARALLEL_MAX];
    tutti_tensor_t *target = NULL, *zero = NULL;
    for (int i = 0; i < run->count; i++) {
        target = target == NULL ? grads[i] : target;
    }
    for (int i = 0; i < run->count; i++) {
        if (grads[i] == NULL && zero == NULL) {
            TT_TRY(tt_tensor_new(s->ctx->device, target->dtype, target->shape, true, &zero));
        }
        sources[i] = tutti_tensor_data(grads[i] == NULL ? zero : grads[i]);
    }
    void *dst = tutti_tensor_data(target);
    sum_t sum = {.job = {.kernels = tt_combine_kernels(),
                         .src_dtype = target->dtype,
                         .dst_dtype = target->dtype,
                         .reduction = TUTTI_SUM,
                         .leaves = run->count,
                         .source_count = run->count,
                         .sources = sources,
                         .merges = merges,
                         .dst_count = 1,
                         .dst = &dst},
                 .count = (size_t)target->numel};
    tt_pool_run(tt_scope_pool(s), (sum.count + PIECE - 1) / PIECE, sum_piece, &sum);
    tutti_tensor_release(zero);
    *out = tutti_tensor_retain(target);
    return TUTTI_OK;
}

tutti_status_t tt_replica_sum(tutti_scope_t *s, tt_replica_run_t *run)
{
    unsigned char merges[TUTTI_DATA_PARALLEL_MAX];
    tutti_tensor_t *grads[TUTTI_DATA_PARALLEL_MAX];
    plan_tree(run->count, merges);
    for (size_t k = 0; k < run->team->params.count; k++) {
        tutti_tensor_release(run->sums[k]);
        run->sums[k] = NULL;
        if (find_gradients(run, k, grads) == 0) {
            continue;
        }
        TT_TRY(sum_parameter(s, run, merges, grads, &run->sums[k]));
        for (int i = 0; i < run->count; i++) {
            TT_TRY(tutti_tensor_set_grad(tt_listed(&run->team->replicas[i].params, k), NULL));
        }
    }
    return TUTTI_OK;
}
