/* Saving and loading the parameters and buffers of a module. Loading compares all names and shapes
 * before it changes anything, and says everything that does not fit in one message. A tensor on
 * meta is read into memory of its own, which it then takes over.
 */
#include <tutti/nn.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compute/nn/module_impl.h"
#include "core/base/buffer.h"
#include "core/base/reals.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"

/* ---- saving ---------------------------------------------------------------------------------- */

/* A file of one rank would hold its parts alone. */
static tutti_status_t add_whole(void *list, const char *name, tutti_tensor_t *x)
{
    TT_TRY(tt_tensor_check_decided(x, name));
    return x->spread == NULL
               ? tt_tensor_list_add(list, name, x)
               : TT_FAIL(TUTTI_ERR_STATE,
                         "module_save: each rank has a part of %s, by tensor parallelism: "
                         "tutti_checkpoint_save() writes them as one",
                         name);
}

tutti_status_t tutti_module_save(tutti_module_t *m, const char *path,
                                 const tutti_named_text_t *metadata, size_t metadata_count)
{
    TT_WANT("module_save", m);
    tt_tensor_list_t list = {0};
    tutti_status_t status = tutti_module_each_tensor(m, add_whole, &list);
    if (status >= 0) {
        status = tutti_safetensors_save(path, list.items, list.count, metadata, metadata_count);
    }
    tt_tensor_list_release(&list);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

enum { NAMES_LISTED = 3 };

/* What does not fit, for one kind of misfit. */
typedef struct {
    size_t count;
    char text[300];
} misfit_t;

typedef struct {
    const tutti_safetensors_t *file;
    size_t found;
    misfit_t missing, unexpected, reshaped;
    tutti_module_t *module;
} comparison_t;

__attribute__((format(printf, 2, 3))) static void add_misfit(misfit_t *misfit, const char *format,
                                                             ...)
{
    const size_t used = strlen(misfit->text), room = sizeof misfit->text - used;
    if (misfit->count < NAMES_LISTED) {
        va_list args;
        va_start(args, format);
        if (misfit->count > 0) {
            snprintf(misfit->text + used, room, ", ");
        }
        const size_t start = strlen(misfit->text);
        tt_format_list(misfit->text + start, sizeof misfit->text - start, format, args);
        va_end(args);
    } else if (misfit->count == NAMES_LISTED) {
        snprintf(misfit->text + used, room, ", …");
    }
    misfit->count++;
}

static tutti_status_t compare(void *user, const char *name, tutti_tensor_t *tensor)
{
    comparison_t *c = user;
    const tutti_safetensors_entry_t *entry = tutti_safetensors_find(c->file, name);
    if (entry == NULL) {
        add_misfit(&c->missing, "%s", name);
        return TUTTI_OK;
    }
    c->found++;
    if (!tutti_shape_equal(entry->shape, tutti_tensor_shape(tensor))) {
        char in_file[64], here[64];
        add_misfit(&c->reshaped, "%s is %s in the file and %s here", name,
                   tutti_shape_format(entry->shape, in_file, sizeof in_file),
                   tutti_shape_format(tutti_tensor_shape(tensor), here, sizeof here));
    }
    return TUTTI_OK;
}

static void find_unexpected(comparison_t *c)
{
    for (size_t i = 0; i < tutti_safetensors_count(c->file); i++) {
        const char *name = tutti_safetensors_at(c->file, i)->name;
        if (tutti_module_find(c->module, name) == NULL) {
            char printed[80];
            tt_bytes_print(tutti_text(name), printed, sizeof printed);
            add_misfit(&c->unexpected, "%s", printed);
        }
    }
}

static void append_misfit(char *text, size_t bytes, const char *what, const misfit_t *misfit)
{
    const size_t used = strlen(text);
    if (misfit->count > 0) {
        snprintf(text + used, bytes - used, "%s%zu %s (%s)", used > 0 ? "; " : "", misfit->count,
                 what, misfit->text);
    }
}

static tutti_status_t check_fit(comparison_t *c)
{
    TT_TRY(tutti_module_each_tensor(c->module, compare, c));
    if (c->found < tutti_safetensors_count(c->file)) {
        find_unexpected(c);
    }
    char text[960] = "";
    append_misfit(text, sizeof text, "of another shape", &c->reshaped);
    append_misfit(text, sizeof text, "missing", &c->missing);
    append_misfit(text, sizeof text, "unexpected", &c->unexpected);
    if (text[0] != 0) {
        return TT_FAIL(
            TUTTI_ERR_MISMATCH,
            "%s: its tensors do not fit this %s: %s: make it with the sizes it was saved "
            "with",
            tutti_safetensors_path(c->file), tutti_module_kind(c->module)->name, text);
    }
    return TUTTI_OK;
}

typedef struct {
    const tutti_safetensors_t *file;
    tutti_device_t *device; /* where what lies on meta goes */
} source_t;

tutti_status_t tt_load_check(tutti_tensor_t *x, const char *name, tutti_device_t *device)
{
    char text[192];
    if (tt_device_has_values(tutti_tensor_device(x))) {
        return TUTTI_OK;
    }
    if (!tt_device_has_values(device)) {
        return TT_FAIL(TUTTI_ERR_ARG, "module_load: %s has no memory for %s",
                       tutti_device_name(device), name);
    }
    return tt_tensor_is_whole(x)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "module_load: %s, %s, lies on meta and is a part of another tensor", name,
                         tutti_tensor_describe(x, text, sizeof text));
}

tutti_status_t tt_load_begin(tutti_tensor_t *x, tutti_device_t *device, tutti_tensor_t **into)
{
    if (tt_device_has_values(tutti_tensor_device(x))) {
        *into = tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    return tt_tensor_new(tt_memory_on(device), x->dtype, x->shape, false, into);
}

tutti_status_t tt_load_end(tutti_tensor_t *x, tutti_tensor_t *into, tutti_status_t status)
{
    if (status >= 0 && into != x) {
        status = tt_leave_meta(x, into);
    }
    tutti_tensor_release(into);
    return status;
}

static tutti_status_t check_memory(void *user, const char *name, tutti_tensor_t *x)
{
    const source_t *source = user;
    TT_TRY(tt_tensor_check_decided(x, name));
    return tt_load_check(x, name, source->device);
}

static tutti_status_t read_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    const source_t *source = user;
    tutti_tensor_t *into;
    TT_TRY(tt_load_begin(x, source->device, &into));
    return tt_load_end(x, into, tutti_safetensors_read(source->file, name, into));
}

static tutti_status_t load(tutti_module_t *m, const tutti_safetensors_t *file,
                           tutti_device_t *device)
{
    comparison_t comparison = {.file = file, .module = m};
    source_t source = {file, device};
    TT_TRY(check_fit(&comparison));
    TT_TRY(tutti_module_each_tensor(m, check_memory, &source));
    return tutti_module_each_tensor(m, read_tensor, &source);
}

tutti_status_t tutti_module_load_from(tutti_module_t *m, const tutti_safetensors_t *file)
{
    TT_WANT("module_load", m);
    TT_WANT("module_load", file);
    return load(m, file, NULL);
}

tutti_status_t tutti_module_load_to(tutti_module_t *m, const char *path, tutti_device_t *device)
{
    TT_WANT("module_load", m);
    tutti_safetensors_t *file;
    TT_TRY(tutti_safetensors_open(path, &file));
    const tutti_status_t status = load(m, file, device);
    tutti_safetensors_close(file);
    return status;
}

tutti_status_t tutti_module_load(tutti_module_t *m, const char *path)
{
    return tutti_module_load_to(m, path, NULL);
}
