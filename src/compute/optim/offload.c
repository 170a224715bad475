/* Where an optimizer's state lies: moving it to a disk and back. All of it is copied before any of
 * it is taken over, so a failure changes nothing.
 */
#include <tutti/offload.h>

#include <string.h>

#include "compute/optim/optim_offload.h"
#include "core/base/alloc.h"
#include "core/device/disk_device.h"

/* What is kept of the slots, elsewhere; [slot_count][TT_OPTIM_KEPT]. */
typedef tutti_tensor_t *kept_t[TT_OPTIM_KEPT];

static tutti_status_t copy_kept(const tutti_tensor_t *from, tt_device_t *device,
                                tutti_tensor_t **out)
{
    TT_TRY(tt_tensor_new(device, TUTTI_F32, from->shape, false, out));
    TT_TRY(tt_optim_like_part(*out, from));
    return tutti_tensor_copy(*out, from);
}

/* Those of parameters in the host's memory. */
static tutti_status_t copy_all(const tutti_optim_t *opt, tt_device_t *device, kept_t *copies)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        const tt_optim_slot_t *slot = &opt->slots[i];
        for (int k = 0; k < TT_OPTIM_KEPT; k++) {
            const tutti_tensor_t *kept = tt_optim_kept(slot, k);
            if (kept != NULL && tt_optim_weight(slot)->storage->device == NULL) {
                TT_TRY(copy_kept(kept, device, &copies[i][k]));
            }
        }
    }
    return TUTTI_OK;
}

static void take_copies(tutti_optim_t *opt, kept_t *copies)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_optim_slot_t *slot = &opt->slots[i];
        for (int k = 0; k < TT_OPTIM_KEPT; k++) {
            tutti_tensor_t **kept = k == TT_MOMENTS_MAX ? &slot->master : &slot->moments[k];
            tutti_tensor_t *before = *kept;
            if (copies[i][k] != NULL) {
                *kept = copies[i][k];
                copies[i][k] = before;
            }
        }
    }
}

/* A master that is to be made from its parameter is none yet. */
static void drop_new_masters(tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_optim_slot_t *slot = &opt->slots[i];
        if (slot->due == TT_MASTER_IS_NEW) {
            tutti_tensor_release(slot->master);
            slot->master = NULL;
        }
        slot->is_master_loaded |= slot->due == TT_MASTER_MEETS;
        slot->due = TT_MASTER_IS_RIGHT;
    }
}

static tutti_status_t open_disk(const char *folder, tt_optim_offload_t **out)
{
    tt_optim_offload_t *offload = tt_alloc(sizeof *offload, "offload");
    TT_TRY_ALLOC(offload);
    const tutti_status_t status =
        tt_device_open(&tt_device_disk, &(tt_disk_options_t){folder}, &offload->disk);
    if (status < 0) {
        tt_free(offload);
        return status;
    }
    *out = offload;
    return TUTTI_OK;
}

static tutti_status_t borrow_disk(tt_device_t *disk, tt_optim_offload_t **out)
{
    tt_optim_offload_t *offload = tt_alloc(sizeof *offload, "offload");
    TT_TRY_ALLOC(offload);
    offload->disk = tutti_device_retain(disk);
    offload->is_borrowed = true;
    *out = offload;
    return TUTTI_OK;
}

static void close_disk(tt_optim_offload_t *offload)
{
    if (offload != NULL) {
        tutti_device_release(offload->disk);
        tt_free(offload->places);
        tt_free(offload);
    }
}

static void leave_disk(tt_optim_offload_t *offload)
{
    if (offload != NULL && !offload->is_borrowed) {
        tt_disk_leave(offload->disk);
    }
}

/* new: where the state will be; NULL: memory. Taken in any case. */
static tutti_status_t move_state(tutti_optim_t *opt, tt_optim_offload_t *new)
{
    tt_device_t *device = new == NULL ? NULL : new->disk;
    tt_optim_offload_t *left = new;
    drop_new_masters(opt);
    kept_t *copies = tt_alloc_array(opt->slot_count + 1, sizeof *copies, "offload");
    tutti_status_t status = copies == NULL ? TUTTI_ERR_NOMEM : copy_all(opt, device, copies);
    if (status >= 0) {
        left = opt->offload;
        take_copies(opt, copies);
        opt->offload = new;
    }
    leave_disk(left);
    for (size_t i = 0; copies != NULL && i < opt->slot_count; i++) {
        tt_tensors_release(copies[i], TT_OPTIM_KEPT);
    }
    tt_free(copies);
    close_disk(left);
    return status;
}

