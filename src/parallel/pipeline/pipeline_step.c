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
#include <tutti/modes.h>

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
    if (p->batch != NULL && p->status >= 0) {
        const tutti_status_t status = check_ranks(p);
        (void)tt_pipeline_fail(p, status < 0 ? status : tt_mail_advance(p));
    }
}

/* ---- actions --------------------------------------------------------------------------------- */

static tutti_status_t run_action(tutti_pipeline_t *p, int64_t index)
{
    const tutti_pipeline_action_t *action = &p->row.actions[index];
    tt_stage_t *stage = tt_pipeline_stage(p, action->stage);
    switch (action->kind) {
    case TUTTI_PIPELINE_F:
        TT_TRY(tt_cell_forward(p, stage, action->micro_batch));
        return p->trains ? TUTTI_OK : tt_cell_close(p, stage, action->micro_batch);
    case TUTTI_PIPELINE_B:
        return tt_cell_backward(p, stage, action->micro_batch, TT_TURN_WHOLE);
    case TUTTI_PIPELINE_I:
        return tt_cell_backward(p, stage, action->micro_batch, TT_TURN_INPUTS);
    case TUTTI_PIPELINE_W:
        return tt_cell_backward(p, stage, action->micro_batch, TT_TURN_WEIGHTS);
    case TUTTI_PIPELINE_STEP:
        return tt_versions_step(p, index);
    default: /* messages go with what they are about */
        return TUTTI_OK;
    }
}

static bool is_due(const tutti_pipeline_t *p, tutti_pipeline_kind_t kind)
{
    const bool steps = kind == TUTTI_PIPELINE_STEP && p->versions != NULL; /* else the caller's */
    return kind == TUTTI_PIPELINE_F || (p->trains && (kind <= TUTTI_PIPELINE_W || steps));
}

/* At the weights that it wants. */
static tutti_status_t run_due(tutti_pipeline_t *p, int64_t index)
{
    tt_versions_enter(p, index);
    const tutti_status_t status = run_action(p, index);
    tt_versions_leave(p, index);
    return status < 0 ? status : p->status;
}

/* Whether the stage's gradients are whole behind an action. */
static bool is_last(const tutti_pipeline_t *p, int64_t index)
{
    const tutti_pipeline_action_t *action = &p->row.actions[index], *next = action + 1,
                                  *end = p->row.actions + p->row.count;
    while (next < end && (next->stage != action->stage ||
                          (next->kind != TUTTI_PIPELINE_B && next->kind != TUTTI_PIPELINE_W))) {
        next++;
    }
    return next == end;
}

/* Gradients that come in an action may leave for DDP's average, or more are added to them. */
static void say_last(const tutti_pipeline_t *p, int64_t index)
{
    const tutti_pipeline_kind_t kind = p->row.actions[index].kind;
    if (p->ddp != NULL && (kind == TUTTI_PIPELINE_B || kind == TUTTI_PIPELINE_W)) {
        tutti_ddp_no_sync(p->ddp, p->is_held || !is_last(p, index));
    }
}

static tutti_status_t run_row(tutti_pipeline_t *p)
{
    for (int64_t i = 0; i < p->row.count; i++) {
        const tutti_pipeline_action_t *action = &p->row.actions[i];
        if (is_due(p, action->kind)) {
            say_last(p, i);
            p->place = (tt_pipeline_place_t){.action = *action, .peer = -1, .is_begun = true};
            TT_TRY(check_ranks(p));
            TT_TRY(run_due(p, i));
        }
    }
    p->place.is_behind = p->place.is_begun;
    return TUTTI_OK;
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
    if (count > 0 && tutti_tensor_dim(tensors[0], 0) < p->micro_batches) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s 0 has %lld rows, which are no %d micro-batches", what,
                       (long long)tutti_tensor_dim(tensors[0], 0), p->micro_batches);
    }
    return TUTTI_OK;
}

static tutti_status_t check_batch(const tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch)
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

