/* Saving and loading what an optimizer remembers: for each parameter that was ever changed its
 * moments, "<parameter>.exp_avg" …, its f32 master "<parameter>.master" if it is of 16 bits, and
 * how often, "<parameter>.step", an i64 scalar. The kind of the optimizer stands in the file's
 * metadata.
 *
 * Saving changes nothing: a master that the next step will make is saved as it will be. Loading
 * checks the whole file, then reads all of it into tensors of its own, which then take the place of
 * the slots', so that what fails half-way changes nothing either.
 */
#include <tutti/optim.h>

#include <stdio.h>
#include <string.h>

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
    kept->shape = tutti_tensor_shape(slot->tensor);
    kept->name[0] = 0;
    if (i == MASTER) {
        kept->tensor = slot->master;
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
    TT_TRY(tutti_tensor_create(TUTTI_F32, kept->shape, &master));
    tutti_status_t status = tutti_tensor_copy(master, slot->tensor);
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

tutti_status_t tutti_optim_each_state(tutti_optim_t *opt, tutti_tensor_visit_t visit, void *user)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (opt->slots[i].step > 0) {
            TT_TRY(visit_slot(opt, &opt->slots[i], visit, user));
        }
    }
    return TUTTI_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

tutti_status_t tutti_optim_save(tutti_optim_t *opt, const char *path)
{
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

/* What a slot becomes; all 0 where the file has nothing of it, as if it had never been changed. */
typedef struct {
    int64_t step;
    tutti_tensor_t *kept[KEPT_COUNT];
} loaded_t;

/* One tensor that a slot wants: there, of the right dtype and shape. */
static tutti_status_t check_entry(const tutti_safetensors_t *file, const char *name,
                                  tutti_dtype_t dtype, tutti_shape_t shape, size_t *found)
{
    const tutti_safetensors_entry_t *entry = tutti_safetensors_find(file, name);
    char in_file[160], wanted[160];
    if (entry == NULL) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the saved optimizer has no \"%s\"", name);
    }
    if (!tutti_shape_equal(entry->shape, shape)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "the saved optimizer's \"%s\" is %s, here it is %s: make the model "
                       "with the sizes it was saved with",
                       name, tutti_shape_format(entry->shape, in_file, sizeof in_file),
                       tutti_shape_format(shape, wanted, sizeof wanted));
    }
    if (entry->dtype != dtype) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the saved optimizer's \"%s\" is %s, here it is %s",
                       name, tutti_dtype_name(entry->dtype), tutti_dtype_name(dtype));
    }
    (*found)++;
    return TUTTI_OK;
}

static bool has_state(const tutti_safetensors_t *file, const tt_optim_slot_t *slot)
{
    char name[NAME_BYTES];
    return join(name, slot->name, STEP_NAME) >= 0 && tutti_safetensors_find(file, name) != NULL;
}

static tutti_status_t read_step(const tutti_safetensors_t *file, const tt_optim_slot_t *slot,
                                int64_t *value)
{
    char name[NAME_BYTES];
    TT_TRY(join(name, slot->name, STEP_NAME));
    tutti_tensor_t *step;
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SCALAR, &step));
    const tutti_status_t status = tutti_safetensors_read(file, name, step);
    *value = *(const int64_t *)tutti_tensor_data(step);
    tutti_tensor_release(step);
    return status >= 0 && *value < 1
               ? TT_FAIL(TUTTI_ERR_FORMAT, "the saved \"%s\" is %lld: it must be at least 1", name,
                         (long long)*value)
               : status;
}

static tutti_status_t check_slot(const tutti_optim_t *opt, const tutti_safetensors_t *file,
                                 const tt_optim_slot_t *slot, size_t *found)
{
    kept_t kept;
    TT_TRY(join(kept.name, slot->name, STEP_NAME));
    TT_TRY(check_entry(file, kept.name, TUTTI_I64, TUTTI_SCALAR, found));
    for (int i = 0; i < KEPT_COUNT; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        if (kept.name[0] != 0) {
            TT_TRY(check_entry(file, kept.name, TUTTI_F32, kept.shape, found));
        }
    }
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

static tutti_status_t check_file(const tutti_optim_t *opt, const tutti_safetensors_t *file)
{
    const char *kind = tutti_safetensors_metadata(file, KIND_NAME);
    if (kind == NULL || strcmp(kind, opt->ops->name) != 0) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "the file holds the state of %s%s, not of %s",
                       kind == NULL ? "no optimizer" : "optimizer ", kind == NULL ? "" : kind,
                       opt->ops->name);
    }
    size_t found = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (has_state(file, &opt->slots[i])) {
            TT_TRY(check_slot(opt, file, &opt->slots[i], &found));
        }
    }
    return found == tutti_safetensors_count(file) ? TUTTI_OK : fail_unexpected(opt, file);
}

static tutti_status_t read_slot(const tutti_optim_t *opt, const tutti_safetensors_t *file,
                                const tt_optim_slot_t *slot, loaded_t *loaded)
{
    kept_t kept;
    TT_TRY(read_step(file, slot, &loaded->step));
    for (int i = 0; i < KEPT_COUNT; i++) {
        TT_TRY(find_kept(opt, slot, i, &kept));
        if (kept.name[0] != 0) {
            TT_TRY(i == MASTER ? tt_tensor_new(slot->tensor->storage->device, TUTTI_F32, kept.shape,
                                               false, &loaded->kept[i])
                               : tt_optim_new_moment(opt, slot, i, &loaded->kept[i]));
            TT_TRY(tutti_safetensors_read(file, kept.name, loaded->kept[i]));
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
    slot->step = loaded->step;
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        swap_tensors(&slot->moments[i], &loaded->kept[i]);
    }
    swap_tensors(&slot->master, &loaded->kept[MASTER]);
    slot->is_master_loaded = slot->master != NULL;
}

static tutti_status_t load_into(tutti_optim_t *opt, const tutti_safetensors_t *file,
                                loaded_t *loaded)
{
    TT_TRY(check_file(opt, file));
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (has_state(file, &opt->slots[i])) {
            TT_TRY(read_slot(opt, file, &opt->slots[i], &loaded[i]));
        }
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        take(&opt->slots[i], &loaded[i]);
    }
    return TUTTI_OK;
}

static tutti_status_t load_from(tutti_optim_t *opt, const tutti_safetensors_t *file)
{
    loaded_t *loaded = tt_alloc_array(opt->slot_count, sizeof *loaded, "optimizer");
    TT_TRY_ALLOC(loaded);
    const tutti_status_t status = load_into(opt, file, loaded);
    for (size_t i = 0; i < opt->slot_count * KEPT_COUNT; i++) {
        tutti_tensor_release(loaded[i / KEPT_COUNT].kept[i % KEPT_COUNT]);
    }
    tt_free(loaded);
    return status;
}

tutti_status_t tutti_optim_load(tutti_optim_t *opt, const char *path)
{
    tutti_safetensors_t *file;
    TT_TRY(tutti_safetensors_open(path, &file));
    const tutti_status_t status = load_from(opt, file);
    tutti_safetensors_close(file);
    return status;
}
