/* Hooks: what a bucket that leaves and comes back does instead of an all_reduce of leaves. */
#include <tutti/ddp_hooks.h>

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/combine.h"
#include "parallel/ddp/ddp_impl.h"

const tutti_ddp_hook_ops_t *const tt_ddp_hooks[] = {
#define X(table) &table,
#include "parallel/ddp/hooks.def"
#undef X
    NULL,
};

const tutti_ddp_hook_ops_t *const *tutti_ddp_hooks(void)
{
    return tt_ddp_hooks;
}

const tutti_ddp_hook_ops_t *tutti_ddp_hook_find(const char *name)
{
    const tutti_ddp_hook_ops_t *const *at = tt_ddp_hooks;
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at++;
    }
    return *at;
}

const char *tutti_ddp_hook_name(const tutti_ddp_t *ddp)
{
    return ddp->hook != NULL ? ddp->hook->name : "leaves";
}

/* ---- a bucket as a hook sees it -------------------------------------------------------------- */

/* The parameters of a bucket, and their gradients behind them. */
static tutti_status_t list_tensors(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    const int index = (int)(bucket - ddp->buckets), count = ddp->plan.buckets[index].param_count;
    bucket->tensors = tt_alloc_array(2 * (size_t)count, sizeof *bucket->tensors, "ddp hook");
    TT_TRY_ALLOC(bucket->tensors);
    int found = 0;
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->plan.slots[i].bucket == index) {
            bucket->tensors[found] = ddp->params[i].tensor;
            bucket->tensors[count + found++] = ddp->params[i].view;
        }
    }
    return TUTTI_OK;
}

static tutti_bucket_t describe(const tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    const int index = (int)(bucket - ddp->buckets), count = ddp->plan.buckets[index].param_count;
    return (tutti_bucket_t){.index = index,
                            .count = ddp->plan.bucket_count,
                            .step = (int64_t)ddp->step,
                            .shards = ddp->options.shards,
                            .local_shards = ddp->shard_count,
                            .group = ddp->group,
                            .grad = bucket->grad,
                            .parameters = bucket->tensors,
                            .gradients = bucket->tensors + count,
                            .parameter_count = count,
                            .divisor = bucket->divisor,
                            .data = &bucket->hook_data};
}

tutti_status_t tt_ddp_start_hook(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    TT_TRY(tt_bucket_gather(bucket, bucket->grad));
    if (bucket->tensors == NULL) {
        TT_TRY(list_tensors(ddp, bucket));
    }
    bucket->divisor = ddp->options.shards;
    tutti_bucket_t seen = describe(ddp, bucket);
    TT_TRY(ddp->hook->start(ddp->hook_state, &seen, &bucket->work));
    bucket->divisor = seen.divisor;
    return TUTTI_OK;
}

static tutti_status_t divide(tt_bucket_t *bucket, double divisor)
{
    tutti_tensor_t *x = bucket->grad;
    const size_t count = (size_t)tutti_tensor_numel(x);
    const tt_combine_kernels_t *kernels = tt_combine_kernels();
    if (divisor == 1) {
        return TUTTI_OK;
    }
    if (tutti_tensor_dtype(x) == TUTTI_F64) {
        kernels->divide_f64(tutti_tensor_data(x), divisor, count);
        return TUTTI_OK;
    }
    if (tutti_tensor_dtype(x) == TUTTI_F32) {
        kernels->divide_f32(tutti_tensor_data(x), (float)divisor, count);
        return TUTTI_OK;
    }
    TT_TRY(tutti_tensor_copy(bucket->sums[0], x)); /* of 16 bits */
    kernels->divide_f32(tutti_tensor_data(bucket->sums[0]), (float)divisor, count);
    return tutti_tensor_copy(x, bucket->sums[0]);
}

tutti_status_t tt_ddp_finish_hook(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    tutti_bucket_t seen = describe(ddp, bucket);
    if (ddp->hook->finish != NULL) {
        TT_TRY(ddp->hook->finish(ddp->hook_state, &seen));
    }
    return divide(bucket, seen.divisor);
}

void tt_ddp_drop_hook_data(tutti_ddp_t *ddp, tt_bucket_t *bucket)
{
    if (bucket->hook_data != NULL && ddp->hook != NULL && ddp->hook->drop != NULL) {
        ddp->hook->drop(ddp->hook_state, bucket->hook_data);
    }
    bucket->hook_data = NULL;
}

/* ---- choosing one ---------------------------------------------------------------------------- */

void tt_ddp_clear_hook(tutti_ddp_t *ddp)
{
    for (int b = 0; ddp->buckets != NULL && b < ddp->plan.bucket_count; b++) {
        tt_ddp_drop_hook_data(ddp, &ddp->buckets[b]);
    }
    if (ddp->hook != NULL && ddp->hook->fini != NULL) {
        ddp->hook->fini(ddp->hook_state);
    }
    tt_free(ddp->hook_state);
    ddp->hook_state = NULL;
    ddp->hook = NULL;
}

tutti_status_t tutti_ddp_set_hook(tutti_ddp_t *ddp, const tutti_ddp_hook_ops_t *hook,
                                  const void *options)
{
    if (ddp->is_in_step) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_hook in the middle of a step");
    }
    if (hook != NULL && ddp->options.uneven != TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: hook %s averages over shards, not over what they weigh: it wants "
                       "options.uneven TUTTI_DDP_EVEN",
                       hook->name);
    }
    tt_ddp_clear_hook(ddp);
    if (hook == NULL) {
        return TUTTI_OK;
    }
    ddp->hook_state = tt_alloc(hook->state_bytes + 1, "ddp hook");
    TT_TRY_ALLOC(ddp->hook_state);
    ddp->hook = hook;
    const tutti_status_t status =
        hook->init != NULL ? hook->init(ddp->hook_state, options, ddp->group) : TUTTI_OK;
    if (status < 0) {
        tt_ddp_clear_hook(ddp);
    }
    return status;
}
