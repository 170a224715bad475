/* Logging. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/reals.h"

static tt_log_sink_t log_sink;
static void *log_sink_user;

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

static tt_log_level_t level_max(void)
{
    const char *text = tt_config_text(TT_CONFIG_LOG);
    for (int i = 0; i <= TT_LOG_DEBUG; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            return (tt_log_level_t)i;
        }
    }
    return TT_LOG_WARN;
}

/* One write per line, so that lines of several processes do not mix. */
static void write_to_stderr(tt_log_level_t level, const char *line)
{
    char text[1200];
    const int n = snprintf(text, sizeof text, "tutti[%s] %s: %s\n", tt_config_text(TT_CONFIG_RANK),
                           level_names[level], line);
    const size_t length = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (write(STDERR_FILENO, text, length) < 0) {
        return; /* nobody is left to be told */
    }
}

void tt_log(tt_log_level_t level, const char *format, ...)
{
    if (level > level_max()) {
        return;
    }
    char line[1024];
    va_list args;
    va_start(args, format);
    tt_format_list(line, sizeof line, format, args);
    va_end(args);
    if (log_sink != NULL) {
        log_sink(level, line, log_sink_user);
    } else {
        write_to_stderr(level, line);
    }
}

void tt_log_set_sink(tt_log_sink_t sink, void *user)
{
    log_sink = sink;
    log_sink_user = user;
}
