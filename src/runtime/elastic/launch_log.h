/* The files that ranks' output goes to. */
#ifndef TT_LAUNCH_LOG_H
#define TT_LAUNCH_LOG_H

#include <stddef.h>

#include "core/base/fail.h"

/* The directory of a run's logs, made with all above it: log_dir/run_id, or a new one in
 * TMPDIR when log_dir is NULL. */
tutti_status_t tt_log_directory(const char *log_dir, const char *run_id, char *path,
                                size_t path_bytes);

/* directory/attempt_A/RANK/name, open for writing. */
tutti_status_t tt_log_open(const char *directory, int attempt, int rank, const char *name, int *fd);

#endif