/* ---- the whole ------------------------------------------------------------------------------- */

static void begin_step(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch)
{
    p->batch = batch;
    p->place = (tt_pipeline_place_t){.peer = -1};
    p->step = p->ddp != NULL ? tutti_ddp_stats(p->ddp).steps : p->stats.steps;
    p->shard = tutti_context_shard(p->ctx);
    p->is_held = p->ddp != NULL && tt_ddp_is_held(p->ddp);
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; b < p->micro_batches; b++) {
            p->own[i].cells[b].loss = 0;
        }
    }
    tt_mail_begin_step(p);
    if (p->trains) {
        tt_ties_begin_step(p);
        tt_slices_begin_step(p);
        tt_versions_begin_step(p);
        tt_norms_begin_step(p);
    }
}

static tutti_status_t finish(tutti_pipeline_t *p, double *loss)
{
    TT_TRY(tt_mail_end_step(p));
    if (p->trains && p->ddp != NULL) {
        tt_ddp_note_data(p->ddp);
    }
    TT_TRY(p->trains ? tt_ties_end_step(p) : TUTTI_OK);
    TT_TRY(p->trains ? tt_norms_end_step(p) : TUTTI_OK);
    tt_versions_end_step(p);
    return tt_slices_end_step(p, p->trains && p->ddp == NULL, loss);
}

/* Cells are open behind a failure alone. */
static void close_cells(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->own_count; i++) {
        for (int b = 0; b < p->micro_batches; b++) {
            (void)tt_cell_close(p, &p->own[i], b);
        }
    }
}

static tutti_status_t run_step(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                               double *loss)
{
    double found = 0;
    begin_step(p, batch);
    tutti_status_t status = check_batch(p, batch);
    status = status < 0 ? status : run_row(p);
    if (p->ddp != NULL) {
        tutti_ddp_no_sync(p->ddp, p->is_held);
    }
    status = status < 0 ? status : finish(p, &found);
    if (status < 0) {
        (void)tt_pipeline_fail(p, status);
    }
    p->batch = NULL;
    close_cells(p);
    if (p->status < 0) {
        return tt_fail_again(p->status, p->error);
    }
    if (loss != NULL) {
        *loss = found;
    }
    return TUTTI_OK;
}

static tutti_status_t run_in_mode(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                                  double *loss)
{
    tutti_context_t *ctx = p->ctx;
    const uint64_t calls = ctx->random_calls;
    p->idle = (tutti_idle_t){.call = advance_mail, .move = move_mail, .user = p};
    if (p->group != NULL) {
        tutti_context_add_idle(ctx, &p->idle);
    }
    const tutti_status_t status = run_step(p, batch, loss);
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

tutti_status_t tutti_pipeline_step(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                                   double *loss)
{
    TT_WANT("pipeline_step", p);
    TT_WANT("pipeline_step", batch);
    TT_TRY(check_usable(p));
    TT_TRY(tt_versions_check(p));
    p->trains = true;
    TT_TRY(run_in_mode(p, batch, loss));
    p->stats.steps++;
    return TUTTI_OK;
}

static tutti_status_t evaluate(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                               double *loss)
{
    TT_TRY(tt_pipeline_summon(p));
    return tt_pipeline_dismiss(p, run_in_mode(p, batch, loss));
}

tutti_status_t tutti_pipeline_evaluate(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                                       double *loss)
{
    TT_WANT("pipeline_evaluate", p);
    TT_WANT("pipeline_evaluate", batch);
    TT_TRY(check_usable(p));
    const bool was_training = tutti_context_is_training(p->ctx),
               was_recording = tutti_context_set_grad_enabled(p->ctx, false);
    tutti_context_set_training(p->ctx, false);
    p->trains = false;
    const tutti_status_t status = evaluate(p, batch, loss);
    tutti_context_set_training(p->ctx, was_training);
    (void)tutti_context_set_grad_enabled(p->ctx, was_recording);
    return status;
}
