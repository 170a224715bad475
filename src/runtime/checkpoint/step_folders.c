/* Folders of steps, by renaming. */
#include "runtime/checkpoint/step_folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/base/folder.h"
#include "core/base/log.h"

enum { DIGITS = 12 };

static const char whole[] = "step-", half[] = ".half-", old[] = ".old-";

static void name_step(const char *folder, const char *prefix, int64_t step, tt_path_t path)
{
    snprintf(path, sizeof(tt_path_t), "%.*s/%s%0*lld", TT_STEP_FOLDER_BYTES_MAX, folder, prefix,
             DIGITS, (long long)step);
}

void tt_steps_name(const char *folder, int64_t step, tt_path_t path)
{
    name_step(folder, whole, step, path);
}

void tt_steps_half(const char *folder, int64_t step, tt_path_t path)
{
    name_step(folder, half, step, path);
}

void tt_steps_old(const char *folder, int64_t step, tt_path_t path)
{
    name_step(folder, old, step, path);
}

void tt_steps_file(const char *folder, const char *file, tt_path_t path)
{
    snprintf(path, sizeof(tt_path_t), "%.*s/%s", TT_STEP_FOLDER_BYTES_MAX + 64, folder, file);
}

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

bool tt_steps_is_named(const char *path, int64_t *step)
{
    char name[sizeof whole + DIGITS];
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    if (end - begin >= sizeof name) {
        return false;
    }
    memcpy(name, path + begin, end - begin);
    name[end - begin] = 0;
    return read_step(name, whole, step);
}

/* The newest and the oldest one that `prefix` begins, below a step; TT_NO_STEP. */
static tutti_status_t search(const char *path, const char *prefix, int64_t below, int64_t *newest,
                             int64_t *oldest)
{
    DIR *folder = opendir(path);
    int64_t step;
    *newest = *oldest = TT_NO_STEP;
    if (folder == NULL) {
        return errno == ENOENT ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", path);
    }
    errno = 0;
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        if (read_step(item->d_name, prefix, &step) && step < below) {
            *newest = *newest == TT_NO_STEP || step > *newest ? step : *newest;
            *oldest = *oldest == TT_NO_STEP || step < *oldest ? step : *oldest;
        }
    }
    const int code = errno;
    closedir(folder);
    errno = code;
    return code == 0 ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", path);
}

tutti_status_t tt_steps_newest(const char *folder, int64_t below, int64_t *step)
{
    int64_t oldest;
    return search(folder, whole, below, step, &oldest);
}

tutti_status_t tt_steps_newest_old(const char *folder, int64_t below, int64_t *step)
{
    int64_t oldest;
    return search(folder, old, below, step, &oldest);
}

tutti_status_t tt_steps_each(const char *path,
                             tutti_status_t (*visit)(void *user, const tt_step_folder_t *found),
                             void *user)
{
    DIR *folder = opendir(path);
    tutti_status_t status = TUTTI_OK;
    if (folder == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", path);
    }
    errno = 0;
    for (const struct dirent *item; status >= 0 && (item = readdir(folder)) != NULL; errno = 0) {
        tt_path_t where;
        tt_step_folder_t found = {.name = item->d_name, .path = where};
        found.is_whole = read_step(item->d_name, whole, &found.step);
        if (found.is_whole || read_step(item->d_name, half, &found.step)) {
            tt_steps_file(path, item->d_name, where);
            status = visit(user, &found);
        }
    }
    const int code = errno;
    closedir(folder);
    errno = code;
    return status < 0 || code == 0 ? status : TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", path);
}

/* A crash in the middle leaves half of one, which the next save removes. */
tutti_status_t tt_steps_remove(const char *folder, int64_t step)
{
    tt_path_t from, to;
    name_step(folder, whole, step, from);
    name_step(folder, half, step, to);
    if (rename(from, to) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot rename it", from);
    }
    return tt_folder_remove(to);
}

/* What others have put there, or still read, may be impossible to remove: that costs no save. */
static void remove_rest(const char *path)
{
    if (tt_folder_remove(path) < 0) {
        tt_log(TT_LOG_WARN, "checkpoint: the rest of an old one is left until the next save: %s",
               tutti_last_error());
    }
}

/* All that `prefix` begins. */
static tutti_status_t remove_all(const char *folder, const char *prefix)
{
    for (int64_t newest, oldest, below = INT64_MAX;; below = newest) {
        tt_path_t path;
        TT_TRY(search(folder, prefix, below, &newest, &oldest));
        if (newest == TT_NO_STEP) {
            return TUTTI_OK;
        }
        name_step(folder, prefix, newest, path);
        remove_rest(path);
    }
}

