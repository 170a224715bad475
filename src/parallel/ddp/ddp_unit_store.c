/* Slices on a disk: what this rank steps of units lies in a file without a name, and so do the
 * averages of its gradients (options.offload, decision 0039).
 *
 *     file     | flat 0: a b c | flat 1: d e | … | gradients of bucket 0: a b c | …
 *              values: each parameter's slice begins at a block; a flat is one range
 *
 *     forward, backward    a unit that is started reads its flats (bring), by a ring of its own, in
 *                          the order of the step before, and gathers them
 *     backward, finish     an average that has come back is written, and its memory goes
 *     step                 the optimizer's state is on the same disk (optim_offload.h): chunks of
 *                          weight, gradient and state come by the device's ring, and go behind it
 *
 * Both rings have the same file: that of flats forgets before slices are written (claim), and
 * reads when the other one has written all (the first bring behind publish).
 *
 * Cost: of N bytes of parameters on W ranks a step reads N / W for each gathering, writes N / W of
 * gradients, and reads and writes what the optimizer has. Memory: the rings' buffers, and of a unit
 * that is coming its slice. Source: Rajbhandari et al., "ZeRO-Infinity", SC 2021.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/device/disk_device.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"

enum { BLOCK_ELEMENTS = TT_DISK_BLOCK / (int)sizeof(float) };

/* ---- opening --------------------------------------------------------------------------------- */

static tutti_status_t check_params(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        const tt_unit_param_t *param = &ddp->units.params[i];
        if (param->tensor->dtype != TUTTI_F32) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "ddp: options.offload wants parameters in f32, and %s is %s: keep them "
                           "in f32, and compute in 16 bits by options.param_dtype",
                           param->name, tutti_dtype_name(param->tensor->dtype));
        }
    }
    return TUTTI_OK;
}

/* Where a parameter's slice is: in the flat's slice, and on the disk behind those before it. */
static void place_params(tutti_ddp_t *ddp, int64_t *counts)
{
    tt_unit_store_t *store = &ddp->units.store;
    for (int i = 0; i < ddp->units.param_count; i++) {
        const tt_unit_param_t *param = &ddp->units.params[i];
        const int64_t *cuts = tt_ddp_unit_cuts(ddp, param->flat) + tutti_group_rank(ddp->group);
        const int64_t begin = tt_max(cuts[0], param->offset),
                      end = tt_min(cuts[1], param->offset + param->tensor->numel);
        tt_unit_piece_t *piece = &store->pieces[i];
        if (begin < end) {
            *piece = (tt_unit_piece_t){.in_slice = begin - cuts[0],
                                       .first = begin - param->offset,
                                       .count = end - begin,
                                       .at = counts[param->flat]};
            counts[param->flat] += (int64_t)tt_round_up((size_t)piece->count, BLOCK_ELEMENTS);
        }
    }
}

static tutti_status_t open_tensors(tutti_ddp_t *ddp, const int64_t *counts)
{
    tt_unit_store_t *store = &ddp->units.store;
    const int flats = ddp->units.source.flat_count, buckets = ddp->reducer->plan.bucket_count;
    store->values = tt_alloc_array((size_t)flats, sizeof(tutti_tensor_t *), "ddp store");
    TT_TRY_ALLOC(store->values);
    store->grads = tt_alloc_array((size_t)buckets, sizeof(tutti_tensor_t *), "ddp store");
    TT_TRY_ALLOC(store->grads);
    for (int f = 0; f < flats; f++) {
        TT_TRY(
            tt_tensor_new(store->disk, TUTTI_F32, TUTTI_SHAPE(counts[f]), true, &store->values[f]));
    }
    for (int b = 0; b < buckets; b++) {
        TT_TRY(
            tt_tensor_new(store->disk, TUTTI_F32, TUTTI_SHAPE(counts[b]), true, &store->grads[b]));
    }
    return TUTTI_OK;
}

static tutti_status_t open_ring(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    const int flats = ddp->units.source.flat_count;
    TT_TRY(tt_disk_open_ring(store->disk, &store->ring));
    tt_disk_unit_t *units = tt_alloc_array((size_t)flats, sizeof *units, "ddp store");
    TT_TRY_ALLOC(units);
    for (int f = 0; f < flats; f++) {
        const tutti_tensor_t *x = store->values[f];
        if (x->numel > 0) {
            units[f] = (tt_disk_unit_t){.ranges = {{.at = tt_disk_place(tt_tensor_data(x)),
                                                    .bytes = tutti_tensor_bytes(x),
                                                    .is_constant = true}},
                                        .count = 1};
        }
    }
    const tutti_status_t status = tt_disk_ring_set_units(store->ring, units, (size_t)flats);
    tt_free(units);
    return status;
}

