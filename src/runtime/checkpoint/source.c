/* Finding out what a path is. A file is known by its first bytes, a folder by the files in it. */
#include "runtime/checkpoint/source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/checkpoint_texts.h"
#include "runtime/checkpoint/hf_index.h"

#define MODEL_NAME "model.safetensors"
#define OPTIM_NAME "optim.safetensors"
#define EXTRA_NAME "extra.safetensors"

static bool has_file(const tt_source_t *source, const char *name)
{
    tt_path_t path;
    tt_steps_file(source->folder, name, path);
    return access(path, F_OK) == 0;
}

static tutti_status_t open_manifest(tt_source_t *source)
{
    tt_path_t path;
    tt_manifest_release(source->manifest);
    source->manifest = NULL;
    source->format = "checkpoint";
    tt_steps_file(source->folder, TT_MANIFEST_NAME, path);
    TT_TRY(tt_manifest_read(path, &source->manifest));
    return tt_manifest_check_slices(path, source->manifest);
}

static tutti_status_t open_index(tt_source_t *source)
{
    source->format = "Hugging Face";
    return tt_source_add_index(source, TT_HF_INDEX_NAME);
}

static tutti_status_t check_no_digests(const tt_source_t *source, const char *name)
{
    static const char suffix[] = ".safetensors";
    char digests[NAME_MAX + 1];
    const size_t bytes = strlen(name), ending = sizeof suffix - 1;
    if (bytes <= ending || strcmp(name + bytes - ending, suffix) != 0) {
        return TUTTI_OK;
    }
    snprintf(digests, sizeof digests, "%.*s.digests", (int)(bytes - ending), name);
    return !has_file(source, digests)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "%s: a checkpoint without its " TT_MANIFEST_NAME ", so that nothing tells "
                         "whether %s is whole: open its " TT_HF_INDEX_NAME
                         " to read the model unchecked",
                         source->folder, name);
}

/* Who copies the model alone leaves the digests of its files behind: with them it is a checkpoint
 * that has lost its manifest. */
static tutti_status_t open_indexed_folder(tt_source_t *source)
{
    TT_TRY(open_index(source));
    for (size_t i = 0; i < source->manifest->file_count; i++) {
        TT_TRY(check_no_digests(source, source->manifest->files[i].name));
    }
    return TUTTI_OK;
}

/* How many steps are done, if the model's metadata says so. */
static tutti_status_t read_step(tt_source_t *source)
{
    char *text, *end = NULL;
    TT_TRY(tt_source_metadata(source, MODEL_NAME, "step", &text));
    const long long step = text == NULL ? 0 : strtoll(text, &end, 10);
    if (text != NULL && end != text && *end == 0 && step >= 0 && step <= TT_STEP_MAX) {
        source->manifest->step = step;
    }
    tt_free(text);
    return TUTTI_OK;
}

/* The kind of the optimizer, as checkpoints have it. */
static tutti_status_t read_kind(tt_source_t *source)
{
    char *kind;
    TT_TRY(tt_source_metadata(source, OPTIM_NAME, "optimizer", &kind));
    const tutti_status_t status =
        kind == NULL ? TUTTI_OK : tt_checkpoint_texts_add_kind(source->manifest, kind);
    tt_free(kind);
    return status;
}

/* Beside the model an earlier version of Tutti put the optimizer, and what else was to be kept. */
static tutti_status_t open_model(tt_source_t *source)
{
    const bool has_optim = has_file(source, OPTIM_NAME), has_extra = has_file(source, EXTRA_NAME);
    source->format = has_optim || has_extra ? "snapshot" : "safetensors";
    TT_TRY(tt_source_add_safetensors(source, MODEL_NAME, ""));
    TT_TRY(read_step(source));
    if (has_optim) {
        TT_TRY(tt_source_add_safetensors(source, OPTIM_NAME, "optim."));
        TT_TRY(read_kind(source));
    }
    return has_extra ? tt_source_add_safetensors(source, EXTRA_NAME, "") : TUTTI_OK;
}

