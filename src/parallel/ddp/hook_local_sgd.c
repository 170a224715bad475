/* local_sgd: from some step on, gradients are averaged within a subgroup alone, or not at all;
 * parameters are averaged every so often instead (ddp.h).
 * Source: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020; torch's
 * post_localSGD_hook. */
#include <tutti/ddp.h>

#include "core/base/fail.h"
#include "core/kernel/reduce/tree.h"

typedef struct {
    tutti_group_t *subgroup; /* retained; NULL: none */
    int64_t start_step;
} local_sgd_t;

static tutti_status_t init(void *state, const void *options, tutti_group_t *group)
{
    (void)group;
    local_sgd_t *local = state;
    const tutti_local_sgd_options_t *given = options;
    local->start_step = given != NULL ? given->start_step : 0;
    if (local->start_step < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "local_sgd: start_step %lld; want 0 at least",
                       (long long)local->start_step);
    }
    if (given != NULL && given->subgroup != NULL) {
        local->subgroup = tutti_group_retain(given->subgroup);
    }
    return TUTTI_OK;
}

static void fini(void *state)
{
    tutti_group_release(((local_sgd_t *)state)->subgroup);
}

/* Shards that the ranks of the subgroup host. */
static int shards_of(const tutti_group_t *subgroup, const tutti_bucket_t *bucket)
{
    const int ranks = tutti_group_size(bucket->group);
    int shards = 0;
    for (int i = 0; i < tutti_group_size(subgroup); i++) {
        const int rank = tutti_group_translate(subgroup, i, bucket->group);
        if (rank >= 0) {
            const tt_leaves_t share = tt_tree_share(bucket->shards, ranks, rank);
            shards += share.end - share.begin;
        }
    }
    return shards > 0 ? shards : 1;
}

static tutti_status_t start(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    const local_sgd_t *local = state;
    if (bucket->step <= local->start_step) {
        return tutti_all_reduce(bucket->group, bucket->grad, TUTTI_SUM, work);
    }
    if (local->subgroup == NULL) {
        bucket->divisor = bucket->local_shards > 0 ? bucket->local_shards : 1;
        return TUTTI_OK;
    }
    bucket->divisor = shards_of(local->subgroup, bucket);
    return tutti_all_reduce(local->subgroup, bucket->grad, TUTTI_SUM, work);
}

const tutti_ddp_hook_ops_t tutti_local_sgd_hook = {
    .name = "local_sgd",
    .about = "averages within a subgroup, or not at all, from some step on",
    .state_bytes = sizeof(local_sgd_t),
    .init = init,
    .fini = fini,
    .start = start,
};
