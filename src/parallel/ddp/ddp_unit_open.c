/* Units are made: their parameters move into flats, of which each rank keeps a slice. And they end:
 * what is whole then stays with the parameters. */
#include <stdlib.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/transient.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"
#include "parallel/reduce/slice_plan.h"

static const char released[] = "its tutti_ddp_t was released while it was sharded: call "
                               "tutti_ddp_unshard() on all ranks before";

static const char lost[] = "its tutti_ddp_t was released, and there was no memory for the whole";

/* ---- opening --------------------------------------------------------------------------------- */

/* Those of a flat are computed with in one dtype: as which, the plan has. */
static tutti_dtype_t compute_dtype(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    return x->dtype == TUTTI_F32 && !tt_ddp_stays_f32(ddp, x) ? ddp->options.param_dtype : x->dtype;
}

static tutti_status_t plan_frozen(tutti_ddp_t *ddp)
{
    const size_t count = ddp->frozen.count;
    tt_bucket_param_t *specs = tt_alloc_array(count, sizeof *specs, "ddp units");
    TT_TRY_ALLOC(specs);
    for (size_t i = 0; i < count; i++) {
        const tutti_tensor_t *x = tt_listed(&ddp->frozen, i);
        specs[i] = (tt_bucket_param_t){.numel = x->numel,
                                       .dtype = compute_dtype(ddp, x),
                                       .unit = ddp->units.unit_of[ddp->param_count + (int)i]};
    }
    const tutti_status_t status =
        tt_bucket_plan_init(specs, (int)count, NULL, ddp->options.bucket_bytes,
                            ddp->options.bucket_bytes, &ddp->units.frozen);
    tt_free(specs);
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const tt_slice_param_t *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Cuts of a flat of frozen parameters, behind those of the buckets; `members`: room for all of
 * them. */
static void cut_frozen(tutti_ddp_t *ddp, int flat, tt_slice_param_t *members)
{
    const tt_bucket_plan_t *plan = &ddp->units.frozen;
    const tt_bucket_spec_t *spec = &plan->buckets[flat];
    const int ranks = tutti_group_size(ddp->group);
    int64_t *cuts = ddp->units.cuts[2 * flat], *counts = ddp->units.cuts[2 * flat + 1];
    for (int k = 0; k < spec->param_count; k++) {
        const int i = plan->members[spec->first + k];
        const tutti_tensor_t *x = tt_listed(&ddp->frozen, (size_t)i);
        members[k] = (tt_slice_param_t){plan->slots[i].offset, x->numel, tt_ddp_grain(ddp, x)};
    }
    qsort(members, (size_t)spec->param_count, sizeof *members, by_offset);
    const tt_slice_flat_t cut = {members, spec->param_count, spec->numel};
    tt_slice_plan(&cut, ranks, ddp->reducer->totals, cuts);
    for (int r = 0; r < ranks; r++) {
        counts[r] = cuts[r + 1] - cuts[r];
    }
}

static tutti_status_t cut_all_frozen(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    const size_t flats = (size_t)units->frozen.bucket_count,
                 ranks = (size_t)tutti_group_size(ddp->group);
    units->cuts = tt_alloc_array(2 * flats, sizeof(int64_t *), "ddp units");
    TT_TRY_ALLOC(units->cuts);
    for (size_t i = 0; i < 2 * flats; i++) {
        units->cuts[i] = tt_alloc_array(ranks + 1, sizeof(int64_t), "ddp units");
        TT_TRY_ALLOC(units->cuts[i]);
    }
    tt_slice_param_t *members = tt_alloc_array(ddp->frozen.count, sizeof *members, "ddp units");
    TT_TRY_ALLOC(members);
    for (size_t f = 0; f < flats; f++) {
        cut_frozen(ddp, (int)f, members);
    }
    tt_free(members);
    return TUTTI_OK;
}

static tt_unit_flat_t flat_of(const tutti_ddp_t *ddp, const tt_bucket_spec_t *spec,
                              tutti_dtype_t full, const int64_t *cuts, const int64_t *counts)
{
    return (tt_unit_flat_t){.name = tt_ddp_unit(ddp, spec->unit)->name,
                            .dtypes = {full, spec->dtype},
                            .numel = cuts[tutti_group_size(ddp->group)],
                            .cuts = cuts,
                            .counts = counts};
}

static tutti_status_t list_flats(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const int buckets = plan->bucket_count, count = buckets + units->frozen.bucket_count;
    tt_unit_flat_t *flats = tt_alloc_array((size_t)count, sizeof *flats, "ddp units");
    TT_TRY_ALLOC(flats);
    units->source.flats = flats;
    units->source.flat_count = count;
    for (int b = 0; b < buckets; b++) {
        const tt_bucket_t *bucket = &ddp->reducer->buckets[b];
        const tutti_tensor_t *x = ddp->params[plan->members[plan->buckets[b].first]].tensor;
        flats[b] = flat_of(ddp, &plan->buckets[b], x->dtype, bucket->cuts, bucket->counts);
    }
    for (int f = 0; f < units->frozen.bucket_count; f++) {
        const tt_bucket_spec_t *spec = &units->frozen.buckets[f];
        const tutti_tensor_t *x =
            tt_listed(&ddp->frozen, (size_t)units->frozen.members[spec->first]);
        flats[buckets + f] =
            flat_of(ddp, spec, x->dtype, units->cuts[2 * f], units->cuts[2 * f + 1]);
    }
    return TUTTI_OK;
}

static tutti_status_t list_params(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    units->params = tt_alloc_array((size_t)units->param_count, sizeof *units->params, "ddp units");
    TT_TRY_ALLOC(units->params);
    for (int i = 0; i < units->param_count; i++) {
        const bool is_frozen = i >= ddp->param_count;
        const size_t at = (size_t)(is_frozen ? i - ddp->param_count : i);
        const tt_tensor_list_t *list = is_frozen ? &ddp->frozen : &ddp->list;
        const tt_bucket_slot_t slot = (is_frozen ? &units->frozen : &ddp->reducer->plan)->slots[at];
        tutti_tensor_t *x = tt_listed(list, at);
        tt_unit_param_t *param = &units->params[i];
        *param = (tt_unit_param_t){.name = list->items[at].name,
                                   .tensor = x,
                                   .unit = units->unit_of[i],
                                   .flat = slot.bucket +
                                           (is_frozen ? ddp->reducer->plan.bucket_count : 0),
                                   .offset = slot.offset};
        tt_storage_retain(param->storages[TT_UNIT_FULL] = x->storage);
        if (ddp->options.param_dtype != TUTTI_F32) {
            tt_storage_retain(param->storages[TT_UNIT_COMPUTE] =
                                  ddp->mixed.copies[i].other->storage);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(tutti_ddp_t *ddp, const tt_unit_source_ops_t *ops)
{
    TT_TRY(plan_frozen(ddp));
    TT_TRY(cut_all_frozen(ddp));
    TT_TRY(list_flats(ddp));
    TT_TRY(tt_ddp_cut_rows(ddp));
    TT_TRY(list_params(ddp));
    TT_TRY(tt_ddp_open_store(ddp));
    return tt_ddp_open_order(ddp, ops);
}

/* Whole values go; what was on meta has none. */
static tutti_status_t leave_memory(const tutti_ddp_t *ddp, const tt_unit_param_t *param)
{
    tt_storage_t *storage = param->storages[TT_UNIT_FULL];
    const char *reason = ddp->units.units[param->unit].reason;
    if (storage->away == NULL) {
        return tt_storage_evict(storage, reason);
    }
    storage->away = reason;
    return TUTTI_OK;
}

/* This rank's slice of the values goes into the flat. */
static tutti_status_t move_in(tutti_ddp_t *ddp, tt_unit_param_t *param)
{
    const int64_t *cuts = tt_ddp_unit_cuts(ddp, param->flat) + tutti_group_rank(ddp->group);
    tt_storage_t *storage = param->storages[TT_UNIT_FULL];
    const int64_t bytes = (int64_t)tutti_dtype_bytes(param->tensor->dtype);
    const int64_t begin = tt_max(cuts[0], param->offset),
                  end = tt_min(cuts[1], param->offset + param->tensor->numel);
    if (begin < end) {
        tutti_tensor_t *made;
        TT_TRY(tt_ddp_make_values(ddp, param->tensor, &made));
        const char *from = made != NULL ? tt_tensor_data(made) : storage->data;
        memcpy((char *)tt_tensor_data(tt_ddp_unit_slice(ddp, param->flat)) +
                   (begin - cuts[0]) * bytes,
               from + (begin - param->offset) * bytes, (size_t)((end - begin) * bytes));
        tutti_tensor_release(made);
    }
    return leave_memory(ddp, param);
}

/* A flat at a time. */
static tutti_status_t move_to_disk(tutti_ddp_t *ddp)
{
    const tt_ddp_units_t *units = &ddp->units;
    for (int f = 0; f < units->source.flat_count; f++) {
        TT_TRY(tt_ddp_store_flat(ddp, f));
        for (int i = 0; i < units->param_count; i++) {
            const tt_unit_param_t *param = &units->params[i];
            TT_TRY(param->flat == f ? leave_memory(ddp, param) : TUTTI_OK);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t move_all_in(tutti_ddp_t *ddp)
{
    TT_TRY(tt_ddp_open_row_slices(ddp));
    TT_TRY(tt_ddp_open_unit_slices(ddp));
    TT_TRY(tt_ddp_has_store(ddp) ? move_to_disk(ddp) : TUTTI_OK);
    for (int i = 0; i < ddp->units.param_count && !tt_ddp_has_store(ddp); i++) {
        TT_TRY(move_in(ddp, &ddp->units.params[i]));
    }
    return tt_ddp_hook_units(ddp);
}

/* Memory of the root, of as many others as are there at once, and of what is near of all, stays
 * while they are away. */
static void keep_memory(tutti_ddp_t *ddp)
{
    const tt_unit_kind_t kind =
        ddp->options.param_dtype == TUTTI_F32 ? TT_UNIT_FULL : TT_UNIT_COMPUTE;
    size_t most = 0, all = 0;
    for (int u = 1; u < ddp->units.count; u++) {
        const size_t bytes = tt_ddp_unit_bytes(ddp, u, kind);
        most = tt_max_size(most, bytes);
        all += bytes;
    }
    const size_t at_once = (size_t)(1 + ddp->order.turns.most_ahead) * most,
                 near = ddp->units.near_ranks > 0 ? all / (size_t)ddp->units.near_ranks : 0;
    ddp->units.kept_bytes =
        (int64_t)(tt_ddp_unit_bytes(ddp, 0, kind) + tt_min_size(at_once, all) + near);
    tt_group_keep_memory(ddp->units.group, ddp->units.kept_bytes);
}

static tutti_status_t open_source(tutti_ddp_t *ddp, const tt_unit_source_ops_t *ops)
{
    tt_unit_source_t *source = &ddp->units.source;
    source->group = ddp->units.group;
    source->ctx = ddp->ctx;
    source->near_ranks = ddp->units.near_ranks;
    tt_ddp_read_from_store(ddp);
    TT_TRY(tt_unit_source_open(ops, source));
    if (!ops->is_common && tutti_group_size(ddp->group) > 1) {
        keep_memory(ddp);
    }
    return tt_ddp_units_claim(ddp);
}

/* Ranks of one row know what one of them fails of: those of other rows are told. */
tutti_status_t tt_ddp_open_units(tutti_ddp_t *ddp)
{
    tutti_group_t *all = ddp->group;
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    const tt_unit_source_ops_t *ops = &tt_unit_gather;
    TT_TRY(tt_ddp_open_rows(ddp));
    TT_TRY(tt_group_agree(
        all, tt_ddp_has_store(ddp)
                 ? TUTTI_OK
                 : tt_unit_source_choose(ddp->units.group, ddp->units.near_ranks, &ops)));
    TT_TRY(tt_group_agree(all, prepare(ddp, ops)));
    TT_TRY(tt_group_agree(all, open_source(ddp, ops)));
    TT_TRY(tt_group_agree(all, move_all_in(ddp)));
    TT_TRY(tt_group_agree(all, tt_ddp_units_show(ddp)));
    tt_ddp_note_made(ddp);
    return TUTTI_OK;
}

/* Memory that other ranks have, too, is no parameter's alone. */
static void make_own(tt_storage_t *storage)
{
    tt_storage_t *copy;
    if (tt_storage_new(NULL, storage->bytes, false, &copy) < 0) {
        (void)tt_storage_evict(storage, lost);
        return;
    }
    memcpy(copy->data, storage->data, storage->bytes);
    tt_storage_swap(storage, copy);
    tt_storage_release(copy);
}

/* What is whole stays with the parameters. */
static void let_go(tt_unit_param_t *param, bool is_common)
{
    for (tt_unit_kind_t kind = TT_UNIT_FULL; kind < TT_UNIT_KINDS; kind++) {
        tt_storage_t *storage = param->storages[kind];
        if (storage != NULL && storage->away != NULL) {
            storage->away = released;
        } else if (storage != NULL && is_common) {
            make_own(storage);
        }
        tt_storage_release(storage);
    }
}

void tt_ddp_close_units(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    const bool is_common = units->source.ops != NULL && units->source.ops->is_common;
    tt_ddp_unhook_units(ddp);
    for (int i = 0; units->params != NULL && i < units->param_count; i++) {
        let_go(&units->params[i], is_common);
    }
    tt_ddp_close_rows(ddp);
    tt_ddp_close_store(ddp);
    tt_unit_source_close(&units->source);
    tt_ddp_close_order(ddp);
    for (int i = 0; units->cuts != NULL && i < 2 * units->frozen.bucket_count; i++) {
        tt_free(units->cuts[i]);
    }
    tt_free(units->cuts);
    tt_free(units->params);
    tt_free(units->source.flats);
    tt_bucket_plan_fini(&units->frozen);
    tt_ddp_forget_rows(ddp);
    tt_ddp_forget_units(ddp);
    if (units->group != NULL) {
        tt_group_keep_memory(units->group, -units->kept_bytes);
    }
    tutti_group_release(units->group);
}
