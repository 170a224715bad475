/* A step: shards begin and end, hooks count gradients, buckets leave in their order.
 *
 * Every rank must start its all_reduces in the same order, whatever order its gradients come in:
 * a bucket that is complete waits until those before it have left.
 */
#include <stdio.h>
#include <string.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

/* The first failure, whose text is tutti_last_error(), is kept and aborts the group. Returns the
 * first: what comes after it, such as calls of the aborted group, is not what went wrong. */
static tutti_status_t keep_failure(tutti_ddp_t *ddp, tutti_status_t status)
{
    if (ddp->status >= 0) {
        ddp->status = status;
        snprintf(ddp->error, sizeof ddp->error, "%s", tutti_last_error());
        tutti_group_abort(ddp->group); /* which leaves a text of its own */
    }
    return tt_fail_again(ddp->status, ddp->error);
}

/* ---- the end of a shard ---------------------------------------------------------------------- */

/* A gradient that did not come counts as zero. */
static tutti_status_t settle_param(tt_ddp_param_t *param)
{
    if (!param->has_grad) {
        TT_TRY(tutti_tensor_fill(param->view, 0.0));
    }
    tt_autograd_of(param->tensor)->grad_is_stale = false;
    return TUTTI_OK;
}

/* All of the shard's weight is known: its backward has begun, or will not. */
static tutti_status_t settle_weight(tutti_ddp_t *ddp)
{
    if (ddp->is_weight_settled) {
        return TUTTI_OK;
    }
    bool has_backward = false;
    for (int i = 0; i < ddp->param_count && !has_backward; i++) {
        has_backward = ddp->params[i].has_grad;
    }
    if (!has_backward && ddp->options.uneven == TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: no backward of shard %d reached a parameter of this module; if it has "
                       "no data, see options.uneven",
                       ddp->first_shard + ddp->next - 1);
    }
    if (!has_backward) {
        ddp->weight = 0;
    }
    ddp->is_weight_settled = true;
    return TUTTI_OK;
}

static tutti_status_t settle_bucket(tutti_ddp_t *ddp, int index)
{
    TT_TRY(settle_weight(ddp));
    for (int i = 0; i < ddp->param_count; i++) {
        if (ddp->plan.slots[i].bucket == index) {
            TT_TRY(settle_param(&ddp->params[i]));
        }
    }
    return tt_bucket_push(ddp, &ddp->buckets[index], ddp->first_shard + ddp->next - 1, ddp->weight);
}

static tutti_status_t seal_shard(tutti_ddp_t *ddp)
{
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        TT_TRY(settle_bucket(ddp, b));
    }
    tt_ddp_buffers_end_shard(ddp);
    return tt_ddp_note_shard(ddp);
}

static tutti_status_t send_next_bucket(tutti_ddp_t *ddp)
{
    const int index = ddp->next_bucket++;
    if (ddp->shard_count > 0) {
        TT_TRY(settle_bucket(ddp, index));
    }
    return tt_bucket_leave(ddp, &ddp->buckets[index]);
}

static tutti_status_t send_ready_buckets(tutti_ddp_t *ddp)
{
    while (ddp->next_bucket < ddp->plan.bucket_count &&
           ddp->buckets[ddp->next_bucket].pending == 0) {
        TT_TRY(send_next_bucket(ddp));
    }
    return TUTTI_OK;
}

/* All buckets that have not left; behind them, what is told of the shards. */
static tutti_status_t send_rest(tutti_ddp_t *ddp)
{
    while (ddp->next_bucket < ddp->plan.bucket_count) {
        TT_TRY(send_next_bucket(ddp));
    }
    if (ddp->has_sent_control) {
        return TUTTI_OK;
    }
    ddp->has_sent_control = true;
    if (ddp->shard_count > 0) {
        TT_TRY(tt_ddp_note_shard(ddp));
    }
    return tt_ddp_send_control(ddp);
}

/* ---- names of what got no gradient ----------------------------------------------------------- */

static tutti_status_t list_unused(tutti_ddp_t *ddp)
{
    size_t bytes = 1, used = 0;
    for (int i = 0; i < ddp->param_count; i++) {
        bytes += ddp->params[i].was_used ? 0 : strlen(ddp->params[i].name) + 1;
    }
    char *names = tt_alloc(bytes, "ddp names");
    TT_TRY_ALLOC(names);
    for (int i = 0; i < ddp->param_count; i++) {
        if (!ddp->params[i].was_used) {
            used += (size_t)snprintf(names + used, bytes - used, "%s%s", used > 0 ? " " : "",
                                     ddp->params[i].name);
        }
    }
    tt_free(ddp->unused);
    ddp->unused = names;
    return TUTTI_OK;
}

