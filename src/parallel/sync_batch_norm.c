/* Batch norm over the samples of all ranks.
 *
 *     forward   all_gather of [count | mean | variance]; merged in the order of ranks:
 *               mean = Σ n_r mean_r / Σ n_r,  variance = Σ n_r (var_r + (mean_r - mean)²) / Σ n_r
 *     backward  all_reduce of [Σ dy | Σ dy (x - mean)]
 *
 * Everything is f64, and the same bits on every rank.
 * Cost: one call of 2 C + 1 numbers each way. Source: Chan et al., "Algorithms for computing the
 * sample variance" (1983), for the merging. */
#include <tutti/nn_layers.h>

#include <string.h>

#include <tutti/collectives.h>

#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

/* ---- forward --------------------------------------------------------------------------------- */

/* What each rank sends. */
static double *part_of(double *all, int rank, int64_t channels)
{
    return all + rank * (2 * channels + 1);
}

static void merge_channel(double *all, int ranks, int64_t channels, int64_t i, double total)
{
    double mean = 0, variance = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const double *part = part_of(all, rank, channels);
        mean += part[0] * part[1 + i];
    }
    mean /= total;
    for (int rank = 0; rank < ranks; rank++) {
        const double *part = part_of(all, rank, channels), off = part[1 + i] - mean;
        variance += part[0] * (part[1 + channels + i] + off * off);
    }
    /* the results lie where the first rank's part was, behind which nobody looks again */
    part_of(all, 0, channels)[1 + i] = mean;
    part_of(all, 0, channels)[1 + channels + i] = variance / total;
}

static tutti_status_t gather(tutti_group_t *group, tutti_tensor_t *all, tutti_tensor_t *own,
                             double *mean, double *variance, double *count)
{
    const int64_t channels = (own->numel - 1) / 2;
    const int ranks = tutti_group_size(group);
    double *part = tutti_tensor_data(own), *parts = tutti_tensor_data(all), total = 0;
    part[0] = *count;
    memcpy(part + 1, mean, (size_t)channels * sizeof *mean);
    memcpy(part + 1 + channels, variance, (size_t)channels * sizeof *variance);
    TT_TRY(tutti_all_gather(group, all, own, NULL));
    for (int rank = 0; rank < ranks; rank++) {
        total += part_of(parts, rank, channels)[0];
    }
    for (int64_t i = 0; i < channels && total > 0; i++) {
        merge_channel(parts, ranks, channels, i, total);
        mean[i] = parts[1 + i];
        variance[i] = parts[1 + channels + i];
    }
    *count = total;
    return TUTTI_OK;
}

static tutti_status_t merge(void *user, tutti_scope_t *s, double *mean, double *variance,
                            int64_t channels, double *count)
{
    tutti_group_t *group = user;
    tutti_tensor_t *all, *own;
    const int64_t numbers = 2 * channels + 1;
    (void)s;
    TT_TRY(tt_tensor_new(NULL, TUTTI_F64, TUTTI_SHAPE(numbers), false, &own));
    tutti_status_t status =
        tt_tensor_new(NULL, TUTTI_F64, TUTTI_SHAPE(tutti_group_size(group), numbers), false, &all);
    if (status >= 0) {
        status = gather(group, all, own, mean, variance, count);
        tutti_tensor_release(all);
    }
    tutti_tensor_release(own);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t add(void *user, tutti_scope_t *s, double *sums, int64_t count)
{
    tutti_tensor_t *x;
    (void)s;
    TT_TRY(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(count), &x));
    memcpy(tutti_tensor_data(x), sums, tutti_tensor_bytes(x));
    const tutti_status_t status = tutti_all_reduce(user, x, TUTTI_SUM, NULL);
    if (status >= 0) {
        memcpy(sums, tutti_tensor_data(x), tutti_tensor_bytes(x));
    }
    tutti_tensor_release(x);
    return status;
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
