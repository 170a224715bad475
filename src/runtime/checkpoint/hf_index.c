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
    if (index->is_whole && json_object_size(index->map) == 0) {
        json_decref(index->map);
        return TUTTI_OK;
    }
    json_t *json = index->is_whole ? json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                                               (json_int_t)index->bytes, "weight_map", index->map)
                                   : NULL;
    tt_steps_file(folder, TT_HF_INDEX_NAME, path);
    const tutti_status_t status =
        json == NULL
            ? TT_FAIL(TUTTI_ERR_NOMEM, "out of memory, or a name that is not UTF-8: %s", path)
            : write_text(path, json, json_dumpb(json, NULL, 0, JSON_INDENT(2)));
    json_decref(json);
    json_decref(index->map);
    return status;
}