static tutti_status_t report_unused(tutti_ddp_t *ddp)
{
    bool has_unused = false;
    for (int i = 0; i < ddp->param_count; i++) {
        has_unused = has_unused || !ddp->params[i].was_used;
    }
    if (!has_unused && ddp->unused == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(list_unused(ddp));
    if (has_unused && !ddp->told_unused) {
        ddp->told_unused = true;
        tt_log(TT_LOG_WARN,
               "ddp: no gradient came on rank %d for %s: zero, if another shard has one",
               tutti_group_rank(ddp->group), ddp->unused);
    }
    return TUTTI_OK;
}

/* ---- hooks
 * ---------------------------------------------------------------------------------------- */

static tutti_status_t end_backward(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    tutti_ddp_t *ddp = user;
    ddp->end_is_queued = false;
    tt_ddp_time_backward_end(ddp);
    if (status < 0) {
        return keep_failure(ddp, status);
    }
    if (ddp->is_last && !ddp->no_sync) {
        status = report_unused(ddp);
        if (status >= 0 && !ddp->options.no_overlap) {
            status = send_rest(ddp);
        }
    }
    return status < 0 ? keep_failure(ddp, status) : TUTTI_OK;
}

static tutti_status_t take_gradient(tutti_ddp_t *ddp, tt_ddp_param_t *param)
{
    tt_bucket_t *bucket = &ddp->buckets[ddp->plan.slots[param - ddp->params].bucket];
    if (bucket->has_left) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: %s got another gradient after its bucket had left: call "
                       "tutti_ddp_no_sync() around all backwards of a shard but the last",
                       param->name);
    }
    if (tt_autograd_of(param->tensor)->grad != param->view) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: %s has another gradient tensor than the one that is averaged: do not "
                       "call tutti_tensor_set_grad() on it",
                       param->name);
    }
    param->has_grad = true;
    param->was_used = true;
    if (!ddp->is_last || ddp->no_sync || !param->is_owed) {
        return TUTTI_OK;
    }
    param->is_owed = false;
    tt_ddp_note_order(ddp, param);
    bucket->pending--;
    return ddp->options.no_overlap ? TUTTI_OK : send_ready_buckets(ddp);
}

void tt_ddp_on_accumulate(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    tt_ddp_param_t *param = user;
    tutti_ddp_t *ddp = param->ddp;
    tutti_status_t status = TUTTI_OK;
    tt_ddp_time_gradient(ddp);
    if (!ddp->end_is_queued) {
        status = tutti_backward_on_end(s, end_backward, ddp);
        ddp->end_is_queued = status >= 0;
    }
    if (status >= 0) {
        status = take_gradient(ddp, param);
    }
    if (status < 0) {
        (void)tutti_scope_fail(s, keep_failure(ddp, status));
    }
}

void tt_ddp_move(void *user)
{
    const tutti_ddp_t *ddp = user;
    if (ddp->is_in_step && ddp->next_bucket > 0) {
        tutti_group_progress(ddp->group);
    }
}

void tt_ddp_progress(void *user)
{
    tutti_ddp_t *ddp = user;
    tutti_group_progress(ddp->group);
    tt_ddp_time_arrivals(ddp);
    const tutti_status_t status = tt_ddp_step_arrived(ddp);
    if (status < 0) {
        (void)keep_failure(ddp, status); /* which finish returns */
    }
}

/* ---- shards
 * ----------------------------------------------------------------------------------------- */

static tutti_status_t begin_step(tutti_ddp_t *ddp)
{
    if (ddp->is_in_step) {
        return TUTTI_OK;
    }
    ddp->is_in_step = true;
    ddp->step++;
    tutti_group_set_tag(ddp->group, ddp->step);
    if (ddp->step > 1 && ddp->order != NULL) {
        TT_TRY(tt_ddp_rebuild(ddp));
    }
    tt_ddp_reset_control(ddp);
    tt_ddp_buffers_begin_step(ddp);
    TT_TRY(tt_ddp_lower_params(ddp));
    ddp->next_bucket = 0;
    ddp->has_sent_control = false;
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        ddp->buckets[b].has_left = ddp->buckets[b].is_stepped = false;
        ddp->buckets[b].is_settled = false;
    }
    for (int i = 0; i < ddp->param_count; i++) {
        ddp->params[i].was_used = false;
    }
    return TUTTI_OK;
}

