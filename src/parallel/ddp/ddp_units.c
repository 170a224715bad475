/* Parameters of units: they come and go.
 *
 * A parameter keeps its tensors and storages; the memory is the flat's whole, which is lent while
 * it is there. Under mixed precision it has two storages, for FULL and for COMPUTE. */
#include "parallel/ddp/ddp_units.h"

#include <string.h>

#include "compute/nn/module_impl.h"
#include "parallel/ddp/ddp_impl.h"

tt_unit_kind_t tt_ddp_unit_kind(const tutti_ddp_t *ddp)
{
    return ddp->options.param_dtype != TUTTI_F32 && ddp->step.phase != TT_DDP_BETWEEN_STEPS
               ? TT_UNIT_COMPUTE
               : TT_UNIT_FULL;
}

static int unit_of_flat(const tutti_ddp_t *ddp, int flat)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    return flat < plan->bucket_count ? plan->buckets[flat].unit
                                     : ddp->units.frozen.buckets[flat - plan->bucket_count].unit;
}

size_t tt_ddp_unit_bytes(const tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind)
{
    const tt_unit_source_t *source = &ddp->units.source;
    size_t bytes = 0;
    for (int f = 0; f < source->flat_count; f++) {
        const tt_unit_flat_t *flat = &source->flats[f];
        bytes += unit_of_flat(ddp, f) == unit
                     ? (size_t)flat->numel * tutti_dtype_bytes(flat->dtypes[kind])
                     : 0;
    }
    return bytes;
}

/* ---- coming and going ------------------------------------------------------------------------ */

static void leave_flats(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind)
{
    tt_unit_source_t *source = &ddp->units.source;
    for (int f = 0; f < source->flat_count; f++) {
        if (unit_of_flat(ddp, f) == unit) {
            source->ops->leave(source, f, kind);
        }
    }
}

tutti_status_t tt_ddp_unit_start(tutti_ddp_t *ddp, int index, tt_unit_kind_t kind)
{
    tt_unit_source_t *source = &ddp->units.source;
    tt_unit_t *unit = &ddp->units.units[index];
    tutti_status_t status = TUTTI_OK;
    TT_ASSERT(unit->states[kind] == TT_UNIT_AWAY || unit->states[kind] == TT_UNIT_NEAR);
    unit->started_ns = tutti_trace_now();
    for (int f = 0; f < source->flat_count && status >= 0; f++) {
        if (unit_of_flat(ddp, f) == index) {
            status = source->ops->start(source, f, kind);
        }
    }
    unit->states[kind] = TT_UNIT_COMING; /* some flats, where it failed: leave undoes it */
    return status;
}

static void return_whole(tt_storage_t *storage)
{
    tutti_tensor_release(storage->owner);
}

static tutti_status_t lend(tt_unit_param_t *param, tutti_tensor_t *whole, tt_unit_kind_t kind)
{
    tt_storage_t *storage = param->storages[kind];
    char *place =
        (char *)tt_tensor_data(whole) + param->offset * (int64_t)tutti_dtype_bytes(whole->dtype);
    TT_TRY(tt_storage_lend(storage, place, return_whole, tutti_tensor_retain(whole)));
    param->versions[kind] = storage->version;
    return tt_storage_publish(storage);
}

static void trace_arrival(const tutti_ddp_t *ddp, const tt_unit_t *unit)
{
    char name[TT_MODULE_NAME_BYTES + 32];
    if (ddp->options.trace != NULL) {
        tutti_trace_event(ddp->options.trace, "gather", tt_ddp_unit_name(unit, name, sizeof name),
                          unit->started_ns, tutti_trace_now());
    }
}

tutti_status_t tt_ddp_unit_wait(tutti_ddp_t *ddp, int index, tt_unit_kind_t kind)
{
    tt_ddp_units_t *units = &ddp->units;
    tt_unit_source_t *source = &units->source;
    tt_unit_t *unit = &units->units[index];
    if (unit->states[kind] == TT_UNIT_THERE) {
        return TUTTI_OK;
    }
    for (int f = 0; f < source->flat_count; f++) {
        if (unit_of_flat(ddp, f) == index) {
            TT_TRY(source->ops->wait(source, f, kind));
        }
    }
    unit->states[kind] = TT_UNIT_THERE;
    trace_arrival(ddp, unit);
    for (int i = 0; i < units->param_count; i++) {
        tt_unit_param_t *param = &units->params[i];
        if (param->unit == index) {
            TT_TRY(lend(param, source->flats[param->flat].whole[kind], kind));
        }
    }
    return TUTTI_OK;
}

