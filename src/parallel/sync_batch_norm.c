/* Batch norm over the samples of all ranks.
 *
 *     forward   all_gather of [count | mean | variance]; merged in the order of ranks:
 *               mean = Σ n_r mean_r / Σ n_r,  variance = Σ n_r (var_r + (mean_r - mean)²) / Σ n_r
 *     backward  all_reduce of [Σ dy | Σ dy (x - mean)]
 *
 * Everything is f64, and the same bits on every rank. On meta nothing is sent: there is nothing to
 * send, and shapes are each rank's own.
 * Cost: one call of 2 C + 1 numbers each way. Source: Chan et al., "Algorithms for computing the
 * sample variance" (1983), for the merging. */
#include <tutti/nn_layers.h>

#include <tutti/collectives.h>

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/fail.h"
#include "core/kernel/elementwise/copy.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

/* ---- forward --------------------------------------------------------------------------------- */

typedef struct {
    const double *all; /* [ranks][1 + 2 channels]: what each rank sends */
    double *mean, *variance, *total;
    int64_t ranks, channels;
} merge_t;

static const double *part_of(const merge_t *m, int64_t rank)
{
    return m->all + rank * (2 * m->channels + 1);
}

static void merge_channel(const merge_t *m, int64_t i)
{
    double mean = 0, variance = 0;
    for (int64_t rank = 0; rank < m->ranks; rank++) {
        mean += part_of(m, rank)[0] * part_of(m, rank)[1 + i];
    }
    mean /= *m->total;
    for (int64_t rank = 0; rank < m->ranks; rank++) {
        const double *part = part_of(m, rank), off = part[1 + i] - mean;
        variance += part[0] * (part[1 + m->channels + i] + off * off);
    }
    m->mean[i] = mean;
    m->variance[i] = variance / *m->total;
}

static tutti_status_t run_merge(tt_threads_t *threads, const void *arguments)
{
    const merge_t *m = arguments;
    (void)threads;
    *m->total = 0;
    for (int64_t rank = 0; rank < m->ranks; rank++) {
        *m->total += part_of(m, rank)[0];
    }
    for (int64_t i = 0; i<m->channels && * m->total> 0; i++) {
        merge_channel(m, i);
    }
    return TUTTI_OK;
}

static const tt_pointer_t merge_pointers[] = {TT_POINTER(merge_t, all), TT_POINTER(merge_t, mean),
                                              TT_POINTER(merge_t, variance),
                                              TT_POINTER(merge_t, total), TT_NO_POINTER};
static const tt_kernel_t merge_kernel =
    TT_KERNEL("sync_batch_norm_merge", merge_t, run_merge, merge_pointers);

/* own: what this rank sends; all: what all do; total: a number. */
typedef struct {
    tutti_tensor_t *own, *all, *total;
} parts_t;

static tutti_status_t gather(tutti_group_t *group, tt_exec_t *exec, const parts_t *p,
                             const merge_t *m, double *count)
{
    double *own = tt_tensor_data(p->own);
    const int64_t n = m->channels;
    const tt_strided_t parts[] = {tt_strided_row(own, TUTTI_F64, 1),
                                  tt_strided_row(own + 1, TUTTI_F64, n),
                                  tt_strided_row(own + 1 + n, TUTTI_F64, n)},
                       mean = tt_strided_row(m->mean, TUTTI_F64, n),
                       variance = tt_strided_row(m->variance, TUTTI_F64, n);
    TT_TRY(tt_fill(exec, &parts[0], *count));
    TT_TRY(tt_copy(exec, &parts[1], &mean));
    TT_TRY(tt_copy(exec, &parts[2], &variance));
    TT_TRY(tutti_all_gather(group, p->all, p->own, NULL));
    TT_TRY(tt_launch(exec, &merge_kernel, m));
    return tt_tensor_read(p->total, count);
}

static tutti_status_t make_parts(tt_device_t *device, int64_t ranks, int64_t numbers, parts_t *p)
{
    TT_TRY(tt_tensor_new(device, TUTTI_F64, TUTTI_SHAPE(numbers), false, &p->own));
    TT_TRY(tt_tensor_new(device, TUTTI_F64, TUTTI_SHAPE(ranks, numbers), false, &p->all));
    return tt_tensor_new(device, TUTTI_F64, TUTTI_SCALAR, false, &p->total);
}

static tutti_status_t merge(void *user, tutti_scope_t *s, tutti_tensor_t *mean,
                            tutti_tensor_t *variance, double *count)
{
    parts_t p = {NULL, NULL, NULL};
    const int64_t ranks = tutti_group_size(user), channels = mean->numel;
    if (!tt_device_has_values(mean->storage->device)) {
        *count *= (double)ranks; /* as if all had as many */
        return TUTTI_OK;
    }
    tutti_status_t status = make_parts(s->ctx->place.device, ranks, 2 * channels + 1, &p);
    if (status >= 0) {
        const merge_t m = {tt_tensor_data(p.all),
                           tt_tensor_data(mean),
                           tt_tensor_data(variance),
                           tt_tensor_data(p.total),
                           ranks,
                           channels};
        status = gather(user, tt_scope_exec(s), &p, &m, count);
    }
    tt_tensors_release((tutti_tensor_t **)&p, sizeof p / sizeof(tutti_tensor_t *));
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t add(void *user, tutti_scope_t *s, tutti_tensor_t *sums)
{
    (void)s;
    return tt_device_has_values(sums->storage->device)
               ? tutti_all_reduce(user, sums, TUTTI_SUM, NULL)
               : TUTTI_OK;
}

/* ---- the layer ------------------------------------------------------------------------------- */

static void retain_group(void *user)
{
    (void)tutti_group_retain(user);
}

static void release_group(void *user)
{
    tutti_group_release(user);
}

static void share(tt_channel_norm_t *norm, tutti_group_t *group)
{
    norm->shared = (tt_shared_statistics_t){merge, add, tutti_group_retain(group), retain_group,
                                            release_group};
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_sync_batch_norm_options_t *o = options;
    if (o == NULL || o->group == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sync_batch_norm: options.group is missing");
    }
    share(tutti_module_state(m), o->group);
    return tt_batch_norm_layer_init(m, &o->norm);
}

static void fini(tutti_module_t *m)
{
    const tt_channel_norm_t *norm = tutti_module_state(m);
    tutti_group_release(norm->shared.user);
}

const tutti_module_ops_t tutti_sync_batch_norm_layer = {
    .name = "sync_batch_norm",
    .about = "batch norm with statistics over the samples of all ranks",
    .state_bytes = sizeof(tt_channel_norm_t),
    .init = init,
    .fini = fini,
    .forward_many = tt_batch_norm_layer_forward,
};

/* ---- conversion ------------------------------------------------------------------------------ */

/* Both have the same state. user: the group, or NULL, which changes nothing. */
static tutti_status_t convert(void *user, const char *name, tutti_module_t *m)
{
    (void)name;
    if (user == NULL) {
        return TUTTI_OK;
    }
    if (m->ops == &tutti_batch_norm_layer || m->ops == &tutti_sync_batch_norm_layer) {
        tt_channel_norm_t *norm = m->state;
        tutti_group_t *old = norm->shared.user;
        share(norm, user);
        tutti_group_release(old);
        m->ops = &tutti_sync_batch_norm_layer;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_convert_sync_batchnorm(tutti_module_t *m, tutti_group_t *group)
{
    if (group == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "convert_sync_batchnorm: the group is missing");
    }
    TT_TRY(tutti_module_apply(m, convert, NULL)); /* if the walk fails, then before any change */
    return tutti_module_apply(m, convert, group);
}
