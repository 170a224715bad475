/* Snapshots: a folder for each, which is written under another name and then renamed.
 *
 *     .half-000000000300/ …files… --flush, rename, flush--> step-000000000300/
 *     step-000000000000/  --rename-->  .half-000000000000/  --> removed
 *
 * So a name that begins with "step-" is a whole snapshot, whenever the power goes. Ranks agree on
 * what was written, and on what they load, by one number each.
 */
#include <tutti/snapshot.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/folder.h"
#include "core/base/log.h"

enum { KEEP_DEFAULT = 3, FOLDER_BYTES_MAX = 3000, NONE = -1, DIGITS = 12 };

static const int64_t step_max = 999999999999;
static const char whole[] = "step-", half[] = ".half-";

typedef char name_t[PATH_MAX];

static void name_snapshot(const tutti_snapshots_t *snapshots, const char *prefix, int64_t step,
                          name_t name)
{
    snprintf(name, sizeof(name_t), "%s/%s%0*lld", snapshots->folder, prefix, DIGITS,
             (long long)step);
}

static void name_file(const char *snapshot, const char *file, name_t name)
{
    snprintf(name, sizeof(name_t), "%.*s/%s", FOLDER_BYTES_MAX + 64, snapshot, file);
}

static tutti_status_t check(const tutti_snapshots_t *snapshots)
{
    if (snapshots->folder == NULL || snapshots->folder[0] == 0 ||
        strlen(snapshots->folder) > FOLDER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "snapshot: want a folder of 1 to %d characters",
                       FOLDER_BYTES_MAX);
    }
    if (snapshots->module == NULL || snapshots->keep < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "snapshot: %s, keep %d; want a module, and 0 or more",
                       snapshots->module != NULL ? "a module" : "no module", snapshots->keep);
    }
    return TUTTI_OK;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

static bool is_writer(const tutti_snapshots_t *snapshots)
{
    return snapshots->group == NULL || tutti_group_rank(snapshots->group) == 0;
}

/* Rank 0's step, on every rank. */
static tutti_status_t share_step(const tutti_snapshots_t *snapshots, int64_t *step)
{
    tutti_buffer_t first;
    if (snapshots->group == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_broadcast_bytes(snapshots->group, tutti_bytes_of(step, sizeof *step), 0, &first));
    memcpy(step, first.data, sizeof *step);
    tutti_buffer_release(&first);
    return TUTTI_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool read_step(const char *name, const char *prefix, int64_t *step)
{
    const size_t bytes = strlen(prefix);
    const char *digits = name + bytes;
    if (strncmp(name, prefix, bytes) != 0 || strlen(digits) != DIGITS ||
        strspn(digits, "0123456789") != DIGITS) {
        return false;
    }
    *step = strtoll(digits, NULL, 10);
    return true;
}

/* The newest and the oldest one that `prefix` begins, below a step; NONE. */
static tutti_status_t search(const tutti_snapshots_t *snapshots, const char *prefix, int64_t below,
                             int64_t *newest, int64_t *oldest)
{
    DIR *folder = opendir(snapshots->folder);
    int64_t step;
    *newest = *oldest = NONE;
    if (folder == NULL) {
        return errno == ENOENT
                   ? TUTTI_OK
                   : TT_FAIL_ERRNO(TUTTI_ERR_IO, "snapshots: folder %s", snapshots->folder);
    }
    errno = 0;
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        if (read_step(item->d_name, prefix, &step) && step < below) {
            *newest = *newest == NONE || step > *newest ? step : *newest;
            *oldest = *oldest == NONE || step < *oldest ? step : *oldest;
        }
    }
    const int code = errno;
    closedir(folder);
    errno = code;
    return code == 0 ? TUTTI_OK
                     : TT_FAIL_ERRNO(TUTTI_ERR_IO, "snapshots: folder %s", snapshots->folder);
}

/* A crash in the middle leaves half of one, which the next save removes. */
static tutti_status_t discard(const tutti_snapshots_t *snapshots, int64_t step)
{
    name_t from, to;
    name_snapshot(snapshots, whole, step, from);
    name_snapshot(snapshots, half, step, to);
    if (rename(from, to) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "snapshot %s: cannot rename it", from);
    }
    return tt_folder_remove(to);
}

static tutti_status_t remove_halves(const tutti_snapshots_t *snapshots)
{
    for (;;) {
        int64_t newest, oldest;
        name_t name;
        TT_TRY(search(snapshots, half, INT64_MAX, &newest, &oldest));
        if (oldest == NONE) {
            return TUTTI_OK;
        }
        name_snapshot(snapshots, half, oldest, name);
        TT_TRY(tt_folder_remove(name));
    }
}

