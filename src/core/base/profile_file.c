/* Starting and stopping a profile, and its file: docs/formats/profile.md.
 *
 *     tutti profile 1
 *     {"rank":0, …}                 the process
 *     {"alive":[["tensor data",12,3456], …]}
 *     {"modules":["gpt", …]}
 *     {"lane":"main", …, "rows":[…]}
 *     e ROW BEGIN END LIVE          an event of the lane, in ns since the process's begin
 *     c ROW BEGIN END …             a call
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tutti/profile.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/profile_impl.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 512, TEXT_BYTES = 256 };

/* ---- starting -------------------------------------------------------------------------------- */

/* It would be too late to hear of it at the end. */
static tutti_status_t check_folder(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL ? 1 : (int)(slash - path) + 1;
    snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path);
    struct stat about;
    const bool is_there = stat(path, &about) == 0;
    const bool is_folder = is_there && S_ISDIR(about.st_mode);
    if (is_there && !is_folder && !S_ISREG(about.st_mode)) {
        return TT_FAIL(TUTTI_ERR_IO, "profile %s: not a regular file", path);
    }
    errno = is_folder ? EISDIR : ENOENT;
    return path[0] != 0 && !is_folder && access(folder, W_OK | X_OK) == 0
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "profile %s: nothing can be written there", path);
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * TT_NS_PER_S + now.tv_nsec;
}

/* The lock is held. */
static tutti_status_t start(const char *path)
{
    tt_profile_t *p = &tt_profile;
    int64_t rank = 0, size = 1;
    if (atomic_load(&tt_profile_records)) {
        return TT_FAIL(TUTTI_ERR_STATE, "profile_start: %s is being recorded; stop that first",
                       p->path);
    }
    TT_TRY(check_folder(path));
    TT_TRY(tt_config_int(TT_CONFIG_RANK, 0, 65535, &rank));
    TT_TRY(tt_config_int(TT_CONFIG_WORLD_SIZE, 1, 65536, &size));
    p->path = tt_strdup(path, "profile");
    TT_TRY_ALLOC(p->path);
    if (p->world_size == 0) {
        p->rank = (int)rank;
        p->world_size = (int)size;
    }
    tt_forks_count();
    p->forks = tt_forks;
    p->events_max = TT_PROFILE_EVENTS_MAX;
    p->begin_ns = tt_clock_ns();
    p->wall_ns = wall_ns();
    tt_alloc_watch(true);
    atomic_store(&tt_profile_records, true);
    atomic_fetch_add(&tt_profile_users, 1);
    return TUTTI_OK;
}

tutti_status_t tutti_profile_start(const char *path)
{
    TT_WANT("profile_start", path);
    pthread_mutex_lock(&tt_profile.lock);
    const tutti_status_t status = start(path);
    pthread_mutex_unlock(&tt_profile.lock);
    return status;
}

bool tutti_profile_is_on(void)
{
    return atomic_load(&tt_profile_records);
}

