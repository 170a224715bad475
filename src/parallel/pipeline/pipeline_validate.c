/* Optimistic steps: a stage steps before it knows the gradients of the others, and undoes that
 * where it was wrong.
 *
 *     end of the row     own gradients are unscaled and measured; numbers ──all_reduce──►
 *                        values and moments are kept; the optimizer steps
 *     next step begins   ──► all numbers: an overflow? must gradients be clipped?
 *                        then kept values and moments come back, and the optimizer steps again
 *
 * What is measured, and what is made of it, is what clipping does (clip.c): its question to the
 * ranks that have other slices is answered here. The first time it gets its own numbers back, and
 * they travel; the second time those of all. So it adds up the same numbers in the same order as
 * when everybody waits. Source: pipeline_run.h.
 */
#include <tutti/collectives.h>

#include <math.h>
#include <string.h>

#include "comm/group/agree.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/kernel/optim/flat.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_validate.h"
#include "parallel/scaler_impl.h"

/* What travels: the loss, how many ranks have an overflow, the numbers of gradients. */
enum { LOSS, OVERFLOWS, FIRST };

const char tt_validation_driver[] = "a pipeline that validates its steps behind them";

/* ---- questions ------------------------------------------------------------------------------- */

static tutti_status_t note_numbers(tt_validation_t *v, const double *numbers, size_t count)
{
    TT_ASSERT(v->numbers == NULL);
    TT_TRY(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)(FIRST + count)), &v->numbers));
    if (count > 0) {
        memcpy((double *)tutti_tensor_data(v->numbers) + FIRST, numbers, count * sizeof *numbers);
    }
    return TUTTI_OK;
}

static tutti_status_t answer_own(tutti_pipeline_t *p, double *numbers, size_t count)
{
    return note_numbers(p->validation, numbers, count);
}

static tutti_status_t answer_all(tutti_pipeline_t *p, double *numbers, size_t count)
{
    const tt_validation_t *v = p->validation;
    TT_ASSERT(tutti_tensor_numel(v->numbers) == (int64_t)(FIRST + count));
    memcpy(numbers, (double *)tutti_tensor_data(v->numbers) + FIRST, count * sizeof *numbers);
    return TUTTI_OK;
}

/* ---- what optimizers see --------------------------------------------------------------------- */

/* Every rank counts all parameters, whoever has gradients: those without one have nothing of it. */
static tutti_status_t show_all(tutti_pipeline_t *p)
{
    tt_slices_begin_step(p);
    for (int i = 0; i < p->param_count && p->ranks > 1; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        tutti_tensor_t *grad = param->owner == p->rank ? tutti_tensor_grad(param->tensor) : NULL;
        TT_TRY(tt_slices_open_row(p, grad, param->tensor, grad != NULL, &param->grad));
        param->seen.grad = param->grad;
    }
    return TUTTI_OK;
}

static tutti_status_t show_own(tutti_pipeline_t *p)
{
    tt_slices_begin_step(p);
    for (int i = 0; i < p->param_count; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        if (param->owner == p->rank && tutti_tensor_grad(param->tensor) != NULL) {
            TT_TRY(tt_slices_show(p, param));
        }
    }
    return TUTTI_OK;
}

