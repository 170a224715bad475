/* Mixed precision: while a step lasts, the module's f32 parameters are 16-bit copies of themselves.
 *
 *     between steps      tensor: f32        other: 16 bits    gradient: f32, the bucket's result
 *     in a step          tensor: 16 bits    other: f32        gradient: 16 bits, in the bucket
 *
 * Tensors take over each other's memory, so that the holder of a parameter holds it all the time.
 * Of parameters of options.f32_kinds both are f32, or there is no other. What nodes have saved
 * keeps its memory. A copy is made again if the f32 values were written.
 *
 * Cost: half as much memory again as the parameters; a pass over them each step. Source: PyTorch's
 * DDP, _MixedPrecision(param_dtype, reduce_dtype, buffer_dtype).
 */
#include <tutti/op_shape.h>

#include "comm/group/transient.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

static bool is_mixed(const tutti_ddp_t *ddp)
{
    return ddp->options.param_dtype != TUTTI_F32;
}

/* ---- making and releasing -------------------------------------------------------------------- */

/* At stage 3 its memory comes and goes with its unit; so does that of one that stays f32, which
 * elsewhere needs none. */
static tutti_status_t open_other(const tutti_ddp_t *ddp, const tutti_tensor_t *x,
                                 tutti_tensor_t **out)
{
    const bool stays = tt_ddp_stays_f32(ddp, x);
    const tutti_dtype_t dtype = stays ? TUTTI_F32 : ddp->options.param_dtype;
    *out = NULL;
    if (stays && !tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    return tt_ddp_has_units(ddp) ? tt_group_tensor_away(dtype, x->shape, "its unit is sharded", out)
                                 : tt_tensor_new(x->storage->device, dtype, x->shape, true, out);
}

static tutti_status_t add_copies(tutti_ddp_t *ddp, const tt_tensor_list_t *list)
{
    tt_ddp_mixed_t *mixed = &ddp->mixed;
    for (size_t i = 0; i < list->count; i++) {
        tutti_tensor_t *x = tt_listed(list, i), *other;
        if (x->dtype != TUTTI_F32) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ddp: parameter %s is %s: options.param_dtype makes 16-bit copies of "
                           "f32 parameters alone",
                           list->items[i].name, tutti_dtype_name(x->dtype));
        }
        TT_TRY(open_other(ddp, x, &other));
        mixed->copies[mixed->count++] = (tt_ddp_copy_t){.name = list->items[i].name,
                                                        .tensor = x,
                                                        .other = other,
                                                        .version = x->storage->version - 1};
    }
    return TUTTI_OK;
}

static bool is_cast(const void *user, const tutti_tensor_t *buffer)
{
    return !tt_ddp_is_ignored(user, buffer) && !tt_ddp_stays_f32(user, buffer);
}

tutti_status_t tt_ddp_open_mixed(tutti_ddp_t *ddp)
{
    if (ddp->options.buffer_dtype != TUTTI_F32) {
        TT_TRY(tt_module_cast_buffers(ddp->module, ddp->options.buffer_dtype, is_cast, ddp));
    }
    if (!is_mixed(ddp)) {
        return TUTTI_OK;
    }
    tt_ddp_mixed_t *mixed = &ddp->mixed;
    mixed->copies = tt_alloc_array(ddp->list.count + ddp->frozen.count, sizeof *mixed->copies,
                                   "ddp mixed precision");
    TT_TRY_ALLOC(mixed->copies);
    TT_TRY(add_copies(ddp, &ddp->list));
    return add_copies(ddp, &ddp->frozen);
}

/* ---- in a step, and between two -------------------------------------------------------------- */

/* The source of units rounds slices; other values they are nevertheless. */
static tutti_status_t round_copy(const tutti_ddp_t *ddp, const tt_ddp_copy_t *copy)
{
    if (tt_ddp_has_units(ddp)) {
        tt_tensor_touch(copy->other);
        return TUTTI_OK;
    }
    return tt_tensor_convert(tt_tensor_exec(ddp->ctx, copy->tensor), copy->other, copy->tensor);
}

static tutti_status_t swap_copy_to_low(const tutti_ddp_t *ddp, tt_ddp_copy_t *copy)
{
    if (copy->other != NULL && !copy->is_low) {
        if (copy->version != copy->tensor->storage->version) {
            TT_TRY(round_copy(ddp, copy));
            copy->version = copy->tensor->storage->version;
            copy->low_version = copy->other->storage->version;
        }
        tt_tensor_swap(copy->tensor, copy->other);
        copy->is_low = true;
    }
    return TUTTI_OK;
}

static tutti_status_t swap_copy_to_f32(tt_ddp_copy_t *copy)
{
    if (!copy->is_low) {
        return TUTTI_OK;
    }
    tt_tensor_swap(copy->tensor, copy->other);
    copy->is_low = false;
    return copy->other->storage->version == copy->low_version
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: parameter %s was written in a step, in which it is a copy in %s: "
                         "write it between steps",
                         copy->name, tutti_dtype_name(copy->other->dtype));
}

tutti_status_t tt_ddp_swap_to_low(tutti_ddp_t *ddp)
{
    if (!is_mixed(ddp) || tt_ddp_shard_count(ddp) == 0) {
        return TUTTI_OK;
    }
    for (int i = 0; i < ddp->mixed.count; i++) {
        TT_TRY(swap_copy_to_low(ddp, &ddp->mixed.copies[i]));
    }
    for (int i = 0; i < ddp->param_count; i++) {
        TT_TRY(tutti_tensor_set_grad(ddp->params[i].tensor, ddp->reducer->slots[i].grad));
    }
    return TUTTI_OK;
}

static tutti_status_t give_result(const tutti_ddp_t *ddp, int param)
{
    return tutti_tensor_set_grad(ddp->params[param].tensor, ddp->reducer->slots[param].result);
}

tutti_status_t tt_ddp_swap_bucket_to_f32(tutti_ddp_t *ddp, int bucket)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[bucket];
    for (int k = 0; is_mixed(ddp) && k < spec->param_count; k++) {
        const int i = plan->members[spec->first + k];
        TT_TRY(swap_copy_to_f32(&ddp->mixed.copies[i]));
        TT_TRY(give_result(ddp, i));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_swap_to_f32(tutti_ddp_t *ddp)
{
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < ddp->mixed.count; i++) { /* all of them, also if one fails */
        const tutti_status_t one = swap_copy_to_f32(&ddp->mixed.copies[i]);
        status = status < 0 ? status : one;
    }
    TT_TRY(status);
    for (int i = 0; is_mixed(ddp) && i < ddp->reducer->plan.param_count; i++) {
        TT_TRY(give_result(ddp, i));
    }
    return TUTTI_OK;
}

void tt_ddp_close_mixed(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->mixed.count; i++) {
        (void)swap_copy_to_f32(&ddp->mixed.copies[i]);
        tutti_tensor_release(ddp->mixed.copies[i].other);
    }
    tt_free(ddp->mixed.copies);
}

tutti_tensor_t *tutti_ddp_forward(tutti_scope_t *s, tutti_ddp_t *ddp, tutti_tensor_t *x)
{
    if (is_mixed(ddp) && tutti_tensor_status(x) >= 0 && tutti_dtype_is_float(x->dtype)) {
        x = tutti_cast(s, x, ddp->options.param_dtype);
    }
    return tutti_forward(s, ddp->module, x);
}