/* Takes the memory back. STATE: somebody wrote it. */
static tutti_status_t take_back(const tt_unit_param_t *param, const char *reason,
                                tt_unit_kind_t kind)
{
    tt_storage_t *storage = param->storages[kind];
    if (storage->away != NULL) {
        return TUTTI_OK;
    }
    (void)tt_storage_evict(storage, reason); /* it is there */
    return storage->version == param->versions[kind]
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: parameter %s was written while its unit was whole, which is to be "
                         "read alone: what was written is lost, or has changed this rank's slice: "
                         "write it between tutti_ddp_summon() and tutti_ddp_dismiss()",
                         param->name);
}

static tutti_status_t take_all_back(const tutti_ddp_t *ddp, int index, tt_unit_kind_t kind)
{
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < ddp->units.param_count; i++) {
        const tt_unit_param_t *param = &ddp->units.params[i];
        if (param->unit == index) {
            const tutti_status_t one = take_back(param, ddp->units.units[index].reason, kind);
            status = status < 0 ? status : one;
        }
    }
    return status;
}

tutti_status_t tt_ddp_unit_leave(tutti_ddp_t *ddp, int index, tt_unit_kind_t kind)
{
    tt_unit_t *unit = &ddp->units.units[index];
    if (unit->states[kind] == TT_UNIT_AWAY) {
        return TUTTI_OK;
    }
    const tutti_status_t status = take_all_back(ddp, index, kind);
    leave_flats(ddp, index, kind);
    unit->states[kind] = TT_UNIT_AWAY;
    return status;
}

tutti_status_t tt_ddp_unit_keep(tutti_ddp_t *ddp, int index, tt_unit_kind_t kind)
{
    tt_unit_source_t *source = &ddp->units.source;
    tt_unit_t *unit = &ddp->units.units[index];
    if (unit->states[kind] == TT_UNIT_AWAY || unit->states[kind] == TT_UNIT_NEAR) {
        return TUTTI_OK;
    }
    TT_TRY(tt_ddp_unit_wait(ddp, index, kind));
    const tutti_status_t written = take_all_back(ddp, index, kind);
    unit->states[kind] = TT_UNIT_NEAR; /* some flats, where it fails: leave undoes it */
    for (int f = 0; f < source->flat_count; f++) {
        if (unit_of_flat(ddp, f) == index) {
            TT_TRY(source->ops->keep(source, f, kind));
        }
    }
    return written;
}

static tutti_status_t write_flat(tutti_ddp_t *ddp, int flat)
{
    const tutti_tensor_t *whole = ddp->units.source.flats[flat].whole[TT_UNIT_FULL];
    tutti_tensor_t *slice = tt_ddp_unit_slice(ddp, flat);
    const int64_t begin = tt_ddp_unit_cuts(ddp, flat)[tutti_group_rank(ddp->group)];
    if (whole->storage->data != slice->storage->data) {
        memcpy(tt_tensor_data(slice),
               (const char *)tt_tensor_data(whole) +
                   begin * (int64_t)tutti_dtype_bytes(whole->dtype),
               tutti_tensor_bytes(slice));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_unit_write_back(tutti_ddp_t *ddp, int index)
{
    tt_ddp_units_t *units = &ddp->units;
    for (int i = 0; i < units->param_count; i++) {
        tt_unit_param_t *param = &units->params[i];
        if (param->unit == index) {
            param->versions[TT_UNIT_FULL] = param->storages[TT_UNIT_FULL]->version;
        }
    }
    for (int f = 0; f < units->source.flat_count; f++) {
        if (unit_of_flat(ddp, f) == index) {
            TT_TRY(tt_ddp_has_store(ddp) ? tt_ddp_store_flat(ddp, f) : write_flat(ddp, f));
        }
        tt_tensor_touch(tt_ddp_unit_slice(ddp, f));
    }
    return TUTTI_OK;
}

void tt_ddp_units_copy(tutti_ddp_t *ddp, bool is_on)
{
    ddp->units.source.copies = is_on;
}

tutti_status_t tt_ddp_check_dismissed(const tutti_ddp_t *ddp, const char *what)
{
    return ddp->summons.is_on && ddp->summons.writes
               ? TT_FAIL(TUTTI_ERR_STATE,
                         "%s: parameters are summoned for writing: call tutti_ddp_dismiss() first",
                         what)
               : TUTTI_OK;
}