static tutti_status_t open_parts(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    const size_t params = (size_t)ddp->units.param_count,
                 flats = (size_t)ddp->units.source.flat_count;
    store->pieces = tt_alloc_array(params, sizeof *store->pieces, "ddp store");
    TT_TRY_ALLOC(store->pieces);
    int64_t *counts = tt_alloc_array(flats, sizeof *counts, "ddp store");
    TT_TRY_ALLOC(counts);
    place_params(ddp, counts);
    const tutti_status_t status = open_tensors(ddp, counts);
    tt_free(counts);
    return status < 0 ? status : open_ring(ddp);
}

tutti_status_t tt_ddp_open_store(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    if (!tt_ddp_has_store(ddp)) {
        return TUTTI_OK;
    }
    TT_TRY(check_params(ddp));
    TT_TRY(
        tt_device_open(&tt_device_disk, &(tt_disk_options_t){ddp->options.offload}, &store->disk));
    return open_parts(ddp);
}

tutti_status_t tt_ddp_check_store(const tutti_ddp_t *ddp)
{
    const tutti_ddp_options_t *o = &ddp->options;
    if (o->offload == NULL) {
        return TUTTI_OK;
    }
    if (o->stage < 3) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: options.offload at stage %d, where every rank has all parameters: it "
                       "is for stage 3; tutti_optim_offload() takes optimizer state at any stage",
                       o->stage);
    }
    return ddp->units.rows.rows <= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "ddp: options.offload with a mesh of %d rows: parameters lie on disks "
                         "where all ranks are one row: leave options.mesh out",
                         ddp->units.rows.rows);
}