void tt_profile_note_threads(int threads, double (*core_peak)(void))
{
    pthread_mutex_lock(&tt_profile.lock);
    tt_profile.core_peak = core_peak;
    tt_profile.threads = threads > tt_profile.threads ? threads : tt_profile.threads;
    pthread_mutex_unlock(&tt_profile.lock);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A file and the text that is not in it yet; the first failure is kept. */
typedef struct {
    tt_new_file_t file;
    tutti_status_t status;
    size_t used;
    char text[1 << 16];
    tt_alloc_name_t names[TT_ALLOC_NAMES_MAX]; /* of memory */
} out_t;

static void flush(out_t *out)
{
    if (out->status >= 0) {
        out->status = tt_new_file_write(&out->file, out->text, out->used);
    }
    out->used = 0;
}

__attribute__((format(printf, 2, 3))) static void put(out_t *out, const char *format, ...)
{
    if (sizeof out->text - out->used < LINE_BYTES) {
        flush(out);
    }
    va_list arguments;
    va_start(arguments, format);
    out->used += (size_t)vsnprintf(out->text + out->used, LINE_BYTES, format, arguments);
    va_end(arguments);
}

/* A JSON string. Names are the program's and may hold anything: what is not printable ASCII becomes
 * a question mark, for they are cut to their room, perhaps within a letter. */
static void put_text(out_t *out, const char *text)
{
    put(out, "\"");
    for (const char *at = text; *at != 0; at++) {
        const bool is_escaped = *at == '"' || *at == '\\';
        put(out, "%s%c", is_escaped ? "\\" : "", *at < ' ' || *at > '~' ? '?' : *at);
    }
    put(out, "\"");
}

static void put_first_line(out_t *out, const char *path, char *text)
{
    if (tt_file_text(path, text, TEXT_BYTES) == 0) {
        text[0] = 0;
    }
    text[strcspn(text, "\n")] = 0;
    put_text(out, text);
}

/* Numbers without a point, for which each locale has its own. */
static uint64_t whole(double value)
{
    const double most = 9e18;
    return value >= most ? (uint64_t)most : value > 0 ? (uint64_t)(value + 0.5) : 0;
}

static void put_process(out_t *out, int64_t end_ns)
{
    const tt_profile_t *p = &tt_profile;
    char host[TEXT_BYTES] = "", text[TEXT_BYTES];
    (void)gethostname(host, sizeof host - 1);
    put(out, "{\"rank\":%d,\"world_size\":%d,\"threads\":%d,\"peak_mflops\":%" PRIu64 ",", p->rank,
        p->world_size, p->threads, p->core_peak == NULL ? 0 : whole(p->core_peak() * 1000));
    put(out, "\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64 ",\"wall_ns\":%" PRId64 ",\"host\":",
        p->begin_ns, end_ns, p->wall_ns);
    put_text(out, host);
    put(out, ",\"boot\":");
    put_first_line(out, "/proc/sys/kernel/random/boot_id", text);
    put(out, ",\"program\":");
    put_first_line(out, "/proc/self/comm", text);
    put(out, "}\n");
}

static void put_memory(out_t *out)
{
    size_t bytes;
    const size_t count = tt_alloc_peak(&bytes, out->names, TT_ALLOC_NAMES_MAX);
    const tt_alloc_name_t *names = out->names;
    put(out, "{\"peak_bytes\":%zu,\"alive\":[", bytes);
    for (size_t i = 0; i < count; i++) {
        put(out, "%s[", i > 0 ? "," : "");
        put_text(out, names[i].what);
        put(out, ",%zu,%zu]", names[i].blocks, names[i].bytes);
    }
    put(out, "]}\n");
}

static void put_modules(out_t *out)
{
    put(out, "{\"modules\":[");
    for (uint32_t i = 0; i < tt_profile.module_count; i++) {
        put(out, "%s", i > 0 ? "," : "");
        put_text(out, tt_profile.modules[i]);
    }
    put(out, "]}\n");
}

static void put_rows(out_t *out, const tt_profile_lane_t *lane)
{
    for (uint32_t i = 0; i < lane->row_count; i++) {
        const tt_profile_row_t *row = &lane->rows[i];
        put(out, "%s[\"%s\",", i > 0 ? "," : "", tt_profile_kind_name(row->kind));
        put_text(out, row->name);
        put(out,
            ",%" PRIu32 ",%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64
            ",%" PRIu64 "]",
            row->module, row->calls, row->total_ns, row->own_ns, row->longest_ns, whole(row->flops),
            whole(row->own_flops), row->bytes);
    }
}

static void put_lane(out_t *out, const tt_profile_lane_t *lane)
{
    const int64_t zero = tt_profile.begin_ns;
    put(out, "{\"lane\":");
    put_text(out, lane->name);
    put(out, ",\"rank\":%d,\"lost\":%" PRIu64 ",\"events\":%zu,\"calls\":%zu,\"rows\":[",
        lane->rank, lane->lost, lane->event_count, lane->call_count);
    put_rows(out, lane);
    put(out, "]}\n");
    for (size_t i = 0; i < lane->event_count; i++) {
        const tt_profile_event_t *event = &lane->events[i];
        put(out, "e %" PRIu32 " %" PRId64 " %" PRId64 " %" PRIu64 "\n", event->row,
            event->begin_ns - zero, event->end_ns - zero, event->live_bytes);
    }
    for (size_t i = 0; i < lane->call_count; i++) {
        const tt_profile_ended_t *ended = &lane->calls[i];
        const tt_profile_call_t *call = &ended->call;
        put(out, "c %" PRIu32 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %d %d %d %d ",
            ended->row, call->begin_ns - zero, ended->end_ns - zero, call->number, call->bytes,
            call->rank, call->size, call->peer, call->is_symmetric);
        put_text(out, call->group);
        put(out, "\n");
    }
}

static tutti_status_t write_file(const char *path)
{
    out_t *out = tt_alloc_raw(sizeof *out, "profile");
    TT_TRY_ALLOC(out);
    out->used = 0;
    out->status = tt_new_file_begin(path, &out->file);
    if (out->status < 0) {
        const tutti_status_t status = out->status;
        tt_free(out);
        return status;
    }
    put(out, "tutti profile 1\n");
    put_process(out, tt_clock_ns());
    put_memory(out);
    put_modules(out);
    for (const tt_profile_lane_t *lane = tt_profile.lanes; lane != NULL; lane = lane->next) {
        put_lane(out, lane);
    }
    flush(out);
    const tutti_status_t status = tt_new_file_end(&out->file, out->status);
    tt_free(out);
    return status;
}

/* The lock is held, and it is off. */
static tutti_status_t write_profile(void)
{
    const tt_profile_t *p = &tt_profile;
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, p->rank == 0 ? "%.*s" : "%.*s.%d", PATH_BYTES, p->path, p->rank);
    tt_profile_renew();
    return write_file(path);
}

