/* A step: shards begin and end, hooks count gradients, buckets leave in their order.
 *
 * Every rank must start its all_reduces in the same order, whatever order its gradients come in:
 * a bucket that is complete waits until those before it have left.
 */
#include <stdio.h>

#include "compute/autograd/node.h"
#include "core/base/clock.h"
#include "parallel/ddp/ddp_impl.h"

enum { WEIGHT_MAX = 1 << 24 }; /* that a f32 gradient is multiplied by exactly */

/* ---- the end of a shard ---------------------------------------------------------------------- */

/* One without a backward has no data. */
static void weigh_shard(tutti_ddp_t *ddp)
{
    ddp->step.weight = ddp->step.has_backward ? ddp->step.weight : 0;
}

/* The shard's gradients of a bucket are complete; its weight is known, for its backward has begun,
 * or will not. */
static tutti_status_t push_bucket(tutti_ddp_t *ddp, int index)
{
    if (!ddp->step.has_backward && ddp->options.uneven == TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: no backward of shard %d reached a parameter of this module; if it has "
                       "no data, see options.uneven",
                       tt_ddp_shard(ddp));
    }
    weigh_shard(ddp);
    return tt_reducer_push(ddp->reducer, index, ddp->step.weight);
}

/* Whether the buckets that leave have a shard of this rank. */
static bool has_shard(const tutti_ddp_t *ddp)
{
    return ddp->step.round < tt_ddp_shard_count(ddp);
}

static bool is_last_round(const tutti_ddp_t *ddp)
{
    return ddp->step.round + 1 == tt_reducer_rounds(ddp->reducer);
}

static tutti_status_t send_next_bucket(tutti_ddp_t *ddp)
{
    const int index = ddp->step.next_bucket++;
    if (has_shard(ddp)) {
        TT_TRY(push_bucket(ddp, index));
    }
    TT_TRY(tt_ddp_order_note(
        ddp, &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_SCATTER, .index = index}));
    tt_ddp_time_arrivals(ddp); /* of the round before */
    return tt_reducer_start(ddp->reducer, index);
}

static tutti_status_t send_ready_buckets(tutti_ddp_t *ddp)
{
    const tt_reducer_t *reducer = ddp->reducer;
    while (ddp->step.next_bucket < reducer->plan.bucket_count &&
           reducer->buckets[ddp->step.next_bucket].pending == 0) {
        TT_TRY(send_next_bucket(ddp));
    }
    return TUTTI_OK;
}

/* All buckets that have not left; behind the last of them, what all ranks must know of the shards.
 */
static tutti_status_t send_rest(tutti_ddp_t *ddp)
{
    while (ddp->step.next_bucket < ddp->reducer->plan.bucket_count) {
        TT_TRY(send_next_bucket(ddp));
    }
    if (ddp->step.phase == TT_DDP_ALL_SENT || !is_last_round(ddp)) {
        return TUTTI_OK;
    }
    ddp->step.phase = TT_DDP_ALL_SENT;
    if (tt_ddp_shard_count(ddp) > 0) {
        weigh_shard(ddp);
        TT_TRY(tt_ddp_note_shard(ddp));
    }
    return tt_ddp_send_control(ddp);
}

static void begin_round(tutti_ddp_t *ddp, int round)
{
    ddp->step.round = round;
    ddp->step.next_bucket = 0;
}

/* Another one follows: all ranks have computed what they compute in this one, so that who waits for
 * a bucket of it waits for no rank that waits for a unit. */
static tutti_status_t end_round(tutti_ddp_t *ddp)
{
    TT_TRY(send_rest(ddp));
    TT_TRY(tt_ddp_order_end_round(ddp));
    return tt_ddp_units_end_round(ddp);
}

static tutti_status_t push_buckets(tutti_ddp_t *ddp)
{
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        TT_TRY(push_bucket(ddp, b));
    }
    return TUTTI_OK;
}

static tutti_status_t seal_shard(tutti_ddp_t *ddp)
{
    TT_TRY(tt_reducer_has_rounds(ddp->reducer) ? end_round(ddp) : push_buckets(ddp));
    weigh_shard(ddp); /* there may be no bucket */
    TT_TRY(tt_ddp_buffers_end_shard(ddp));
    return tt_ddp_note_shard(ddp);
}

