/* A driver runs the backwards of a shard, in parts: a pipeline, whose micro-batches and stages come
 * in the order of its schedule. So the end of one backward says nothing about the shard; what is
 * left goes when the step ends. */
#include "comm/group/agree.h"
#include "compute/autograd/node.h"
#include "parallel/ddp/ddp_impl.h"

tutti_status_t tt_ddp_set_driver(tutti_ddp_t *ddp, tt_ddp_driver_t *driver)
{
    if (driver != NULL && ddp->driver != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: another pipeline's gradients are averaged by it");
    }
    if (ddp->step.phase != TT_DDP_BETWEEN_STEPS && driver != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: it cannot join a pipeline in the middle of a step");
    }
    if (driver != NULL && ddp->options.optimizer != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: options.optimizer steps parameters inside backward, which other "
                       "micro-batches of a pipeline still read: step behind tutti_ddp_finish()");
    }
    ddp->driver = driver;
    for (int i = 0; i < ddp->param_count && driver == NULL; i++) {
        ddp->params[i].is_gathered = false;
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_check_ranks(const tutti_ddp_t *ddp)
{
    return tt_group_check(ddp->group);
}

tutti_status_t tt_ddp_agree(const tutti_ddp_t *ddp, tutti_status_t status)
{
    return tt_group_agree(ddp->group, status);
}

tutti_status_t tt_ddp_hear_first(const tutti_ddp_t *ddp, const void *mine, size_t bytes,
                                 void *first)
{
    return tt_group_hear_first(ddp->group, mine, bytes, first);
}

bool tt_ddp_rounds(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    return ddp->options.param_dtype != TUTTI_F32 && !tt_ddp_stays_f32(ddp, x);
}

bool tt_ddp_is_held(const tutti_ddp_t *ddp)
{
    return ddp->step.no_sync;
}

void tt_ddp_note_data(tutti_ddp_t *ddp)
{
    ddp->step.has_backward = true;
}

/* ---- several shards at once ------------------------------------------------------------------ */

bool tt_ddp_is_in_step(const tutti_ddp_t *ddp)
{
    return ddp->step.phase != TT_DDP_BETWEEN_STEPS;
}

tutti_status_t tt_ddp_begin_shard(tutti_ddp_t *ddp, int64_t weight)
{
    if (!tutti_ddp_next_shard(ddp, ddp->ctx)) {
        return ddp->step.status < 0
                   ? tt_fail_again(ddp->step.status, ddp->step.error)
                   : TT_FAIL(TUTTI_ERR_STATE, "ddp: all shards of this rank have been begun");
    }
    ddp->step.weight = weight;
    ddp->step.has_backward = weight > 0;
    return TUTTI_OK;
}

void tt_ddp_look_away(tutti_ddp_t *ddp, bool is_on)
{
    ddp->looks_away = is_on;
}

/* ---- gradients that come elsewhere ----------------------------------------------------------- */

static tt_ddp_param_t *find_param(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->params[i].tensor == x) {
            return &ddp->params[i];
        }
    }
    return NULL;
}

void tt_ddp_gather_elsewhere(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    tt_ddp_param_t *param = find_param(ddp, x);
    if (param != NULL) {
        param->is_gathered = true;
    }
}

tutti_status_t tt_ddp_want_gathered(tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    const tt_ddp_param_t *param = find_param(ddp, x);
    return param == NULL || ddp->options.stage < 2
               ? TUTTI_OK
               : tt_reducer_want(ddp->reducer, ddp->reducer->plan.slots[param->index].bucket);
}

tutti_status_t tt_ddp_take_gathered(tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    const tt_ddp_param_t *param = find_param(ddp, x);
    return param == NULL ? TUTTI_OK : tt_ddp_take_gradient(ddp, param);
}

bool tt_ddp_has(const tutti_tensor_t *x)
{
    const tt_autograd_t *autograd = tt_autograd_of(x);
    const tt_hook_link_t *link = autograd != NULL ? autograd->hooks.first : NULL;
    while (link != NULL &&
           (((const tt_hook_t *)link)->on_accumulate != tt_ddp_on_accumulate || link->is_removed)) {
        link = link->next;
    }
    return link != NULL;
}

/* -1: it is there anyway. */
static int unit_of(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        if (ddp->units.params[i].tensor == x) {
            return ddp->units.params[i].unit;
        }
    }
    return -1;
}

tutti_status_t tt_ddp_bring(tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    const int unit = unit_of(ddp, x);
    return unit < 0 ? TUTTI_OK : tt_ddp_unit_summon(ddp, unit);
}

tutti_status_t tt_ddp_let_go(tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    const int unit = unit_of(ddp, x);
    return unit < 0 ? TUTTI_OK : tt_ddp_unit_dismiss(ddp, unit);
}
