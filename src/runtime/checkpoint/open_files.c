/* Open files, in a list of bounded length. Cost of a call: a walk through it. */
#include "runtime/checkpoint/open_files.h"

#include <inttypes.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "runtime/checkpoint/step_folders.h"

void tt_open_files_init(tt_open_files_t *files, const char *folder, const tt_manifest_t *manifest)
{
    *files = (tt_open_files_t){.folder = folder, .manifest = manifest};
}

void tt_open_files_close(tt_open_files_t *files)
{
    for (int i = 0; i < files->count; i++) {
        tt_file_close(&files->files[i].file);
    }
    files->count = 0;
}

static tt_open_file_t *find(tt_open_files_t *files, int number, tt_file_role_t role)
{
    for (int i = 0; i < files->count; i++) {
        if (files->files[i].number == number && files->files[i].role == role) {
            return &files->files[i];
        }
    }
    return NULL;
}

/* A place for one more. */
static tt_open_file_t *make_room(tt_open_files_t *files)
{
    if (files->count < TT_OPEN_FILES_MAX) {
        return &files->files[files->count++];
    }
    tt_open_file_t *oldest = &files->files[0];
    for (int i = 1; i < files->count; i++) {
        oldest = files->files[i].used < oldest->used ? &files->files[i] : oldest;
    }
    tt_file_close(&oldest->file);
    return oldest;
}

tutti_status_t tt_file_head(const tt_file_t *file, uint64_t bytes, tt_digest_t *out)
{
    char *head = tt_alloc_raw((size_t)bytes + 1, "checkpoint");
    TT_TRY_ALLOC(head);
    const tutti_status_t status = tt_file_read_at(file, 0, head, (size_t)bytes);
    if (status >= 0) {
        *out = tt_digest_of(head, (size_t)bytes);
    }
    tt_free(head);
    return status;
}

/* Another one may have its name by now, or on this host. */
static tutti_status_t check_head(const tt_file_t *file, const tt_saved_file_t *saved)
{
    tt_digest_t head;
    TT_TRY(tt_file_head(file, saved->head_bytes, &head));
    return tt_digest_equal(head, saved->head)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: not the file that was opened first: its first %" PRIu64
                         " bytes are others (replaced meanwhile, or another one on this host)",
                         file->path, saved->head_bytes);
}

static tutti_status_t open_file(tt_open_files_t *files, int number, tt_file_role_t role,
                                tt_open_file_t **out)
{
    const tt_saved_file_t *saved = &files->manifest->files[number];
    tt_path_t path;
    tt_file_t file;
    tt_steps_file(files->folder, role == TT_FILE_DATA ? saved->name : saved->digests, path);
    if (files->manifest->host_count > 0 && access(path, F_OK) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO,
                             "%s: of a checkpoint with a disk for each host: it is on host %s; "
                             "tutti_checkpoint_load() with per_host loads it, or copy the files of "
                             "all hosts into one folder",
                             path, files->manifest->hosts[saved->host]);
    }
    TT_TRY(tt_file_open(path, &file));
    if (role == TT_FILE_DATA && saved->head_bytes > 0) {
        const tutti_status_t status = check_head(&file, saved);
        if (status < 0) {
            tt_file_close(&file);
            return status;
        }
    }
    files->opened++;
    *out = make_room(files);
    **out = (tt_open_file_t){.file = file, .number = number, .role = role};
    return TUTTI_OK;
}

tutti_status_t tt_open_files_get(tt_open_files_t *files, int number, tt_file_role_t role,
                                 const tt_file_t **out)
{
    tt_open_file_t *file = find(files, number, role);
    if (number < 0 || (size_t)number >= files->manifest->file_count) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: a slice in no file", files->folder);
    }
    if (file == NULL) {
        TT_TRY(open_file(files, number, role, &file));
    }
    file->used = ++files->calls;
    *out = &file->file;
    return TUTTI_OK;
}
