/* GPipe's deferred statistics: a batch norm normalizes each micro-batch by its own mean and
 * variance; the running ones move once, towards those of the whole batch.
 *
 *     F of a micro-batch   mean, variance, count ──► merged into those of the batch so far
 *     end of the step      running = (1 - momentum) running + momentum batch
 *
 *     n elements of mean a and variance v, and m of mean b and variance w, together
 *         mean       a + (b - a) m / (n + m)
 *         variance   (n v + m w + (b - a)² n m / (n + m)) / (n + m)
 *
 * All are f64, in the order of F, which is that of the micro-batches. Cost: 2 C numbers a layer.
 * Source: Huang et al., "GPipe" (2019), section 2; Chan et al., "Algorithms for computing the
 * sample variance" (1983).
 */
#include "parallel/pipeline/pipeline_norms.h"

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/copy.h"
#include "core/tensor/tensor_impl.h"

/* Of a layer. */
struct tt_deferred_norm {
    tt_deferred_statistics_t hook; /* the layer's */
    tutti_pipeline_t *pipeline;
    tt_channel_norm_t *norm;         /* borrowed from the module */
    tutti_tensor_t *mean, *variance; /* [C] f64, of the batch so far; owned */
    double count;
    struct tt_deferred_norm *next;
};

/* ---- merging --------------------------------------------------------------------------------- */

typedef struct {
    double *mean, *variance;
    const double *next_mean, *next_variance;
    double count, next_count;
    int64_t channels;
} merge_t;

static tutti_status_t run_merge(tt_threads_t *threads, const void *arguments)
{
    const merge_t *m = arguments;
    const double n = m->count, more = m->next_count, total = n + more;
    (void)threads;
    for (int64_t i = 0; i < m->channels; i++) {
        const double off = m->next_mean[i] - m->mean[i];
        m->mean[i] += off * (more / total);
        m->variance[i] =
            (n * m->variance[i] + more * m->next_variance[i] + off * off * (n * more / total)) /
            total;
    }
    return TUTTI_OK;
}

static const tt_pointer_t merge_pointers[] = {
    TT_POINTER(merge_t, mean), TT_POINTER(merge_t, variance), TT_POINTER(merge_t, next_mean),
    TT_POINTER(merge_t, next_variance), TT_NO_POINTER};
static const tt_kernel_t merge_kernel =
    TT_KERNEL("deferred_norm_merge", merge_t, run_merge, merge_pointers);

static tutti_status_t copy(tt_exec_t *exec, const tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t target = tt_tensor_strided(to), source = tt_tensor_strided(from);
    return tt_copy(exec, &target, &source);
}

static tutti_status_t take(void *user, tutti_scope_t *s, const tutti_tensor_t *mean,
                           const tutti_tensor_t *variance, double count)
{
    struct tt_deferred_norm *at = user;
    const tutti_pipeline_t *p = at->pipeline;
    if (!tt_shard_is_first(p, tt_shard_of(p, p->place.action.micro_batch))) {
        return TUTTI_OK; /* another shard's running statistics are those of the step */
    }
    if (at->count == 0) {
        TT_TRY(copy(tt_scope_exec(s), at->mean, mean));
        TT_TRY(copy(tt_scope_exec(s), at->variance, variance));
    } else {
        const merge_t m = {.mean = tt_tensor_data(at->mean),
                           .variance = tt_tensor_data(at->variance),
                           .next_mean = tt_tensor_data(mean),
                           .next_variance = tt_tensor_data(variance),
                           .count = at->count,
                           .next_count = count,
                           .channels = mean->numel};
        TT_TRY(tt_launch(tt_scope_exec(s), &merge_kernel, &m));
    }
    at->count += count;
    return TUTTI_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void release_norm(struct tt_deferred_norm *at)
{
    tutti_tensor_release(at->mean);
    tutti_tensor_release(at->variance);
    tt_free(at);
}

static tutti_status_t make_norm(tutti_pipeline_t *p, tt_channel_norm_t *norm,
                                struct tt_deferred_norm **out)
{
    tt_device_t *device = tt_memory_on(tutti_context_device(p->ctx));
    struct tt_deferred_norm *at = tt_alloc(sizeof *at, "deferred statistics");
    TT_TRY_ALLOC(at);
    at->hook = (tt_deferred_statistics_t){.take = take, .user = at};
    at->pipeline = p;
    at->norm = norm;
    const tutti_shape_t shape = norm->running_mean->shape;
    tutti_status_t status = tt_tensor_new(device, TUTTI_F64, shape, false, &at->mean);
    status = status < 0 ? status : tt_tensor_new(device, TUTTI_F64, shape, false, &at->variance);
    if (status < 0) {
        release_norm(at);
        return status;
    }
    *out = at;
    return TUTTI_OK;
}

/* A layer may be there more than once. */
static tutti_status_t add_norm(void *user, const char *name, tutti_module_t *m)
{
    tutti_pipeline_t *p = user;
    tt_channel_norm_t *norm = m->state;
    if ((m->ops != &tutti_batch_norm_layer && m->ops != &tutti_sync_batch_norm_layer) ||
        norm->running_mean == NULL) {
        return TUTTI_OK;
    }
    if (norm->deferred != NULL) {
        const struct tt_deferred_norm *other = norm->deferred->user;
        return other->pipeline == p
                   ? TUTTI_OK
                   : TT_FAIL(TUTTI_ERR_STATE,
                             "pipeline: another pipeline defers the statistics of a batch norm "
                             "(\"%s\" of its part): release that first",
                             name);
    }
    struct tt_deferred_norm *at;
    TT_TRY(make_norm(p, norm, &at));
    norm->deferred = &at->hook;
    at->next = p->norms;
    p->norms = at;
    return TUTTI_OK;
}

tutti_status_t tt_norms_open(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->chain.count && p->options.deferred_statistics; i++) {
        if (tt_rank_of_stage(p, p->chain.parts[i].stage) == p->rank) {
            TT_TRY(tutti_module_apply(p->chain.parts[i].module, add_norm, p));
        }
    }
    return TUTTI_OK;
}

void tt_norms_close(tutti_pipeline_t *p)
{
    while (p->norms != NULL) {
        struct tt_deferred_norm *at = p->norms;
        p->norms = at->next;
        at->norm->deferred = NULL;
        release_norm(at);
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

void tt_norms_begin_step(tutti_pipeline_t *p)
{
    for (struct tt_deferred_norm *at = p->norms; at != NULL; at = at->next) {
        at->count = 0;
    }
}

static tutti_status_t move_all(const tutti_pipeline_t *p, tutti_scope_t *s)
{
    for (const struct tt_deferred_norm *at = p->norms; at != NULL; at = at->next) {
        const tt_batch_statistics_t batch = {at->mean, at->variance, at->count};
        TT_TRY(at->count > 0 ? tt_batch_norm_layer_move(s, at->norm, &batch) : TUTTI_OK);
    }
    return TUTTI_OK;
}

tutti_status_t tt_norms_end_step(tutti_pipeline_t *p)
{
    tutti_scope_t *s;
    if (p->norms == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_scope_open(p->ctx, &s));
    tutti_status_t status = tt_shards_enter_end(p);
    status = status < 0 ? status : move_all(p, s);
    const tutti_status_t closed = tutti_scope_close(s);
    status = status < 0 ? status : closed;
    return status < 0 ? status : tt_shards_leave_end(p);
}
