/* Hooks: what a bucket that leaves and comes back does instead of an all_reduce of leaves
 * (ddp.h). A hook finds the sum over this rank's shards in `grad`, and leaves there what is
 * divided by the divisor. */
#include "core/base/alloc.h"
#include "parallel/reduce/reducer.h"

static tutti_bucket_t describe(const tt_reducer_t *reducer, int index)
{
    const tt_bucket_plan_t *plan = &reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[index];
    tt_bucket_t *bucket = &reducer->buckets[index];
    tutti_tensor_t *const *tensors = reducer->tensors + spec->first;
    return (tutti_bucket_t){.index = index,
                            .count = plan->bucket_count,
                            .step = reducer->step,
                            .shards = reducer->options.shards,
                            .local_shards = reducer->share.end - reducer->share.begin,
                            .group = reducer->options.group,
                            .grad = bucket->grad,
                            .parameters = tensors,
                            .gradients = tensors + plan->param_count,
                            .parameter_count = spec->param_count,
                            .divisor = bucket->divisor,
                            .data = &bucket->hook_data};
}

tutti_status_t tt_reducer_start_hook(const tt_reducer_t *reducer, int index)
{
    tt_bucket_t *bucket = &reducer->buckets[index];
    bucket->out = bucket->grad;
    bucket->divisor = reducer->options.shards;
    tutti_bucket_t seen = describe(reducer, index);
    TT_TRY(reducer->hook->start(reducer->hook_state, &seen, &bucket->work));
    bucket->divisor = seen.divisor;
    return TUTTI_OK;
}

tutti_status_t tt_reducer_finish_hook(const tt_reducer_t *reducer, int index)
{
    tutti_bucket_t seen = describe(reducer, index);
    if (reducer->hook->finish != NULL) {
        TT_TRY(reducer->hook->finish(reducer->hook_state, &seen));
    }
    reducer->buckets[index].divisor = seen.divisor;
    return TUTTI_OK;
}

void tt_reducer_drop_hook_data(const tt_reducer_t *reducer)
{
    for (int b = 0; reducer->buckets != NULL && b < reducer->plan.bucket_count; b++) {
        void **data = &reducer->buckets[b].hook_data;
        if (*data != NULL && reducer->hook->drop != NULL) {
            reducer->hook->drop(reducer->hook_state, *data);
        }
        *data = NULL;
    }
}

static void clear_hook(tt_reducer_t *reducer)
{
    tt_reducer_drop_hook_data(reducer);
    if (reducer->hook != NULL && reducer->hook->fini != NULL) {
        reducer->hook->fini(reducer->hook_state);
    }
    tt_free(reducer->hook_state);
    reducer->hook_state = NULL;
    reducer->hook = NULL;
}

tutti_status_t tt_reducer_set_hook(tt_reducer_t *reducer, const tutti_ddp_hook_ops_t *hook,
                                   const void *options)
{
    clear_hook(reducer);
    if (hook == NULL) {
        return TUTTI_OK;
    }
    reducer->hook_state = tt_alloc(hook->state_bytes + 1, "reducer hook");
    TT_TRY_ALLOC(reducer->hook_state);
    reducer->hook = hook;
    const tutti_status_t status =
        hook->init != NULL ? hook->init(reducer->hook_state, options, reducer->options.group)
                           : TUTTI_OK;
    if (status < 0) {
        clear_hook(reducer);
    }
    return status;
}
