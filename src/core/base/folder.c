/* Folders, by system calls. */
#include "core/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Something else may have the name: errno says so. */
static bool is_folder(const char *path)
{
    struct stat what;
    if (stat(path, &what) != 0) {
        return false;
    }
    errno = ENOTDIR;
    return S_ISDIR(what.st_mode);
}

/* The name of a new folder is in the one above it, which may be one to write in and not to read. */
static tutti_status_t flush_above(const char *path)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL || slash == path ? 1 : (int)(slash - path);
    snprintf(above, sizeof above, "%.*s", length, slash == NULL ? "." : path);
    return access(above, R_OK) == 0 ? tt_folder_flush(above) : TUTTI_OK;
}

static tutti_status_t make_one(const char *path)
{
    if (mkdir(path, 0777) == 0) {
        const tutti_status_t status = flush_above(path);
        if (status < 0) {
            (void)rmdir(path);
        }
        return status;
    }
    return errno == EEXIST && is_folder(path)
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot make the folder %s", path);
}

tutti_status_t tt_folder_make(const char *path)
{
    char part[PATH_MAX];
    if (path[0] == 0 || strlen(path) >= sizeof part) {
        return TT_FAIL(TUTTI_ERR_ARG, "folder: a path of %zu characters", strlen(path));
    }
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL) {
            *slash = 0;
        }
        if (part[strlen(part) - 1] != '/') { /* "a//b", "a/" */
            TT_TRY(make_one(part));
        }
        if (slash == NULL) {
            return TUTTI_OK;
        }
        *slash = '/';
    }
}

/* Some file systems cannot flush a folder (EINVAL): then there is nothing to wait for. */
tutti_status_t tt_folder_flush(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool failed = fd < 0 || (fsync(fd) != 0 && errno != EINVAL);
    const tutti_status_t status =
        failed ? TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot flush the folder", path) : TUTTI_OK;
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* As many as it can; the first that it cannot remove is the failure. */
static tutti_status_t remove_files(const char *path, DIR *folder)
{
    char name[PATH_MAX];
    tutti_status_t status = TUTTI_OK;
    errno = 0;
    for (const struct dirent *item; (item = readdir(folder)) != NULL; errno = 0) {
        const bool is_self = strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0;
        snprintf(name, sizeof name, "%s/%.255s", path, item->d_name);
        if (!is_self && unlink(name) != 0 && errno != ENOENT && status >= 0) {
            status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot remove %s", name);
        }
    }
    return status < 0 || errno == 0
               ? status
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot read the folder %s", path);
}

static tutti_status_t remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT ? TUTTI_OK
                               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot open the folder %s", path);
    }
    const tutti_status_t status = remove_files(path, folder);
    closedir(folder);
    TT_TRY(status);
    return rmdir(path) == 0 || errno == ENOENT
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot remove %s", path);
}

/* ENOENT: another process removes it, too. EISDIR: it is no link, which opendir() would follow. */
tutti_status_t tt_folder_remove(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) {
        return TUTTI_OK;
    }
    return errno == EISDIR ? remove_folder(path)
                           : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot remove %s", path);
}
