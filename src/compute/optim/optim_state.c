/* Saving and loading what an optimizer remembers: for each parameter that was ever changed its
 * moments, "<parameter>.exp_avg" …, its f32 master "<parameter>.master" if it is of 16 bits, and
 * how often, "<parameter>.step", an i64 scalar. The kind of the optimizer stands in the file's
 * metadata.
 *
 * Saving changes nothing: a master that the next step will make is saved as it will be. Loading
 * reads all into tensors of its own, which then take the place of the slots', so that what fails
 * half-way changes nothing either.
 */
#include <tutti/optim.h>

#include <stdio.h>
#include <string.h>

#include "compute/optim/optim_offload.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"

enum { NAME_BYTES = 640 };

#define STEP_NAME "step"
#define MASTER_NAME "master"
#define KIND_NAME "optimizer"

static tutti_status_t join(char name[NAME_BYTES], const char *parameter, const char *what)
{
    const int n = snprintf(name, NAME_BYTES, "%s.%s", parameter, what);
    return n > 0 && n < NAME_BYTES
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "the name of parameter \"%s\" is too long", parameter);
}

static tutti_status_t visit_step(const tt_optim_slot_t *slot, tutti_tensor_visit_t visit,
                                 void *user)
{
    char name[NAME_BYTES];
    TT_TRY(join(name, slot->name, STEP_NAME));
    tutti_tensor_t *step;
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SCALAR, &step));
    *(int64_t *)tutti_tensor_data(step) = slot->step;
    const tutti_status_t status = visit(user, name, step);
    tutti_tensor_release(step);
    return status;
}

/* What a slot keeps beside its step, in the order of files: moments, then the master. */
enum { MASTER = TT_MOMENTS_MAX, KEPT_COUNT };

typedef struct {
    char name[NAME_BYTES]; /* "" if the slot wants none */
    tutti_shape_t shape;
    tutti_tensor_t *tensor; /* of a slot that has been changed */
} kept_t;

static tutti_status_t find_kept(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                                kept_t *kept)
{
    kept->shape = tt_optim_weight(slot)->shape;
    kept->name[0] = 0;
    if (i == MASTER) {
        kept->tensor = slot->due == TT_MASTER_IS_NEW ? NULL : slot->master;
        return tutti_tensor_dtype(slot->tensor) == TUTTI_F32
                   ? TUTTI_OK
                   : join(kept->name, slot->name, MASTER_NAME);
    }
    kept->tensor = slot->moments[i];
    return tt_optim_wants_moment(opt, slot, i, &kept->shape)
               ? join(kept->name, slot->name, opt->ops->moments[i])
               : TUTTI_OK;
}

/* Of a parameter that was cast since its last step. */
static tutti_status_t visit_new_master(const tt_optim_slot_t *slot, const kept_t *kept,
                                       tutti_tensor_visit_t visit, void *user)
{
    tutti_tensor_t *master;
    const tutti_tensor_t *x = tt_optim_weight(slot);
    TT_TRY(tutti_tensor_create(TUTTI_F32, kept->shape, &master));
    tutti_status_t status = tt_optim_like_part(master, x);
    status = status < 0 ? status : tutti_tensor_copy(master, x);
    if (status >= 0) {
        status = visit(user, kept->name, master);
    }
    tutti_tensor_release(master);
    return status;
}

static tutti_status_t visit_slot(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                 tutti_tensor_visit_t visit, void *user)
{
    kept_t kept;
    for (int i = 0; i < KEPT_COUNT; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        if (kept.name[0] != 0) {
            TT_TRY(kept.tensor != NULL ? visit(user, kept.name, kept.tensor)
                                       : visit_new_master(slot, &kept, visit, user));
        }
    }
    return visit_step(slot, visit, user);
}

/* Of a kind that looks at whole parameters: another rank has stepped it, and has what is to be
 * saved, also when nobody steps slices any more. */
