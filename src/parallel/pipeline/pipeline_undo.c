/* Steps that may be undone: a copy of what an optimizer is about to change. Of each parameter it is
 * what this rank steps: all of it, or its slice; moments have that length, too.
 *
 *     keep        values, moments ──► copies, made at the first step
 *     put_back    values, moments ◄── copies; what the step itself has made goes
 *
 * Cost: this rank's bytes of parameters and moments, in memory and in a pass for each call.
 */
#include "parallel/pipeline/pipeline_undo.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

/* Of a slot of the optimizer, before the step. */
struct tt_undo_slot {
    tutti_tensor_t *values, *moments[TT_MOMENTS_MAX]; /* owned; NULL: there was none */
    int64_t step;
    bool is_kept;
};

tutti_status_t tt_undo_open(tutti_optim_t *opt, tt_undo_t *undo)
{
    *undo = (tt_undo_t){.opt = opt, .slot_count = opt->slot_count};
    undo->slots = tt_alloc_array(undo->slot_count, sizeof *undo->slots, "pipeline validation");
    TT_TRY_ALLOC(undo->slots);
    return TUTTI_OK;
}

void tt_undo_close(tt_undo_t *undo)
{
    for (size_t i = 0; undo->slots != NULL && i < undo->slot_count; i++) {
        tutti_tensor_release(undo->slots[i].values);
        tt_tensors_release(undo->slots[i].moments, TT_MOMENTS_MAX);
    }
    tt_free(undo->slots);
    *undo = (tt_undo_t){0};
}

bool tt_undo_has(const tt_undo_t *undo, size_t slot)
{
    return undo->slots[slot].is_kept;
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

/* A module may have been cast since the first step: masters have no copy. */
static tutti_status_t check_dtype(const tt_optim_slot_t *slot)
{
    return slot->tensor->dtype == TUTTI_F32
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "\"%s\" is of 16 bits now, with a master elsewhere: take "
                         "tutti_pipeline_post_validate() away before a cast",
                         slot->name);
}

static tutti_status_t keep_slot(const tt_optim_slot_t *slot, tt_undo_slot_t *kept)
{
    kept->is_kept = tt_optim_grad(slot) != NULL;
    if (!kept->is_kept) {
        return TUTTI_OK;
    }
    TT_TRY(check_dtype(slot));
    kept->step = slot->step;
    TT_TRY(keep_tensor(tt_optim_weight(slot), &kept->values));
    for (int m = 0; m < TT_MOMENTS_MAX; m++) {
        TT_TRY(keep_tensor(slot->moments[m], &kept->moments[m]));
    }
    return TUTTI_OK;
}

tutti_status_t tt_undo_keep(tt_undo_t *undo)
{
    for (size_t i = 0; i < undo->slot_count; i++) {
        TT_TRY(keep_slot(&undo->opt->slots[i], &undo->slots[i]));
    }
    return TUTTI_OK;
}

/* ---- undoing --------------------------------------------------------------------------------- */

static tutti_status_t put_back_tensor(tutti_tensor_t **x, const tutti_tensor_t *kept)
{
    if (*x != NULL && kept != NULL) {
        return tutti_tensor_copy(*x, kept);
    }
    tt_tensors_release(x, *x != NULL ? 1 : 0); /* the first step made it */
    return TUTTI_OK;
}

static tutti_status_t put_back_slot(tt_optim_slot_t *slot, const tt_undo_slot_t *kept)
{
    slot->step = kept->step;
    TT_TRY(tutti_tensor_copy(tt_optim_weight(slot), kept->values));
    for (int m = 0; m < TT_MOMENTS_MAX; m++) {
        TT_TRY(put_back_tensor(&slot->moments[m], kept->moments[m]));
    }
    return TUTTI_OK;
}

tutti_status_t tt_undo_put_back(tt_undo_t *undo)
{
    for (size_t i = 0; i < undo->slot_count; i++) {
        TT_TRY(undo->slots[i].is_kept ? put_back_slot(&undo->opt->slots[i], &undo->slots[i])
                                      : TUTTI_OK);
    }
    return TUTTI_OK;
}
