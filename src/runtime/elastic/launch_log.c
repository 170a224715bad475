/* Log files of ranks, where torchrun puts them: DIRECTORY/attempt_A/RANK/stdout.log. */
#include "runtime/elastic/launch_log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/config.h"
#include "core/base/folder.h"

tutti_status_t tt_log_directory(const char *log_dir, const char *run_id, char *path,
                                size_t path_bytes)
{
    const int n = log_dir != NULL ? snprintf(path, path_bytes, "%s/%s", log_dir, run_id)
                                  : snprintf(path, path_bytes, "%s/tutti_%s_XXXXXX",
                                             tt_config_text(TT_CONFIG_TMPDIR), run_id);
    if (n < 0 || (size_t)n >= path_bytes) {
        return TT_FAIL(TUTTI_ERR_ARG, "log directory: a path of %d bytes; at most %zu", n,
                       path_bytes - 1);
    }
    if (log_dir != NULL) {
        return tt_folder_make(path);
    }
    return mkdtemp(path) != NULL ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "log directory %s", path);
}

tutti_status_t tt_log_open(const char *directory, int attempt, int rank, const char *name, int *fd)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt_%d/%d", directory, attempt, rank);
    TT_TRY(tt_folder_make(path));
    snprintf(path, sizeof path, "%s/attempt_%d/%d/%s", directory, attempt, rank, name);
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return *fd >= 0 ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "log file %s", path);
}
