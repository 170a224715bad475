/* A module that was built on meta, at stage 3: its parameters are made one after the other, and of
 * each this rank keeps its slice. So no rank has more than its slices and one parameter.
 *
 *     on meta ──open──> away, of the host ──move_in──> made, cut, given back     (ddp_unit_open.c)
 *
 * The values are those of the whole construction, for an initializer draws by the parameter's
 * number (tutti_tensor_materialize()); ranks compare what they would draw (ddp_check.c). Other
 * tensors, such as buffers and ignored ones, are made whole.
 *
 * With options.no_init nothing is drawn: slices are zeros until they are loaded or written.
 */
#include <tutti/devices.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

static const char unmade[] = "lay on meta, and is made by tutti_ddp_create()";

bool tt_ddp_is_on_meta(const tutti_tensor_t *x)
{
    return !tt_device_has_values(x->storage->device);
}

tutti_status_t tt_ddp_check_meta(const tutti_ddp_t *ddp, const char *name, const tutti_tensor_t *x)
{
    if (!tt_ddp_is_on_meta(x)) {
        return TUTTI_OK;
    }
    if (!tt_ddp_has_units(ddp)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "ddp: parameter %s lies on meta: call tutti_module_materialize() before, or "
                       "take options.stage 3, at which each rank makes its slices",
                       name);
    }
    return ddp->options.no_init ? TUTTI_OK : tt_init_check_known(x, name);
}

/* ---- leaving meta ---------------------------------------------------------------------------- */

static tutti_status_t take_all(tutti_ddp_t *ddp, const tt_tensor_list_t *list)
{
    tt_ddp_meta_t *meta = &ddp->meta;
    for (size_t i = 0; i < list->count; i++) {
        tutti_tensor_t *x = tt_listed(list, i);
        if (tt_ddp_is_on_meta(x)) {
            meta->unmade[meta->count++] =
                (tt_ddp_unmade_t){x, tutti_device_retain(x->storage->device)};
            TT_TRY(tt_storage_evict(x->storage, unmade));
            tt_storage_leave_device(x->storage);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t make_zeros(tutti_tensor_t *x)
{
    tutti_tensor_t *zeros;
    TT_TRY(tt_tensor_new(NULL, x->dtype, x->shape, true, &zeros));
    const tutti_status_t status = tt_leave_meta(x, zeros);
    tutti_tensor_release(zeros);
    return status;
}

/* Parameters have left already; those of other stages of a pipeline stay there. */
static tutti_status_t make_whole(void *user, const char *name, tutti_tensor_t *x)
{
    const tutti_ddp_t *ddp = user;
    if (!tt_ddp_is_on_meta(x) || tt_slice_is_elsewhere(x)) {
        return TUTTI_OK;
    }
    return ddp->options.no_init && tt_init_check_known(x, name) < 0
               ? make_zeros(x)
               : tutti_tensor_materialize(ddp->ctx, x, NULL);
}

static void mark_unloaded(tutti_ddp_t *ddp)
{
    for (int i = 0; ddp->options.no_init && i < ddp->units.param_count; i++) {
        const tutti_tensor_t *x = i < ddp->param_count
                                      ? ddp->params[i].tensor
                                      : tt_listed(&ddp->frozen, (size_t)(i - ddp->param_count));
        tt_unit_t *unit = tt_ddp_unit(ddp, ddp->units.unit_of[i]);
        unit->is_unloaded = unit->is_unloaded || tt_ddp_is_unmade(ddp, x);
    }
}

tutti_status_t tt_ddp_open_meta(tutti_ddp_t *ddp)
{
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    tt_ddp_meta_t *meta = &ddp->meta;
    meta->unmade =
        tt_alloc_array(ddp->list.count + ddp->frozen.count, sizeof *meta->unmade, "ddp meta");
    TT_TRY_ALLOC(meta->unmade);
    TT_TRY(take_all(ddp, &ddp->list));
    TT_TRY(take_all(ddp, &ddp->frozen));
    mark_unloaded(ddp);
    return tutti_module_each_tensor(ddp->module, make_whole, ddp);
}

/* ---- making ---------------------------------------------------------------------------------- */

bool tt_ddp_is_unmade(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    int i = 0;
    while (i < ddp->meta.count && ddp->meta.unmade[i].tensor != x) {
        i++;
    }
    return i < ddp->meta.count;
}

tutti_status_t tt_ddp_make_values(tutti_ddp_t *ddp, const tutti_tensor_t *x, tutti_tensor_t **out)
{
    *out = NULL;
    if (!tt_ddp_is_unmade(ddp, x)) {
        return TUTTI_OK;
    }
    return ddp->options.no_init ? tt_tensor_new(NULL, x->dtype, x->shape, true, out)
                                : tt_init_make(ddp->ctx, x, NULL, out);
}

static void forget(tt_ddp_unmade_t *at)
{
    tutti_device_release(at->meta);
    at->meta = NULL;
}

void tt_ddp_note_made(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->meta.count; i++) {
        tt_storage_t *storage = ddp->meta.unmade[i].tensor->storage;
        tt_free(storage->initializer);
        storage->initializer = NULL;
        forget(&ddp->meta.unmade[i]);
    }
    ddp->meta.count = 0;
}

void tt_ddp_note_loaded(tutti_ddp_t *ddp)
{
    for (int u = 0; u < ddp->units.count; u++) {
        tt_ddp_unit(ddp, u)->is_unloaded = false;
    }
}

/* The first one; -1: none. */
static int find_unloaded(const tutti_ddp_t *ddp)
{
    for (int u = 0; u < ddp->units.count; u++) {
        if (tt_ddp_unit(ddp, u)->is_unloaded) {
            return u;
        }
    }
    return -1;
}

void tt_ddp_note_written(tutti_ddp_t *ddp, int unit)
{
    if (!tt_ddp_unit(ddp, unit)->is_kept) {
        tt_ddp_unit(ddp, unit)->is_unloaded = false;
    }
    const int left = find_unloaded(ddp);
    if (left >= 0 && tt_ddp_unit(ddp, left)->is_kept) { /* it is the last unit of all */
        tt_ddp_unit(ddp, left)->is_unloaded = false;
    }
}

tutti_status_t tt_ddp_check_loaded(const tutti_ddp_t *ddp)
{
    char name[TT_MODULE_NAME_BYTES + 32];
    const int unit = find_unloaded(ddp);
    return unit < 0 ? TUTTI_OK
                    : TT_FAIL(TUTTI_ERR_STATE,
                              "ddp: parameters of %s have no values yet (options.no_init): load a "
                              "checkpoint, or write them between tutti_ddp_summon() and "
                              "tutti_ddp_dismiss()",
                              tt_ddp_unit_name(tt_ddp_unit(ddp, unit), name, sizeof name));
}

/* What was not made is on meta as before. */
void tt_ddp_close_meta(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->meta.count; i++) {
        tt_ddp_unmade_t *at = &ddp->meta.unmade[i];
        tt_storage_t *storage = at->tensor->storage;
        if (storage->away == NULL) { /* of a unit that is kept, and had come */
            (void)tt_storage_evict(storage, unmade);
        }
        if (tt_storage_refill(storage, at->meta) >= 0) {
            (void)tt_storage_publish(storage); /* it has just been refilled */
        }
        forget(at);
    }
    tt_free(ddp->meta.unmade);
}