/* The newest `keep`, of which one has just been written. */
static tutti_status_t remove_old(const tutti_snapshots_t *snapshots)
{
    const int keep = snapshots->keep > 0 ? snapshots->keep : KEEP_DEFAULT;
    int64_t below = INT64_MAX, oldest;
    for (int i = 0; i < keep; i++) {
        TT_TRY(search(snapshots, whole, below, &below, &oldest));
        if (below == NONE) {
            return TUTTI_OK;
        }
    }
    for (;;) {
        int64_t newest;
        TT_TRY(search(snapshots, whole, below, &newest, &oldest));
        if (oldest == NONE) {
            return TUTTI_OK;
        }
        TT_TRY(discard(snapshots, oldest));
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static tutti_status_t write_tensors(const tutti_snapshots_t *snapshots, const char *path)
{
    tutti_named_tensor_t *list =
        tt_alloc_array(snapshots->tensor_count, sizeof *list, "tensors of a snapshot");
    TT_TRY_ALLOC(list);
    for (size_t i = 0; i < snapshots->tensor_count; i++) {
        list[i] = (tutti_named_tensor_t){snapshots->tensors[i].name, snapshots->tensors[i].tensor};
    }
    const tutti_status_t status =
        tutti_safetensors_save(path, list, snapshots->tensor_count, NULL, 0);
    tt_free(list);
    return status;
}

static tutti_status_t write_files(const tutti_snapshots_t *snapshots, int64_t step,
                                  const char *folder)
{
    char text[24];
    name_t path;
    snprintf(text, sizeof text, "%lld", (long long)step);
    const tutti_named_text_t metadata = {"step", text};
    name_file(folder, "model.safetensors", path);
    TT_TRY(tutti_module_save(snapshots->module, path, &metadata, 1));
    if (snapshots->optim != NULL) {
        name_file(folder, "optim.safetensors", path);
        TT_TRY(tutti_optim_save(snapshots->optim, path));
    }
    if (snapshots->tensor_count > 0) {
        name_file(folder, "extra.safetensors", path);
        TT_TRY(write_tensors(snapshots, path));
    }
    return tt_folder_flush(folder);
}

/* Where there is one of the same step they change places, and the old one goes. */
static tutti_status_t put_in_place(const char *from, const char *to)
{
    struct stat about;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        return tt_folder_remove(from);
    }
    if (stat(to, &about) == 0) { /* a file system that cannot exchange */
        TT_TRY(tt_folder_remove(to));
    }
    return rename(from, to) == 0
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "snapshot %s: cannot rename it to %s", from, to);
}

static tutti_status_t write_snapshot(const tutti_snapshots_t *snapshots, int64_t step)
{
    name_t from, to;
    name_snapshot(snapshots, half, step, from);
    name_snapshot(snapshots, whole, step, to);
    TT_TRY(tt_folder_make(snapshots->folder));
    TT_TRY(remove_halves(snapshots));
    TT_TRY(tt_folder_make(from));
    TT_TRY(write_files(snapshots, step, from));
    TT_TRY(put_in_place(from, to));
    TT_TRY(tt_folder_flush(snapshots->folder));
    return remove_old(snapshots);
}

static tutti_status_t check_save(const tutti_snapshots_t *snapshots, int64_t step)
{
    return step >= 0 && step <= step_max
               ? check(snapshots)
               : TT_FAIL(TUTTI_ERR_ARG, "snapshot: step %lld; want 0 to %lld", (long long)step,
                         (long long)step_max);
}

tutti_status_t tutti_snapshot_save(const tutti_snapshots_t *snapshots, int64_t step)
{
    tutti_status_t status = check_save(snapshots, step);
    if (status >= 0 && is_writer(snapshots)) {
        status = write_snapshot(snapshots, step);
    }
    return tt_group_agree(snapshots->group, status);
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t read_tensors(const tutti_snapshots_t *snapshots, const char *path)
{
    tutti_safetensors_t *file;
    tutti_status_t status = tutti_safetensors_open(path, &file);
    TT_TRY(status);
    for (size_t i = 0; i < snapshots->tensor_count && status >= 0; i++) {
        status =
            tutti_safetensors_read(file, snapshots->tensors[i].name, snapshots->tensors[i].tensor);
    }
    tutti_safetensors_close(file);
    return status;
}

static tutti_status_t read_snapshot(const tutti_snapshots_t *snapshots, int64_t step)
{
    name_t folder, path;
    name_snapshot(snapshots, whole, step, folder);
    name_file(folder, "model.safetensors", path);
    TT_TRY(tutti_module_load(snapshots->module, path));
    if (snapshots->optim != NULL) {
        name_file(folder, "optim.safetensors", path);
        TT_TRY(tutti_optim_load(snapshots->optim, path));
    }
    if (snapshots->tensor_count > 0) {
        name_file(folder, "extra.safetensors", path);
        TT_TRY(read_tensors(snapshots, path));
    }
    return TUTTI_OK;
}

/* An older one may do. */
static bool is_damage(tutti_status_t status)
{
    return status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT || status == TUTTI_ERR_NOT_FOUND;
}

/* OK on every rank, or the same failure on every rank. */
static tutti_status_t read_together(const tutti_snapshots_t *snapshots, int64_t step)
{
    const tutti_status_t status = tt_group_agree(snapshots->group, read_snapshot(snapshots, step));
    if (is_damage(status)) {
        tt_log(TT_LOG_WARN, "snapshot of step %lld is passed over: %s", (long long)step,
               tutti_last_error());
    }
    return status;
}

/* Rank 0's newest one below a step, on every rank; NONE. */
static tutti_status_t choose(const tutti_snapshots_t *snapshots, int64_t below, int64_t *found)
{
    int64_t oldest;
    *found = NONE;
    TT_TRY(tt_group_agree(snapshots->group, is_writer(snapshots)
                                                ? search(snapshots, whole, below, found, &oldest)
                                                : TUTTI_OK));
    return share_step(snapshots, found);
}

tutti_status_t tutti_snapshot_load(const tutti_snapshots_t *snapshots, int64_t *step)
{
    tutti_status_t first = TUTTI_END; /* of the newest */
    char text[TT_ERROR_TEXT_BYTES] = "";
    TT_TRY(tt_group_agree(snapshots->group, check(snapshots)));
    for (int64_t found, below = INT64_MAX;; below = found) {
        TT_TRY(choose(snapshots, below, &found));
        if (found == NONE) {
            return first < 0 ? tt_fail_again(first, text) : TUTTI_END;
        }
        const tutti_status_t status = read_together(snapshots, found);
        if (status >= 0) {
            *step = found;
            return TUTTI_OK;
        }
        if (!is_damage(status)) {
            return status;
        }
        if (first == TUTTI_END) {
            first = status;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
}
