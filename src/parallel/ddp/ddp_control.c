/* What all ranks must know of each other before a step can end: how much each shard weighs, and
 * which parameters got a gradient at all. One small all_reduce of integers behind the buckets:
 *
 *     [ weight of shard 0 … V-1 | shards that gave parameter 0 … P-1 a gradient ]
 *
 * It is left out where nothing can be learnt: even shards of a static graph, but for the first
 * step.
 */
#include <string.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { WEIGHT_MAX = 1 << 24 }; /* that a f32 gradient is multiplied by exactly */

bool tt_ddp_divides_later(const tutti_ddp_t *ddp)
{
    return ddp->options.uneven == TUTTI_DDP_WEIGHTED || ddp->options.uneven == TUTTI_DDP_ACTIVE ||
           (ddp->adds_locally && ddp->hook == NULL);
}

static bool needs_control(const tutti_ddp_t *ddp)
{
    return ddp->options.uneven != TUTTI_DDP_EVEN || !ddp->options.static_graph || ddp->step == 1;
}

tutti_status_t tt_ddp_open_control(tutti_ddp_t *ddp)
{
    const int64_t shards = ddp->options.shards;
    ddp->weights = tt_alloc_array((size_t)shards, sizeof *ddp->weights, "ddp weights");
    TT_TRY_ALLOC(ddp->weights);
    return tutti_group_tensor(ddp->group, TUTTI_I64, TUTTI_SHAPE(shards + ddp->param_count),
                              &ddp->control);
}

void tt_ddp_close_control(tutti_ddp_t *ddp)
{
    tutti_work_release(ddp->control_work);
    tutti_tensor_release(ddp->control);
    tt_free(ddp->weights);
}

void tt_ddp_reset_control(tutti_ddp_t *ddp)
{
    memset(tutti_tensor_data(ddp->control), 0, tutti_tensor_bytes(ddp->control));
}

static tutti_status_t check_static(const tutti_ddp_t *ddp, tt_ddp_param_t *param)
{
    if (!ddp->options.static_graph) {
        return TUTTI_OK;
    }
    if (ddp->step == 1) {
        param->is_static = param->is_static || param->has_grad;
        return TUTTI_OK;
    }
    return param->has_grad == param->is_static
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: the graph is said to be static, but %s got %s gradient in step %llu "
                         "and %s in the first one",
                         param->name, param->has_grad ? "a" : "no", (unsigned long long)ddp->step,
                         param->is_static ? "one" : "none");
}

tutti_status_t tt_ddp_note_shard(tutti_ddp_t *ddp)
{
    int64_t *weights = tutti_tensor_data(ddp->control);
    int64_t *used = weights + ddp->options.shards;
    weights[ddp->first_shard + ddp->next - 1] = ddp->weight;
    for (int i = 0; i < ddp->param_count && ddp->weight > 0; i++) {
        used[i] += ddp->params[i].has_grad;
        TT_TRY(check_static(ddp, &ddp->params[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_send_control(tutti_ddp_t *ddp)
{
    if (!needs_control(ddp)) {
        return TUTTI_OK;
    }
    return tutti_all_reduce(ddp->group, ddp->control, TUTTI_SUM, &ddp->control_work);
}

/* ---- what came back -------------------------------------------------------------------------- */

static tutti_status_t divide_buckets(tutti_ddp_t *ddp, int64_t divisor)
{
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        TT_TRY(tt_bucket_divide(&ddp->buckets[b], divisor));
        TT_TRY(tt_bucket_settle(ddp, &ddp->buckets[b]));
    }
    return TUTTI_OK;
}

/* Who has a gradient now: all that some shard gave one, also on ranks that host no shard. */
static void mark_gradients(tutti_ddp_t *ddp, bool is_end)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_autograd_of(ddp->params[i].tensor)->grad_is_stale = is_end || ddp->params[i].is_unused;
    }
}

static int64_t divisor_of(const tutti_ddp_t *ddp, int active)
{
    switch (ddp->options.uneven) {
    case TUTTI_DDP_WEIGHTED:
        return tutti_ddp_weight(ddp, -1);
    case TUTTI_DDP_ACTIVE:
        return active;
    default:
        return ddp->options.shards;
    }
}

static tutti_status_t settle_step(tutti_ddp_t *ddp)
{
    const int shards = ddp->options.shards;
    int active = 0;
    for (int i = 0; i < shards; i++) {
        active += ddp->weights[i] > 0;
    }
    if (active == 0 || (active < shards && ddp->options.ends_with_first)) {
        mark_gradients(ddp, true);
        return TUTTI_END;
    }
    if (tt_ddp_divides_later(ddp)) {
        TT_TRY(divide_buckets(ddp, divisor_of(ddp, active)));
    }
    mark_gradients(ddp, false);
    return TUTTI_OK;
}

static void read_control(tutti_ddp_t *ddp)
{
    const int64_t *weights = tutti_tensor_data(ddp->control);
    memcpy(ddp->weights, weights, (size_t)ddp->options.shards * sizeof *weights);
    for (int i = 0; i < ddp->param_count; i++) {
        ddp->params[i].is_unused = weights[ddp->options.shards + i] == 0;
    }
}

tutti_status_t tt_ddp_take_control(tutti_ddp_t *ddp)
{
    if (ddp->control_work != NULL) {
        TT_TRY(tutti_work_wait(ddp->control_work, 0));
        tutti_work_release(ddp->control_work);
        ddp->control_work = NULL;
        read_control(ddp);
    }
    return settle_step(ddp);
}

/* ---- public ---------------------------------------------------------------------------------- */

static tutti_status_t check_weight(const tutti_ddp_t *ddp, int64_t weight)
{
    const bool is_flag = ddp->options.uneven != TUTTI_DDP_WEIGHTED;
    if (ddp->options.uneven == TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_weight: options.uneven is TUTTI_DDP_EVEN, under "
                                        "which all shards weigh the same");
    }
    if (!ddp->is_in_step || ddp->next == 0) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_weight: no shard is under way");
    }
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->params[i].has_grad) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp: set_weight: %s has got its gradient: set the "
                           "weight before the backward",
                           ddp->params[i].name);
        }
    }
    if (weight < 0 || weight >= WEIGHT_MAX || (is_flag && weight > 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: set_weight: %lld; want 0 to %d", (long long)weight,
                       is_flag ? 1 : WEIGHT_MAX - 1);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_ddp_set_weight(tutti_ddp_t *ddp, int64_t weight)
{
    TT_TRY(check_weight(ddp, weight));
    ddp->weight = weight;
    return TUTTI_OK;
}

int64_t tutti_ddp_weight(const tutti_ddp_t *ddp, int shard)
{
    int64_t sum = 0;
    for (int i = 0; i < ddp->options.shards; i++) {
        sum += shard == i || shard == -1 ? ddp->weights[i] : 0;
    }
    return sum;
}