static bool is_among(int64_t step, const int64_t *named, size_t count)
{
    size_t i = 0;
    while (i < count && named[i] != step) {
        i++;
    }
    return i < count;
}

tutti_status_t tt_steps_prune(const char *folder, int64_t step, int keep, const int64_t *named,
                              size_t named_count)
{
    int64_t below = step + 1;
    for (int i = 0; below != TT_NO_STEP; i++) {
        TT_TRY(tt_steps_newest(folder, below, &below));
        if (i >= keep && below != TT_NO_STEP && !is_among(below, named, named_count)) {
            TT_TRY(tt_steps_remove(folder, below));
        }
    }
    return TUTTI_OK;
}

/* Its name is not flushed, for it gets another one when it is whole. */
static tutti_status_t make_half(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot make the folder %s", path);
}

tutti_status_t tt_steps_begin(const char *folder, int64_t step)
{
    tt_path_t path;
    name_step(folder, half, step, path);
    TT_TRY(tt_folder_make(folder));
    TT_TRY(tt_steps_recover(folder));
    TT_TRY(remove_all(folder, old));
    TT_TRY(remove_all(folder, half));
    return make_half(path);
}

int tt_steps_hold(const char *path)
{
    return tt_file_lift(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* While it is held no other folder has its inode. */
tutti_status_t tt_steps_check_held(const char *path, int held)
{
    struct stat now, then;
    if (held < 0) {
        return TUTTI_OK;
    }
    if (stat(path, &now) != 0 || fstat(held, &then) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot look at it", path);
    }
    return now.st_dev == then.st_dev && now.st_ino == then.st_ino
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "folder %s: another save has removed it, and begun anew: this one came "
                         "too late",
                         path);
}

/* Where two folders cannot be exchanged, the old one has a name of its own for a moment. */
static tutti_status_t replace(const char *from, const char *to, const char *aside)
{
    if (rename(to, aside) != 0 && errno != ENOENT) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot rename it to %s", to, aside);
    }
    if (rename(from, to) != 0) {
        const tutti_status_t status =
            TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot rename it to %s", from, to);
        (void)rename(aside, to); /* else tt_steps_recover() does it */
        return status;
    }
    return TUTTI_OK;
}

/* Where there is one of the same step they change places. */
static tutti_status_t put_in_place(const char *from, const char *to, const char *aside)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        return TUTTI_OK;
    }
    return errno == ENOENT || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP
               ? replace(from, to, aside)
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot rename it to %s", from, to);
}

tutti_status_t tt_steps_publish(const char *folder, int64_t step)
{
    tt_path_t from, to, aside;
    name_step(folder, half, step, from);
    name_step(folder, whole, step, to);
    name_step(folder, old, step, aside);
    TT_TRY(tt_folder_flush(from));
    TT_TRY(put_in_place(from, to, aside));
    TT_TRY(tt_folder_flush(folder));
    remove_rest(from);
    remove_rest(aside);
    return TUTTI_OK;
}

tutti_status_t tt_steps_publish_beside(const char *folder, int64_t step)
{
    tt_path_t from, to, aside;
    name_step(folder, half, step, from);
    name_step(folder, whole, step, to);
    name_step(folder, old, step, aside);
    TT_TRY(tt_folder_flush(from));
    TT_TRY(replace(from, to, aside));
    return tt_folder_flush(folder);
}

void tt_steps_settle(const char *folder, int64_t step)
{
    tt_path_t aside;
    name_step(folder, old, step, aside);
    remove_rest(aside);
}

tutti_status_t tt_steps_restore(const char *folder, int64_t step)
{
    tt_path_t aside, to, gone;
    name_step(folder, old, step, aside);
    name_step(folder, whole, step, to);
    name_step(folder, half, step, gone);
    remove_rest(gone);
    TT_TRY(replace(aside, to, gone));
    TT_TRY(tt_folder_flush(folder));
    remove_rest(gone);
    return TUTTI_OK;
}

/* The new one is there. */
static bool is_taken(int code)
{
    return code == EEXIST || code == ENOTEMPTY || code == EISDIR;
}

tutti_status_t tt_steps_recover(const char *folder)
{
    for (int64_t newest, below = INT64_MAX;; below = newest) {
        tt_path_t aside, to;
        TT_TRY(tt_steps_newest_old(folder, below, &newest));
        if (newest == TT_NO_STEP) {
            return TUTTI_OK;
        }
        name_step(folder, old, newest, aside);
        name_step(folder, whole, newest, to);
        if (rename(aside, to) != 0 && !is_taken(errno)) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s: cannot rename it to %s", aside, to);
        }
    }
}
