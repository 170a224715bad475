/* Metrics: what is told becomes bytes at once, in the caller's thread; another thread writes them,
 * a second later at most, so that no step waits for a disk.
 *
 *     caller   told: bytes into `told` of each file
 *     thread   told and written change places; write(2); what is written becomes empty
 *
 * Whole records and lines change hands, each file in one write, so that a crash between two writes
 * leaves no half.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fork.h"
#include "core/base/thread.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/metrics/metrics_impl.h"

enum { HELD_MS = 1000, HELD_BYTES = 1 << 20, HELD_BYTES_MAX = 64 << 20 };

struct tutti_metrics {
    tt_metrics_file_t files[TT_METRICS_FILES];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, done; /* the thread; who waits until all is written */
    /* Under the lock, as `told`. */
    int64_t first_ns;          /* when the oldest of what is told was; 0: nothing is */
    bool is_urgent, is_ending; /* now; and then no more */
    bool is_writing;
    tutti_status_t status; /* the first failure, and its text: for good */
    char error[TT_ERROR_TEXT_BYTES];
    unsigned forks; /* of the process that opened it: the thread is there alone */
};

/* ---- the thread ------------------------------------------------------------------------------ */

static tutti_status_t write_row(const tt_metrics_file_t *file, const tt_byte_row_t *row)
{
    for (size_t done = 0; done < row->count;) {
        const ssize_t n = write(file->fd, row->bytes + done, row->count - done);
        if (n < 0 && errno != EINTR) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics %s: it cannot be written", file->path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return TUTTI_OK;
}

/* With the lock held. */
static void keep_failure(tutti_metrics_t *metrics, tutti_status_t status)
{
    if (status < 0 && metrics->status >= 0) {
        metrics->status = status;
        snprintf(metrics->error, sizeof metrics->error, "%s", tutti_last_error());
    }
}

/* With the lock held, but not while it writes. */
static void write_told(tutti_metrics_t *metrics)
{
    tutti_status_t status = metrics->status;
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        tt_metrics_file_t *file = &metrics->files[i];
        const tt_byte_row_t row = file->told;
        file->told = file->written;
        file->written = row;
    }
    metrics->first_ns = 0;
    metrics->is_urgent = false;
    metrics->is_writing = true;
    pthread_mutex_unlock(&metrics->lock);
    for (int i = 0; i < TT_METRICS_FILES && status >= 0; i++) {
        status = write_row(&metrics->files[i], &metrics->files[i].written);
    }
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        tt_row_clear(&metrics->files[i].written);
    }
    pthread_mutex_lock(&metrics->lock);
    keep_failure(metrics, status);
    metrics->is_writing = false;
    pthread_cond_broadcast(&metrics->done);
}

/* With the lock held: until something is due, or the end. */
static void wait_for_work(tutti_metrics_t *metrics)
{
    while (!metrics->is_urgent && !metrics->is_ending) {
        if (metrics->first_ns == 0) {
            pthread_cond_wait(&metrics->wake, &metrics->lock);
            continue;
        }
        const int64_t due = metrics->first_ns + HELD_MS * TT_NS_PER_MS;
        if (tt_clock_ns() >= due) {
            return;
        }
        const struct timespec until = {.tv_sec = due / TT_NS_PER_S, .tv_nsec = due % TT_NS_PER_S};
        pthread_cond_timedwait(&metrics->wake, &metrics->lock, &until);
    }
}

static void *run(void *user)
{
    tutti_metrics_t *metrics = user;
    pthread_mutex_lock(&metrics->lock);
    for (bool is_over = false; !is_over;) {
        wait_for_work(metrics);
        is_over = metrics->is_ending;
        write_told(metrics);
    }
    pthread_mutex_unlock(&metrics->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void init_sync(tutti_metrics_t *metrics)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&metrics->wake, &attributes);
    pthread_cond_init(&metrics->done, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&metrics->lock, NULL);
}

static void fini_sync(tutti_metrics_t *metrics)
{
    pthread_mutex_destroy(&metrics->lock);
    pthread_cond_destroy(&metrics->done);
    pthread_cond_destroy(&metrics->wake);
}

static tutti_status_t take_options(const tutti_metrics_options_t *options,
                                   tutti_metrics_options_t *out)
{
    const unsigned all = TUTTI_METRICS_EVENTS | TUTTI_METRICS_JSON | TUTTI_METRICS_CSV;
    *out = options != NULL ? *options : (tutti_metrics_options_t){0};
    if ((out->formats & ~all) != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "metrics: formats %u: the sum of some of 1, 2, 4",
                       out->formats);
    }
    if (out->step < 0 || (out->step > 0 && !out->is_continued)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "metrics: step %" PRId64 ": at least 0, and 0 unless is_continued",
                       out->step);
    }
    out->formats = out->formats == 0 ? all : out->formats;
    return TUTTI_OK;
}