static bool is_elsewhere(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    tutti_shape_t shape = tt_optim_weight(slot)->shape;
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        if (slot->moments[i] == NULL && tt_optim_wants_moment(opt, slot, i, &shape)) {
            return true;
        }
    }
    return false;
}

tutti_status_t tutti_optim_each_state(tutti_optim_t *opt, tutti_tensor_visit_t visit, void *user)
{
    TT_TRY(tt_optim_offload_check(opt));
    TT_TRY(tt_optim_check_decided(opt, "optim_each_state"));
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (opt->slots[i].step > 0 && !is_elsewhere(opt, &opt->slots[i])) {
            TT_TRY(visit_slot(opt, &opt->slots[i], visit, user));
        }
    }
    return TUTTI_OK;
}

/* ---- of whole parameters --------------------------------------------------------------------- */

typedef struct {
    const tt_optim_slot_t *slot;
    tutti_status_t (*visit)(void *user, const tt_optim_kept_t *kept);
    void *user;
} wholes_t;

static tutti_status_t visit_whole(void *user, const char *name, tutti_tensor_t *x)
{
    const wholes_t *wholes = user;
    const tutti_tensor_t *parameter = wholes->slot->tensor;
    const tt_optim_kept_t kept = {parameter, name, parameter->shape, x, false};
    return wholes->visit(wholes->user, &kept);
}

static tutti_status_t visit_whole_step(void *user, const char *name, tutti_tensor_t *x)
{
    const wholes_t *wholes = user;
    const tt_optim_kept_t kept = {wholes->slot->tensor, name, TUTTI_SCALAR, x, true};
    return wholes->visit(wholes->user, &kept);
}

