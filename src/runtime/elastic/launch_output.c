/* Lines of ranks. Each call gathers the whole lines that it completes, so lines of several ranks
 * never mix. A stream or a log that cannot be written gets nothing more, and says why: the agent
 * decides what that means for the job.
 *
 * The streams belong to others too, so they are not made non-blocking: they are written in pieces
 * that a stream takes whole where poll() says that it can be written. A terminal that has any room
 * can be written, and a longer write waits: it is opened once more, non-blocking. As a stream may
 * be a file, the loop does not watch it, but an epoll that does.
 */
#include "runtime/elastic/launch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/log.h"

static const char erase_line[] = "\r\033[K";

static int fd_of(int stream)
{
    return stream == 0 ? STDOUT_FILENO : STDERR_FILENO;
}

static const char *name_of(int stream)
{
    return stream == 0 ? "stdout" : "stderr";
}

static void drop_lines(tt_queue_t *queue)
{
    tt_free(queue->text);
    queue->text = NULL;
    queue->bytes = queue->room = 0;
}

/* EPIPE is reported by the agent, which ends the job for it. */
static void note_error(tt_console_t *console, int stream, int code)
{
    console->queues[stream].error = code;
    drop_lines(&console->queues[stream]);
    if (code != EPIPE) {
        tt_log(TT_LOG_ERROR, "what ranks print on %s is lost from here on: %s", name_of(stream),
               strerror(code));
    }
}

static bool can_write(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    return poll(&item, 1, 0) > 0;
}

/* As much as the stream takes now. */
static void flush(tt_console_t *console, int stream)
{
    tt_queue_t *queue = &console->queues[stream];
    size_t done = 0;
    while (done < queue->bytes && can_write(queue->fd)) {
        const size_t left = queue->bytes - done;
        const ssize_t n = write(queue->fd, queue->text + done, left < PIPE_BUF ? left : PIPE_BUF);
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            note_error(console, stream, errno);
            return;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    queue->bytes -= done;
    if (done > 0) {
        memmove(queue->text, queue->text + done, queue->bytes);
    }
    if (queue->watch != NULL) {
        tt_watch_want(queue->watch, queue->bytes > 0, false);
    }
}

static void on_writable(void *user)
{
    tt_console_t *console = user;
    tt_console_flush(console);
    console->moved(console->user);
}

/* The stream itself, if it is no terminal or cannot be opened. */
static int open_terminal(int stream)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd_of(stream));
    const int fd = isatty(fd_of(stream)) ? open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                                         : fd_of(stream);
    return fd >= 0 ? fd : fd_of(stream);
}

/* A file can always be written, and what is not open fails at once: no epoll takes them. */
static tutti_status_t watch_stream(tt_console_t *console, int stream, tt_loop_t *loop)
{
    tt_queue_t *queue = &console->queues[stream];
    struct epoll_event event = {.events = EPOLLOUT};
    queue->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (queue->epoll < 0 || epoll_ctl(queue->epoll, EPOLL_CTL_ADD, queue->fd, &event) != 0) {
        return errno == EPERM || errno == EBADF
                   ? TUTTI_OK
                   : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot watch %s", name_of(stream));
    }
    TT_TRY(tt_watch_create(loop, queue->epoll, on_writable, console, &queue->watch));
    tt_watch_want(queue->watch, false, false);
    return TUTTI_OK;
}

tutti_status_t tt_console_init(tt_console_t *console, tt_loop_t *loop, void (*moved)(void *user),
                               void *user)
{
    console->moved = moved;
    console->user = user;
    for (int stream = 0; stream < TT_STREAMS; stream++) {
        console->queues[stream] = (tt_queue_t){
            .is_terminal = isatty(fd_of(stream)), .fd = open_terminal(stream), .epoll = -1};
    }
    TT_TRY(watch_stream(console, 0, loop));
    return watch_stream(console, 1, loop);
}

void tt_console_fini(tt_console_t *console)
{
    for (int stream = 0; stream < TT_STREAMS && console->moved != NULL; stream++) {
        tt_queue_t *queue = &console->queues[stream];
        tt_watch_close(queue->watch);
        if (queue->epoll >= 0) {
            close(queue->epoll);
        }
        if (queue->fd != fd_of(stream)) {
            close(queue->fd);
        }
        drop_lines(queue);
    }
}

