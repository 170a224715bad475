/* What all ranks must know of each other before a step can end: how much each shard weighs, and
 * which parameters got a gradient at all. One small all_reduce of integers behind the buckets:
 *
 *     [ weight of shard 0 … V-1 | shards that gave parameter 0 … P-1 a gradient ]
 *
 * It is left out where nothing can be learnt: even shards of a static graph, but for the first
 * step.
 */
#include <stdio.h>
#include <string.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

static bool needs_control(const tutti_ddp_t *ddp)
{
    return ddp->options.uneven != TUTTI_DDP_EVEN || !ddp->options.static_graph ||
           ddp->step.number == 1;
}

tutti_status_t tt_ddp_open_control(tutti_ddp_t *ddp)
{
    tt_ddp_control_t *control = &ddp->control;
    const int64_t shards = ddp->options.shards;
    control->weights = tt_alloc_array((size_t)shards, sizeof *control->weights, "ddp weights");
    TT_TRY_ALLOC(control->weights);
    for (int i = 0; i < shards; i++) {
        control->weights[i] = 1;
    }
    const size_t params = (size_t)ddp->param_count,
                 local = ddp->options.static_graph ? (size_t)tt_ddp_shard_count(ddp) : 0;
    control->is_unused = tt_alloc_array(params, sizeof *control->is_unused, "ddp uses");
    TT_TRY_ALLOC(control->is_unused);
    control->uses = tt_alloc_array(local * params, sizeof *control->uses, "ddp uses");
    TT_TRY_ALLOC(control->uses);
    return tutti_group_tensor(ddp->group, TUTTI_I64, TUTTI_SHAPE(shards + ddp->param_count),
                              &control->tensor);
}

void tt_ddp_close_control(tutti_ddp_t *ddp)
{
    tt_ddp_control_t *control = &ddp->control;
    tutti_work_release(control->work);
    tutti_tensor_release(control->tensor);
    tt_free(control->weights);
    tt_free(control->is_unused);
    tt_free(control->uses);
    tt_free(control->unused);
}

void tt_ddp_reset_control(tutti_ddp_t *ddp)
{
    memset(tutti_tensor_data(ddp->control.tensor), 0, tutti_tensor_bytes(ddp->control.tensor));
}

/* ---- what this rank knows -------------------------------------------------------------------- */

/* What the first step in which a shard had data has shown, holds for it in all later steps. */
static tutti_status_t check_static(const tutti_ddp_t *ddp, int param, bool has_grad)
{
    const size_t shard = (size_t)ddp->step.next_shard - 1;
    tt_ddp_use_t *first = &ddp->control.uses[shard * (size_t)ddp->param_count + (size_t)param];
    const tt_ddp_use_t now = has_grad ? TT_DDP_GRADIENT : TT_DDP_NO_GRADIENT;
    *first = *first == TT_DDP_NO_STEP_YET ? now : *first;
    return now == *first
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: the graph is said to be static, but %s got %s gradient in step %llu "
                         "of shard %d and %s in the first one",
                         ddp->params[param].name, has_grad ? "a" : "no",
                         (unsigned long long)ddp->step.number, tt_ddp_shard(ddp),
                         has_grad ? "none" : "one");
}