/* The lock is held. False: it was off. */
static bool end_records(void)
{
    const bool was_on = atomic_exchange(&tt_profile_records, false);
    atomic_fetch_sub(&tt_profile_users, was_on);
    tt_alloc_watch(false); /* what is taken to write is no part of it */
    return was_on;
}

tutti_status_t tutti_profile_stop(void)
{
    if (atomic_load(&tt_profile_records) && tt_profile.forks != tt_forks) {
        return TT_FAIL(TUTTI_ERR_STATE, "profile_stop: the profile is that of the process which "
                                        "this one was forked from; that stops it");
    }
    pthread_mutex_lock(&tt_profile.lock);
    if (!end_records()) {
        pthread_mutex_unlock(&tt_profile.lock);
        return TT_FAIL(TUTTI_ERR_STATE, "profile_stop: nothing is being recorded");
    }
    const tutti_status_t status = write_profile();
    tt_profile_free();
    pthread_mutex_unlock(&tt_profile.lock);
    return status;
}

/* ---- TUTTI_PROFILE --------------------------------------------------------------------------- */

/* The process ends. Others of its threads may still run, so nothing is freed. */
static void stop_at_exit(void)
{
    if (tt_profile.forks != tt_forks) {
        return; /* a child, whose parent's it is */
    }
    pthread_mutex_lock(&tt_profile.lock);
    if (end_records() && write_profile() < 0) {
        tt_log(TT_LOG_ERROR, "%s", tutti_last_error());
    }
    pthread_mutex_unlock(&tt_profile.lock);
}

static tutti_status_t start_for_good(const char *path)
{
    TT_TRY(start(path));
    return atexit(stop_at_exit) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOMEM, "TUTTI_PROFILE=%s: no room for what ends it", path);
}

tutti_status_t tt_profile_follow_environment(void)
{
    const char *path = tt_config_text(TT_CONFIG_PROFILE);
    if (path[0] == 0) {
        return TUTTI_OK;
    }
    pthread_mutex_lock(&tt_profile.lock);
    const bool is_first = !tt_profile.has_followed && !atomic_load(&tt_profile_records);
    const tutti_status_t status = is_first ? start_for_good(path) : TUTTI_OK;
    tt_profile.has_followed = tt_profile.has_followed || status >= 0;
    pthread_mutex_unlock(&tt_profile.lock);
    return status;
}
