/* Lines of ranks. Each call gathers the whole lines that it completes and writes them with one
 * system call, so lines of several ranks never mix. A stream or a log that cannot be written gets
 * nothing more, and says why: the agent decides what that means for the job.
 */
#include "runtime/elastic/launch_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/log.h"

static const char erase_line[] = "\r\033[K";

tutti_status_t tt_console_init(tt_console_t *console, int guard)
{
    console->guard = guard;
    console->is_terminal[0] = isatty(1);
    console->is_terminal[1] = isatty(2);
    console->room = 4 * TT_LINE_BYTES_MAX;
    console->text = tt_alloc_raw(console->room, "console");
    TT_TRY_ALLOC(console->text);
    return TUTTI_OK;
}

void tt_console_fini(tt_console_t *console)
{
    tt_free(console->text);
    console->text = NULL;
}

/* Whether `fd` takes a few kilobytes without blocking; waits for that as long as the guard lives.
 */
static bool can_write(int fd, int guard)
{
    struct pollfd items[] = {{.fd = fd, .events = POLLOUT}, {.fd = guard}};
    while (items[0].revents == 0 && items[1].revents == 0) {
        if (poll(items, 2, -1) < 0 && errno != EINTR) {
            return false;
        }
    }
    return items[0].revents != 0;
}

/* EPIPE is told by the agent, which ends the job for it. */
static void note_error(tt_console_t *console, int fd, int code)
{
    console->error[fd - 1] = code;
    if (code != EPIPE) {
        tt_log(TT_LOG_ERROR, "what ranks print on %s is lost from here on: %s",
               fd == 1 ? "stdout" : "stderr", strerror(code));
    }
}