/* Others have one more shard. */
static tutti_status_t send_empty_rounds(tutti_ddp_t *ddp)
{
    while (!is_last_round(ddp)) {
        TT_TRY(end_round(ddp));
        begin_round(ddp, ddp->step.round + 1);
    }
    return TUTTI_OK;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* Whether a gradient is the last one of its parameter before its bucket leaves. */
static bool is_synced(const tutti_ddp_t *ddp)
{
    const bool leaves =
        ddp->step.next_shard == tt_ddp_shard_count(ddp) || tt_reducer_has_rounds(ddp->reducer);
    return ddp->step.next_shard > 0 && leaves && !ddp->step.no_sync;
}

static tutti_status_t end_backward(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    tutti_ddp_t *ddp = user;
    ddp->step.end_is_queued = false;
    tt_ddp_time_backward_end(ddp);
    if (status < 0) {
        return tt_ddp_fail(ddp, status);
    }
    if (is_synced(ddp) && ddp->driver == NULL) {
        const bool is_last = ddp->step.next_shard == tt_ddp_shard_count(ddp);
        status = is_last ? tt_ddp_report_unused(ddp) : TUTTI_OK;
        if (status >= 0 && !ddp->options.no_overlap) {
            status = send_rest(ddp);
        }
    }
    return status < 0 ? tt_ddp_fail(ddp, status) : TUTTI_OK;
}

static tutti_status_t check_gradient(const tutti_ddp_t *ddp, const tt_ddp_param_t *param)
{
    const tt_reducer_t *reducer = ddp->reducer;
    const int index = param->index;
    if (ddp->step.phase == TT_DDP_BETWEEN_STEPS) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: %s got a gradient between steps, when nobody averages it: call "
                       "tutti_ddp_next_shard() first, or tutti_module_set_requires_grad(…, false) "
                       "while another loss goes through this module",
                       param->name);
    }
    if (reducer->plan.slots[index].bucket < ddp->step.next_bucket) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: %s got another gradient after its bucket had left: call "
                       "tutti_ddp_no_sync() around all backwards of a shard but the last",
                       param->name);
    }
    if (tt_autograd_of(param->tensor)->grad != reducer->slots[index].grad) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: %s has another gradient tensor than the one that is averaged: do not "
                       "call tutti_tensor_set_grad() on it",
                       param->name);
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_take_gradient(tutti_ddp_t *ddp, const tt_ddp_param_t *param)
{
    tt_reducer_t *reducer = ddp->reducer;
    const int index = param->index;
    TT_TRY(check_gradient(ddp, param));
    ddp->step.has_backward = true;
    const bool is_whole = tt_reducer_note(reducer, index, is_synced(ddp));
    return is_whole && !ddp->options.no_overlap ? send_ready_buckets(ddp) : TUTTI_OK;
}

/* Gradients of it are added up by the driver. */
static bool is_elsewhere(const tutti_ddp_t *ddp, const tt_ddp_param_t *param)
{
    return ddp->looks_away || (param->is_gathered && tt_autograd_of(param->tensor)->grad !=
                                                         ddp->reducer->slots[param->index].grad);
}

/* At stage 2 and 3: a gradient has come, and wants its bucket. */
tutti_tensor_t *tt_ddp_on_grad(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)grad;
    const tt_ddp_param_t *param = user;
    tutti_ddp_t *ddp = param->ddp;
    tt_reducer_t *reducer = ddp->reducer;
    tutti_status_t status = ddp->step.status;
    if (is_elsewhere(ddp, param)) {
        return NULL;
    }
    if (status >= 0) {
        status = check_gradient(ddp, param);
    }
    if (status >= 0) {
        status = tt_reducer_want(reducer, reducer->plan.slots[param->index].bucket);
    }
    return status < 0 ? tutti_scope_fail(s, tt_ddp_fail(ddp, status)) : NULL;
}

void tt_ddp_on_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    const tt_ddp_param_t *param = user;
    tutti_ddp_t *ddp = param->ddp;
    tutti_status_t status = ddp->step.status;
    tt_ddp_time_gradient(ddp);
    if (status >= 0 && !ddp->step.end_is_queued) {
        status = tutti_backward_on_end(s, end_backward, ddp);
        ddp->step.end_is_queued = status >= 0;
    }
    if (status >= 0 && !is_elsewhere(ddp, param)) {
        status = tt_ddp_take_gradient(ddp, param);
    }
    if (status < 0) {
        (void)tutti_scope_fail(s, tt_ddp_fail(ddp, status));
    }
}

void tt_ddp_move(void *user)
{
    const tutti_ddp_t *ddp = user;
    if (ddp->step.next_bucket > 0 || ddp->step.round > 0 || ddp->order.turns.ahead > 0) {
        tutti_group_progress(ddp->group);
    }
}

