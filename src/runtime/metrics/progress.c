/* How far a training is. A text goes to
 *
 *     a terminal    \r TEXT \e[K        in place of the one before; cut to the terminal's columns
 *     the launcher  TEXT \r             which is on a terminal and does the same
 *     elsewhere     TEXT \n             now and then
 *
 * Colours are for a terminal alone: the launcher cuts lines by bytes.
 */
#include <tutti/progress.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/reals.h"
#include "core/base/units.h"

enum { TEXT_BYTES = 512 };

typedef enum { PLAIN, TERMINAL, LAUNCHER } place_t;

struct tutti_progress {
    tutti_progress_options_t options;
    place_t place;
    bool has_colour;
    bool has_shown; /* anything */
    bool is_open;   /* a line stands there without its end */
    int64_t shown_ns;
    int error; /* errno of the first write that failed; 0: none did */
};

static const char dim[] = "\033[2m", normal[] = "\033[0m", erase[] = "\033[K";

static bool can_move(const char *terminal)
{
    return terminal[0] != 0 && strcmp(terminal, "dumb") != 0;
}

static place_t place_of(FILE *file)
{
    if (isatty(fileno(file))) {
        return can_move(tt_config_text(TT_CONFIG_TERM)) ? TERMINAL : PLAIN;
    }
    return strcmp(tt_config_text(TT_CONFIG_TERMINAL), "1") == 0 ? LAUNCHER : PLAIN;
}

tutti_status_t tutti_progress_open(const tutti_progress_options_t *options, tutti_progress_t **out)
{
    TT_WANT("progress_open", out);
    tutti_progress_options_t chosen = options == NULL ? (tutti_progress_options_t){0} : *options;
    if (chosen.watched_ms < 0 || chosen.unwatched_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "progress_open: watched_ms is %" PRId64 ", unwatched_ms %" PRId64
                       ": want at least 0",
                       chosen.watched_ms, chosen.unwatched_ms);
    }
    chosen.file = chosen.file == NULL ? stdout : chosen.file;
    chosen.watched_ms = chosen.watched_ms > 0 ? chosen.watched_ms : 100;
    chosen.unwatched_ms = chosen.unwatched_ms > 0 ? chosen.unwatched_ms : 5000;
    tutti_progress_t *progress = tt_alloc(sizeof *progress, "progress");
    TT_TRY_ALLOC(progress);
    progress->options = chosen;
    progress->place = chosen.is_silent ? PLAIN : place_of(chosen.file);
    progress->has_colour = progress->place == TERMINAL && !tt_config_is_set(TT_CONFIG_NO_COLOR);
    *out = progress;
    return TUTTI_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put(tutti_progress_t *p, const char *text)
{
    if (p->error == 0 && fputs(text, p->options.file) < 0) {
        p->error = errno != 0 ? errno : EIO;
    }
}

static void push(tutti_progress_t *p)
{
    if (fflush(p->options.file) != 0 && p->error == 0) {
        p->error = errno != 0 ? errno : EIO;
    }
}

static size_t columns_of(const tutti_progress_t *p)
{
    struct winsize size = {0};
    (void)ioctl(fileno(p->options.file), TIOCGWINSZ, &size);
    return size.ws_col > 0 ? size.ws_col : 80;
}

/* The process's resident memory; 0: not known. */
static uint64_t memory_now(void)
{
    char text[128];
    unsigned long long whole, resident;
    return tt_file_text("/proc/self/statm", text, sizeof text) > 0 &&
                   sscanf(text, "%llu %llu", &whole, &resident) == 2
               ? resident * (uint64_t)sysconf(_SC_PAGESIZE)
               : 0;
}

/* "  3 s left  41.2 MiB"; more than 30 years are no time that is known. */
static void describe_rest(double seconds_left, char *text, size_t bytes)
{
    char size[TT_UNITS_TEXT_BYTES];
    const uint64_t memory = memory_now();
    const double most = 1e9;
    const bool is_known = seconds_left >= 0 && seconds_left < most;
    const int n = is_known ? tt_format(text, bytes, "  %.0f s left", seconds_left) : (text[0] = 0);
    if (memory > 0) {
        snprintf(text + n, bytes - (size_t)n, "  %s", tt_units_bytes(memory, size));
    }
}

