/* Safetensors files as sources, alone and by Hugging Face's index:
 *
 *     {"metadata": {"total_size": 548105171},
 *      "weight_map": {"wte.weight": "model-00001-of-00002.safetensors", …}}
 *
 * A file's header is checked by tutti_safetensors_open(). Tensors of a file that the index does not
 * name are taken, as transformers takes them.
 */
#include <stdio.h>
#include <string.h>

#include <jansson.h>
#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/file.h"
#include "core/tensor/safetensors_impl.h"
#include "runtime/checkpoint/open_files.h"
#include "runtime/checkpoint/source.h"

static tutti_status_t fail_twice(const tt_source_t *source, const char *path,
                                 const tt_saved_tensor_t *tensor)
{
    char name[160];
    const int file = tensor->slice_count == 0 ? TT_NO_FILE : tensor->slices[0].file;
    tt_bytes_print(tutti_text(tensor->name), name, sizeof name);
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: tensor \"%s\" is in %s, too", path, name,
                   file == TT_NO_FILE ? "another file" : source->manifest->files[file].name);
}

static tutti_status_t add_entry(tt_source_t *source, const char *path, const char *prefix,
                                const tutti_safetensors_entry_t *entry)
{
    tt_manifest_t *manifest = source->manifest;
    const size_t bytes = strlen(prefix) + strlen(entry->name) + 1;
    char *name = tt_alloc(bytes, "checkpoint");
    TT_TRY_ALLOC(name);
    snprintf(name, bytes, "%s%s", prefix, entry->name);
    tt_saved_tensor_t *tensor = tt_manifest_find(manifest, name);
    tutti_status_t status =
        tensor != NULL ? fail_twice(source, path, tensor)
                       : tt_manifest_add(manifest, name, entry->dtype, entry->shape, &tensor);
    if (status >= 0 && entry->bytes > 0) {
        const tt_saved_slice_t slice = {.box = tt_box_of(entry->shape),
                                        .file = (int)manifest->file_count - 1,
                                        .at = entry->offset};
        status = tt_manifest_add_slice(tensor, &slice);
    }
    tt_free(name);
    return status;
}

tutti_status_t tt_source_know(tt_source_t *source, const tt_file_t *file, uint64_t head_bytes)
{
    tt_saved_file_t *saved = &source->manifest->files[source->manifest->file_count - 1];
    TT_TRY(tt_file_head(file, head_bytes, &saved->head));
    saved->head_bytes = head_bytes;
    return TUTTI_OK;
}

tutti_status_t tt_source_add_safetensors(tt_source_t *source, const char *file, const char *prefix)
{
    tt_path_t path;
    tutti_safetensors_t *st;
    tt_steps_file(source->folder, file, path);
    TT_TRY(tutti_safetensors_open(path, &st));
    tutti_status_t status = tt_manifest_add_file(source->manifest, file, NULL);
    if (status >= 0) {
        status = tt_source_know(source, &st->file, st->data_start);
    }
    for (size_t i = 0; i < tutti_safetensors_count(st) && status >= 0; i++) {
        status = add_entry(source, path, prefix, tutti_safetensors_at(st, i));
    }
    tutti_safetensors_close(st);
    return status;
}

tutti_status_t tt_source_metadata(const tt_source_t *source, const char *file, const char *name,
                                  char **out)
{
    tt_path_t path;
    tutti_safetensors_t *st;
    tt_steps_file(source->folder, file, path);
    TT_TRY(tutti_safetensors_open(path, &st));
    const char *text = tutti_safetensors_metadata(st, name);
    *out = text == NULL ? NULL : tt_strdup(text, "checkpoint");
    const tutti_status_t status = text != NULL && *out == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    tutti_safetensors_close(st);
    return status;
}

/* ---- the index ------------------------------------------------------------------------------- */

static bool has_file(const tt_manifest_t *manifest, const char *name)
{
    bool is_there = false;
    for (size_t i = 0; i < manifest->file_count && !is_there; i++) {
        is_there = strcmp(manifest->files[i].name, name) == 0;
    }
    return is_there;
}

static tutti_status_t fail_place(const char *path, const char *tensor, const char *file)
{
    char name[160], place[160];
    tt_bytes_print(tutti_text(tensor), name, sizeof name);
    tt_bytes_print(tutti_text(file == NULL ? "" : file), place, sizeof place);
    return file == NULL
               ? TT_FAIL(TUTTI_ERR_FORMAT, "%s: tensor \"%s\": expected the name of a file", path,
                         name)
               : TT_FAIL(TUTTI_ERR_FORMAT, "%s: tensor \"%s\" is not in \"%s\"", path, name, place);
}

/* A file that leads out of the folder is not opened: its name is no name of one. */
static tutti_status_t add_files(tt_source_t *source, const char *path, json_t *places)
{
    const char *name;
    json_t *place;
    json_object_foreach(places, name, place)
    {
        const char *file = json_string_value(place);
        if (file == NULL || strchr(file, '/') != NULL) {
            return fail_place(path, name, NULL);
        }
        if (!has_file(source->manifest, file)) {
            TT_TRY(tt_source_add_safetensors(source, file, ""));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_places(const tt_source_t *source, const char *path, json_t *places)
{
    const tt_manifest_t *manifest = source->manifest;
    const char *name;
    json_t *place;
    json_object_foreach(places, name, place)
    {
        const tt_saved_tensor_t *tensor = tt_manifest_find(manifest, name);
        const tt_saved_slice_t *slice =
            tensor == NULL || tensor->slice_count == 0 ? NULL : tensor->slices;
        const char *file = json_string_value(place);
        if (tensor == NULL ||
            (slice != NULL && strcmp(manifest->files[slice->file].name, file) != 0)) {
            return fail_place(path, name, file);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t load_json(const char *path, json_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const bool is_long = file.bytes > TUTTI_SAFETENSORS_HEADER_BYTES_MAX;
    char *text = is_long ? NULL : tt_alloc_raw((size_t)file.bytes + 1, "index");
    tutti_status_t status =
        is_long ? TT_FAIL(TUTTI_ERR_FORMAT, "%s: an index of %llu bytes: expected at most %d", path,
                          (unsigned long long)file.bytes, TUTTI_SAFETENSORS_HEADER_BYTES_MAX)
        : text == NULL ? TUTTI_ERR_NOMEM
                       : tt_file_read_at(&file, 0, text, (size_t)file.bytes);
    if (status >= 0) {
        json_error_t error;
        *out = json_loadb(text, (size_t)file.bytes, JSON_REJECT_DUPLICATES, &error);
        char printed[JSON_ERROR_TEXT_LENGTH];
        tt_bytes_print(tutti_text(error.text), printed, sizeof printed);
        status = *out != NULL ? TUTTI_OK
                              : TT_FAIL(TUTTI_ERR_FORMAT, "%s: not valid JSON at offset %d: %s",
                                        path, error.position, printed);
    }
    tt_free(text);
    tt_file_close(&file);
    return status;
}

tutti_status_t tt_source_add_index(tt_source_t *source, const char *file)
{
    tt_path_t path;
    json_t *json;
    tt_steps_file(source->folder, file, path);
    TT_TRY(load_json(path, &json));
    json_t *places = json_object_get(json, "weight_map");
    tutti_status_t status =
        json_is_object(places)
            ? add_files(source, path, places)
            : TT_FAIL(TUTTI_ERR_FORMAT, "%s: \"weight_map\": expected an object", path);
    if (status >= 0) {
        status = check_places(source, path, places);
    }
    json_decref(json);
    return status;
}