void tt_ddp_progress(void *user)
{
    tutti_ddp_t *ddp = user;
    tutti_group_progress(ddp->group);
    if (ddp->step.next_bucket == 0 && ddp->step.round == 0) {
        /* none has left, or another model's backward runs */
        return;
    }
    tt_ddp_time_arrivals(ddp);
    tt_reducer_collect(ddp->reducer, ddp->reducer->plan.bucket_count);
    const tutti_status_t stored = tt_ddp_store_arrived(ddp);
    const tutti_status_t status = stored < 0 ? stored : tt_ddp_step_arrived(ddp);
    if (status < 0) {
        (void)tt_ddp_fail(ddp, status); /* which finish returns */
    }
}

/* ---- shards ---------------------------------------------------------------------------------- */

static tutti_status_t begin_step(tutti_ddp_t *ddp)
{
    if (ddp->step.phase != TT_DDP_BETWEEN_STEPS) {
        return TUTTI_OK;
    }
    if (ddp->summons.is_on) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: call tutti_ddp_dismiss() before a step");
    }
    TT_TRY(ddp->driver != NULL ? ddp->driver->begin(ddp->driver) : TUTTI_OK);
    TT_TRY(tt_ddp_check_loaded(ddp));
    TT_TRY(tt_ddp_units_end_step(ddp)); /* what a forward between steps has left */
    ddp->step.phase = TT_DDP_IN_SHARDS;
    ddp->step.outside = tutti_context_shard(ddp->ctx);
    tutti_group_set_tag(ddp->group, ++ddp->step.number);
    TT_TRY(tt_ddp_check_unchanged(ddp));
    tt_ddp_slices_begin_step(ddp);
    tt_ddp_ignored_begin_step(ddp);
    if (ddp->step.number == 2 && !ddp->options.no_rebuild) {
        TT_TRY(tt_ddp_rebuild(ddp));
    }
    tt_reducer_begin_step(ddp->reducer);
    tt_ddp_reset_control(ddp);
    TT_TRY(tt_ddp_buffers_begin_step(ddp));
    TT_TRY(tt_ddp_swap_to_low(ddp));
    return tt_ddp_units_begin_step(ddp);
}

static tutti_status_t begin_shard(tutti_ddp_t *ddp)
{
    TT_TRY(tt_ddp_buffers_begin_shard(ddp));
    if (tt_reducer_has_rounds(ddp->reducer)) {
        begin_round(ddp, ddp->step.next_shard);
    }
    ddp->step.next_shard++;
    tt_reducer_begin_shard(ddp->reducer, tt_ddp_shard(ddp));
    for (int i = 0; i < ddp->param_count; i++) {
        tutti_tensor_zero_grad(ddp->params[i].tensor);
    }
    ddp->step.weight = 1;
    ddp->step.has_backward = false;
    tt_ddp_time_shard(ddp);
    return TUTTI_OK;
}

bool tutti_ddp_next_shard(tutti_ddp_t *ddp, tutti_context_t *ctx)
{
    if (ddp == NULL || ddp->step.status < 0) { /* tutti_ddp_finish() says what it was */
        return false;
    }
    const int count = tt_ddp_shard_count(ddp);
    tutti_status_t status = begin_step(ddp);
    if (status >= 0 && ddp->step.next_shard > 0 && ddp->step.next_shard < count) {
        status = seal_shard(ddp);
    }
    if (status < 0) {
        (void)tt_ddp_fail(ddp, status);
        return false;
    }
    if (ddp->step.next_shard == count) {
        return false;
    }
    if ((status = begin_shard(ddp)) < 0) {
        (void)tt_ddp_fail(ddp, status);
        return false;
    }
    tutti_context_set_shard(ctx, tt_ddp_shard(ddp));
    return true;
}

void tutti_ddp_no_sync(tutti_ddp_t *ddp, bool is_on)
{
    ddp->step.no_sync = is_on;
}

tutti_status_t tt_ddp_check_weight(const tutti_ddp_t *ddp, int64_t weight)
{
    const bool is_flag = ddp->options.uneven != TUTTI_DDP_WEIGHTED;
    if (ddp->options.uneven == TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_weight: options.uneven is TUTTI_DDP_EVEN, under "
                                        "which all shards weigh the same");
    }
    if (weight < 0 || weight >= WEIGHT_MAX || (is_flag && weight > 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: set_weight: %lld; want 0 to %d", (long long)weight,
                       is_flag ? 1 : WEIGHT_MAX - 1);
    }
    return TUTTI_OK;
}