static tutti_status_t visit_whole_moments(const tutti_optim_t *opt, const wholes_t *wholes)
{
    const tt_optim_slot_t *slot = wholes->slot;
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        char name[NAME_BYTES];
        tt_optim_kept_t kept = {
            .parameter = slot->tensor, .name = name, .tensor = slot->moments[i]};
        if (tt_optim_has_moment(opt, slot, i, &kept.whole)) {
            TT_TRY(join(name, slot->name, opt->ops->moments[i]));
            TT_TRY(wholes->visit(wholes->user, &kept));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t visit_whole_master(const tutti_optim_t *opt, wholes_t *wholes)
{
    kept_t kept;
    TT_TRY(find_kept(opt, wholes->slot, MASTER, &kept));
    if (kept.name[0] == 0) {
        return TUTTI_OK;
    }
    return kept.tensor != NULL ? visit_whole(wholes, kept.name, kept.tensor)
                               : visit_new_master(wholes->slot, &kept, visit_whole, wholes);
}

tutti_status_t tt_optim_each_kept(tutti_optim_t *opt,
                                  tutti_status_t (*visit)(void *user, const tt_optim_kept_t *kept),
                                  void *user)
{
    TT_TRY(tt_optim_offload_check(opt));
    TT_TRY(tt_optim_check_decided(opt, "optim_each_state"));
    for (size_t i = 0; i < opt->slot_count; i++) {
        wholes_t wholes = {&opt->slots[i], visit, user};
        if (wholes.slot->step > 0) {
            TT_TRY(visit_whole_moments(opt, &wholes));
            TT_TRY(visit_whole_master(opt, &wholes));
            TT_TRY(visit_step(wholes.slot, visit_whole_step, &wholes));
        }
    }
    return TUTTI_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static tutti_status_t fail_slices(const char *call, const char *name)
{
    return TT_FAIL(
        TUTTI_ERR_STATE,
        "%s: ranks step slices of \"%s\" and others, or did so, and each has the state of "
        "its own: tutti_checkpoint_save() writes them as one",
        call, name);
}

/* Of a parameter that is nobody's slice any more, its state may still be one. */
static tutti_status_t check_slot_whole(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                       const char *call)
{
    kept_t kept;
    for (int i = 0; i < KEPT_COUNT && slot->step > 0; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        const bool is_whole =
            kept.tensor == NULL ? i == MASTER : kept.tensor->numel == tutti_shape_numel(kept.shape);
        if (kept.name[0] != 0 && !is_whole) {
            return fail_slices(call, slot->name);
        }
    }
    return TUTTI_OK;
}

/* A file of one rank would hold its slices alone. */
static tutti_status_t check_whole(const tutti_optim_t *opt, const char *call)
{
    return tt_optim_has_slices(opt) || tt_optim_has_spreads(opt)
               ? fail_slices(call, opt->slots[0].name)
               : TUTTI_OK;
}

tutti_status_t tutti_optim_save(tutti_optim_t *opt, const char *path)
{
    TT_TRY(check_whole(opt, "optim_save"));
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(check_slot_whole(opt, &opt->slots[i], "optim_save"));
    }
    const tutti_named_text_t kind = {KIND_NAME, opt->ops->name};
    tt_tensor_list_t list = {0};
    tutti_status_t status = tutti_optim_each_state(opt, tt_tensor_list_add, &list);
    if (status >= 0) {
        status = tutti_safetensors_save(path, list.items, list.count, &kind, 1);
    }
    tt_tensor_list_release(&list);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* What a slot becomes; all 0 where nothing of it is saved, as if it had never been changed. */
typedef struct {
    bool stays;           /* as it is */
    tutti_tensor_t *step; /* an i64 scalar of the host */
    tutti_tensor_t *kept[KEPT_COUNT];
} loaded_t;

struct tt_optim_loading {
    tutti_optim_t *opt;
    tt_device_t *device; /* of what is to leave meta */
    loaded_t *slots;     /* [slot_count] */
};

static tutti_status_t new_master(const tt_optim_slot_t *slot, tt_device_t *device,
                                 tutti_tensor_t **out)
{
    const tutti_tensor_t *x = tt_optim_weight(slot);
    TT_TRY(tt_tensor_new(device, TUTTI_F32, x->shape, false, out));
    return tt_optim_like_part(*out, x);
}

static tutti_status_t make_slot(const tt_optim_loading_t *loading, const tt_optim_slot_t *slot,
                                loaded_t *loaded)
{
    kept_t kept;
    const tutti_optim_t *opt = loading->opt;
    tt_device_t *own = tt_optim_weight(slot)->storage->device;
    tt_device_t *device = tt_device_has_values(own) ? own : tt_memory_on(loading->device);
    device = device == NULL ? tt_optim_host_state_device(opt) : device;
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SCALAR, &loaded->step));
    for (int i = 0; i < KEPT_COUNT; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        if (kept.name[0] != 0) {
            TT_TRY(i == MASTER ? new_master(slot, device, &loaded->kept[i])
                               : tt_optim_new_moment(opt, slot, i, device, &loaded->kept[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t make_slots(tt_optim_loading_t *loading,
                                 tt_saved_state_t (*find)(const void *saved, const char *name),
                                 const void *saved)
{
    const tutti_optim_t *opt = loading->opt;
    for (size_t i = 0; i < opt->slot_count; i++) {
        char name[NAME_BYTES];
        TT_TRY(join(name, opt->slots[i].name, STEP_NAME));
        const tt_saved_state_t found = find(saved, name);
        loading->slots[i].stays = found == TT_STATE_STAYS;
        if (found == TT_STATE_SAVED) {
            TT_TRY(make_slot(loading, &opt->slots[i], &loading->slots[i]));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_load_begin(tutti_optim_t *opt, tt_device_t *device,
                                   tt_saved_state_t (*find)(const void *saved, const char *name),
                                   const void *saved, tt_optim_loading_t **out)
{
    TT_TRY(tt_optim_check_decided(opt, "optim_load"));
    tt_optim_loading_t *loading = tt_alloc(sizeof *loading, "optimizer");
    TT_TRY_ALLOC(loading);
    loading->opt = opt;
    loading->device = device;
    loading->slots = tt_alloc_array(opt->slot_count, sizeof *loading->slots, "optimizer");
    const tutti_status_t status =
        loading->slots == NULL ? TUTTI_ERR_NOMEM : make_slots(loading, find, saved);
    if (status < 0) {
        return tt_optim_load_end(loading, status);
    }
    *out = loading;
    return TUTTI_OK;
}

static tutti_status_t visit_loaded(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                   const loaded_t *loaded, tutti_tensor_visit_t visit, void *user)
{
    kept_t kept;
    for (int i = 0; i < KEPT_COUNT; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        if (kept.name[0] != 0) {
            TT_TRY(visit(user, kept.name, loaded->kept[i]));
        }
    }
    TT_TRY(join(kept.name, slot->name, STEP_NAME));
    return visit(user, kept.name, loaded->step);
}

tutti_status_t tt_optim_load_each(tt_optim_loading_t *loading, tutti_tensor_visit_t visit,
                                  void *user)
{
    const tutti_optim_t *opt = loading->opt;
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (loading->slots[i].step != NULL) {
            TT_TRY(visit_loaded(opt, &opt->slots[i], &loading->slots[i], visit, user));
        }
    }
    return TUTTI_OK;
}

static int64_t step_of(const loaded_t *loaded)
{
    return loaded->step == NULL ? 0 : *(const int64_t *)tutti_tensor_data(loaded->step);
}

static tutti_status_t check_steps(const tt_optim_loading_t *loading)
{
    for (size_t i = 0; i < loading->opt->slot_count; i++) {
        const loaded_t *loaded = &loading->slots[i];
        if (loaded->step != NULL && step_of(loaded) < 1) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "the saved \"%s.%s\" is %lld: it must be at least 1",
                           loading->opt->slots[i].name, STEP_NAME, (long long)step_of(loaded));
        }
    }
    return TUTTI_OK;
}

static void swap_tensors(tutti_tensor_t **a, tutti_tensor_t **b)
{
    tutti_tensor_t *was = *a;
    *a = *b;
    *b = was;
}

static void take(tt_optim_slot_t *slot, loaded_t *loaded)
{
    slot->step = step_of(loaded);
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        swap_tensors(&slot->moments[i], &loaded->kept[i]);
    }
    swap_tensors(&slot->master, &loaded->kept[MASTER]);
    slot->is_master_loaded = slot->master != NULL;
    slot->due = TT_MASTER_IS_RIGHT;
}

tutti_status_t tt_optim_load_end(tt_optim_loading_t *loading, tutti_status_t status)
{
    const size_t count = loading->slots == NULL ? 0 : loading->opt->slot_count;
    bool is_all_new = true;
    status = status < 0 ? status : check_steps(loading);
    for (size_t i = 0; i < count; i++) {
        loaded_t *loaded = &loading->slots[i];
        is_all_new &= !loaded->stays;
        if (status >= 0 && !loaded->stays) {
            take(&loading->opt->slots[i], loaded);
        }
        tutti_tensor_release(loaded->step);
        for (int k = 0; k < KEPT_COUNT; k++) {
            tutti_tensor_release(loaded->kept[k]);
        }
    }
    if (status >= 0 && is_all_new) {
        tt_optim_offload_forgive(loading->opt);
    }
    tt_free(loading->slots);
    tt_free(loading);
    return status;
}

/* ---- loading a file -------------------------------------------------------------------------- */

typedef struct {
    const tutti_safetensors_t *file;
    size_t found;
} check_t;

/* One tensor that a slot wants: there, of the right dtype and shape. */
static tutti_status_t check_entry(void *user, const char *name, tutti_tensor_t *wanted)
{
    check_t *check = user;
    const tutti_safetensors_entry_t *entry = tutti_safetensors_find(check->file, name);
    const tutti_shape_t shape = tutti_tensor_shape(wanted);
    const tutti_dtype_t dtype = tutti_tensor_dtype(wanted);
    char in_file[160], here[160];
    if (entry == NULL) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the saved optimizer has no \"%s\"", name);
    }
    if (!tutti_shape_equal(entry->shape, shape)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "the saved optimizer's \"%s\" is %s, here it is %s: make the model "
                       "with the sizes it was saved with",
                       name, tutti_shape_format(entry->shape, in_file, sizeof in_file),
                       tutti_shape_format(shape, here, sizeof here));
    }
    if (entry->dtype != dtype) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the saved optimizer's \"%s\" is %s, here it is %s",
                       name, tutti_dtype_name(entry->dtype), tutti_dtype_name(dtype));
    }
    check->found++;
    return TUTTI_OK;
}

/* A name in the file that no parameter here asked for; there is one. */
static tutti_status_t fail_unexpected(const tutti_optim_t *opt, const tutti_safetensors_t *file)
{
    const char *strange = "";
    for (size_t i = 0; i < tutti_safetensors_count(file); i++) {
        const char *name = tutti_safetensors_at(file, i)->name;
        bool is_known = false;
        for (size_t k = 0; k < opt->slot_count && !is_known; k++) {
            const size_t length = strlen(opt->slots[k].name);
            is_known = strncmp(name, opt->slots[k].name, length) == 0 && name[length] == '.' &&
                       strchr(name + length + 1, '.') == NULL;
        }
        strange = is_known ? strange : name;
    }
    char printed[160];
    tt_bytes_print(tutti_text(strange), printed, sizeof printed);
    return TT_FAIL(TUTTI_ERR_MISMATCH,
                   "the saved optimizer has state that no parameter here wants%s%s: add the "
                   "parameters and options it was saved with",
                   strange[0] == 0 ? "" : ", such as ", printed);
}

static tutti_status_t check_kind(const tutti_optim_t *opt, const tutti_safetensors_t *file)
{
    const char *kind = tutti_safetensors_metadata(file, KIND_NAME);
    if (kind == NULL || strcmp(kind, opt->ops->name) != 0) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the file holds the state of %s%s, not of %s",
                       kind == NULL ? "no optimizer" : "optimizer ", kind == NULL ? "" : kind,
                       opt->ops->name);
    }
    return TUTTI_OK;
}