void tt_ddp_close_store(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    tt_disk_ring_close(store->ring);
    for (int f = 0; store->values != NULL && f < ddp->units.source.flat_count; f++) {
        tutti_tensor_release(store->values[f]);
    }
    for (int b = 0; store->grads != NULL && b < ddp->reducer->plan.bucket_count; b++) {
        tutti_tensor_release(store->grads[b]);
    }
    tt_free(store->values);
    tt_free(store->grads);
    tt_free(store->pieces);
    tutti_device_release(store->disk);
    *store = (tt_unit_store_t){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What went wrong on this rank's disk: others hear of it from this one. unit: a name; NULL: any. */
static tutti_status_t name_failure(const tutti_ddp_t *ddp, tutti_status_t status, const char *unit,
                                   const char *what)
{
    char text[TT_ERROR_TEXT_BYTES];
    if (status >= 0) {
        return status;
    }
    snprintf(text, sizeof text, "%s", tutti_last_error());
    return TT_FAIL(status, "ddp: %s of %s%s, on the disk of rank %d: %s", what,
                   unit == NULL   ? "units"
                   : unit[0] == 0 ? "the root unit"
                                  : "unit ",
                   unit == NULL ? "" : unit, tutti_group_rank(ddp->group), text);
}

static tutti_status_t read_flat(tt_unit_store_t *store, int flat, void **memory)
{
    if (store->may_be_written) {
        TT_TRY(tt_disk_ring_settle(tt_disk_ring_of(store->disk)));
        store->may_be_written = false;
    }
    return tt_disk_ring_use(store->ring, (size_t)flat, memory);
}

static tutti_status_t bring(tt_unit_source_t *source, int flat)
{
    tutti_ddp_t *ddp = source->user;
    tt_unit_store_t *store = &ddp->units.store;
    float *own = tt_tensor_data(source->flats[flat].own);
    void *memory;
    const tutti_status_t status = read_flat(store, flat, &memory);
    TT_TRY(name_failure(ddp, status, source->flats[flat].name, "parameters"));
    for (int i = 0; i < ddp->units.param_count; i++) {
        const tt_unit_piece_t *piece = &store->pieces[i];
        if (ddp->units.params[i].flat == flat && piece->count > 0) {
            memcpy(own + piece->in_slice, (const float *)memory + piece->at,
                   (size_t)piece->count * sizeof(float));
        }
    }
    return TUTTI_OK;
}

void tt_ddp_read_from_store(tutti_ddp_t *ddp)
{
    if (tt_ddp_has_store(ddp)) {
        ddp->units.source.bring = bring;
        ddp->units.source.user = ddp;
    }
}

tutti_status_t tt_ddp_store_begin_step(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    if (!tt_ddp_has_store(ddp)) {
        return TUTTI_OK;
    }
    if (store->may_be_written) {
        TT_TRY(tt_disk_ring_settle(tt_disk_ring_of(store->disk)));
        store->may_be_written = false;
    }
    return name_failure(ddp, tt_disk_ring_begin(store->ring), NULL, "parameters");
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The round of reading ends here, not with the step: what it would read ahead is written now. */
tutti_status_t tt_ddp_store_claim(tutti_ddp_t *ddp)
{
    tt_unit_store_t *store = &ddp->units.store;
    if (!tt_ddp_has_store(ddp)) {
        return TUTTI_OK;
    }
    store->may_be_written = true;
    tt_disk_ring_end(store->ring);
    return name_failure(ddp, tt_disk_ring_settle(store->ring), NULL, "parameters");
}

/* A tensor on the disk, put together as it lies there and written at once. */
typedef struct {
    tutti_ddp_t *ddp;
    tutti_tensor_t *to;
    float *memory; /* [numel] */
} writing_t;

static tutti_status_t open_writing(tutti_ddp_t *ddp, tutti_tensor_t *to, writing_t *writing)
{
    *writing = (writing_t){.ddp = ddp, .to = to};
    writing->memory = tt_alloc(tutti_tensor_bytes(to) + 1, "ddp store");
    TT_TRY_ALLOC(writing->memory);
    return TUTTI_OK;
}

static void add_piece(const writing_t *writing, int param, const float *values)
{
    const tt_unit_piece_t *piece = &writing->ddp->units.store.pieces[param];
    if (piece->count > 0) {
        memcpy(writing->memory + piece->at, values, (size_t)piece->count * sizeof(float));
    }
}

/* What was on meta is made for it. */
static tutti_status_t add_param(const writing_t *writing, int index)
{
    const tt_unit_param_t *param = &writing->ddp->units.params[index];
    tutti_tensor_t *made;
    TT_TRY(tt_ddp_make_values(writing->ddp, param->tensor, &made));
    const float *values =
        made != NULL ? tt_tensor_data(made) : (const void *)param->storages[TT_UNIT_FULL]->data;
    add_piece(writing, index, values + writing->ddp->units.store.pieces[index].first);
    tutti_tensor_release(made);
    return TUTTI_OK;
}

static tutti_status_t end_writing(writing_t *writing)
{
    const tutti_status_t status =
        tt_device_move(writing->ddp->units.store.disk, tt_tensor_data(writing->to), NULL,
                       writing->memory, tutti_tensor_bytes(writing->to));
    tt_free(writing->memory);
    tt_tensor_touch(writing->to);
    return status;
}

tutti_status_t tt_ddp_store_flat(tutti_ddp_t *ddp, int flat)
{
    writing_t writing;
    const tt_ddp_units_t *units = &ddp->units;
    if (units->store.values[flat]->numel == 0) {
        return TUTTI_OK;
    }
    TT_TRY(open_writing(ddp, units->store.values[flat], &writing));
    for (int i = 0; i < units->param_count; i++) {
        const tutti_status_t status =
            units->params[i].flat == flat ? add_param(&writing, i) : TUTTI_OK;
        if (status < 0) {
            tt_free(writing.memory);
            return status;
        }
    }
    return name_failure(ddp, end_writing(&writing), units->source.flats[flat].name, "parameters");
}

static tutti_status_t store_gradients(tutti_ddp_t *ddp, int bucket)
{
    writing_t writing;
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[bucket];
    if (ddp->units.store.grads[bucket]->numel == 0) {
        return TUTTI_OK;
    }
    TT_TRY(open_writing(ddp, ddp->units.store.grads[bucket], &writing));
    for (int k = 0; k < spec->param_count; k++) {
        const int i = plan->members[spec->first + k];
        add_piece(&writing, i, tt_tensor_data(ddp->slices.slices[i].grad));
    }
    return name_failure(ddp, end_writing(&writing), ddp->units.source.flats[bucket].name,
                        "gradients");
}

tutti_status_t tt_ddp_store_average(tutti_ddp_t *ddp, int bucket)
{
    if (!tt_ddp_has_store(ddp) || ddp->reducer->buckets[bucket].own_result->storage->away != NULL) {
        return TUTTI_OK;
    }
    TT_TRY(store_gradients(ddp, bucket));
    tt_reducer_let_result_go(ddp->reducer, bucket);
    return TUTTI_OK;
}

/* As soon as they have come back, while backward goes on. */
tutti_status_t tt_ddp_store_arrived(tutti_ddp_t *ddp)
{
    tt_reducer_t *reducer = ddp->reducer;
    for (int b = 0; b < ddp->step.next_bucket && tt_ddp_has_store(ddp); b++) {
        if (reducer->buckets[b].state == TT_BUCKET_BACK && !reducer->options.divides_late) {
            TT_TRY(tt_reducer_finalize(reducer, b, 0));
            TT_TRY(tt_ddp_store_average(ddp, b));
        }
    }
    return TUTTI_OK;
}