/* Whole letters of UTF-8 that take at most so many columns; one of two columns counts as one. */
static size_t cut(const char *text, size_t columns)
{
    size_t bytes = 0;
    for (; text[bytes] != 0; bytes++) {
        const bool is_first = ((unsigned char)text[bytes] & 0xc0) != 0x80;
        if (is_first && columns-- == 0) {
            break;
        }
    }
    return bytes;
}

static void show_on_terminal(tutti_progress_t *p, char *text, char *rest)
{
    const size_t columns = columns_of(p) - 1; /* in the last one the cursor would wrap */
    const size_t text_bytes = cut(text, columns);
    size_t used = 0;
    for (size_t i = 0; i < text_bytes; i++) {
        used += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    text[text_bytes] = 0;
    rest[cut(rest, columns - used)] = 0;
    put(p, "\r");
    put(p, text);
    put(p, p->has_colour && rest[0] != 0 ? dim : "");
    put(p, rest);
    put(p, p->has_colour && rest[0] != 0 ? normal : "");
    put(p, erase);
    p->is_open = true;
}

static void write_text(tutti_progress_t *p, char *text, char *rest)
{
    if (p->place == TERMINAL) {
        show_on_terminal(p, text, rest);
    } else {
        put(p, text);
        put(p, rest);
        put(p, p->place == LAUNCHER ? "\r" : "\n");
        p->is_open = p->place == LAUNCHER;
    }
    push(p);
}

static bool is_time(const tutti_progress_t *p, double seconds_left, int64_t now)
{
    const int64_t between_ms = p->place == PLAIN ? p->options.unwatched_ms : p->options.watched_ms;
    return !p->has_shown || seconds_left == 0 || now - p->shown_ns >= tt_ms_in_ns(between_ms);
}

/* The text, in `room` or in memory of its own, to be freed; without memory, what fits into room. */
__attribute__((format(printf, 2, 0))) static char *print_text(char room[TEXT_BYTES],
                                                              const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int bytes = tt_format_list(room, TEXT_BYTES, format, arguments);
    char *text = bytes < TEXT_BYTES ? NULL : tt_alloc_raw((size_t)bytes + 1, "progress");
    if (text != NULL) {
        (void)tt_format_list(text, (size_t)bytes + 1, format, again);
    }
    va_end(again);
    return text != NULL ? text : room;
}

static void free_text(char *text, const char *room)
{
    if (text != room) {
        tt_free(text);
    }
}

void tutti_progress_show(tutti_progress_t *progress, double seconds_left, const char *format, ...)
{
    char room[TEXT_BYTES], rest[96];
    const int64_t now = tt_clock_ns();
    if (progress == NULL || progress->options.is_silent || !is_time(progress, seconds_left, now)) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    char *text = print_text(room, format, arguments);
    va_end(arguments);
    describe_rest(seconds_left, rest, sizeof rest);
    progress->shown_ns = now;
    progress->has_shown = true;
    write_text(progress, text, rest);
    free_text(text, room);
}

void tutti_progress_print(tutti_progress_t *progress, const char *format, ...)
{
    char room[TEXT_BYTES];
    if (progress == NULL || progress->options.is_silent) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    char *text = print_text(room, format, arguments);
    va_end(arguments);
    put(progress, progress->is_open && progress->place == TERMINAL ? "\r" : "");
    put(progress, text);
    free_text(text, room);
    put(progress, progress->is_open && progress->place == TERMINAL ? erase : "");
    put(progress, "\n");
    progress->is_open = false;
    push(progress);
}

tutti_status_t tutti_progress_close(tutti_progress_t *progress)
{
    if (progress == NULL) {
        return TUTTI_OK;
    }
    put(progress, progress->is_open ? "\n" : ""); /* the last text stays */
    push(progress);
    const int error = progress->error;
    tt_free(progress);
    return error == 0 ? TUTTI_OK
                      : TT_FAIL(TUTTI_ERR_IO, "progress: not all of it could be written: %s",
                                strerror(error));
}
