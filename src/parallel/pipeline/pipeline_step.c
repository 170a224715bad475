/* A step: the row of this rank's actions, one after the other, and what ends it.
 *
 *     row        1F0 1F1 1B0 1F2 1B1 1B2
 *     behind it  what was sent has gone; uses of ties are added up; all ranks are told the loss,
 *                and which parameters have gradients
 *
 * Sends begin with the action that makes what is sent, receives ahead of the one that needs it, and
 * both go on while operations compute. Asynchronous schedules have STEPs in the row, and actions at
 * older weights (pipeline_versions.c). The first failure is kept with the place where it happened,
 * and ends the pipeline on all ranks.
 */
#include "comm/group/agree.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_norms.h"
#include "parallel/pipeline/pipeline_versions.h"

/* A rank may compute for long before it waits for one that is gone, and others wait for it. */
static tutti_status_t check_ranks(const tutti_pipeline_t *p)
{
    TT_TRY(tt_group_check(p->group));
    return p->ddp != NULL ? tt_ddp_check_ranks(p->ddp) : TUTTI_OK;
}

/* While operations compute. */
static void move_mail(void *user)
{
    tutti_group_progress(((tutti_pipeline_t *)user)->group);
}

static void advance_mail(void *user)
{
    tutti_pipeline_t *p = user;
    if (p->batches != NULL && p->status >= 0) {
        const tutti_status_t status = check_ranks(p);
        (void)tt_pipeline_fail(p, status < 0 ? status : tt_mail_advance(p));
    }
}

/* ---- actions --------------------------------------------------------------------------------- */

static tutti_status_t run_forward(tutti_pipeline_t *p, tt_stage_t *stage, int slot)
{
    const int shard = tt_shard_of(p, slot);
    if (!p->trains) {
        TT_TRY(tt_cell_forward(p, stage, slot));
        return tt_cell_close(p, stage, slot);
    }
    TT_TRY(tt_shards_enter_forward(p, stage, shard));
    TT_TRY(tt_cell_forward(p, stage, slot));
    return tt_shards_leave_forward(p, stage, shard);
}

/* With which gradients of the stage's parameters come. */
static tutti_status_t run_backward(tutti_pipeline_t *p, tt_stage_t *stage, int slot, tt_turn_t turn)
{
    TT_TRY(tt_cell_backward(p, stage, slot, turn));
    return tt_shards_note(p, stage, tt_shard_of(p, slot));
}

static tutti_status_t run_action(tutti_pipeline_t *p, int64_t index)
{
    const tutti_pipeline_action_t *action = &p->row.actions[index];
    tt_stage_t *stage = tt_pipeline_stage(p, action->stage);
    switch (action->kind) {
    case TUTTI_PIPELINE_F:
        return run_forward(p, stage, action->micro_batch);
    case TUTTI_PIPELINE_B:
        return run_backward(p, stage, action->micro_batch, TT_TURN_WHOLE);
    case TUTTI_PIPELINE_I:
        return tt_cell_backward(p, stage, action->micro_batch, TT_TURN_INPUTS);
    case TUTTI_PIPELINE_W:
        return run_backward(p, stage, action->micro_batch, TT_TURN_WEIGHTS);
    case TUTTI_PIPELINE_STEP:
        return tt_versions_step(p, index);
    default: /* messages go with what they are about */
        return TUTTI_OK;
    }
}

static bool is_due(const tutti_pipeline_t *p, const tutti_pipeline_action_t *action)
{
    const tutti_pipeline_kind_t kind = action->kind;
    if (kind == TUTTI_PIPELINE_STEP) {
        return p->trains && p->versions != NULL; /* else the caller's */
    }
    return kind <= (p->trains ? TUTTI_PIPELINE_W : TUTTI_PIPELINE_F) &&
           !tt_is_left_out(p, action->micro_batch);
}

/* At the weights that it wants. */
static tutti_status_t run_due(tutti_pipeline_t *p, int64_t index)
{
    tt_versions_enter(p, index);
    const tutti_status_t status = run_action(p, index);
    tt_versions_leave(p, index);
    return status < 0 ? status : p->status;
}

/* Gradients that come in an action may leave for DDP's average, or more are added to them. */
static void say_last(tutti_pipeline_t *p, const tutti_pipeline_action_t *action)
{
    const int shard = tt_shard_of(p, action->micro_batch);
    if (p->ddp != NULL && (action->kind == TUTTI_PIPELINE_B || action->kind == TUTTI_PIPELINE_W)) {
        const bool is_last = tt_pipeline_stage(p, action->stage)->left[shard] == 1;
        tutti_ddp_no_sync(p->ddp, p->is_held || !is_last);
    }
}

/* Random numbers are a shard's. */
static void name_shard(tutti_pipeline_t *p, int slot)
{
    if (p->has_turns) {
        p->shard = p->first_shard + tt_shard_of(p, slot) * tutti_ddp_shard_stride(p->ddp);
        tutti_context_set_shard(p->ctx, p->shard);
    }
}

