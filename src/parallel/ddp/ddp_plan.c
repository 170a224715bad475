/* The plan of a training: its own units, buckets and calls, for planning alone. */
#include <tutti/sharded_plan.h>

#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

static void list_units(const tutti_ddp_t *ddp, tutti_sharded_unit_t *units)
{
    const tt_unit_kind_t kind =
        ddp->options.param_dtype == TUTTI_F32 ? TT_UNIT_FULL : TT_UNIT_COMPUTE;
    for (int u = 0; u < ddp->units.count; u++) {
        const tt_unit_t *unit = tt_ddp_unit(ddp, u);
        units[u] = (tutti_sharded_unit_t){.name = unit->is_kept ? "kept" : unit->name,
                                          .bytes = tt_ddp_unit_bytes(ddp, u, kind),
                                          .is_kept = unit->is_kept};
        if (unit->is_kept && kind != TT_UNIT_FULL) {
            units[u].kept_bytes = tt_ddp_unit_bytes(ddp, u, TT_UNIT_FULL);
        }
    }
}

static void list_buckets(const tutti_ddp_t *ddp, tutti_sharded_bucket_t *buckets)
{
    const tt_reducer_t *reducer = ddp->reducer;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        buckets[b] = (tutti_sharded_bucket_t){reducer->plan.buckets[b].unit,
                                              tutti_tensor_bytes(reducer->buckets[b].grad)};
    }
}

static tutti_sharded_options_t options_of(const tutti_ddp_t *ddp)
{
    const tutti_ddp_options_t *o = &ddp->options;
    const tt_ddp_order_t *order = &ddp->order;
    return (tutti_sharded_options_t){.stage = o->stage,
                                     .ranks = tutti_group_size(ddp->group),
                                     .shards = o->shards,
                                     .rows = ddp->units.rows.rows,
                                     .prefetch = o->prefetch,
                                     .keep_after_forward = o->keep_after_forward,
                                     .keep_after_backward = o->keep_after_backward,
                                     .reshard_ranks =
                                         order->turns.keeps_near ? ddp->units.near_ranks : 0,
                                     .holds_all = ddp->driver != NULL,
                                     .is_first = order->turns.now.count == 0,
                                     .is_shared = ddp->units.source.ops->is_local,
                                     .calls = order->before.actions,
                                     .call_count = order->before.count};
}

tutti_status_t tutti_ddp_plan(const tutti_ddp_t *ddp, tutti_sharded_plan_t *out)
{
    TT_WANT("ddp_plan", ddp);
    TT_WANT("ddp_plan", out);
    if (!tt_ddp_has_units(ddp) || ddp->order.before.count == 0) {
        return TT_FAIL(
            TUTTI_ERR_STATE,
            "ddp_plan: at stage %d, behind %lld steps: want stage 3, and a step in which "
            "this rank has computed",
            ddp->options.stage, (long long)ddp->step.finished);
    }
    if (tt_reducer_has_rounds(ddp->reducer)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp_plan: options.accumulate is TUTTI_DDP_SHARDED, and %d shards on %d "
                       "ranks have buckets leave in each shard: plans have them leave in a rank's "
                       "last one",
                       ddp->options.shards, tutti_group_size(ddp->group));
    }
    tutti_sharded_options_t options = options_of(ddp);
    options.unit_count = ddp->units.count;
    options.bucket_count = ddp->reducer->plan.bucket_count;
    tutti_sharded_unit_t *units =
        tt_alloc_array((size_t)options.unit_count, sizeof *units, "ddp plan");
    tutti_sharded_bucket_t *buckets =
        tt_alloc_array((size_t)options.bucket_count, sizeof *buckets, "ddp plan");
    tutti_status_t status = units != NULL && buckets != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
    if (status >= 0) {
        list_units(ddp, units);
        list_buckets(ddp, buckets);
        options.units = units;
        options.buckets = buckets;
        status = tt_sharded_plan(&options, &ddp->order.turns.now, out);
    }
    tt_free(units);
    tt_free(buckets);
    return status;
}
