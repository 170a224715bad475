/* Reading safetensors: the header when a file is opened, each tensor when it is asked for, straight
 * into its memory. Nothing is mapped, so that a file that shrinks under a reader is an error and
 * not a signal.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/nearest.h"
#include "core/tensor/safetensors_impl.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t read_header_bytes(const tt_file_t *file, uint64_t *out)
{
    unsigned char prefix[TT_SAFETENSORS_PREFIX_BYTES];
    TT_TRY(tt_file_read_at(file, 0, prefix, sizeof prefix));
    uint64_t bytes = 0;
    for (int i = 0; i < TT_SAFETENSORS_PREFIX_BYTES; i++) {
        bytes |= (uint64_t)prefix[i] << (8 * i);
    }
    if (bytes > TUTTI_SAFETENSORS_HEADER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: a header of %" PRIu64 " bytes: expected at most %d (is it a "
                       "safetensors file?)",
                       file->path, bytes, TUTTI_SAFETENSORS_HEADER_BYTES_MAX);
    }
    if (bytes > file->bytes - sizeof prefix) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: truncated: expected a header of %" PRIu64 " bytes at offset %zu, the "
                       "file ends at %" PRIu64,
                       file->path, bytes, sizeof prefix, file->bytes);
    }
    *out = bytes;
    return TUTTI_OK;
}

static tutti_status_t load_header(tutti_safetensors_t *st)
{
    uint64_t bytes = 0;
    TT_TRY(read_header_bytes(&st->file, &bytes));
    st->data_start = TT_SAFETENSORS_PREFIX_BYTES + bytes;
    st->header = tt_alloc_raw(bytes, "safetensors header");
    TT_TRY_ALLOC(st->header);
    TT_TRY(tt_file_read_at(&st->file, TT_SAFETENSORS_PREFIX_BYTES, st->header, bytes));
    return tt_safetensors_check(st);
}

/* Takes over the file. */
static tutti_status_t open_file(tt_file_t *file, tutti_safetensors_t **out)
{
    tutti_safetensors_t *st = tt_alloc(sizeof *st, "safetensors");
    if (st == NULL) {
        tt_file_close(file);
        return TUTTI_ERR_NOMEM;
    }
    st->file = *file;
    const tutti_status_t status = load_header(st);
    if (status < 0) {
        tutti_safetensors_close(st);
        return status;
    }
    *out = st;
    return TUTTI_OK;
}

tutti_status_t tutti_safetensors_open(const char *path, tutti_safetensors_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    return open_file(&file, out);
}

tutti_status_t tutti_safetensors_open_bytes(const char *name, tutti_bytes_t data,
                                            tutti_safetensors_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open_memory(name, data.data, data.bytes, &file));
    return open_file(&file, out);
}

void tutti_safetensors_close(tutti_safetensors_t *file)
{
    if (file != NULL) {
        tt_file_close(&file->file);
        tt_free(file->header);
        tt_free(file->entries);
        tt_free(file->entries_named);
        tt_free(file->metadata);
        tt_free(file);
    }
}

const char *tutti_safetensors_path(const tutti_safetensors_t *file)
{
    return file->file.path;
}

size_t tutti_safetensors_count(const tutti_safetensors_t *file)
{
    return file->count;
}

