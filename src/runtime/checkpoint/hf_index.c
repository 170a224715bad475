/* Writing Hugging Face's index. */
#include "runtime/checkpoint/hf_index.h"

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "runtime/checkpoint/step_folders.h"

void tt_hf_index_begin(tt_hf_index_t *index)
{
    *index = (tt_hf_index_t){.map = json_object()};
    index->is_whole = index->map != NULL;
}

void tt_hf_index_add(tt_hf_index_t *index, const char *name, const char *file, uint64_t bytes)
{
    index->bytes += bytes;
    index->is_whole =
        index->is_whole && json_object_set_new(index->map, name, json_string(file)) == 0;
}

void tt_hf_index_of(const tt_manifest_t *manifest, tt_hf_index_t *index)
{
    tt_hf_index_begin(index);
    for (size_t i = 0; i < manifest->tensor_count && manifest->is_whole; i++) {
        const tt_saved_tensor_t *tensor = &manifest->tensors[i];
        if (tensor->is_model && tensor->slice_count == 1 && tensor->slices[0].file != TT_NO_FILE) {
            tt_hf_index_add(index, tensor->name, manifest->files[tensor->slices[0].file].name,
                            (uint64_t)tutti_shape_numel(tensor->shape) *
                                tutti_dtype_bytes(tensor->dtype));
        }
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Takes the map over; NULL: out of memory. */
static json_t *pack(tt_hf_index_t *index)
{
    json_t *json = index->is_whole ? json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                                               (json_int_t)index->bytes, "weight_map", index->map)
                                   : NULL;
    json_decref(index->map);
    return json;
}

static bool is_empty(const tt_hf_index_t *index)
{
    return index->is_whole && json_object_size(index->map) == 0;
}

static tutti_status_t fail_memory(const char *path)
{
    return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory, or a name that is not UTF-8: %s", path);
}

static tutti_status_t fail_other(const char *path)
{
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "%s: it does not say of the model's tensors what the manifest says", path);
}

static tutti_status_t compare_text(const char *path, const char *text, size_t bytes,
                                   const json_t *expected)
{
    json_error_t error;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    const tutti_status_t status = json == NULL
                                      ? TT_FAIL(TUTTI_ERR_FORMAT, "%s: %s", path, error.text)
                                  : json_equal(json, expected) ? TUTTI_OK
                                                               : fail_other(path);
    json_decref(json);
    return status;
}

/* Others may have set it with more blanks; what is much longer is not read: it says something else,
 * and as objects of jansson it may take 80 times as much. */
static tutti_status_t compare(const char *path, const json_t *expected)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const size_t bytes = (size_t)file.bytes;
    const size_t most = 2 * json_dumpb(expected, NULL, 0, JSON_INDENT(2)); /* 0: out of memory */
    char *text = file.bytes > most ? NULL : tt_alloc_raw(bytes + 1, "index");
    tutti_status_t status = most == 0           ? fail_memory(path)
                            : file.bytes > most ? fail_other(path)
                            : text == NULL      ? TUTTI_ERR_NOMEM
                                                : tt_file_read_at(&file, 0, text, bytes);
    if (status >= 0) {
        status = compare_text(path, text, bytes, expected);
    }
    tt_free(text);
    tt_file_close(&file);
    return status;
}

tutti_status_t tt_hf_index_check(tt_hf_index_t *index, const char *folder)
{
    tt_path_t path;
    const bool is_wanted = !is_empty(index);
    json_t *expected = pack(index);
    tt_steps_file(folder, TT_HF_INDEX_NAME, path);
    const tutti_status_t status = expected == NULL ? fail_memory(path)
                                  : is_wanted      ? compare(path, expected)
                                                   : TUTTI_OK;
    json_decref(expected);
    return status;
}

static tutti_status_t write_text(const char *path, const json_t *json, size_t bytes)
{
    tt_new_file_t file;
    char *text = tt_alloc_raw(bytes + 1, "index");
    TT_TRY_ALLOC(text);
    if (bytes == 0 || json_dumpb(json, text, bytes, JSON_INDENT(2)) != bytes) {
        tt_free(text);
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: %s", path);
    }
    text[bytes] = '\n';
    tutti_status_t status = tt_new_file_begin(path, &file);
    if (status >= 0) {
        status = tt_new_file_end(&file, tt_new_file_write(&file, text, bytes + 1));
    }
    tt_free(text);
    return status;
}

tutti_status_t tt_hf_index_end(tt_hf_index_t *index, const char *folder)
{
    tt_path_t path;
    const bool is_wanted = !is_empty(index);
    json_t *json = pack(index);
    tt_steps_file(folder, TT_HF_INDEX_NAME, path);
    const tutti_status_t status =
        json == NULL ? fail_memory(path)
        : is_wanted  ? write_text(path, json, json_dumpb(json, NULL, 0, JSON_INDENT(2)))
                     : TUTTI_OK;
    json_decref(json);
    return status;
}
