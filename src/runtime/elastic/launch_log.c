/* Log files of ranks, where torchrun puts them: DIRECTORY/attempt_A/RANK/stdout.log. */
#include "runtime/elastic/launch_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Every directory of a path, as mkdir -p. */
static tutti_status_t make_directories(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL) {
            *slash = 0;
        }
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "log directory %s", part);
        }
        if (slash == NULL) {
            return TUTTI_OK;
        }
        *slash = '/';
    }
}

tutti_status_t tt_log_directory(const char *log_dir, const char *run_id, char *path,
                                size_t path_bytes)
{
    const int n = log_dir != NULL ? snprintf(path, path_bytes, "%s/%s", log_dir, run_id)
                                  : snprintf(path, path_bytes, "/tmp/tutti_%s_XXXXXX", run_id);
    if (n < 0 || (size_t)n >= path_bytes) {
        return TT_FAIL(TUTTI_ERR_ARG, "log directory: a path of %d bytes; at most %zu", n,
                       path_bytes - 1);
    }
    if (log_dir != NULL) {
        return make_directories(path);
    }
    return mkdtemp(path) != NULL ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "log directory %s", path);
}

tutti_status_t tt_log_open(const char *directory, int attempt, int rank, const char *name, int *fd)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt_%d/%d", directory, attempt, rank);
    TT_TRY(make_directories(path));
    snprintf(path, sizeof path, "%s/attempt_%d/%d/%s", directory, attempt, rank, name);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return *fd >= 0 ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "log file %s", path);
}
