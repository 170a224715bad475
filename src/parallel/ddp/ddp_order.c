/* Buckets in the order in which gradients really come. The first step goes by the order of
 * registration; before the second one, the rank that hosts shard 0 tells all others the order it
 * has seen, and the buckets are filled anew. Values do not depend on buckets, so no bit changes.
 *
 * Source: Li et al., "PyTorch Distributed", PVLDB 13(12), 2020, section 3.2.3 (order), 6.2.1.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

tutti_status_t tt_ddp_plan_buckets(tutti_ddp_t *ddp, const int *order, tt_bucket_plan_t *plan)
{
    const size_t count = (size_t)ddp->param_count;
    tt_bucket_param_t *params = tt_alloc_array(count, sizeof *params, "bucket plan");
    TT_TRY_ALLOC(params);
    for (size_t i = 0; i < count; i++) {
        const tutti_tensor_t *x = ddp->params[i].tensor;
        params[i] = (tt_bucket_param_t){tutti_tensor_numel(x),
                                        tt_ddp_grad_dtype(ddp, tutti_tensor_dtype(x))};
    }
    const tutti_status_t status =
        tt_bucket_plan_init(params, ddp->param_count, order, ddp->options.first_bucket_bytes,
                            ddp->options.bucket_bytes, plan);
    tt_free(params);
    return status;
}

void tt_ddp_note_order(tutti_ddp_t *ddp, const tt_ddp_param_t *param)
{
    if (ddp->order != NULL) {
        TT_ASSERT(ddp->order_count < ddp->param_count);
        ddp->order[ddp->order_count++] = (int)(param - ddp->params);
    }
}

/* Those that got no gradient come last. */
static void complete_order(tutti_ddp_t *ddp)
{
    for (int i = ddp->param_count; i-- > 0;) {
        bool is_there = false;
        for (int k = 0; k < ddp->order_count && !is_there; k++) {
            is_there = ddp->order[k] == i;
        }
        if (!is_there) {
            ddp->order[ddp->order_count++] = i;
        }
    }
}

static tutti_status_t share_order(tutti_ddp_t *ddp)
{
    _Static_assert(sizeof *ddp->order == sizeof(int32_t), "it travels as i32");
    const int root = tt_tree_owner(ddp->options.shards, tutti_group_size(ddp->group), 0);
    tutti_tensor_t *x;
    TT_TRY(tutti_tensor_create(TUTTI_I32, TUTTI_SHAPE(ddp->param_count), &x));
    memcpy(tutti_tensor_data(x), ddp->order, tutti_tensor_bytes(x));
    const tutti_status_t status = tutti_broadcast(ddp->group, x, root, NULL);
    if (status >= 0) {
        memcpy(ddp->order, tutti_tensor_data(x), tutti_tensor_bytes(x));
    }
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t replace_plan(tutti_ddp_t *ddp, tt_bucket_plan_t *plan)
{
    tt_ddp_close_buckets(ddp);
    tt_bucket_plan_fini(&ddp->plan);
    ddp->plan = *plan;
    *plan = (tt_bucket_plan_t){0};
    return tt_ddp_open_buckets(ddp);
}

tutti_status_t tt_ddp_rebuild(tutti_ddp_t *ddp)
{
    complete_order(ddp);
    TT_TRY(share_order(ddp));
    tt_bucket_plan_t plan = {0};
    tutti_status_t status = tt_ddp_plan_buckets(ddp, ddp->order, &plan);
    if (status >= 0 && !tt_bucket_plan_equal(&plan, &ddp->plan)) {
        status = replace_plan(ddp, &plan);
        ddp->is_rebuilt = status >= 0;
    }
    tt_bucket_plan_fini(&plan);
    tt_free(ddp->order);
    ddp->order = NULL;
    return status;
}
