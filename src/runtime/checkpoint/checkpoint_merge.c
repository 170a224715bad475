/* Whole tensors into files that everybody reads: one safetensors file, or a folder as Hugging
 * Face's save_pretrained() writes it.
 *
 *     OUT.safetensors
 *     OUT/model.safetensors                                       what fits into one file
 *     OUT/model-00001-of-00003.safetensors … model.safetensors.index.json
 *
 * Tensors stand for theirs on meta: they are read when they are written, a window of 16 MiB at a
 * time.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/devices.h>

#include "core/base/alloc.h"
#include "core/base/folder.h"
#include "core/tensor/safetensors_impl.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/load_names.h"
#include "runtime/checkpoint/hf_index.h"
#include "runtime/checkpoint/saved_impl.h"

#define SHARD_BYTES_DEFAULT UINT64_C(5000000000)

static const char suffix[] = ".safetensors", model_prefix[] = "model", step_prefix[] = "step-";

typedef struct {
    tutti_saved_t *saved;
    const char *path;
    const tutti_saved_watch_t *watch;
    tutti_device_t *meta;
    tutti_named_tensor_t *tensors; /* [count] */
    size_t *shards;                /* [count] of each, counted from 1 */
    size_t count, shard_count;
    uint64_t bytes, done;
} merge_t;

/* ---- what is written ------------------------------------------------------------------------- */

/* What a training keeps beside a module's tensors. */
static bool is_beside(const char *name)
{
    return strncmp(name, TT_OPTIM_PREFIX, sizeof TT_OPTIM_PREFIX - 1) == 0 ||
           strncmp(name, TT_AVERAGED_PREFIX, sizeof TT_AVERAGED_PREFIX - 1) == 0;
}

static tutti_status_t choose_tensors(merge_t *merge, bool is_all)
{
    const tt_manifest_t *manifest = tt_saved_names(merge->saved);
    merge->tensors = tt_alloc_array(manifest->tensor_count + 1, sizeof *merge->tensors, "merge");
    TT_TRY_ALLOC(merge->tensors);
    merge->shards = tt_alloc_array(manifest->tensor_count + 1, sizeof *merge->shards, "merge");
    TT_TRY_ALLOC(merge->shards);
    TT_TRY(tutti_device_open("meta", NULL, &merge->meta));
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const tt_saved_tensor_t *saved = &manifest->tensors[i];
        tutti_tensor_t *x;
        if (is_all || !is_beside(saved->name)) {
            TT_TRY(tt_tensor_new(merge->meta, saved->dtype, saved->shape, false, &x));
            merge->tensors[merge->count++] = (tutti_named_tensor_t){saved->name, x};
            merge->bytes += tutti_tensor_bytes(x);
        }
    }
    return merge->count > 0 || manifest->tensor_count == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "merge: all %zu tensors of %s belong to the optimizer (\"%s…\"), which is "
                         "left out: want --all, in C is_all",
                         manifest->tensor_count, merge->saved->path, TT_OPTIM_PREFIX);
}

/* In their order; a file is as full as it may be. */
static void deal(merge_t *merge, uint64_t shard_bytes)
{
    uint64_t used = 0;
    merge->shard_count = 1;
    for (size_t i = 0; i < merge->count; i++) {
        const uint64_t bytes = tutti_tensor_bytes(merge->tensors[i].tensor);
        if (used > 0 && (used > shard_bytes || bytes > shard_bytes - used)) {
            merge->shard_count++;
            used = 0;
        }
        used += bytes;
        merge->shards[i] = merge->shard_count;
    }
}

static void end_merge(merge_t *merge)
{
    for (size_t i = 0; i < merge->count; i++) {
        tutti_tensor_release((tutti_tensor_t *)(uintptr_t)merge->tensors[i].tensor);
    }
    tutti_device_release(merge->meta);
    tt_free(merge->tensors);
    tt_free(merge->shards);
}

/* ---- files ----------------------------------------------------------------------------------- */

static tutti_status_t fetch(void *user, const tutti_named_tensor_t *named, int64_t first,
                            tutti_tensor_t *window)
{
    merge_t *merge = user;
    TT_TRY(tt_saved_read_window(merge->saved, named->name, NULL, first, window));
    merge->done += tutti_tensor_bytes(window);
    return tt_saved_advance(merge->watch, merge->done, merge->bytes);
}

/* Tensors [first, end) */
static tutti_status_t write_file(merge_t *merge, const char *path, size_t first, size_t end)
{
    static const tutti_named_text_t format = {"format", "pt"};
    const tt_safetensors_watch_t watch = {.user = merge, .fetch = fetch};
    return tt_safetensors_save(path, merge->tensors + first, end - first, &format, 1, &watch);
}

