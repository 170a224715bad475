/* Optimistic steps: a stage steps before it knows the gradients of the others, and undoes that
 * where it was wrong.
 *
 *     end of the step    own gradients are unscaled and measured; numbers ──all_reduce──►
 *                        values and moments are kept; the optimizer steps
 *     in the next step   ──► all numbers: an overflow? must gradients be clipped?
 *                        then kept values and moments come back, and the optimizer steps again
 *
 * Ranks that have the same stage, as replicas or as parts of its layers, are at the same place:
 * they are asked at once, and the numbers that go to the other stages are theirs together. What is
 * measured, and what is made of it, is what clipping does (clip.c): its question to the other
 * stages is answered here. The first time it gets its own numbers back, and they travel; the second
 * time those of all. So it adds up the same numbers in the same order as when everybody waits.
 * Source: pipeline_run.h.
 */
#include <tutti/collectives.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/kernel/optim/flat.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_validate.h"
#include "parallel/scaler_impl.h"

/* What travels: how many ranks have an overflow, or have failed; losses; numbers of gradients. */
enum { OVERFLOWS, FAILURES, LOSSES };

const char tt_validation_driver[] = "a pipeline that validates its steps behind them";

/* ---- numbers --------------------------------------------------------------------------------- */

static tutti_status_t add_numbers(tt_validation_t *v, const double *numbers, size_t count)
{
    if (v->count + count > v->room) {
        const size_t room = 2 * (v->count + count);
        double *grown = tt_realloc(v->numbers, room * sizeof *grown, "pipeline validation");
        TT_TRY_ALLOC(grown);
        v->numbers = grown;
        v->room = room;
    }
    memcpy(v->numbers + v->count, numbers, count * sizeof *numbers);
    v->count += count;
    return TUTTI_OK;
}

static void forget_numbers(tt_validation_t *v)
{
    v->count = v->loss_count = 0;
}

/* A step may have several rows, and none. */
static tutti_status_t begin_numbers(tt_validation_t *v)
{
    return v->count > 0 ? TUTTI_OK : add_numbers(v, (const double[LOSSES]){0}, LOSSES);
}

tutti_status_t tt_validation_note_losses(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    TT_TRY(begin_numbers(v));
    for (int shard = 0; shard < p->batch_count; shard++) {
        const double loss = tt_slices_loss(p, shard);
        TT_TRY(add_numbers(v, &loss, 1));
        v->loss_count++;
    }
    return TUTTI_OK;
}

void tt_validation_drop(tutti_pipeline_t *p)
{
    forget_numbers(p->validation);
}

/* In a tensor of its own: a failed call may write into it later. */
static tutti_status_t send_numbers(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    tt_tensors_release(&v->sum, 1);
    TT_TRY(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)v->count), &v->sum));
    memcpy(tutti_tensor_data(v->sum), v->numbers, v->count * sizeof *v->numbers);
    return tutti_all_reduce(p->group, v->sum, TUTTI_SUM, &v->work);
}

static tutti_status_t take_numbers(tt_validation_t *v)
{
    if (v->work != NULL) {
        TT_TRY(tutti_work_wait(v->work, 0));
        memcpy(v->numbers, tutti_tensor_data(v->sum), v->count * sizeof *v->numbers);
    }
    return TUTTI_OK;
}

/* Clipping asks for those of slices, then for those of parts of layers. */
static tutti_status_t answer_own(tutti_pipeline_t *p, double *numbers, size_t count)
{
    return add_numbers(p->validation, numbers, count);
}

static tutti_status_t answer_all(tutti_pipeline_t *p, double *numbers, size_t count)
{
    tt_validation_t *v = p->validation;
    TT_ASSERT(v->next + count <= v->count);
    memcpy(numbers, v->numbers + v->next, count * sizeof *numbers);
    v->next += count;
    return TUTTI_OK;
}

/* ---- what optimizers see --------------------------------------------------------------------- */

