/* The folder of metrics: which files there are, and where they go on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/folder.h"
#include "runtime/metrics/metrics_impl.h"

#define EVENTS_PREFIX "events.out.tfevents."
#define SECONDS_MAX INT64_C(9999999999) /* the last of ten digits, in 2286 */

static const char *const line_files[TT_METRICS_FILES] = {
    [TT_METRICS_JSON_FILE] = "metrics.jsonl", [TT_METRICS_CSV_FILE] = "metrics.csv"};
static const char *const line_starts[TT_METRICS_FILES] = {
    [TT_METRICS_JSON_FILE] = "{\"step\":", [TT_METRICS_CSV_FILE] = ""};

double tt_metrics_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static char *join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = tt_alloc(bytes, "path");
    if (path != NULL) {
        snprintf(path, bytes, "%s/%s", folder, name);
    }
    return path;
}

static bool is_events(const char *name)
{
    return strncmp(name, EVENTS_PREFIX, strlen(EVENTS_PREFIX)) == 0;
}

/* Of a name of events, the seconds; 0: it has none. */
static int64_t seconds_of(const char *name)
{
    const int64_t seconds = is_events(name) ? strtoll(name + strlen(EVENTS_PREFIX), NULL, 10) : 0;
    return seconds > 0 && seconds < SECONDS_MAX ? seconds : 0;
}

/* A name behind that of the newest file, whatever the clock says: TensorBoard takes files by their
 * names, and looks at no earlier one again. */
static void name_events(const char *newest, char *name, size_t bytes)
{
    const int64_t now = (int64_t)time(NULL), after = seconds_of(newest) + 1;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    for (char *at = host; *at != 0; at++) {
        *at = *at == '/' ? '_' : *at;
    }
    snprintf(name, bytes, EVENTS_PREFIX "%" PRId64 ".%s.%d", now > after ? now : after,
             host[0] != 0 ? host : "localhost", (int)getpid());
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* What a process left that was killed while it wrote a file anew: "….tmp-PROCESS-N" (file.c). */
static bool is_left_over(const char *name)
{
    static const char mark[] = ".tmp-";
    const char *found = strstr(name, mark);
    if (found == NULL) {
        return false;
    }
    const char *process = found + sizeof mark - 1, *n = process + count_digits(process);
    return n > process && *n == '-' && count_digits(n + 1) > 0 && n[1 + count_digits(n + 1)] == 0;
}

/* A file of lines, or what was left of one. */
static bool is_lines(const char *name, const char *file)
{
    const size_t length = strlen(file);
    return strncmp(name, file, length) == 0 && (name[length] == 0 || is_left_over(name));
}

static bool is_ours(const char *name)
{
    return is_events(name) || is_lines(name, line_files[TT_METRICS_JSON_FILE]) ||
           is_lines(name, line_files[TT_METRICS_CSV_FILE]);
}

typedef tutti_status_t (*visit_t)(void *user, const char *name);

/* Files of metrics in a folder, of all kinds. */
static tutti_status_t each_file(const char *folder, visit_t visit, void *user)
{
    DIR *open_folder = opendir(folder);
    if (open_folder == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics: folder %s cannot be read", folder);
    }
    tutti_status_t status = TUTTI_OK;
    errno = 0;
    for (struct dirent *entry; status >= 0 && (entry = readdir(open_folder)) != NULL; errno = 0) {
        const char *name = entry->d_name;
        status = is_ours(name) ? visit(user, name) : TUTTI_OK;
    }
    if (status >= 0 && errno != 0) {
        status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics: folder %s cannot be read", folder);
    }
    closedir(open_folder);
    return status;
}

enum { NAME_BYTES = 512 };

typedef struct {
    const char *folder;
    int64_t step;
    char newest[NAME_BYTES]; /* file of events, by name; "": there was none */
} continued_t;

static tutti_status_t refuse_file(void *user, const char *name)
{
    return TT_FAIL(
        TUTTI_ERR_STATE,
        "metrics: folder %s holds %s of an earlier training: choose another one, or go on "
        "from its checkpoint",
        ((const continued_t *)user)->folder, name);
}

static tutti_status_t cut_file(void *user, const char *name)
{
    continued_t *continued = user;
    char *path = join(continued->folder, name);
    TT_TRY_ALLOC(path);
    tutti_status_t status = TUTTI_OK;
    if (is_left_over(name)) {
        (void)unlink(path);
    } else if (is_events(name)) {
        status = tt_cut_events(path, continued->step);
        if (strcmp(name, continued->newest) > 0) {
            snprintf(continued->newest, sizeof continued->newest, "%s", name);
        }
    } else {
        const int kind = strcmp(name, line_files[TT_METRICS_JSON_FILE]) == 0 ? TT_METRICS_JSON_FILE
                                                                             : TT_METRICS_CSV_FILE;
        status = tt_cut_lines(path, line_starts[kind], continued->step);
    }
    tt_free(path);
    return status;
}

/* At its end; is_new: it was empty. */
static tutti_status_t open_file(tt_metrics_file_t *file, const char *folder, const char *name,
                                bool *is_new)
{
    file->path = join(folder, name);
    TT_TRY_ALLOC(file->path);
    file->fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics %s: it cannot be opened", file->path);
    }
    const off_t end = lseek(file->fd, 0, SEEK_END);
    if (end < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics %s: it is no file", file->path);
    }
    *is_new = end == 0;
    return TUTTI_OK;
}

/* Events get a file of their own each time: who reads has the one before open, which may have been
 * written anew under its name, and would see none of what follows there. */
tutti_status_t tt_metrics_open_files(tt_metrics_file_t files[TT_METRICS_FILES], const char *folder,
                                     const tutti_metrics_options_t *options)
{
    continued_t continued = {.folder = folder, .step = options->step};
    char events[NAME_BYTES];
    TT_TRY(tt_folder_make(folder));
    TT_TRY(options->is_continued ? each_file(folder, cut_file, &continued)
                                 : each_file(folder, refuse_file, &continued));
    name_events(continued.newest, events, sizeof events);
    const char *const names[TT_METRICS_FILES] = {events, line_files[TT_METRICS_JSON_FILE],
                                                 line_files[TT_METRICS_CSV_FILE]};
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        bool is_new = false;
        if ((options->formats & 1U << i) == 0) {
            continue;
        }
        TT_TRY(open_file(&files[i], folder, names[i], &is_new));
        if (i == TT_METRICS_EVENTS_FILE) {
            tt_event_begin(&files[i].told, tt_metrics_now(), options->step);
        } else if (is_new && i == TT_METRICS_CSV_FILE) {
            tt_row_add(&files[i].told, TT_CSV_HEAD, strlen(TT_CSV_HEAD));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_metrics_close_files(tt_metrics_file_t files[TT_METRICS_FILES])
{
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < TT_METRICS_FILES; i++) {
        tt_metrics_file_t *file = &files[i];
        if (file->fd >= 0 && close(file->fd) != 0 && status >= 0) {
            status = TT_FAIL_ERRNO(TUTTI_ERR_IO, "metrics %s: it cannot be written", file->path);
        }
        tt_row_free(&file->told);
        tt_row_free(&file->written);
        tt_free(file->path);
    }
    return status;
}