static void name_shard(const merge_t *merge, size_t shard, char name[64])
{
    snprintf(name, 64, "%s-%05zu-of-%05zu%s", model_prefix, shard, merge->shard_count, suffix);
}

static tutti_status_t write_index(const merge_t *merge)
{
    tt_hf_index_t index;
    char name[64];
    tt_hf_index_begin(&index);
    for (size_t i = 0; i < merge->count; i++) {
        name_shard(merge, merge->shards[i], name);
        tt_hf_index_add(&index, merge->tensors[i].name, name,
                        tutti_tensor_bytes(merge->tensors[i].tensor));
    }
    return tt_hf_index_end(&index, merge->path);
}

static void name_path(const merge_t *merge, size_t shard, tt_path_t path)
{
    char name[64];
    name_shard(merge, shard, name);
    tt_steps_file(merge->path, name, path);
}

/* The index comes last: without it there is no model. */
static tutti_status_t write_all_shards(merge_t *merge)
{
    for (size_t first = 0, end; first < merge->count; first = end) {
        tt_path_t path;
        for (end = first; end < merge->count && merge->shards[end] == merge->shards[first];) {
            end++;
        }
        name_path(merge, merge->shards[first], path);
        TT_TRY(write_file(merge, path, first, end));
    }
    return write_index(merge);
}

/* All of them, or none: half of a model would be in the way of the next try. */
static tutti_status_t write_shards(merge_t *merge)
{
    const tutti_status_t status = write_all_shards(merge);
    tt_path_t path;
    if (status < 0) {
        tt_steps_file(merge->path, TT_HF_INDEX_NAME, path);
        (void)unlink(path);
    }
    for (size_t shard = 1; status < 0 && shard <= merge->shard_count; shard++) {
        name_path(merge, shard, path);
        (void)unlink(path);
    }
    return status;
}

/* A reader takes model.safetensors before an index, and either before steps; old files would be
 * left over. */
static tutti_status_t check_free(const char *path)
{
    DIR *folder = opendir(path);
    tutti_status_t status = TUTTI_OK;
    if (folder == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", path);
    }
    for (const struct dirent *item; status >= 0 && (item = readdir(folder)) != NULL;) {
        if (strncmp(item->d_name, step_prefix, sizeof step_prefix - 1) == 0) {
            status = TT_FAIL(TUTTI_ERR_ARG,
                             "merge: there are checkpoints in %s (%s), which a model there would "
                             "hide: want another folder, or a new one",
                             path, item->d_name);
        }
        if (strncmp(item->d_name, model_prefix, sizeof model_prefix - 1) == 0 &&
            strstr(item->d_name, suffix) != NULL) {
            status = TT_FAIL(TUTTI_ERR_ARG,
                             "merge: there is a model in %s already (%s): want another folder, or "
                             "a new one",
                             path, item->d_name);
        }
    }
    closedir(folder);
    return status;
}

static tutti_status_t write_folder(merge_t *merge)
{
    tt_path_t path;
    TT_TRY(tt_folder_make(merge->path));
    TT_TRY(check_free(merge->path));
    if (merge->shard_count > 1) {
        return write_shards(merge);
    }
    tt_steps_file(merge->path, "model.safetensors", path);
    return write_file(merge, path, 0, merge->count);
}

static bool is_file_name(const char *path)
{
    const size_t bytes = strlen(path);
    return bytes >= sizeof suffix && strcmp(path + bytes + 1 - sizeof suffix, suffix) == 0;
}

tutti_status_t tutti_saved_merge(tutti_saved_t *saved, const char *path,
                                 const tutti_merge_options_t *options)
{
    static const tutti_saved_watch_t nobody;
    static const tutti_merge_options_t defaults;
    const tutti_merge_options_t *o = options == NULL ? &defaults : options;
    merge_t merge = {.saved = saved, .path = path, .watch = o->watch == NULL ? &nobody : o->watch};
    if (strlen(path) > TT_STEP_FOLDER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "merge: a path of %zu characters; want at most %d",
                       strlen(path), TT_STEP_FOLDER_BYTES_MAX);
    }
    tutti_status_t status = choose_tensors(&merge, o->is_all);
    if (status >= 0) {
        deal(&merge, o->shard_bytes > 0 ? o->shard_bytes : SHARD_BYTES_DEFAULT);
        status =
            is_file_name(path) ? write_file(&merge, path, 0, merge.count) : write_folder(&merge);
    }
    end_merge(&merge);
    return status;
}
