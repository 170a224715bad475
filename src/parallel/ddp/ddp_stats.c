/* Times of a step. A bucket's way ends when this rank sees it: between the nodes of a backward, or
 * in finish. Buckets travel one after the other, so that each is under way from when it left, or
 * the one before it came back, to when it came back itself.
 */
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/integers.h"
#include "parallel/ddp/ddp_impl.h"

void tt_ddp_time_shard(tutti_ddp_t *ddp)
{
    ddp->times.shard_begin = tt_clock_ns();
    ddp->times.backward_begin = ddp->times.backward_end = 0;
}

void tt_ddp_time_gradient(tutti_ddp_t *ddp)
{
    tt_ddp_times_t *t = &ddp->times;
    if (t->backward_begin == 0) {
        t->backward_begin = tt_clock_ns();
        t->forward += t->backward_begin - t->shard_begin;
    }
}

void tt_ddp_time_backward_end(tutti_ddp_t *ddp)
{
    tt_ddp_times_t *t = &ddp->times;
    const int64_t now = tt_clock_ns();
    t->backward += now - tt_max(t->backward_begin, t->backward_end);
    t->backward_end = now;
}

static void note_arrival(tutti_ddp_t *ddp, int index, int64_t now)
{
    tt_ddp_times_t *t = &ddp->times;
    const tt_bucket_t *bucket = &ddp->reducer->buckets[index];
    const int64_t begin = tt_max(bucket->started_ns, t->arrived);
    const int64_t backward_end = t->backward_end > 0 ? t->backward_end : now;
    t->comm += now - begin;
    t->overlap += tt_max((now < backward_end ? now : backward_end) - begin, 0);
    t->arrived = now;
    if (ddp->options.trace != NULL) {
        char name[64];
        snprintf(name, sizeof name, "bucket %d, %zu KiB", index,
                 tutti_tensor_bytes(bucket->grad) >> 10);
        tutti_trace_event(ddp->options.trace,
                          bucket->cuts == NULL ? "all_reduce" : "reduce_scatter", name, begin, now);
    }
}

/* From a round, of which there is mostly one. */
static bool is_back(const tt_reducer_t *reducer, const tt_bucket_t *bucket, int round)
{
    const bool is_done = bucket->state != TT_BUCKET_FILLING && tutti_work_is_done(bucket->work);
    return tt_reducer_has_rounds(reducer)
               ? bucket->rounds.returned > round || (bucket->rounds.started > round && is_done)
               : is_done;
}

void tt_ddp_time_arrivals(tutti_ddp_t *ddp)
{
    const tt_reducer_t *reducer = ddp->reducer;
    const int count = reducer->plan.bucket_count, all = count * tt_reducer_rounds(reducer);
    int *next = &ddp->times.next_arrival;
    while (*next < all && is_back(reducer, &reducer->buckets[*next % count], *next / count)) {
        note_arrival(ddp, (*next)++ % count, tt_clock_ns());
    }
}

void tt_ddp_time_finish(tutti_ddp_t *ddp, int64_t begin_ns)
{
    ddp->times.wait = tt_clock_ns() - begin_ns;
    ddp->last_times = ddp->times;
    ddp->times = (tt_ddp_times_t){0};
}

static bool is_canonical(const tutti_ddp_t *ddp)
{
    return (ddp->reducer->hook != NULL ? ddp->reducer->hook->is_canonical : ddp->is_exact) &&
           tutti_group_uncanonical_sums(ddp->group) == ddp->uncanonical_sums;
}

tutti_ddp_stats_t tutti_ddp_stats(const tutti_ddp_t *ddp)
{
    const tt_ddp_times_t *t = &ddp->last_times;
    const double ms = 1e-6;
    const tt_unit_source_ops_t *source = ddp->units.source.ops;
    tutti_ddp_stats_t stats = {.steps = ddp->step.finished,
                               .unit_source = source != NULL ? source->name : "",
                               .shards = ddp->options.shards,
                               .local_shards = tt_ddp_shard_count(ddp),
                               .parameters = ddp->param_count,
                               .buckets = ddp->reducer->plan.bucket_count,
                               .is_rebuilt = ddp->is_rebuilt,
                               .early_steps = ddp->optimizer.last_early_steps,
                               .is_canonical = is_canonical(ddp),
                               .forward_ms = (double)t->forward * ms,
                               .backward_ms = (double)t->backward * ms,
                               .comm_ms = (double)t->comm * ms,
                               .overlap_ms = (double)t->overlap * ms,
                               .wait_ms = (double)t->wait * ms};
    for (int i = 0; i < ddp->param_count; i++) {
        stats.parameter_bytes += tutti_tensor_bytes(ddp->params[i].tensor);
    }
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        const size_t bytes = tutti_tensor_bytes(ddp->reducer->buckets[b].grad);
        stats.bucket_bytes += bytes;
        stats.largest_bucket_bytes =
            bytes > stats.largest_bucket_bytes ? bytes : stats.largest_bucket_bytes;
    }
    return stats;
}