tutti_status_t tt_ddp_note_shard(tutti_ddp_t *ddp)
{
    int64_t *weights = tutti_tensor_data(ddp->control.tensor);
    int64_t *used = weights + ddp->options.shards;
    weights[tt_ddp_shard(ddp)] = ddp->step.weight;
    if (ddp->step.weight == 0) {
        return TUTTI_OK;
    }
    for (int i = 0; i < ddp->param_count; i++) {
        const bool has_grad = ddp->reducer->slots[i].state != TT_SLOT_EMPTY;
        used[i] += has_grad;
        TT_TRY(ddp->options.static_graph ? check_static(ddp, i, has_grad) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* Names of what got no gradient in this step, with room for `bytes`; returns how many they want. */
static size_t list_unused(const tutti_ddp_t *ddp, char *names, size_t bytes)
{
    const int64_t *in_shards =
        (int64_t *)tutti_tensor_data(ddp->control.tensor) + ddp->options.shards;
    size_t used = 0;
    for (int i = 0; i < ddp->param_count; i++) {
        if (in_shards[i] == 0 && ddp->reducer->slots[i].state == TT_SLOT_EMPTY) {
            used += (size_t)snprintf(bytes > 0 ? names + used : NULL, bytes > 0 ? bytes - used : 0,
                                     "%s%s", used > 0 ? " " : "", ddp->params[i].name);
        }
    }
    return used;
}

tutti_status_t tt_ddp_report_unused(tutti_ddp_t *ddp)
{
    tt_ddp_control_t *control = &ddp->control;
    const size_t bytes = list_unused(ddp, NULL, 0);
    if (bytes == 0 && control->unused == NULL) {
        return TUTTI_OK;
    }
    char *names = tt_alloc(bytes + 1, "ddp names");
    TT_TRY_ALLOC(names);
    (void)list_unused(ddp, names, bytes + 1);
    tt_free(control->unused);
    control->unused = names;
    if (bytes > 0 && !control->has_told_unused) {
        control->has_told_unused = true;
        tt_log(TT_LOG_WARN,
               "ddp: no gradient came on rank %d for %s: zero, if another shard has one",
               tutti_group_rank(ddp->group), names);
    }
    return TUTTI_OK;
}

const char *tutti_ddp_unused(const tutti_ddp_t *ddp)
{
    return ddp->control.unused == NULL ? "" : ddp->control.unused;
}

tutti_status_t tt_ddp_send_control(tutti_ddp_t *ddp)
{
    if (!needs_control(ddp)) {
        return TUTTI_OK;
    }
    return tutti_all_reduce(ddp->group, ddp->control.tensor, TUTTI_SUM, &ddp->control.work);
}

/* ---- what came back -------------------------------------------------------------------------- */

/* Who has a gradient now: all that some shard gave one, also on ranks that host no shard. */
static void mark_gradients(tutti_ddp_t *ddp, bool is_end)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_autograd_of(ddp->params[i].tensor)->grad_is_stale = is_end || ddp->control.is_unused[i];
    }
}

static tutti_status_t finalize_step(tutti_ddp_t *ddp)
{
    const int shards = ddp->options.shards;
    int active = 0;
    for (int i = 0; i < shards; i++) {
        active += ddp->control.weights[i] > 0;
    }
    if (active == 0 || (active < shards && ddp->options.ends_with_first)) {
        mark_gradients(ddp, true);
        return TUTTI_END;
    }
    const int64_t divisor =
        ddp->options.uneven == TUTTI_DDP_ACTIVE ? active : tutti_ddp_weight(ddp, -1);
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        TT_TRY(tt_reducer_finalize(ddp->reducer, b, (double)divisor));
    }
    mark_gradients(ddp, false);
    return TUTTI_OK;
}

static void read_control(tutti_ddp_t *ddp)
{
    tt_ddp_control_t *control = &ddp->control;
    const int64_t *weights = tutti_tensor_data(control->tensor);
    memcpy(control->weights, weights, (size_t)ddp->options.shards * sizeof *weights);
    for (int i = 0; i < ddp->param_count; i++) {
        control->is_unused[i] = weights[ddp->options.shards + i] == 0;
    }
}

tutti_status_t tt_ddp_take_control(tutti_ddp_t *ddp)
{
    tt_ddp_control_t *control = &ddp->control;
    if (control->work != NULL) {
        TT_TRY(tutti_work_wait(control->work, 0));
        tutti_work_release(control->work);
        control->work = NULL;
        read_control(ddp);
    }
    return finalize_step(ddp);
}

int64_t tutti_ddp_weight(const tutti_ddp_t *ddp, int shard)
{
    int64_t sum = 0;
    for (int i = 0; i < ddp->options.shards; i++) {
        sum += shard == i || shard == -1 ? ddp->control.weights[i] : 0;
    }
    return sum;
}
