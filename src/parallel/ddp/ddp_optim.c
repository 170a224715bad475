/* The optimizer's step inside backward. When is a parameter stepped?
 *
 *     its bucket's average is there          not under a hook, nor where shards are uneven
 *     every parameter of the bucket has a    so the step's end can only confirm that it is used;
 *     gradient of this rank's last shard     where one has none, all wait for what others say
 *     nothing that has still to run reads    a gradient that is complete means that the nodes it
 *     its memory                             came from have run, but others may have saved the
 *                                            values (tutti_detach, views): pending_reads.c
 *
 *     gathers start in the order of buckets  at stages 1 and 2, where this rank's slice is stepped:
 *                                            then the bucket before has been, too
 *
 * At stages 1 and 2 a bucket is reduced and scattered, stepped by each rank in its slice, and
 * gathered, by calls of a group of their own, for the order among those and the scatters is each
 * rank's own. Kinds that measure whole parameters ask all ranks, and are stepped all at once at the
 * end; so is all at stage 3, where other ranks may gather a unit once more in the same backward.
 *
 * What cannot be stepped in backward is stepped in finish: as soon as its bucket has come back, or
 * at the very end. Optimizers work on each parameter alone, with a count of steps of its own, so
 * the order changes no bit.
 *
 * Source: PyTorch's _apply_optimizer_in_backward, and the overlapped optimizers of its DDP hooks.
 */
#include "comm/group/agree.h"
#include "compute/autograd/node.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

/* ---- taking and giving back ------------------------------------------------------------------ */

static bool has_param(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->params[i].tensor == x) {
            return true;
        }
    }
    return false;
}

static tutti_status_t check_slots(const tutti_ddp_t *ddp, const tutti_optim_t *opt)
{
    if (opt->driver != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: options.optimizer is stepped by %s already: release "
                       "that first",
                       opt->driver);
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        const tt_optim_slot_t *slot = &opt->slots[i];
        if (tutti_tensor_requires_grad(slot->tensor) && !has_param(ddp, slot->tensor) &&
            !tt_ddp_is_ignored(ddp, slot->tensor)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ddp: options.optimizer has a parameter \"%s\" that is none of the "
                           "module: nobody would step it",
                           slot->name);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_attach_optimizer(tutti_ddp_t *ddp)
{
    tutti_optim_t *opt = ddp->options.optimizer;
    if (opt == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(check_slots(ddp, opt));
    const size_t count = (size_t)ddp->param_count;
    ddp->optimizer.storages = tt_alloc_array(count, sizeof(tt_storage_t *), "ddp optimizer");
    TT_TRY_ALLOC(ddp->optimizer.storages);
    ddp->optimizer.slots = tt_alloc_array(count, sizeof *ddp->optimizer.slots, "ddp optimizer");
    TT_TRY_ALLOC(ddp->optimizer.slots);
    opt->driver = "ddp";
    for (int i = 0; i < ddp->param_count; i++) {
        ddp->optimizer.slots[i] = tt_optim_find(opt, ddp->params[i].tensor);
    }
    return TUTTI_OK;
}

void tt_ddp_detach_optimizer(tutti_ddp_t *ddp)
{
    if (ddp->optimizer.slots != NULL) {
        ddp->options.optimizer->driver = NULL;
    }
    tt_free(ddp->optimizer.slots);
    tt_free(ddp->optimizer.storages);
}

/* ---- stepping -------------------------------------------------------------------------------- */

static tutti_status_t step_bucket(tutti_ddp_t *ddp, int bucket)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[bucket];
    for (int k = 0; k < spec->param_count; k++) {
        const int slot = ddp->optimizer.slots[plan->members[spec->first + k]];
        if (slot >= 0) {
            TT_TRY(tt_optim_step_slot(ddp->options.optimizer, slot));
        }
    }
    tt_reducer_take(ddp->reducer, bucket);
    return TUTTI_OK;
}

/* Sums over whole parameters are all ranks', and a unit's parameters may come once more. */
bool tt_ddp_steps_buckets(const tutti_ddp_t *ddp)
{
    const tutti_ddp_options_t *o = &ddp->options;
    const bool is_apart =
        o->optimizer != NULL && (o->optimizer->ops->measure == NULL || o->whole_slices);
    return ddp->optimizer.slots != NULL &&
           (o->stage == 0 || (o->stage < 3 && o->uneven == TUTTI_DDP_EVEN && is_apart));
}

/* With a gradient of this rank's last shard for all its parameters. */
static bool has_arrived(const tutti_ddp_t *ddp, int bucket)
{
    const tt_bucket_t *at = &ddp->reducer->buckets[bucket];
    return at->state != TT_BUCKET_TAKEN && at->pending == 0 &&
           tt_reducer_is_back(ddp->reducer, bucket);
}

static bool is_read_later(const tutti_ddp_t *ddp, int bucket)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[bucket];
    size_t count = 0;
    if (ddp->ctx->backward == NULL) {
        return false;
    }
    for (int k = 0; k < spec->param_count; k++) {
        const int i = plan->members[spec->first + k];
        if (ddp->optimizer.slots[i] >= 0 || ddp->options.stage > 0) { /* all of it is gathered */
            ddp->optimizer.storages[count++] = ddp->params[i].tensor->storage;
        }
    }
    return tt_backward_reads(ddp->ctx, ddp->optimizer.storages, count);
}