static void write_console(tt_console_t *console, int fd)
{
    for (size_t done = 0;
         done < console->bytes && console->error[fd - 1] == 0 && can_write(fd, console->guard);) {
        const size_t left = console->bytes - done;
        const ssize_t n = write(fd, console->text + done, left < PIPE_BUF ? left : PIPE_BUF);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            note_error(console, fd, errno);
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

static void flush(tt_console_t *console, int target)
{
    write_console(console, target);
    console->bytes = 0;
}

/* Some file systems tell of a full disk only here. */
static void close_log(tt_output_t *output, int error)
{
    if (output->log_fd >= 0 && close(output->log_fd) != 0 && error == 0) {
        error = errno;
    }
    output->log_fd = -1;
    if (error != 0) {
        output->log_error = error;
        tt_log(TT_LOG_ERROR, "%sthe log ends here: %s", output->prefix, strerror(error));
    }
}

/* A log that cannot be written, on a full disk for example, ends there; the job goes on. */
static void write_log(tt_output_t *output, const char *data, size_t bytes)
{
    for (size_t done = 0; output->log_fd >= 0 && done < bytes;) {
        const ssize_t n = write(output->log_fd, data + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            close_log(output, errno);
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

static void put(tt_console_t *console, int target, const char *data, size_t bytes)
{
    if (console->bytes + bytes > console->room) {
        flush(console, target);
    }
    memcpy(console->text + console->bytes, data, bytes);
    console->bytes += bytes;
}

/* Cut to what the terminal shows in one line. */
static void draw_live(tt_console_t *console, int target)
{
    struct winsize size = {0};
    ioctl(target, TIOCGWINSZ, &size);
    const size_t columns = size.ws_col > 0 ? size.ws_col : 80, bytes = strlen(console->live);
    put(console, target, erase_line, sizeof erase_line - 1);
    put(console, target, console->live, bytes < columns ? bytes : columns - 1);
}

tutti_status_t tt_output_init(tt_output_t *output, tt_console_t *console, int target, int log_fd,
                              bool keeps_tail)
{
    *output = (tt_output_t){.console = console, .target = target, .log_fd = log_fd};
    output->line = tt_alloc_raw(TT_LINE_BYTES_MAX, "output line");
    TT_TRY_ALLOC(output->line);
    if (keeps_tail) {
        output->tail = tt_alloc_raw(TT_TAIL_BYTES, "output tail");
        TT_TRY_ALLOC(output->tail);
    }
    return TUTTI_OK;
}

void tt_output_fini(tt_output_t *output)
{
    if (output->log_fd >= 0) {
        close(output->log_fd);
    }
    tt_free(output->line);
    tt_free(output->tail);
    *output = (tt_output_t){.log_fd = -1};
}

/* Old lines leave at the front, whole. */
static void keep_tail(tt_output_t *output, const char *line, size_t bytes)
{
    const size_t kept = bytes < TT_TAIL_BYTES ? bytes : TT_TAIL_BYTES - 1;
    while (output->tail_bytes + kept + 1 > TT_TAIL_BYTES) {
        const char *end = memchr(output->tail, '\n', output->tail_bytes);
        const size_t gone = end != NULL ? (size_t)(end - output->tail) + 1 : output->tail_bytes;
        memmove(output->tail, output->tail + gone, output->tail_bytes - gone);
        output->tail_bytes -= gone;
    }
    memcpy(output->tail + output->tail_bytes, line, kept);
    output->tail[output->tail_bytes + kept] = '\n';
    output->tail_bytes += kept + 1;
}

/* The line under way, without what carriage returns have overwritten. */
static const char *visible_line(const tt_output_t *output, size_t *bytes)
{
    size_t end = output->bytes;
    while (end > 0 && output->line[end - 1] == '\r') {
        end--;
    }
    const char *cr = memrchr(output->line, '\r', end);
    const char *start = cr != NULL ? cr + 1 : output->line;
    *bytes = end - (size_t)(start - output->line);
    return start;
}

static void end_line(tt_output_t *output)
{
    size_t bytes;
    const char *line = visible_line(output, &bytes);
    tt_console_t *console = output->console;
    if (console != NULL) {
        if (output->is_live) {
            console->live[0] = 0;
        }
        put(console, output->target, output->prefix, strlen(output->prefix));
        put(console, output->target, line, bytes);
        put(console, output->target, "\n", 1);
    }
    if (output->tail != NULL) {
        keep_tail(output, line, bytes);
    }
    output->bytes = 0;
}

static void add_to_line(tt_output_t *output, const char *data, size_t bytes)
{
    while (output->bytes + bytes > TT_LINE_BYTES_MAX) {
        const size_t room = TT_LINE_BYTES_MAX - output->bytes;
        memcpy(output->line + output->bytes, data, room);
        output->bytes += room;
        data += room;
        bytes -= room;
        end_line(output);
    }
    memcpy(output->line + output->bytes, data, bytes);
    output->bytes += bytes;
}

/* Progress may go on for days without a new line: only its last state is kept. */
static void forget_overwritten(tt_output_t *output)
{
    size_t bytes;
    const char *line = visible_line(output, &bytes);
    const size_t gone = (size_t)(line - output->line);
    memmove(output->line, line, output->bytes - gone);
    output->bytes -= gone;
}

static void show_live(tt_output_t *output)
{
    size_t bytes;
    const char *line = visible_line(output, &bytes);
    if (output->is_live && bytes > 0) {
        tt_console_t *console = output->console;
        snprintf(console->live, sizeof console->live, "%s%.*s", output->prefix,
                 (int)(bytes < TT_LIVE_BYTES ? bytes : TT_LIVE_BYTES), line);
    }
}

/* A progress line that stands there is erased before lines, and drawn again behind them. */
void tt_output_add(tt_output_t *output, const char *data, size_t bytes)
{
    write_log(output, data, bytes);
    tt_console_t *console = output->console;
    if (console != NULL && console->live[0] != 0) {
        put(console, output->target, erase_line, sizeof erase_line - 1);
    }
    for (const char *end; (end = memchr(data, '\n', bytes)) != NULL;) {
        add_to_line(output, data, (size_t)(end - data));
        end_line(output);
        bytes -= (size_t)(end - data) + 1;
        data = end + 1;
    }
    add_to_line(output, data, bytes);
    forget_overwritten(output);
    if (console != NULL) {
        show_live(output);
        if (console->live[0] != 0) {
            draw_live(console, output->target);
        }
        flush(console, output->target);
    }
}

void tt_output_finish(tt_output_t *output)
{
    if (output->line != NULL && output->bytes > 0) {
        tt_console_t *console = output->console;
        if (console != NULL && console->live[0] != 0) {
            put(console, output->target, erase_line, sizeof erase_line - 1);
        }
        end_line(output);
        if (console != NULL) {
            flush(console, output->target);
        }
    }
    close_log(output, 0);
}