tutti_status_t tutti_metrics_open(const char *folder, const tutti_metrics_options_t *options,
                                  tutti_metrics_t **out)
{
    tutti_metrics_options_t taken;
    TT_WANT("metrics_open", folder);
    TT_WANT("metrics_open", out);
    TT_TRY(take_options(options, &taken));
    tutti_metrics_t *metrics = tt_alloc(sizeof *metrics, "metrics");
    TT_TRY_ALLOC(metrics);
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        metrics->files[i].fd = -1;
    }
    init_sync(metrics);
    tt_forks_count();
    metrics->forks = tt_forks;
    tutti_status_t status = tt_metrics_open_files(metrics->files, folder, &taken);
    if (status >= 0) {
        metrics->first_ns = tt_clock_ns();
        status = tt_thread_start(run, metrics, "metrics", &metrics->thread);
    }
    if (status < 0) {
        fini_sync(metrics);
        tt_metrics_close_files(metrics->files);
        tt_free(metrics);
        return status;
    }
    *out = metrics;
    return TUTTI_OK;
}

static void end_thread(tutti_metrics_t *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->is_ending = true;
    pthread_cond_signal(&metrics->wake);
    pthread_mutex_unlock(&metrics->lock);
    pthread_join(metrics->thread, NULL);
    fini_sync(metrics);
}

/* A forked child has no thread, and may have a lock that nobody gives back. */
static tutti_status_t check_process(const char *call, const tutti_metrics_t *metrics)
{
    return metrics->forks == tt_forks
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: this process was forked from the one that opened the metrics, "
                         "which writes them: open another folder here",
                         call);
}

tutti_status_t tutti_metrics_close(tutti_metrics_t *metrics)
{
    if (metrics == NULL) {
        return TUTTI_OK;
    }
    if (metrics->forks == tt_forks) {
        end_thread(metrics);
    }
    tutti_status_t status = tt_metrics_close_files(metrics->files);
    if (metrics->status < 0) {
        status = tt_fail_again(metrics->status, metrics->error);
    }
    tt_free(metrics);
    return status;
}

/* With the lock held. */
static void wait_until_written(tutti_metrics_t *metrics)
{
    metrics->is_urgent = true;
    pthread_cond_signal(&metrics->wake);
    while (metrics->is_urgent || metrics->is_writing) {
        pthread_cond_wait(&metrics->done, &metrics->lock);
    }
}

/* With the lock held, which it gives back. */
static tutti_status_t leave(tutti_metrics_t *metrics)
{
    const tutti_status_t status =
        metrics->status < 0 ? tt_fail_again(metrics->status, metrics->error) : TUTTI_OK;
    pthread_mutex_unlock(&metrics->lock);
    return status;
}

tutti_status_t tutti_metrics_flush(tutti_metrics_t *metrics)
{
    TT_WANT("metrics_flush", metrics);
    TT_TRY(check_process("metrics_flush", metrics));
    pthread_mutex_lock(&metrics->lock);
    wait_until_written(metrics);
    return leave(metrics);
}

/* ---- telling --------------------------------------------------------------------------------- */

static tutti_status_t check_name(const char *call, const char *name)
{
    TT_WANT(call, name);
    if (*name == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: the name is empty", call);
    }
    for (const char *at = name; *at != 0; at++) {
        if ((unsigned char)*at < ' ') {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: the name has a control character at byte %d", call,
                           (int)(at - name));
        }
    }
    const size_t text_bytes = tt_utf8_text_bytes(name);
    return name[text_bytes] == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: the name is not UTF-8 at byte %zu", call, text_bytes);
}

static tutti_status_t check(const char *call, const tutti_metrics_t *metrics, const char *name,
                            int64_t step, tt_metric_t *metric)
{
    TT_TRY(check_process(call, metrics));
    TT_TRY(check_name(call, name));
    if (step < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s: step %" PRId64 ": at least 0", call, name, step);
    }
    tt_metric_begin(metric, name, step, tt_metrics_now());
    return TUTTI_OK;
}

static bool is_wanted(const tutti_metrics_t *metrics, int file)
{
    return metrics->files[file].fd >= 0;
}

