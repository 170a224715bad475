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

#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/file.h"
#include "core/base/json_walk.h"
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

/* Of the index's weight_map. */
typedef tutti_status_t place_take_t(tt_source_t *source, const char *path, const char *name,
                                    const char *file);

/* A file that leads out of the folder is not opened: its name is no name of one. */
static tutti_status_t add_place(tt_source_t *source, const char *path, const char *name,
                                const char *file)
{
    if (file == NULL || strchr(file, '/') != NULL) {
        return fail_place(path, name, NULL);
    }
    return has_file(source->manifest, file) ? TUTTI_OK
                                            : tt_source_add_safetensors(source, file, "");
}

static tutti_status_t check_place(tt_source_t *source, const char *path, const char *name,
                                  const char *file)
{
    const tt_manifest_t *manifest = source->manifest;
    const tt_saved_tensor_t *tensor = tt_manifest_find(manifest, name);
    const tt_saved_slice_t *slice =
        tensor == NULL || tensor->slice_count == 0 ? NULL : tensor->slices;
    return tensor == NULL || (slice != NULL && strcmp(manifest->files[slice->file].name, file) != 0)
               ? fail_place(path, name, file)
               : TUTTI_OK;
}

static tutti_status_t take_place(tt_source_t *source, tt_json_walk_t *walk, place_take_t *take)
{
    json_t *name, *file;
    TT_TRY(tt_json_name(walk, &name));
    tutti_status_t status = tt_json_leaf(walk, &file);
    if (status >= 0) {
        status = take(source, walk->what, json_string_value(name), json_string_value(file));
        json_decref(file);
    }
    json_decref(name);
    return status;
}

static tutti_status_t take_places(tt_source_t *source, tt_json_walk_t walk, place_take_t *take)
{
    tutti_status_t status = tt_json_enter(&walk, '{');
    while (status >= 0 && (status = tt_json_next(&walk, '}')) == TUTTI_OK) {
        status = take_place(source, &walk, take);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

/* One member of the index; where the places are. */
static tutti_status_t pass_member(tt_json_walk_t *walk, tt_json_walk_t *places)
{
    json_t *name;
    TT_TRY(tt_json_name(walk, &name));
    const bool is_places = strcmp(json_string_value(name), "weight_map") == 0;
    json_decref(name);
    if (is_places && places->text != NULL) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: \"weight_map\": it is there twice", walk->what);
    }
    if (is_places && tt_json_kind(walk) == '{') {
        *places = *walk;
    }
    return tt_json_skip(walk);
}

static tutti_status_t find_places(tt_json_walk_t *walk, tt_json_walk_t *places)
{
    tutti_status_t status = tt_json_enter(walk, '{');
    while (status >= 0 && (status = tt_json_next(walk, '}')) == TUTTI_OK) {
        status = pass_member(walk, places);
    }
    TT_TRY(status == TUTTI_END ? tt_json_end(walk) : status);
    return places->text != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "%s: \"weight_map\": expected an object", walk->what);
}

static tutti_status_t read_text(const char *path, char **text, size_t *bytes)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const bool is_long = file.bytes > TUTTI_SAFETENSORS_HEADER_BYTES_MAX;
    *bytes = (size_t)file.bytes;
    *text = is_long ? NULL : tt_alloc_raw(*bytes + 1, "index");
    const tutti_status_t status =
        is_long ? TT_FAIL(TUTTI_ERR_FORMAT, "%s: an index of %llu bytes: expected at most %d", path,
                          (unsigned long long)file.bytes, TUTTI_SAFETENSORS_HEADER_BYTES_MAX)
        : *text == NULL ? TUTTI_ERR_NOMEM
                        : tt_file_read_at(&file, 0, *text, *bytes);
    tt_file_close(&file);
    return status;
}

tutti_status_t tt_source_add_index(tt_source_t *source, const char *file)
{
    tt_path_t path;
    char *text = NULL;
    size_t bytes;
    tt_steps_file(source->folder, file, path);
    tutti_status_t status = read_text(path, &text, &bytes);
    if (status >= 0) {
        tt_json_walk_t walk = tt_json_walk(path, 0, text, bytes), places = {0};
        status = find_places(&walk, &places);
        status = status < 0 ? status : take_places(source, places, add_place);
        status = status < 0 ? status : take_places(source, places, check_place);
    }
    tt_free(text);
    return status;
}