const tutti_safetensors_entry_t *tutti_safetensors_at(const tutti_safetensors_t *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const tutti_safetensors_entry_t *tutti_safetensors_find(const tutti_safetensors_t *file,
                                                        const char *name)
{
    size_t low = 0, high = file->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, file->entries_named[middle]->name);
        if (order == 0) {
            return file->entries_named[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

const char *tutti_safetensors_metadata(const tutti_safetensors_t *file, const char *name)
{
    size_t low = 0, high = file->metadata_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, file->metadata[middle].name);
        if (order == 0) {
            return file->metadata[middle].text;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

static tutti_status_t fail_missing(const tutti_safetensors_t *file, const char *name)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < file->count; i++) {
        const size_t distance = tt_name_distance(name, file->entries[i].name);
        if (distance < least) {
            least = distance;
            nearest = file->entries[i].name;
        }
    }
    char printed[160] = "";
    tt_bytes_print(tutti_text(nearest == NULL ? "" : nearest), printed, sizeof printed);
    return nearest == NULL
               ? TT_FAIL(TUTTI_ERR_NOT_FOUND, "%s: no tensor \"%s\", nor any other",
                         file->file.path, name)
               : TT_FAIL(TUTTI_ERR_NOT_FOUND, "%s: no tensor \"%s\": the nearest is \"%s\"",
                         file->file.path, name, printed);
}

/* A byte that is neither 0 nor 1 is no bool in C. */
static tutti_status_t check_bools(const tutti_safetensors_t *file,
                                  const tutti_safetensors_entry_t *entry,
                                  const unsigned char *bytes)
{
    for (uint64_t i = 0; i < entry->bytes; i++) {
        if (bytes[i] > 1) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: byte %d at offset %" PRIu64 ": expected 0 or 1, a bool",
                           file->file.path, bytes[i], entry->offset + i);
        }
    }
    return TUTTI_OK;
}

/* Read into contiguous memory of the entry's dtype. */
static tutti_status_t read_raw(const tutti_safetensors_t *file,
                               const tutti_safetensors_entry_t *entry, void *to)
{
    TT_TRY(tt_file_read_at(&file->file, entry->offset, to, entry->bytes));
    return entry->dtype == TUTTI_BOOL ? check_bools(file, entry, to) : TUTTI_OK;
}

static tutti_status_t read_new(const tutti_safetensors_t *file,
                               const tutti_safetensors_entry_t *entry, tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(NULL, entry->dtype, entry->shape, false, &x));
    const tutti_status_t status = read_raw(file, entry, tutti_tensor_data(x));
    if (status < 0) {
        tutti_tensor_release(x);
        return status;
    }
    *out = x;
    return TUTTI_OK;
}

tutti_status_t tutti_safetensors_read(const tutti_safetensors_t *file, const char *name,
                                      tutti_tensor_t *to)
{
    TT_TRY(tt_tensor_check(to));
    const tutti_safetensors_entry_t *entry = tutti_safetensors_find(file, name);
    if (entry == NULL) {
        return fail_missing(file, name);
    }
    if (!tutti_shape_equal(entry->shape, tutti_tensor_shape(to))) {
        char in_file[160], wanted[160];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: tensor \"%s\" is %s in the file, %s here",
                       file->file.path, name,
                       tutti_shape_format(entry->shape, in_file, sizeof in_file),
                       tutti_shape_format(tutti_tensor_shape(to), wanted, sizeof wanted));
    }
    if (!tt_device_has_values(to->storage->device)) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "%s: tensor \"%s\" cannot be read into meta, which has no memory: "
                       "tutti_module_load() gives a module's tensors some",
                       file->file.path, name);
    }
    const bool is_any = entry->dtype != TUTTI_BOOL; /* every byte is a value */
    if (is_any && to->storage->device == NULL && entry->dtype == tutti_tensor_dtype(to) &&
        tutti_tensor_is_contiguous(to)) {
        tt_tensor_touch(to);
        return read_raw(file, entry, tutti_tensor_data(to));
    }
    tutti_tensor_t *read;
    TT_TRY(read_new(file, entry, &read));
    const tutti_status_t status = tutti_tensor_copy(to, read);
    tutti_tensor_release(read);
    return status;
}

tutti_tensor_t *tutti_safetensors_load(tutti_scope_t *s, const tutti_safetensors_t *file,
                                       const char *name)
{
    const tutti_safetensors_entry_t *entry = tutti_safetensors_find(file, name);
    if (entry == NULL) {
        return tutti_scope_fail(s, fail_missing(file, name));
    }
    tutti_tensor_t *x = tutti_empty(s, entry->dtype, entry->shape);
    const tutti_status_t status =
        tutti_tensor_status(x) < 0 || !tt_device_has_values(x->storage->device)
            ? TUTTI_OK
            : tutti_safetensors_read(file, name, x);
    return status < 0 ? tutti_scope_fail(s, status) : x;
}