/* A file gives nothing memory: what is on meta stays there, and reading tells so. */
static tt_device_t *meta_of(const tutti_optim_t *opt)
{
    tt_device_t *meta = NULL;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_device_t *own = tt_optim_weight(&opt->slots[i])->storage->device;
        meta = tt_device_has_values(own) ? meta : own;
    }
    return meta;
}

static tt_saved_state_t find_saved(const void *file, const char *name)
{
    return tutti_safetensors_find(file, name) != NULL ? TT_STATE_SAVED : TT_STATE_NONE;
}

static tutti_status_t read_entry(void *file, const char *name, tutti_tensor_t *tensor)
{
    return tutti_safetensors_read(file, name, tensor);
}

static tutti_status_t load_file(tutti_optim_t *opt, tutti_safetensors_t *file)
{
    tt_optim_loading_t *loading;
    check_t check = {.file = file};
    TT_TRY(check_kind(opt, file));
    TT_TRY(tt_optim_load_begin(opt, meta_of(opt), find_saved, file, &loading));
    tutti_status_t status = tt_optim_load_each(loading, check_entry, &check);
    if (status >= 0 && check.found != tutti_safetensors_count(file)) {
        status = fail_unexpected(opt, file);
    }
    if (status >= 0) {
        status = tt_optim_load_each(loading, read_entry, file);
    }
    return tt_optim_load_end(loading, status);
}

tutti_status_t tutti_optim_load(tutti_optim_t *opt, const char *path)
{
    tutti_safetensors_t *file;
    TT_TRY(check_whole(opt, "optim_load"));
    TT_TRY(tutti_safetensors_open(path, &file));
    const tutti_status_t status = load_file(opt, file);
    tutti_safetensors_close(file);
    return status;
}