/* Every rank counts all parameters, whoever has gradients: those without one have nothing of it. */
static tutti_status_t show_all(tutti_pipeline_t *p)
{
    tt_slices_begin_step(p);
    for (int i = 0; i < p->param_count && p->ranks > 1; i++) {
        TT_TRY(tt_slices_count(p, &p->params[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t show_own(tutti_pipeline_t *p)
{
    tt_slices_begin_step(p);
    for (int i = 0; i < p->param_count; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        TT_TRY(tt_slices_has_grad(p, param) ? tt_slices_show(p, param) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* Around calls of the optimizer: as if it were the caller's, and this stage alone. */
static void enter_alone(tutti_pipeline_t *p)
{
    p->validation->opt->driver = NULL;
    p->steps_alone = true;
}

static void leave_alone(tutti_pipeline_t *p)
{
    p->validation->opt->driver = tt_validation_driver;
    p->steps_alone = false;
}

static tutti_status_t measure(tutti_pipeline_t *p, double max_norm, double *norm)
{
    const tt_validation_t *v = p->validation;
    TT_TRY(show_all(p));
    enter_alone(p);
    const tutti_status_t status =
        tutti_clip_grad_norm(v->opt, max_norm, v->options.norm_type, norm);
    leave_alone(p);
    return status;
}

static tutti_status_t unscale(tutti_pipeline_t *p, bool *has_overflow)
{
    const tt_validation_t *v = p->validation;
    tt_unscaled_t unscaled = {.is_finite = true};
    *has_overflow = false;
    if (!tt_scaler_is_on(v->options.scaler)) {
        return TUTTI_OK;
    }
    TT_TRY(show_own(p));
    enter_alone(p);
    const tutti_status_t status =
        tt_optim_unscale(v->opt, tt_scaler_factor(v->options.scaler), &unscaled);
    leave_alone(p);
    *has_overflow = !unscaled.is_finite;
    return status;
}

/* ---- what may be undone ---------------------------------------------------------------------- */

/* On every rank, of all stages: ranks refuse alike. */
void tt_validation_mark(tutti_pipeline_t *p, const char *decides)
{
    p->is_undecided = decides != NULL;
    for (int i = 0; i < p->param_count; i++) {
        p->params[i].tensor->decides = decides;
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

static tutti_status_t step_alone(tutti_pipeline_t *p)
{
    TT_TRY(show_own(p));
    enter_alone(p);
    const tutti_status_t status = tutti_optim_step(p->validation->opt);
    leave_alone(p);
    return status;
}

static tutti_status_t measure_own(tutti_pipeline_t *p)
{
    p->answer = answer_own;
    const tutti_status_t status = measure(p, INFINITY, NULL);
    p->answer = NULL;
    return status;
}

/* All ranks of this stage have their copy, or none steps. */
static tutti_status_t keep(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    tutti_status_t status = show_own(p);
    status = status < 0 ? status : tt_undo_keep(&v->undo);
    return tt_optim_agree_spreads(v->opt, tt_slices_agree_with_replicas(p, status));
}

/* A failure of this stage goes with the numbers, and ends the step with the verdict, on this rank,
 * too: others may wait for its forwards ahead, and would not hear its cause there. */
static tutti_status_t tell(tutti_pipeline_t *p, bool has_overflow, tutti_status_t status)
{
    tt_validation_t *v = p->validation;
    v->kept = status;
    snprintf(v->error, sizeof v->error, "%s", status < 0 ? tutti_last_error() : "");
    v->numbers[OVERFLOWS] = has_overflow;
    v->numbers[FAILURES] = status < 0;
    return p->ranks == 1 ? status : send_numbers(p);
}

tutti_status_t tt_validation_step(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    bool has_overflow;
    TT_TRY(begin_numbers(v));
    TT_TRY(unscale(p, &has_overflow));
    TT_TRY(p->ranks > 1 ? measure_own(p) : TUTTI_OK);
    TT_TRY(tell(p, has_overflow, has_overflow ? TUTTI_OK : keep(p)));
    v->lr = tutti_optim_lr(v->opt, 0);
    tt_validation_mark(p, v->opt->decides);
    v->opt->is_undecided = true;
    v->has_stepped = !has_overflow && v->kept >= 0; /* else nobody steps */
    return v->has_stepped ? step_alone(p) : TUTTI_OK;
}

/* ---- validation ------------------------------------------------------------------------------ */

/* Gradients become what they are clipped to. */
static tutti_status_t clip(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    v->next = LOSSES + v->loss_count;
    p->answer = answer_all;
    const tutti_status_t status = measure(p, v->options.max_norm, &v->verdict.norm);
    p->answer = NULL;
    TT_TRY(status);
    v->verdict.was_clipped =
        !(tt_flat_clip_factor(v->verdict.norm, true, v->options.max_norm) >= 1);
    return TUTTI_OK;
}

const tt_pipeline_param_t *tt_validation_param(const tutti_pipeline_t *p, const tutti_tensor_t *x)
{
    int i = 0;
    while (i < p->param_count && p->params[i].tensor != x) {
        i++;
    }
    return i < p->param_count ? &p->params[i] : NULL;
}

/* Other ranks may have copies of slices: they are asked, and told. */
static tutti_status_t undo(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    TT_TRY(show_own(p));
    enter_alone(p);
    tutti_status_t status = tt_optim_begin_step(v->opt);
    status = status < 0 ? status : tt_undo_put_back(&v->undo);
    status = tt_optim_end_step(v->opt, status);
    leave_alone(p);
    return status;
}

/* By the rate that the step had. */
static tutti_status_t step_again(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    const double lr = tutti_optim_lr(v->opt, 0);
    TT_TRY(undo(p));
    tutti_optim_set_lr(v->opt, v->lr);
    const tutti_status_t status = step_alone(p);
    tutti_optim_set_lr(v->opt, lr);
    return status;
}

static tutti_status_t check_gradients(const tutti_pipeline_t *p)
{
    const tt_validation_t *v = p->validation;
    for (size_t i = 0; i < v->undo.slot_count && v->has_stepped; i++) {
        const tt_optim_slot_t *slot = &v->opt->slots[i];
        if (tt_undo_has(&v->undo, i) &&
            !tt_slices_has_grad(p, tt_validation_param(p, slot->tensor))) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "the gradient of \"%s\" was forgotten before its step was validated: "
                           "call tutti_pipeline_validate() first; it forgets them itself",
                           slot->name);
        }
    }
    return TUTTI_OK;
}

/* In the order of the batches. */
static tutti_status_t keep_losses(tt_validation_t *v)
{
    double sum = 0, *losses = tt_realloc(v->losses, (v->loss_count + 1) * sizeof *losses,
                                         "pipeline validation");
    TT_TRY_ALLOC(losses);
    v->losses = losses;
    for (size_t i = 0; i < v->loss_count; i++) {
        losses[i] = v->numbers[LOSSES + i];
        sum += losses[i];
    }
    v->verdict = (tutti_pipeline_verdict_t){.loss = sum / (double)(v->loss_count + !v->loss_count),
                                            .losses = losses,
                                            .loss_count = (int)v->loss_count};
    return TUTTI_OK;
}

static tutti_status_t take_verdict(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    TT_TRY(take_numbers(v));
    if (v->numbers[FAILURES] > 0) { /* what is the cause? */
        return tt_group_agree(p->group, v->kept < 0 ? tt_fail_again(v->kept, v->error) : TUTTI_OK);
    }
    TT_TRY(keep_losses(v));
    v->verdict.norm = INFINITY;
    v->verdict.was_skipped = v->numbers[OVERFLOWS] > 0;
    return TUTTI_OK;
}

static tutti_status_t follow_verdict(tutti_pipeline_t *p)
{
    const tt_validation_t *v = p->validation;
    if (v->verdict.was_skipped) {
        return v->has_stepped ? undo(p) : TUTTI_OK;
    }
    TT_TRY(clip(p));
    TT_TRY(v->verdict.was_clipped ? step_again(p) : TUTTI_OK);
    return tt_ties_share(p);
}

static double scale_of(const tt_validation_t *v)
{
    return v->options.scaler == NULL ? 1 : tutti_scaler_get_state(v->options.scaler).scale;
}

static tutti_status_t judge(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    TT_TRY(take_verdict(p));
    TT_TRY(check_gradients(p));
    TT_TRY(follow_verdict(p));
    const double scale = scale_of(v);
    if (v->options.scaler != NULL) {
        tt_scaler_end_step(v->options.scaler, v->verdict.was_skipped);
    }
    v->has_changed = v->verdict.was_clipped || v->verdict.was_skipped || scale_of(v) != scale;
    return TUTTI_OK;
}

bool tt_validation_has_changed(const tutti_pipeline_t *p)
{
    return p->validation->has_changed;
}

tutti_status_t tt_validation_settle(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    if (!p->is_undecided) {
        return TUTTI_OK;
    }
    tt_validation_mark(p, NULL);
    v->opt->is_undecided = false;
    p->place = (tt_pipeline_place_t){.peer = -1};
    const tutti_status_t status = judge(p);
    tutti_work_release(v->work);
    v->work = NULL;
    forget_numbers(v);
    tutti_optim_zero_grad(v->opt);
    tt_slices_begin_step(p);
    return status < 0 ? tt_pipeline_fail(p, status) : TUTTI_OK;
}

tutti_status_t tutti_pipeline_validate(tutti_pipeline_t *p, tutti_pipeline_verdict_t *verdict)
{
    TT_WANT("pipeline_validate", p);
    TT_TRY(tt_pipeline_fail(p, TUTTI_OK)); /* what failed before */
    if (p->validation == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_validate: steps are the caller's: call "
                                        "tutti_pipeline_post_validate() before them");
    }
    TT_TRY(tt_validation_settle(p));
    if (verdict != NULL) {
        *verdict = p->validation->verdict;
    }
    return TUTTI_OK;
}
