/* A tree reduction in pieces, each with scratch memory on the stack of the thread that adds it up.
 *
 * Cost: reads each source once, writes the sum once.
 */
#include "parallel/reduce/local_sum.h"

#include "core/kernel/reduce/tree_reduce.h"

enum {
    PIECE = 16 * TT_REDUCE_BLOCK, /* elements that a thread adds up at a time */
    DEPTH_MAX = 8,                /* of the tree over 63 leaves */
    SCRATCH_BYTES = (DEPTH_MAX + 2) * TT_REDUCE_BLOCK * 8,
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

/* How often to add after each source has been pushed. */
static void plan_merges(int count, bool by_tree, unsigned char *merges)
{
    tt_leaves_t leaves[TT_LOCAL_SUM_MAX];
    int depth;
    for (int i = 0; i < count; i++) {
        leaves[i] = (tt_leaves_t){i, i + 1};
        merges[i] = i > 0;
    }
    if (by_tree) {
        const bool is_tree = tt_tree_compile(count, leaves, count, merges, &depth);
        TT_ASSERT(is_tree && depth <= DEPTH_MAX);
    }
}

void tt_local_sum(tt_threads_t *threads, tutti_tensor_t *out, tutti_tensor_t *const *sources,
                  int count, bool by_tree)
{
    const void *data[TT_LOCAL_SUM_MAX];
    unsigned char merges[TT_LOCAL_SUM_MAX];
    void *dst = tutti_tensor_data(out);
    TT_ASSERT(count <= TT_LOCAL_SUM_MAX);
    plan_merges(count, by_tree, merges);
    for (int i = 0; i < count; i++) {
        data[i] = tutti_tensor_data(sources[i]);
    }
    sum_t sum = {.job = {.kernels = tt_combine_kernels(),
                         .src_dtype = sources[0]->dtype,
                         .dst_dtype = out->dtype,
                         .reduction = TUTTI_SUM,
                         .source_count = count,
                         .sources = data,
                         .merges = merges,
                         .dst_count = 1,
                         .dst = &dst},
                 .count = (size_t)out->numel};
    tt_threads_run(threads, (sum.count + PIECE - 1) / PIECE, sum_piece, &sum);
}