static tutti_status_t fail_place(const char *call, const char *name, const tt_device_t *device)
{
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "%s: parameter \"%s\" lies on %s: state goes to a disk from the host's memory "
                   "alone",
                   call, name, tt_device_text(device));
}

tutti_status_t tt_optim_offload_admit(const tutti_optim_t *opt, const char *call, const char *name,
                                      const tutti_tensor_t *x)
{
    const tt_device_t *device = x->storage->device;
    return opt->offload == NULL || device == NULL || tt_device_is_store(device) ||
                   !tt_device_has_values(device)
               ? TUTTI_OK
               : fail_place(call, name, device);
}

static tutti_status_t check_places(const tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        const tt_device_t *device = tt_optim_weight(&opt->slots[i])->storage->device;
        if (device != NULL && tt_device_has_values(device)) {
            return fail_place("optim_offload", opt->slots[i].name, device);
        }
    }
    return TUTTI_OK;
}

/* The disk on which weights lie; NULL: none does. */
static tt_device_t *disk_of_weights(const tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (tt_optim_is_stored(&opt->slots[i])) {
            return tt_optim_weight(&opt->slots[i])->storage->device;
        }
    }
    return NULL;
}

static bool has_state_elsewhere(const tutti_optim_t *opt, const tt_device_t *disk)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        for (int k = 0; k < TT_OPTIM_KEPT; k++) {
            const tutti_tensor_t *kept = tt_optim_kept(&opt->slots[i], k);
            if (kept != NULL && kept->storage->device != disk) {
                return true;
            }
        }
    }
    return false;
}

tutti_status_t tt_optim_offload_attach(tutti_optim_t *opt)
{
    tt_device_t *disk = disk_of_weights(opt);
    tt_optim_offload_t *new;
    if (disk == NULL || (opt->offload != NULL && opt->offload->disk == disk)) {
        return TUTTI_OK;
    }
    if (has_state_elsewhere(opt, disk)) {
        return TT_FAIL(
            TUTTI_ERR_STATE,
            "%s: its parameters lie on a disk now, and there is state elsewhere already: "
            "make the optimizer behind tutti_ddp_create() with options.offload, or save "
            "its state and load it into a new one",
            opt->ops->name);
    }
    TT_TRY(borrow_disk(disk, &new));
    leave_disk(opt->offload);
    close_disk(opt->offload);
    opt->offload = new;
    return TUTTI_OK;
}

tutti_status_t tutti_optim_offload(tutti_optim_t *opt, const char *folder)
{
    tt_optim_offload_t *new = NULL;
    TT_WANT("optim_offload", opt);
    TT_TRY(tt_optim_offload_check(opt));
    if (opt->decides != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "optim_offload: %s steps this optimizer, and keeps its state to undo that: "
                       "take it away first",
                       opt->driver);
    }
    if (opt->offload != NULL && opt->offload->is_open) {
        return TT_FAIL(TUTTI_ERR_STATE, "optim_offload: %s is in the middle of a step",
                       opt->driver == NULL ? opt->ops->name : opt->driver);
    }
    if (disk_of_weights(opt) != NULL) {
        return folder != NULL ? tt_optim_offload_attach(opt)
                              : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                                        "optim_offload: the parameters lie on a disk (options."
                                        "offload of DDP), and their state with them");
    }
    TT_TRY(folder == NULL ? TUTTI_OK : check_places(opt));
    TT_TRY(folder == NULL ? TUTTI_OK : open_disk(folder, &new));
    return move_state(opt, new);
}

void tt_optim_offload_leave(tutti_optim_t *opt)
{
    leave_disk(opt->offload);
}

void tt_optim_offload_release(tutti_optim_t *opt)
{
    close_disk(opt->offload);
}

void tutti_optim_offload_stats(const tutti_optim_t *opt, tutti_offload_stats_t *out)
{
    *out = (tutti_offload_stats_t){0};
    if (opt->offload != NULL) {
        tt_device_t *disk = opt->offload->disk;
        const tt_disk_file_t *file = tt_disk_file_of(disk);
        const tt_disk_ring_stats_t ring = tt_disk_ring_stats(tt_disk_ring_of(disk));
        *out = (tutti_offload_stats_t){.file_bytes = file->bytes,
                                       .read_bytes = ring.read_bytes,
                                       .written_bytes = ring.written_bytes,
                                       .buffer_bytes = ring.buffer_bytes,
                                       .waited_ns = ring.waited_ns,
                                       .is_direct = atomic_load(&file->is_direct)};
    }
}
