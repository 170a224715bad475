/**
 * @file trace.h
 * Timelines: what ran when, as a file for chrome://tracing or https://ui.perfetto.dev.
 *
 * Example:
 *
 *     tutti_trace_t *trace;
 *     TUTTI_CHECK(tutti_trace_create("step.json", rank, &trace));
 *     const int64_t begin = tutti_trace_now();
 *     TUTTI_CHECK(tutti_optim_step(opt));
 *     tutti_trace_event(trace, "compute", "optimizer", begin, tutti_trace_now());
 *     TUTTI_CHECK(tutti_trace_release(trace));
 *
 * Clocks of one host agree, so that the files of its ranks fit together; each rank is a process of
 * the timeline and each lane a thread.
 */
#ifndef TUTTI_TRACE_H
#define TUTTI_TRACE_H

#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A timeline that is being written; any thread. */
typedef struct tutti_trace tutti_trace_t;

/**
 * Begin a file; what was there is replaced.
 *
 * @param path  of the file; borrowed
 * @param rank  shown with its events
 * @param out   owned by the caller, to be released with tutti_trace_release
 * @thread      any
 * @errors      IO (names the file), NOMEM
 * @source      "Trace Event Format", the Chromium project
 */
TUTTI_API tutti_status_t tutti_trace_create(const char *path, int rank, tutti_trace_t **out);

/** Share a trace. @thread any @errors none */
TUTTI_API tutti_trace_t *tutti_trace_retain(tutti_trace_t *trace);

/** Give a trace back; the last one ends the file. NULL does nothing.
 *  @thread any @errors IO: an event could not be written; every owner gets this error */
TUTTI_API tutti_status_t tutti_trace_release(tutti_trace_t *trace);

/** Now, in ns on the clock of events. @thread any @errors none */
TUTTI_API int64_t tutti_trace_now(void);

/**
 * Something ran from begin_ns to end_ns. NULL for a trace does nothing, so that callers need not
 * ask whether there is one.
 *
 * @param lane  a row of the timeline, such as "compute"; borrowed
 * @param name  borrowed
 * @thread      any
 * @cost        a line into a buffer
 * @errors      none here; the release tells
 */
TUTTI_API void tutti_trace_event(tutti_trace_t *trace, const char *lane, const char *name,
                                 int64_t begin_ns, int64_t end_ns);

#ifdef __cplusplus
}
#endif

#endif
