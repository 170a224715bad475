/* What `tutti report` shows beside the numbers. */
#include "common.h"

#include <stdio.h>

void command_keep(char *text, size_t bytes, int argc, char **argv)
{
    size_t used = 0;
    for (int i = 0; i < argc && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? " " : "", argv[i]);
    }
}

/* A training that was stopped before its first checkpoint goes on from step 0. */
tutti_status_t metrics_begin(const char *folder, const char *command, int ranks, bool is_resumed,
                             int64_t step, tutti_metrics_t **out)
{
    char count[16];
    const bool is_continued = is_resumed || tutti_restart_count() > 0;
    const tutti_metrics_options_t options = {.is_continued = is_continued,
                                             .step = is_continued ? step + 1 : 0};
    if (folder == NULL) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_metrics_open(folder, &options, out));
    snprintf(count, sizeof count, "%d", ranks);
    (void)tutti_metrics_text(*out, "command", step, command);
    (void)tutti_metrics_text(*out, "ranks", step, count);
    (void)tutti_metrics_text(*out, "version", step, tutti_version());
    return TUTTI_OK;
}