/* Around calls of the optimizer: as if it were the caller's, and this rank alone. */
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
    if (v->options.scaler == NULL) {
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

/* ---- keeping --------------------------------------------------------------------------------- */

static tutti_status_t keep_tensor(const tutti_tensor_t *x, tutti_tensor_t **kept)
{
    if (x == NULL) {
        tt_tensors_release(kept, 1);
        return TUTTI_OK;
    }
    TT_TRY(*kept != NULL ? TUTTI_OK
                         : tt_tensor_new(x->storage->device, x->dtype, x->shape, false, kept));
    return tutti_tensor_copy(*kept, x);
}

static tutti_status_t put_back_tensor(tutti_tensor_t **x, const tutti_tensor_t *kept)
{
    if (*x != NULL && kept != NULL) {
        return tutti_tensor_copy(*x, kept);
    }
    tt_tensors_release(x, *x != NULL ? 1 : 0); /* the first step made it */
    return TUTTI_OK;
}

static tutti_status_t keep(tt_validation_t *v)
{
    for (size_t i = 0; i < v->slot_count; i++) {
        const tt_optim_slot_t *slot = &v->opt->slots[i];
        tt_kept_t *kept = &v->kept[i];
        const tutti_tensor_t *grad = tt_optim_grad(slot);
        kept->is_kept = grad != NULL;
        if (kept->is_kept) {
            kept->step = slot->step;
            TT_TRY(keep_tensor(slot->tensor, &kept->values));
            for (int m = 0; m < TT_MOMENTS_MAX; m++) {
                TT_TRY(keep_tensor(slot->moments[m], &kept->moments[m]));
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t undo(tt_validation_t *v)
{
    for (size_t i = 0; i < v->slot_count; i++) {
        tt_optim_slot_t *slot = &v->opt->slots[i];
        const tt_kept_t *kept = &v->kept[i];
        if (kept->is_kept) {
            slot->step = kept->step;
            TT_TRY(tutti_tensor_copy(slot->tensor, kept->values));
            for (int m = 0; m < TT_MOMENTS_MAX; m++) {
                TT_TRY(put_back_tensor(&slot->moments[m], kept->moments[m]));
            }
        }
    }
    return TUTTI_OK;
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

/* The norm's numbers, of this rank alone; without other ranks it is asked nothing. */
static tutti_status_t tell(tutti_pipeline_t *p, bool has_overflow)
{
    tt_validation_t *v = p->validation;
    tutti_tensor_release(v->numbers);
    v->numbers = NULL;
    TT_TRY(p->ranks > 1 ? measure_own(p) : TUTTI_OK);
    TT_TRY(v->numbers == NULL ? note_numbers(v, NULL, 0) : TUTTI_OK);
    double *numbers = tutti_tensor_data(v->numbers);
    numbers[LOSS] = tt_slices_loss(p, 0);
    numbers[OVERFLOWS] = has_overflow;
    return p->ranks > 1 ? tutti_all_reduce(p->group, v->numbers, TUTTI_SUM, &v->work) : TUTTI_OK;
}

tutti_status_t tt_validation_step(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    bool has_overflow;
    TT_TRY(unscale(p, &has_overflow));
    TT_TRY(tell(p, has_overflow));
    v->lr = tutti_optim_lr(v->opt, 0);
    tt_validation_mark(p, v->opt->decides);
    v->opt->is_undecided = true;
    v->has_stepped = !has_overflow; /* then nobody steps */
    if (has_overflow) {
        return TUTTI_OK;
    }
    TT_TRY(show_own(p));
    TT_TRY(keep(v));
    return step_alone(p);
}

/* ---- validation ------------------------------------------------------------------------------ */

/* Gradients become what they are clipped to. */
static tutti_status_t clip(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    p->answer = answer_all;
    const tutti_status_t status = measure(p, v->options.max_norm, &v->verdict.norm);
    p->answer = NULL;
    TT_TRY(status);
    v->verdict.was_clipped =
        !(tt_flat_clip_factor(v->verdict.norm, true, v->options.max_norm) >= 1);
    return TUTTI_OK;
}

/* By the rate that the step had. */
static tutti_status_t step_again(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    const double lr = tutti_optim_lr(v->opt, 0);
    TT_TRY(undo(v));
    tutti_optim_set_lr(v->opt, v->lr);
    const tutti_status_t status = step_alone(p);
    tutti_optim_set_lr(v->opt, lr);
    return status;
}

static tutti_status_t check_gradients(const tt_validation_t *v)
{
    for (size_t i = 0; i < v->slot_count && v->has_stepped; i++) {
        const tt_optim_slot_t *slot = &v->opt->slots[i];
        if (v->kept[i].is_kept && tutti_tensor_grad(slot->tensor) == NULL) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "the gradient of \"%s\" was forgotten before its step was validated: "
                           "call tutti_pipeline_validate() first; it forgets them itself",
                           slot->name);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t judge(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    TT_TRY(v->work != NULL ? tutti_work_wait(v->work, 0) : TUTTI_OK);
    TT_TRY(check_gradients(v));
    const double *numbers = tutti_tensor_data(v->numbers);
    const bool has_overflow = numbers[OVERFLOWS] > 0;
    v->verdict = (tutti_pipeline_verdict_t){
        .loss = numbers[LOSS], .norm = INFINITY, .was_skipped = has_overflow};
    TT_TRY(has_overflow ? TUTTI_OK : clip(p));
    if (has_overflow && v->has_stepped) {
        TT_TRY(undo(v));
    }
    TT_TRY(v->verdict.was_clipped ? step_again(p) : TUTTI_OK);
    if (v->options.scaler != NULL) {
        tt_scaler_end_step(v->options.scaler, has_overflow);
    }
    return has_overflow ? TUTTI_OK : tt_ties_share(p);
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
