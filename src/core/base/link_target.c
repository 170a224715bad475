/* Following the last part of a path as open() does, name by name; links in front of it are the
 * system's. The system is asked whether it would follow at all: loops, and links that others put
 * into folders such as /tmp (fs.protected_symlinks), are its decision. Links of /proc to files that
 * are gone, or never had a name, say a name that is none.
 *
 * Source: path_resolution(7), symlink(7), proc(5).
 */
#include "core/base/link_target.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* as the system's */

static tutti_status_t fail_as(const char *path, int error)
{
    errno = error;
    return TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s: cannot follow it", path);
}

/* One link further: what it says is as seen from the folder that it is in. Returns 0, or why not;
 * EINVAL: there is no link. */
static int follow_one(char at[PATH_MAX])
{
    char content[PATH_MAX], next[PATH_MAX];
    const ssize_t bytes = readlink(at, content, sizeof content);
    if (bytes < 0) {
        return EINVAL;
    }
    const char *slash = content[0] == '/' ? NULL : strrchr(at, '/');
    const int folder = slash != NULL ? (int)(slash + 1 - at) : 0;
    if (snprintf(next, sizeof next, "%.*s%.*s", folder, at, (int)bytes, content) >= PATH_MAX) {
        return ENAMETOOLONG;
    }
    memcpy(at, next, strlen(next) + 1);
    return 0;
}

tutti_status_t tt_link_target(const char *path, char target[PATH_MAX])
{
    struct stat info;
    if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX) {
        return fail_as(path, ENAMETOOLONG);
    }
    int error = follow_one(target);
    if (error == EINVAL) {
        return TUTTI_OK;
    }
    const bool is_there = stat(path, &info) == 0;
    if (!is_there && errno != ENOENT) {
        return fail_as(path, errno);
    }
    for (int links = 1; error == 0; links++) {
        error = links <= LINKS_MAX ? follow_one(target) : ELOOP;
    }
    if (error != EINVAL) {
        return fail_as(path, error);
    }
    return !is_there || stat(target, &info) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_IO, "%s: leads to a file without a name", path);
}