/* With the lock held, which it gives back: something has been told. */
static tutti_status_t told(tutti_metrics_t *metrics)
{
    size_t held = 0;
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        tt_byte_row_t *row = &metrics->files[i].told;
        if (row->is_broken) {
            keep_failure(metrics, TT_FAIL(TUTTI_ERR_NOMEM, "metrics %s: no memory for what is told",
                                          metrics->files[i].path));
        }
        held += row->count;
    }
    const bool was_empty = metrics->first_ns == 0;
    metrics->first_ns = was_empty ? tt_clock_ns() : metrics->first_ns;
    metrics->is_urgent = metrics->is_urgent || held > HELD_BYTES;
    if (was_empty || metrics->is_urgent) {
        pthread_cond_signal(&metrics->wake);
    }
    if (held > HELD_BYTES_MAX) { /* the disk is slower than what is told */
        wait_until_written(metrics);
    }
    return leave(metrics);
}

tutti_status_t tutti_metrics_scalar(tutti_metrics_t *metrics, const char *name, int64_t step,
                                    double value)
{
    tt_metric_t metric;
    tt_metric_number_t number;
    TT_WANT("metrics_scalar", metrics);
    TT_TRY(check("metrics_scalar", metrics, name, step, &metric));
    tt_metric_number(value, &number);
    pthread_mutex_lock(&metrics->lock);
    if (is_wanted(metrics, TT_METRICS_EVENTS_FILE)) {
        tt_event_scalar(&metrics->files[TT_METRICS_EVENTS_FILE].told, &metric, value);
    }
    if (is_wanted(metrics, TT_METRICS_JSON_FILE)) {
        tt_json_scalar(&metrics->files[TT_METRICS_JSON_FILE].told, &metric, &number);
    }
    if (is_wanted(metrics, TT_METRICS_CSV_FILE)) {
        tt_csv_scalar(&metrics->files[TT_METRICS_CSV_FILE].told, &metric, &number);
    }
    return told(metrics);
}

tutti_status_t tutti_metrics_text(tutti_metrics_t *metrics, const char *name, int64_t step,
                                  const char *text)
{
    tt_metric_t metric;
    TT_WANT("metrics_text", metrics);
    TT_WANT("metrics_text", text);
    TT_TRY(check("metrics_text", metrics, name, step, &metric));
    pthread_mutex_lock(&metrics->lock);
    if (is_wanted(metrics, TT_METRICS_EVENTS_FILE)) {
        tt_event_text(&metrics->files[TT_METRICS_EVENTS_FILE].told, &metric, text);
    }
    if (is_wanted(metrics, TT_METRICS_JSON_FILE)) {
        tt_json_text(&metrics->files[TT_METRICS_JSON_FILE].told, &metric, text);
    }
    return told(metrics);
}

tutti_status_t tutti_metrics_histogram(tutti_metrics_t *metrics, const char *name, int64_t step,
                                       const tutti_tensor_t *x)
{
    tt_metric_t metric;
    TT_WANT("metrics_histogram", metrics);
    TT_WANT("metrics_histogram", x);
    TT_TRY(check("metrics_histogram", metrics, name, step, &metric));
    tt_metric_spread_t *spread = tt_alloc(sizeof *spread, "metrics");
    TT_TRY_ALLOC(spread);
    tutti_status_t status = tt_metric_spread_take(x, spread);
    if (status >= 0) {
        pthread_mutex_lock(&metrics->lock);
        if (is_wanted(metrics, TT_METRICS_EVENTS_FILE) && spread->count > 0) {
            tt_event_spread(&metrics->files[TT_METRICS_EVENTS_FILE].told, &metric, spread);
        }
        if (is_wanted(metrics, TT_METRICS_JSON_FILE)) {
            tt_json_spread(&metrics->files[TT_METRICS_JSON_FILE].told, &metric, spread);
        }
        status = told(metrics);
    }
    tt_free(spread);
    return status;
}

tutti_status_t tutti_metrics_picture(tutti_metrics_t *metrics, const char *name, int64_t step,
                                     const tutti_tensor_t *x)
{
    tt_metric_t metric;
    tt_picture_t picture;
    TT_WANT("metrics_picture", metrics);
    TT_WANT("metrics_picture", x);
    TT_TRY(check("metrics_picture", metrics, name, step, &metric));
    TT_TRY(tt_picture_take(x, &picture));
    pthread_mutex_lock(&metrics->lock);
    if (is_wanted(metrics, TT_METRICS_EVENTS_FILE)) {
        tt_event_picture(&metrics->files[TT_METRICS_EVENTS_FILE].told, &metric, &picture);
    }
    if (is_wanted(metrics, TT_METRICS_JSON_FILE)) {
        tt_json_picture(&metrics->files[TT_METRICS_JSON_FILE].told, &metric, &picture);
    }
    tt_row_free(&picture.png);
    return told(metrics);
}
