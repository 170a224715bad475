/* Paths are tried by asking, not by writing: access() knows of rights, of file systems that are
 * read-only, and of names that are too long. What happens later, a full disk for example, is told
 * when it happens.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* errno, or 0. */
static int try_access(const char *path, int how)
{
    return faccessat(AT_FDCWD, path, how, AT_EACCESS) == 0 ? 0 : errno;
}

static int try_folder(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        return errno;
    }
    return S_ISDIR(about.st_mode) ? try_access(path, W_OK | X_OK) : ENOTDIR;
}

/* The folder that something is in; false: the path is too long. */
static bool cut_parent(const char *path, char out[PATH_MAX])
{
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= PATH_MAX) {
        return false;
    }
    while (bytes > 1 && path[bytes - 1] == '/') {
        bytes--;
    }
    while (bytes > 0 && path[bytes - 1] != '/') {
        bytes--;
    }
    while (bytes > 1 && path[bytes - 1] == '/') {
        bytes--;
    }
    snprintf(out, PATH_MAX, "%.*s", bytes == 0 ? 1 : (int)bytes, bytes == 0 ? "." : path);
    return true;
}

static int try_file(const char *path)
{
    struct stat about;
    char parent[PATH_MAX];
    if (stat(path, &about) == 0) {
        return S_ISDIR(about.st_mode) ? EISDIR : try_access(path, W_OK);
    }
    if (errno != ENOENT) {
        return errno;
    }
    if (path[0] != 0 && path[strlen(path) - 1] == '/') { /* no file is called so */
        return EISDIR;
    }
    return cut_parent(path, parent) ? try_folder(parent) : path[0] == 0 ? ENOENT : ENAMETOOLONG;
}

/* The nearest that is there will get the others. */
static int try_new_folder(const char *path)
{
    char at[PATH_MAX];
    struct stat about;
    if (path[0] == 0 || strlen(path) >= sizeof at) {
        return path[0] == 0 ? ENOENT : ENAMETOOLONG;
    }
    snprintf(at, sizeof at, "%s", path);
    while (stat(at, &about) != 0) {
        char parent[PATH_MAX];
        if (errno != ENOENT || !cut_parent(at, parent) || strcmp(at, parent) == 0) {
            return errno;
        }
        memcpy(at, parent, sizeof at);
    }
    return try_folder(at);
}

/* A device, or a pipe. */
static bool is_special(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

static bool is_writable(const char *program, const output_t *output)
{
    const bool is_bad = output->kind == OUTPUT_SAFE && is_special(output->path);
    const int code =
        output->kind == OUTPUT_FOLDER ? try_new_folder(output->path) : try_file(output->path);
    if (is_bad || code != 0) {
        fprintf(stderr, "%s: --%s %s: %s\n", program, output->flag, output->path,
                is_bad ? "not a regular file" : strerror(code));
    }
    return !is_bad && code == 0;
}

tutti_status_t outputs_check(tutti_group_t *world, const char *program, const output_t *outputs,
                             int count)
{
    tutti_tensor_t *bad;
    double failures = 0;
    for (int i = 0; i < count; i++) {
        const bool is_ours = outputs[i].is_everybodys || tutti_group_rank(world) == 0;
        failures += outputs[i].path != NULL && is_ours && !is_writable(program, &outputs[i]);
    }
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1), &bad));
    *(double *)tutti_tensor_data(bad) = failures;
    tutti_status_t status = tutti_all_reduce(world, bad, TUTTI_SUM, NULL);
    failures = tutti_tensor_item(bad);
    tutti_tensor_release(bad);
    return status < 0 ? status : failures > 0 ? TUTTI_ERR_IO : TUTTI_OK;
}
