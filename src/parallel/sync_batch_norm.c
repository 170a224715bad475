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
#include "core/base/alloc.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tt_channel_norm_t norm; /* first: what the layer shares with batch_norm */
    tutti_group_t *group;
} sync_norm_t;

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

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_sync_batch_norm_options_t *o = options;
    sync_norm_t *norm = tutti_module_state(m);
    if (o == NULL || o->group == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sync_batch_norm: options.group is missing");
    }
    norm->group = tutti_group_retain(o->group);
    return tt_batch_norm_layer_init(m, &o->norm);
}

static void fini(tutti_module_t *m)
{
    const sync_norm_t *norm = tutti_module_state(m);
    tutti_group_release(norm->group);
}

static void retain_group(void *user)
{
    (void)tutti_group_retain(user);
}

static void release_group(void *user)
{
    tutti_group_release(user);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const sync_norm_t *norm = tutti_module_state(m);
    const tt_shared_statistics_t shared = {merge, add, norm->group, retain_group, release_group};
    return tt_batch_norm_layer_forward(s, m, x, &shared);
}

const tutti_module_ops_t tutti_sync_batch_norm_layer = {
    .name = "sync_batch_norm",
    .about = "batch norm with statistics over the samples of all ranks",
    .state_bytes = sizeof(sync_norm_t),
    .init = init,
    .fini = fini,
    .forward = forward,
};

/* ---- conversion ------------------------------------------------------------------------------ */

/* A module to be converted, and its state to be. */
typedef struct swap {
    struct swap *next;
    tutti_module_t *m;
    sync_norm_t *state;
} swap_t;

static tutti_status_t add_swap(void *user, const char *name, tutti_module_t *m)
{
    (void)name;
    swap_t **first = user;
    if (m->ops != &tutti_batch_norm_layer && m->ops != &tutti_sync_batch_norm_layer) {
        return TUTTI_OK;
    }
    for (const swap_t *other = *first; other != NULL; other = other->next) {
        if (other->m == m) { /* it stands in two places */
            return TUTTI_OK;
        }
    }
    swap_t *swap = tt_alloc(sizeof *swap, "module conversion");
    TT_TRY_ALLOC(swap);
    *swap = (swap_t){.next = *first, .m = m};
    *first = swap;
    swap->state = tt_alloc(sizeof *swap->state, "module state");
    TT_TRY_ALLOC(swap->state);
    return TUTTI_OK;
}

static void convert(const swap_t *swap, tutti_group_t *group)
{
    tutti_module_t *m = swap->m;
    sync_norm_t *state = swap->state;
    state->norm = *(const tt_channel_norm_t *)m->state; /* the tensors are the module's */
    state->group = tutti_group_retain(group);
    if (m->ops->fini != NULL) {
        m->ops->fini(m);
    }
    tt_free(m->state);
    m->state = state;
    m->ops = &tutti_sync_batch_norm_layer;
}

tutti_status_t tutti_convert_sync_batchnorm(tutti_module_t *m, tutti_group_t *group)
{
    swap_t *first = NULL;
    if (group == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "convert_sync_batchnorm: the group is missing");
    }
    const tutti_status_t status = tutti_module_apply(m, add_swap, &first);
    while (first != NULL) {
        swap_t *swap = first;
        first = swap->next;
        if (status >= 0) {
            convert(swap, group);
        } else {
            tt_free(swap->state);
        }
        tt_free(swap);
    }
    return status;
}
