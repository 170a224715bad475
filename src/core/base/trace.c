/* Timelines in Chrome's trace format: one JSON object a line, written through stdio's buffer. Lanes
 * get their numbers, and a line that names them, when they are first seen.
 *
 * Source: "Trace Event Format", the Chromium project: complete events (ph X) in microseconds,
 * metadata events (ph M) for names.
 */
#include <tutti/diagnose.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fail.h"
#include "core/base/ref.h"

enum { LANES_MAX = 16, LANE_BYTES = 32, NAME_BYTES = 96 };

struct tutti_trace {
    tt_ref_t ref;
    pthread_mutex_t lock;
    FILE *file;
    char *path;
    int rank, lane_count;
    char lanes[LANES_MAX][LANE_BYTES];
};

/* What would end a JSON string, or is no text, becomes a question mark. */
static const char *plain(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
    for (char *at = out; *at != 0; at++) {
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ' || (unsigned char)*at > '~') {
            *at = '?';
        }
    }
    return out;
}

tutti_status_t tutti_trace_create(const char *path, int rank, tutti_trace_t **out)
{
    TT_WANT("trace_create", path);
    TT_WANT("trace_create", out);
    tutti_trace_t *trace = tt_alloc(sizeof *trace, "trace");
    TT_TRY_ALLOC(trace);
    tt_ref_init(&trace->ref);
    trace->rank = rank;
    trace->path = tt_strdup(path, "trace");
    if (trace->path == NULL) {
        tt_free(trace);
        return TUTTI_ERR_NOMEM;
    }
    trace->file = fopen(path, "we");
    if (trace->file == NULL) {
        const tutti_status_t status = TT_FAIL(TUTTI_ERR_IO, "trace %s: %s", path, strerror(errno));
        tt_free(trace->path);
        tt_free(trace);
        return status;
    }
    pthread_mutex_init(&trace->lock, NULL);
    fprintf(trace->file,
            "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            rank, rank);
    *out = trace;
    return TUTTI_OK;
}

tutti_trace_t *tutti_trace_retain(tutti_trace_t *trace)
{
    if (trace != NULL) {
        tt_ref_retain(&trace->ref);
    }
    return trace;
}

static tutti_status_t fail_write(const tutti_trace_t *trace, int code)
{
    return TT_FAIL(TUTTI_ERR_IO, "trace %s: not all of it could be written: %s", trace->path,
                   code != 0 ? strerror(code) : "a write failed before");
}

/* The caller that gives it back hears of what went wrong until then: the last one may be a call
 * that has no status, such as tutti_ddp_release(). */
static tutti_status_t flush(tutti_trace_t *trace)
{
    pthread_mutex_lock(&trace->lock);
    const bool was_bad = ferror(trace->file) != 0;
    errno = 0;
    const bool is_bad = fflush(trace->file) != 0;
    const tutti_status_t status = is_bad || was_bad ? fail_write(trace, errno) : TUTTI_OK;
    pthread_mutex_unlock(&trace->lock);
    return status;
}

tutti_status_t tutti_trace_release(tutti_trace_t *trace)
{
    if (trace == NULL) {
        return TUTTI_OK;
    }
    tutti_status_t status = flush(trace); /* while it is ours: another owner may close it */
    if (!tt_ref_release(&trace->ref)) {
        return status;
    }
    fputs("\n]\n", trace->file);
    errno = 0;
    const bool is_bad = fclose(trace->file) != 0;
    status = status < 0 || !is_bad ? status : fail_write(trace, errno);
    pthread_mutex_destroy(&trace->lock);
    tt_free(trace->path);
    tt_free(trace);
    return status;
}

int64_t tutti_trace_now(void)
{
    return tt_clock_ns();
}

/* Its number; lanes beyond the last share that one. */
static int lane_of(tutti_trace_t *trace, const char *lane)
{
    char name[LANE_BYTES];
    plain(lane, name, sizeof name);
    for (int i = 0; i < trace->lane_count; i++) {
        if (strcmp(trace->lanes[i], name) == 0) {
            return i;
        }
    }
    if (trace->lane_count == LANES_MAX) {
        return LANES_MAX - 1;
    }
    memcpy(trace->lanes[trace->lane_count], name, sizeof name);
    fprintf(trace->file,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s\"}}",
            trace->rank, trace->lane_count, name);
    return trace->lane_count++;
}

void tutti_trace_event(tutti_trace_t *trace, const char *lane, const char *name, int64_t begin_ns,
                       int64_t end_ns)
{
    if (trace == NULL) {
        return;
    }
    char text[NAME_BYTES];
    plain(name, text, sizeof text);
    const int64_t ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
    pthread_mutex_lock(&trace->lock);
    const int number = lane_of(trace, lane);
    fprintf(trace->file,
            ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ".%03d,"
            "\"dur\":%" PRId64 ".%03d}",
            text, trace->rank, number, begin_ns / 1000, (int)(begin_ns % 1000), ns / 1000,
            (int)(ns % 1000));
    pthread_mutex_unlock(&trace->lock);
}
