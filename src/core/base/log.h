/* Logging: one line per message to a sink; the default sink writes to stderr with the rank.
 * Levels come from TUTTI_LOG (off, error, warn, info, debug); the default is warn. Errors that a
 * call returns are not logged: the caller decides.
 */
#ifndef TT_LOG_H
#define TT_LOG_H

typedef enum { TT_LOG_OFF, TT_LOG_ERROR, TT_LOG_WARN, TT_LOG_INFO, TT_LOG_DEBUG } tt_log_level_t;

typedef void (*tt_log_sink_t)(tt_log_level_t level, const char *line, void *user);

__attribute__((format(printf, 2, 3))) void tt_log(tt_log_level_t level, const char *format, ...);

/* Replace the sink (NULL: stderr); for tests. Not while other threads log. */
void tt_log_set_sink(tt_log_sink_t sink, void *user);

#endif