static tutti_status_t begin_shard(tutti_ddp_t *ddp)
{
    tt_ddp_buffers_begin_shard(ddp);
    ddp->is_last = ddp->next + 1 == ddp->shard_count;
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        TT_TRY(tt_bucket_vacate(&ddp->buckets[b]));
        ddp->buckets[b].pending = ddp->plan.buckets[b].param_count;
    }
    for (int i = 0; i < ddp->param_count; i++) {
        ddp->params[i].has_grad = false;
        ddp->params[i].is_owed = true;
        tutti_tensor_zero_grad(ddp->params[i].tensor);
    }
    ddp->next++;
    ddp->weight = 1;
    ddp->is_weight_settled = false;
    tt_ddp_time_shard(ddp);
    return TUTTI_OK;
}

bool tutti_ddp_next_shard(tutti_ddp_t *ddp, tutti_context_t *ctx)
{
    if (ddp->status < 0) {
        return false;
    }
    tutti_status_t status = begin_step(ddp);
    if (status >= 0 && ddp->next > 0 && ddp->next < ddp->shard_count) {
        status = seal_shard(ddp);
    }
    if (status >= 0 && ddp->next < ddp->shard_count) {
        tutti_context_set_shard(ctx, ddp->first_shard + ddp->next);
        status = begin_shard(ddp);
        if (status >= 0) {
            return true;
        }
    }
    if (status < 0) {
        (void)keep_failure(ddp, status);
    }
    return false;
}

void tutti_ddp_no_sync(tutti_ddp_t *ddp, bool is_on)
{
    ddp->no_sync = is_on;
}

/* ---- the end of a step
 * -------------------------------------------------------------------------------- */

static tutti_status_t wait_for_buckets(tutti_ddp_t *ddp)
{
    for (int b = 0; b < ddp->plan.bucket_count; b++) {
        tt_bucket_t *bucket = &ddp->buckets[b];
        if (bucket->work != NULL) {
            TT_TRY(tutti_work_wait(bucket->work, 0));
        }
        tt_ddp_time_arrivals(ddp);
        tutti_work_release(bucket->work);
        bucket->work = NULL;
        if (ddp->hook != NULL) {
            TT_TRY(tt_ddp_finish_hook(ddp, bucket));
        }
        if (!tt_ddp_divides_later(ddp)) {
            TT_TRY(tt_bucket_settle(ddp, bucket));
        }
        TT_TRY(tt_ddp_step_arrived(ddp));
    }
    return TUTTI_OK;
}

static tutti_status_t finish_step(tutti_ddp_t *ddp)
{
    if (ddp->next < ddp->shard_count) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: finished after %d of %d shards: loop while "
                       "tutti_ddp_next_shard() returns true",
                       ddp->next, ddp->shard_count);
    }
    TT_TRY(begin_step(ddp)); /* a rank without shards may come straight here */
    TT_TRY(send_rest(ddp));
    if (ddp->shard_count > 0) {
        tt_ddp_buffers_end_shard(ddp);
    }
    TT_TRY(tt_ddp_buffers_leave(ddp));
    TT_TRY(wait_for_buckets(ddp));
    TT_TRY(tt_ddp_raise_params(ddp));
    const tutti_status_t status = tt_ddp_take_control(ddp);
    if (status >= 0) {
        TT_TRY(tt_ddp_buffers_arrive(ddp, status == TUTTI_END));
    }
    if (status == TUTTI_OK) {
        TT_TRY(tt_ddp_step_rest(ddp));
    }
    return status;
}

/* Parameters are f32 again, for whoever keeps them. If their gradients cannot be, that is not what
 * went wrong. */
static tutti_status_t end_failed_step(tutti_ddp_t *ddp)
{
    (void)tt_ddp_raise_params(ddp);
    return tt_fail_again(ddp->status, ddp->error);
}

tutti_status_t tutti_ddp_finish(tutti_ddp_t *ddp)
{
    if (ddp->status < 0) {
        return end_failed_step(ddp);
    }
    const int64_t begin = tt_clock_ns();
    const tutti_status_t status = finish_step(ddp);
    tt_ddp_time_finish(ddp, begin);
    ddp->next = 0;
    ddp->is_in_step = false;
    if (status < 0) {
        (void)keep_failure(ddp, status);
        return end_failed_step(ddp);
    }
    return status;
}