static tutti_status_t fail_folder(const tt_source_t *source)
{
    return TT_FAIL(TUTTI_ERR_NOT_FOUND,
                   "%s: no checkpoint: want " TT_MANIFEST_NAME ", " TT_HF_INDEX_NAME ", " MODEL_NAME
                   ", or folders step-…, in it",
                   source->folder);
}

static tutti_status_t open_step(tt_source_t *source)
{
    return has_file(source, TT_MANIFEST_NAME)   ? open_manifest(source)
           : has_file(source, TT_HF_INDEX_NAME) ? open_indexed_folder(source)
           : has_file(source, MODEL_NAME)       ? open_model(source)
                                                : fail_folder(source);
}

static tutti_status_t open_folder(tt_source_t *source)
{
    int64_t step = TT_NO_STEP;
    if (!has_file(source, TT_MANIFEST_NAME) && !has_file(source, TT_HF_INDEX_NAME) &&
        !has_file(source, MODEL_NAME)) {
        TT_TRY(tt_steps_newest(source->folder, INT64_MAX, &step));
    }
    if (step != TT_NO_STEP) {
        tt_path_t folder;
        tt_steps_name(source->folder, step, folder);
        memcpy(source->folder, folder, sizeof folder);
        source->manifest->step = step;
    }
    return open_step(source);
}

/* The folder of a file, and its name there. */
static const char *split(const char *path, tt_path_t folder)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        memcpy(folder, ".", 2);
        return path;
    }
    const size_t bytes = slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, path, bytes);
    folder[bytes] = 0;
    return slash + 1;
}

/* By its name, or by the brace that a header begins with. */
static tutti_status_t check_safetensors(const char *path)
{
    static const char suffix[] = ".safetensors";
    const size_t bytes = strlen(path), ending = sizeof suffix - 1;
    char begin[9] = "";
    if (bytes >= ending && strcmp(path + bytes - ending, suffix) == 0) {
        return TUTTI_OK;
    }
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const tutti_status_t status =
        file.bytes < sizeof begin ? TUTTI_OK : tt_file_read_at(&file, 0, begin, sizeof begin);
    tt_file_close(&file);
    TT_TRY(status);
    return begin[8] == '{'
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "%s: of no format that is known: want safetensors, llm.c's GPT-2, a "
                         "manifest or an index",
                         path);
}

static tutti_status_t open_file(tt_source_t *source, const char *path)
{
    const char *name = split(path, source->folder);
    if (strcmp(name, TT_MANIFEST_NAME) == 0) {
        return open_manifest(source);
    }
    if (strcmp(name, TT_HF_INDEX_NAME) == 0) {
        return open_index(source);
    }
    bool is_llmc;
    TT_TRY(tt_source_is_llmc(path, &is_llmc));
    source->format = is_llmc ? "llm.c" : "safetensors";
    TT_TRY(is_llmc ? TUTTI_OK : check_safetensors(path));
    return is_llmc ? tt_source_add_llmc(source, name) : tt_source_add_safetensors(source, name, "");
}

tutti_status_t tt_source_open(const char *path, tt_source_t *out)
{
    struct stat about;
    *out = (tt_source_t){0};
    if (path == NULL || path[0] == 0 || strlen(path) > TT_STEP_FOLDER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: want a path of 1 to %d characters",
                       TT_STEP_FOLDER_BYTES_MAX);
    }
    if (stat(path, &about) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot look at it", path);
    }
    TT_TRY(tt_manifest_create(0, 1, &out->manifest));
    if (S_ISDIR(about.st_mode)) {
        memcpy(out->folder, path, strlen(path) + 1);
    }
    const tutti_status_t status = S_ISDIR(about.st_mode) ? open_folder(out) : open_file(out, path);
    if (status < 0) {
        tt_source_close(out);
    }
    return status;
}

void tt_source_close(tt_source_t *source)
{
    if (source != NULL) {
        tt_manifest_release(source->manifest);
        source->manifest = NULL;
    }
}