static tutti_status_t check_time(const tutti_ddp_t *ddp)
{
    if (ddp->step.next_shard == 0) { /* as between steps */
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_weight: no shard is under way");
    }
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->reducer->slots[i].state != TT_SLOT_EMPTY) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp: set_weight: %s has got its gradient: set the "
                           "weight before the backward",
                           ddp->params[i].name);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_ddp_set_weight(tutti_ddp_t *ddp, int64_t weight)
{
    TT_TRY(tt_ddp_check_weight(ddp, weight));
    TT_TRY(check_time(ddp));
    ddp->step.weight = weight;
    return TUTTI_OK;
}

/* ---- the end of a step ----------------------------------------------------------------------- */

static tutti_status_t wait_for_buckets(tutti_ddp_t *ddp)
{
    tt_reducer_t *reducer = ddp->reducer;
    for (int b = 0; b < reducer->plan.bucket_count; b++) {
        TT_TRY(tt_reducer_wait(reducer, b));
        tt_ddp_time_arrivals(ddp);
        if (!reducer->options.divides_late) {
            TT_TRY(tt_reducer_finalize(reducer, b, 0));
            TT_TRY(tt_ddp_store_average(ddp, b));
        }
        TT_TRY(tt_ddp_step_arrived(ddp));
    }
    return TUTTI_OK;
}

/* What runs from here on, runs between steps. */
static void leave_step(tutti_ddp_t *ddp)
{
    if (ddp->step.phase != TT_DDP_BETWEEN_STEPS) {
        tutti_context_set_shard(ddp->ctx, ddp->step.outside);
    }
    ddp->step.next_shard = ddp->step.next_bucket = ddp->step.round = 0;
    ddp->step.phase = TT_DDP_BETWEEN_STEPS;
}

static tutti_status_t finish_step(tutti_ddp_t *ddp)
{
    const int count = tt_ddp_shard_count(ddp);
    if (ddp->step.next_shard < count) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: finished after %d of %d shards: loop while "
                       "tutti_ddp_next_shard() returns true",
                       ddp->step.next_shard, count);
    }
    TT_TRY(begin_step(ddp)); /* a rank without shards may come straight here */
    TT_TRY(ddp->driver != NULL && ddp->step.has_backward ? tt_ddp_report_unused(ddp) : TUTTI_OK);
    TT_TRY(send_empty_rounds(ddp));
    TT_TRY(send_rest(ddp));
    if (count > 0) {
        TT_TRY(tt_ddp_buffers_end_shard(ddp));
    }
    TT_TRY(tt_ddp_buffers_leave(ddp));
    TT_TRY(tt_ddp_order_follow(ddp));
    TT_TRY(tt_ddp_units_end_step(ddp));
    TT_TRY(wait_for_buckets(ddp));
    TT_TRY(tt_ddp_order_await_others(ddp));
    TT_TRY(tt_ddp_swap_to_f32(ddp));
    const tutti_status_t status = tt_ddp_take_control(ddp);
    for (int b = 0; b < ddp->reducer->plan.bucket_count && status == TUTTI_OK; b++) {
        TT_TRY(tt_ddp_store_average(ddp, b));
    }
    if (status >= 0) {
        TT_TRY(tt_ddp_buffers_arrive(ddp, status == TUTTI_END));
        tt_ddp_slices_arrive(ddp);
    }
    tt_ddp_order_end_step(ddp);
    leave_step(ddp);
    if (status == TUTTI_OK) {
        TT_TRY(tt_ddp_step_rest(ddp));
    }
    return status;
}

/* Parameters are f32 again, for those who keep them. If their gradients cannot be, that is not what
 * went wrong. */
static tutti_status_t end_failed_step(tutti_ddp_t *ddp)
{
    (void)tt_ddp_units_end_step(ddp);
    (void)tt_ddp_swap_to_f32(ddp);
    const tutti_status_t status = tt_fail_again(ddp->step.status, ddp->step.error);
    return ddp->driver != NULL ? ddp->driver->finish(ddp->driver, status) : status;
}

tutti_status_t tutti_ddp_finish(tutti_ddp_t *ddp)
{
    TT_WANT("ddp_finish", ddp);
    if (ddp->step.status < 0) {
        return end_failed_step(ddp);
    }
    const int64_t begin = tt_clock_ns();
    const tutti_status_t status = finish_step(ddp);
    tt_ddp_time_finish(ddp, begin);
    leave_step(ddp); /* also one that broke off */
    if (status < 0) {
        (void)tt_ddp_fail(ddp, status);
        return end_failed_step(ddp);
    }
    ddp->step.finished++;
    return ddp->driver != NULL ? ddp->driver->finish(ddp->driver, status) : status;
}