static tutti_status_t run_row(tutti_pipeline_t *p, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const tutti_pipeline_action_t *action = &p->row.actions[i];
        if (is_due(p, action)) {
            name_shard(p, action->micro_batch);
            say_last(p, action);
            p->place = (tt_pipeline_place_t){.action = *action, .peer = -1, .is_begun = true};
            TT_TRY(check_ranks(p));
            TT_TRY(run_due(p, i));
        }
    }
    p->place.is_behind = p->place.is_begun;
    return TUTTI_OK;
}

/* *begin: where the row goes on when the verdict on the step before is there. */
static tutti_status_t run_ahead(tutti_pipeline_t *p, int64_t *begin)
{
    *begin = p->ahead;
    TT_TRY(tt_ahead_keep(p));
    TT_TRY(run_row(p, 0, p->ahead));
    TT_TRY(tt_validation_settle(p));
    if (tt_validation_has_changed(p)) {
        *begin = 0;
        return tt_ahead_forget(p);
    }
    return TUTTI_OK;
}

static tutti_status_t run_whole_row(tutti_pipeline_t *p)
{
    int64_t begin = 0;
    TT_TRY(p->runs_ahead ? run_ahead(p, &begin) : TUTTI_OK);
    return run_row(p, begin, p->row.count);
}

/* ---- the batch ------------------------------------------------------------------------------- */

static tutti_status_t check_tensors(const tutti_pipeline_t *p, const char *what,
                                    tutti_tensor_t *const *tensors, int count)
{
    if (count < 0 || count > TT_WIDTH) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d %ss: at most %d may be", count, what, TT_WIDTH);
    }
    for (int i = 0; i < count; i++) {
        char text[192];
        TT_TRY(tt_tensor_status(tensors[i]));
        if (tutti_tensor_rank(tensors[i]) < 1) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "%s %d is %s: it must have rows", what, i,
                           tutti_tensor_describe(tensors[i], text, sizeof text));
        }
        if (tutti_tensor_dim(tensors[i], 0) != tutti_tensor_dim(tensors[0], 0)) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "%s %d has %lld rows, and the first %lld", what, i,
                           (long long)tutti_tensor_dim(tensors[i], 0),
                           (long long)tutti_tensor_dim(tensors[0], 0));
        }
    }
    if (count > 0 && tutti_tensor_dim(tensors[0], 0) < p->cut_into) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s 0 has %lld rows, which are no %d micro-batches", what,
                       (long long)tutti_tensor_dim(tensors[0], 0), p->cut_into);
    }
    return TUTTI_OK;
}

static tutti_status_t check_one(const tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch)
{
    if (tt_rank_of_stage(p, 0) == p->rank) {
        if (batch->input_count < 1) {
            return TT_FAIL(TUTTI_ERR_ARG, "this rank has the first stage, and gets no inputs");
        }
        TT_TRY(check_tensors(p, "input", batch->inputs, batch->input_count));
    }
    return tt_rank_of_stage(p, p->stages - 1) == p->rank
               ? check_tensors(p, "target", batch->targets, batch->target_count)
               : TUTTI_OK;
}

static tutti_status_t check_batches(const tutti_pipeline_t *p)
{
    for (int i = 0; i < p->batch_count; i++) {
        TT_TRY(p->batches[i].is_empty ? TUTTI_OK : check_one(p, &p->batches[i].batch));
    }
    return TUTTI_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static tutti_status_t begin_step(tutti_pipeline_t *p)
{
    p->place = (tt_pipeline_place_t){.peer = -1};
    p->step = p->ddp != NULL ? tutti_ddp_stats(p->ddp).steps : p->stats.steps;
    p->shard = tutti_context_shard(p->ctx);
    p->is_held = p->ddp != NULL && tt_ddp_is_held(p->ddp);
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; b < p->slots; b++) {
            p->own[i].cells[b].loss = 0;
        }
    }
    tt_mail_begin_step(p);
    if (p->trains) {
        tt_slices_begin_step(p);
        tt_versions_begin_step(p);
        tt_norms_begin_step(p);
        return tt_shards_begin_step(p);
    }
    return TUTTI_OK;
}

static tutti_status_t finish(tutti_pipeline_t *p, double *losses)
{
    TT_TRY(tt_mail_end_step(p));
    if (p->trains && p->ddp != NULL && !p->has_turns) {
        tt_ddp_note_data(p->ddp);
    }
    TT_TRY(p->trains ? tt_shards_end_step(p) : TUTTI_OK);
    TT_TRY(p->trains ? tt_norms_end_step(p) : TUTTI_OK);
    tt_versions_end_step(p);
    if (!p->trains || p->validation == NULL) {
        return tt_slices_end_step(p, p->trains && p->ddp == NULL, losses);
    }
    TT_TRY(tt_validation_note_losses(p));
    return p->ddp == NULL ? tt_validation_step(p) : TUTTI_OK;
}

/* Cells are open behind a failure alone. */
static void close_cells(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; b < p->slots; b++) {
            (void)tt_cell_close(p, &p->own[i], b);
        }
    }
    tt_shards_forget(p);
}