static bool make_room(tt_queue_t *queue, size_t bytes)
{
    const size_t needed = queue->bytes + bytes, twice = 2 * queue->room;
    if (needed <= queue->room) {
        return true;
    }
    const size_t room = needed > twice ? needed : twice;
    char *text = tt_realloc(queue->text, room, "console");
    if (text != NULL) {
        queue->text = text;
        queue->room = room;
    }
    return text != NULL;
}

static void put(tt_console_t *console, int stream, const char *data, size_t bytes)
{
    tt_queue_t *queue = &console->queues[stream];
    if (queue->error != 0 || bytes == 0) {
        return;
    }
    if (!make_room(queue, bytes)) {
        note_error(console, stream, ENOMEM);
        return;
    }
    memcpy(queue->text + queue->bytes, data, bytes);
    queue->bytes += bytes;
}

void tt_console_add(tt_console_t *console, int stream, const char *line, size_t bytes)
{
    put(console, stream, line, bytes);
    put(console, stream, "\n", 1);
}

void tt_console_flush(tt_console_t *console)
{
    for (int stream = 0; stream < TT_STREAMS; stream++) {
        flush(console, stream);
    }
}

bool tt_console_is_busy(const tt_console_t *console)
{
    return console->queues[0].bytes > 0 || console->queues[1].bytes > 0;
}

bool tt_console_has_no_reader(const tt_console_t *console)
{
    return console->queues[0].error == EPIPE || console->queues[1].error == EPIPE;
}

static const char *find_error(const tt_console_t *console, char text[128])
{
    for (int stream = 0; stream < TT_STREAMS; stream++) {
        if (console->queues[stream].error != 0) {
            snprintf(text, 128, "what ranks printed on %s is not all there: %s", name_of(stream),
                     strerror(console->queues[stream].error));
            return text;
        }
    }
    return NULL;
}

void tt_console_judge(const tt_console_t *console, const char *log_problem,
                      tutti_launch_report_t *report)
{
    char text[128];
    if (report->stop_signal == SIGPIPE) {
        report->exit_code = 128 + SIGPIPE;
        snprintf(report->verdict, sizeof report->verdict,
                 "nobody reads the output any more, so the ranks were stopped");
        return;
    }
    const char *problem = find_error(console, text);
    problem = problem != NULL ? problem : log_problem;
    if (problem != NULL && report->exit_code == 0) {
        report->exit_code = 1;
        snprintf(report->verdict, sizeof report->verdict, "%s", problem);
    }
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

/* Cut to what the terminal shows in one line. */
static void draw_live(tt_console_t *console, int stream)
{
    struct winsize size = {0};
    ioctl(fd_of(stream), TIOCGWINSZ, &size);
    const size_t columns = size.ws_col > 0 ? size.ws_col : 80, bytes = strlen(console->live);
    put(console, stream, erase_line, sizeof erase_line - 1);
    put(console, stream, console->live, bytes < columns ? bytes : columns - 1);
}

tutti_status_t tt_output_init(tt_output_t *output, tt_console_t *console, int stream, int log_fd,
                              bool keeps_tail)
{
    const bool is_marked = console != NULL && console->is_marked;
    *output = (tt_output_t){.console = console,
                            .stream = is_marked ? 0 : stream,
                            .mark = is_marked ? "oe"[stream] : 0,
                            .log_fd = log_fd};
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
        put(console, output->stream, &output->mark, output->mark != 0);
        put(console, output->stream, output->prefix, strlen(output->prefix));
        put(console, output->stream, line, bytes);
        put(console, output->stream, "\n", 1);
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

bool tt_output_is_full(const tt_output_t *output)
{
    return output->console != NULL &&
           output->console->queues[output->stream].bytes >= TT_QUEUE_BYTES;
}

/* A progress line that stands there is erased before lines, and drawn again behind them. */
void tt_output_add(tt_output_t *output, const char *data, size_t bytes)
{
    write_log(output, data, bytes);
    tt_console_t *console = output->console;
    if (console != NULL && console->live[0] != 0) {
        put(console, output->stream, erase_line, sizeof erase_line - 1);
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
            draw_live(console, output->stream);
        }
        flush(console, output->stream);
    }
}

void tt_output_finish(tt_output_t *output)
{
    if (output->line != NULL && output->bytes > 0) {
        tt_console_t *console = output->console;
        if (console != NULL && console->live[0] != 0) {
            put(console, output->stream, erase_line, sizeof erase_line - 1);
        }
        end_line(output);
        if (console != NULL) {
            flush(console, output->stream);
        }
    }
    close_log(output, 0);
}