/* Whether an average is final, and certain to be stepped, as soon as it has come back. */
static bool steps_early(const tutti_ddp_t *ddp)
{
    return tt_ddp_steps_buckets(ddp) && ddp->step.status >= 0 && ddp->reducer->hook == NULL &&
           ddp->options.uneven == TUTTI_DDP_EVEN && tt_ddp_shard_count(ddp) > 0;
}

/* Gathers start in one order on all ranks. */
static bool is_next(const tutti_ddp_t *ddp, int bucket)
{
    return ddp->options.stage == 0 || bucket == ddp->slices.next;
}

tutti_status_t tt_ddp_step_arrived(tutti_ddp_t *ddp)
{
    if (!steps_early(ddp)) {
        return TUTTI_OK;
    }
    for (int b = 0; b < ddp->step.next_bucket; b++) {
        if (is_next(ddp, b) && has_arrived(ddp, b) && !is_read_later(ddp, b)) {
            TT_TRY(tt_reducer_finalize(ddp->reducer, b, 0));
            TT_TRY(tt_ddp_swap_bucket_to_f32(ddp, b));
            tt_ddp_slices_show(ddp, b);
            TT_TRY(step_bucket(ddp, b));
            TT_TRY(tt_ddp_start_gather(ddp, b));
            ddp->optimizer.early_steps += ddp->ctx->backward != NULL;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t step_ignored(const tutti_ddp_t *ddp)
{
    const tt_tensor_list_t *params = &ddp->ignored.params;
    for (size_t i = 0; i < params->count; i++) {
        const int slot = tt_optim_find(ddp->options.optimizer, tt_listed(params, i));
        TT_TRY(slot >= 0 ? tt_optim_step_slot(ddp->options.optimizer, slot) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* What ranks must know of each other is in no bucket's order. */
static tutti_status_t step_slices(const tutti_ddp_t *ddp)
{
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        tt_reducer_take(ddp->reducer, b);
    }
    return tt_optim_step_all(ddp->options.optimizer);
}

static tutti_status_t step_buckets(tutti_ddp_t *ddp)
{
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        if (ddp->reducer->buckets[b].state != TT_BUCKET_TAKEN) {
            TT_TRY(step_bucket(ddp, b));
        }
    }
    TT_TRY(step_ignored(ddp));
    tt_optim_end_slots(ddp->options.optimizer);
    return TUTTI_OK;
}

tutti_status_t tt_ddp_step_rest(tutti_ddp_t *ddp)
{
    if (ddp->optimizer.slots == NULL) {
        return TUTTI_OK;
    }
    if (!tt_ddp_steps_buckets(ddp)) {
        return step_slices(ddp);
    }
    tutti_status_t status = step_buckets(ddp);
    if (ddp->options.stage > 0) {
        status = tt_group_agree(ddp->group, status);
        status = status < 0 ? status : tt_ddp_end_gathers(ddp);
    }
    TT_TRY(status);
    ddp->optimizer.last_early_steps = ddp->optimizer.early_steps;
    ddp->optimizer.early_steps = 0;
    return TUTTI_OK;
}