static tutti_status_t run_step(tutti_pipeline_t *p, double *losses)
{
    tutti_status_t status = begin_step(p);
    status = status < 0 ? status : check_batches(p);
    status = status < 0 ? status : run_whole_row(p);
    if (p->ddp != NULL) {
        tutti_ddp_no_sync(p->ddp, p->is_held);
    }
    status = status < 0 ? status : finish(p, losses);
    if (status < 0) {
        (void)tt_pipeline_fail(p, status);
    }
    close_cells(p);
    p->batches = NULL;
    return p->status < 0 ? tt_fail_again(p->status, p->error) : TUTTI_OK;
}

tutti_status_t tt_pipeline_run(tutti_pipeline_t *p, const tutti_pipeline_shard_t *batches,
                               int count, double *losses)
{
    tutti_context_t *ctx = p->ctx;
    const uint64_t calls = ctx->random_calls;
    p->idle = (tutti_idle_t){.call = advance_mail, .move = move_mail, .user = p};
    if (p->group != NULL) {
        tutti_context_add_idle(ctx, &p->idle);
    }
    p->batches = batches;
    p->batch_count = count;
    const tutti_status_t status = run_step(p, losses);
    if (p->group != NULL) {
        tutti_context_remove_idle(ctx, &p->idle);
    }
    ctx->random_calls = calls;
    return status;
}

static tutti_status_t check_usable(const tutti_pipeline_t *p)
{
    return p->status < 0 ? tt_fail_again(p->status, p->error) : TUTTI_OK;
}

static tutti_status_t train(tutti_pipeline_t *p, const tutti_pipeline_shard_t *shards, int count,
                            double *losses)
{
    p->trains = true;
    p->call = TT_CALL_STEP;
    p->call_batches = count;
    TT_TRY(tt_pipeline_run(p, shards, count, losses));
    p->stats.steps++;
    return TUTTI_OK;
}

static tutti_status_t check_losses(const tutti_pipeline_t *p, const char *call,
                                   const double *losses)
{
    return p->validation == NULL || losses == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: the loss is known when the step has been validated: "
                         "tutti_pipeline_validate() tells it",
                         call);
}

tutti_status_t tutti_pipeline_step(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                                   double *loss)
{
    TT_WANT("pipeline_step", p);
    TT_WANT("pipeline_step", batch);
    TT_TRY(check_usable(p));
    TT_TRY(tt_versions_check(p));
    if (p->shards > 1) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "pipeline_step: the plan has %d shards: call tutti_pipeline_step_shards()",
                       p->shards);
    }
    TT_TRY(check_losses(p, "pipeline_step", loss));
    p->runs_ahead = tt_ahead_is_due(p);
    TT_TRY(p->ddp == NULL && !p->runs_ahead ? tt_validation_settle(p) : TUTTI_OK);
    const tutti_status_t status = train(p, &(tutti_pipeline_shard_t){.batch = *batch}, 1, loss);
    p->runs_ahead = false;
    return status;
}

/* ---- several shards -------------------------------------------------------------------------- */

static tutti_status_t check_weights(const tutti_pipeline_t *p, const tutti_pipeline_shard_t *shards,
                                    int count)
{
    for (int i = 0; i < count; i++) {
        const bool is_one = !shards[i].is_empty && shards[i].weight >= 0 && shards[i].weight <= 1;
        TT_TRY(is_one ? TUTTI_OK
                      : tt_ddp_check_weight(p->ddp, shards[i].is_empty ? 0 : shards[i].weight));
    }
    return TUTTI_OK;
}

static tutti_status_t check_shards(tutti_pipeline_t *p, const tutti_pipeline_shard_t *shards,
                                   int count)
{
    int first, here;
    if (p->ddp == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_step_shards: a ddp adds up shards, on one rank, "
                                        "too: tutti_pipeline_set_ddp() comes first");
    }
    if (tt_ddp_is_in_step(p->ddp)) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_step_shards: the ddp is in a step: it begins all "
                                        "shards itself, so do not call tutti_ddp_next_shard(), "
                                        "and tutti_ddp_finish() behind it");
    }
    if (tt_ddp_is_held(p->ddp)) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_step_shards: tutti_ddp_no_sync() is on, and the "
                                        "call has all of each shard: take more micro-batches");
    }
    tutti_ddp_local_shards(p->ddp, &first, &here);
    if (count != here || (count > 0 && count != p->shards)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline_step_shards: %d shards; the ddp has %d on this rank, and "
                       "plan.shards is %d",
                       count, here, p->shards);
    }
    p->first_shard = first;
    return check_weights(p, shards, count);
}

tutti_status_t tutti_pipeline_step_shards(tutti_pipeline_t *p, const tutti_pipeline_shard_t *shards,
                                          int count, double *losses)
{
    TT_WANT("pipeline_step_shards", p);
    TT_TRY(check_usable(p));
    TT_TRY(check_shards(p, shards, count));
    TT_TRY(check_losses(p, "pipeline_step_shards", losses));
    if (count == 0) {
        return TUTTI_OK;
    }
    TT_WANT("pipeline_step_shards", shards);
    p->driver.moves_buffers = p->has_turns = true;
    const tutti_status_t status = train(p, shards, count, losses);
    p->has_turns = false;
    return status;
}
