/* The ssh client of one host. Its three streams are pipes on the loop:
 *
 *     in     the letter, then signals; waits in `letter` until ssh takes it
 *     out    lines of the launcher there, which is read while the console has room for them
 *     err    what ssh and the shell there say, shown as "[host] TEXT"
 *
 * ssh asks nothing (BatchMode): nobody may sit at the terminal, and several would ask at once.
 */
#include "runtime/elastic/ssh_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_environment.h"
#include "runtime/elastic/ssh_job.h"

enum {
    LINE_ROOM = TT_LINE_BYTES_MAX + 256, /* a line, its prefix and its mark */
    COMMAND_BYTES = 4096,
    READS_AT_ONCE = 16,
    CODE_NOT_FOUND = 127,
    CODE_NOT_EXECUTABLE = 126,
    CODE_SSH = 255 /* of ssh itself */
};

static void close_end(tt_watch_t **watch, int *fd)
{
    tt_watch_close(*watch);
    *watch = NULL;
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Signals are ignored by who is gone; that it is gone shows by its exit. */
static void send_letter(tt_ssh_host_t *host)
{
    size_t done = 0;
    while (host->in >= 0 && done < host->letter_bytes) {
        const ssize_t n = write(host->in, host->letter + done, host->letter_bytes - done);
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            close_end(&host->in_watch, &host->in);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (host->letter != NULL) {
        memmove(host->letter, host->letter + done, host->letter_bytes - done);
        explicit_bzero(host->letter + host->letter_bytes - done, done); /* the key was in it */
        host->letter_bytes -= done;
    }
    if (host->letter_bytes == 0 || host->in < 0) {
        tt_free(host->letter);
        host->letter = NULL;
        host->letter_bytes = 0;
    }
    if (host->in_watch != NULL) {
        tt_watch_want(host->in_watch, false, host->letter_bytes > 0);
    }
}

static void on_in(void *user)
{
    send_letter(user);
}

void tt_ssh_host_tell(tt_ssh_host_t *host, char *letter, size_t bytes)
{
    host->letter = letter;
    host->letter_bytes = bytes;
    host->is_told = true;
    send_letter(host);
}

/* Behind the letter, if that is still on its way. */
void tt_ssh_host_signal(tt_ssh_host_t *host, int number)
{
    const size_t bytes = host->letter_bytes;
    char *letter = host->in >= 0 ? tt_realloc(host->letter, bytes + 1, "letter to a host") : NULL;
    if (letter != NULL) {
        letter[bytes] = (char)number;
        host->letter = letter;
        host->letter_bytes = bytes + 1;
        send_letter(host);
    }
}

/* Nothing more is sent: what runs there ends. */
static void hang_up(tt_ssh_host_t *host)
{
    close_end(&host->in_watch, &host->in);
    send_letter(host);
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void hear_shell(tt_ssh_host_t *host, const char *line, size_t bytes)
{
    if (strcmp(line, TT_SSH_HELLO) == 0) {
        host->has_greeted = true;
        host->context->moved(host->context->user);
    } else if (bytes > 0) {
        tt_output_add(&host->words, line, bytes);
        tt_output_add(&host->words, "\n", 1);
    }
}

/* line ends with a 0; `bytes` are without it. */
static void hear(tt_ssh_host_t *host, char *line, size_t bytes)
{
    const tt_ssh_context_t *context = host->context;
    if (!host->has_greeted) {
        hear_shell(host, line, bytes);
    } else if (line[0] == 'o' || line[0] == 'e') {
        tt_console_add(context->console, line[0] == 'e', line + 1, bytes - 1);
    } else if (line[0] == 'a' && sscanf(line + 1, "%63s %9d", host->address, &host->port) == 2) {
        context->moved(context->user);
    } else if (tt_ssh_hear_end(line, &host->report, &host->status)) {
        host->has_reported = true;
        context->moved(context->user);
    }
}

/* All whole lines; one that is longer than any launcher's is cut. */
static void hear_lines(tt_ssh_host_t *host)
{
    char *at = host->line, *end = host->line + host->line_bytes;
    for (char *stop; (stop = memchr(at, '\n', (size_t)(end - at))) != NULL; at = stop + 1) {
        *stop = 0;
        hear(host, at, (size_t)(stop - at));
    }
    host->line_bytes = (size_t)(end - at);
    memmove(host->line, at, host->line_bytes);
    if (host->line_bytes == LINE_ROOM) {
        host->line[LINE_ROOM - 1] = 0;
        hear(host, host->line, LINE_ROOM - 1);
        host->line_bytes = 0;
    }
}

static bool is_full(const tt_ssh_host_t *host)
{
    const tt_queue_t *queues = host->context->console->queues;
    return queues[0].bytes >= TT_QUEUE_BYTES || queues[1].bytes >= TT_QUEUE_BYTES;
}

/* False: nothing is left just now, or it is at its end. */
static bool read_out(tt_ssh_host_t *host)
{
    const ssize_t n = read(host->out, host->line + host->line_bytes, LINE_ROOM - host->line_bytes);
    if (n > 0) {
        host->line_bytes += (size_t)n;
        hear_lines(host);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_end(&host->out_watch, &host->out);
    }
    return false;
}

static void on_out(void *user)
{
    tt_ssh_host_t *host = user;
    bool is_going_on = true;
    for (int i = 0; i < READS_AT_ONCE && is_going_on; i++) {
        if (is_full(host)) {
            tt_watch_want(host->out_watch, false, false);
            break;
        }
        is_going_on = read_out(host);
    }
    tt_console_flush(host->context->console);
    host->context->moved(host->context->user);
}

void tt_ssh_host_resume(const tt_ssh_host_t *host)
{
    if (host->out_watch != NULL && !is_full(host)) {
        tt_watch_want(host->out_watch, true, false);
    }
}

static bool read_err(tt_ssh_host_t *host)
{
    char text[4096];
    const ssize_t n = read(host->err, text, sizeof text);
    if (n > 0) {
        tt_output_add(&host->words, text, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_end(&host->err_watch, &host->err);
        tt_output_finish(&host->words);
    }
    return n > 0;
}

static void on_err(void *user)
{
    (void)read_err(user);
}

/* What it said before it ended may be read after that. */
static void on_exit_of_ssh(void *user)
{
    tt_ssh_host_t *host = user;
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)host->pidfd, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
        return;
    }
    host->code = info.si_code == CLD_EXITED ? info.si_status : 0;
    host->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    host->has_ended = true;
    close_end(&host->exit_watch, &host->pidfd);
    while (host->err >= 0 && read_err(host)) {
    }
    while (host->out >= 0 && read_out(host)) {
    }
    hang_up(host);
    tt_console_flush(host->context->console);
    host->context->moved(host->context->user);
}

/* ---- the process ----------------------------------------------------------------------------- */

/* As every shell reads it. False: it is too long. */
static bool quote(const char *text, char *out, size_t bytes)
{
    size_t used = 0;
    for (const char *at = text; *at != 0 && used + 8 < bytes; at++) {
        used += (size_t)snprintf(out + used, bytes - used, *at == '\'' ? "'\\''" : "%c", *at);
    }
    return used + 8 < bytes;
}

static tutti_status_t make_command(const tutti_launch_options_t *options, char out[COMMAND_BYTES])
{
    char quoted[COMMAND_BYTES - 32];
    const char *remote = options->remote != NULL ? options->remote : "tutti";
    if (!quote(remote, quoted, sizeof quoted)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%.64s…: a path of more than %d bytes", remote,
                       COMMAND_BYTES - 64);
    }
    snprintf(out, COMMAND_BYTES, "'%s' run --agent", quoted);
    return TUTTI_OK;
}

/* Its end of a pipe, and ours, which does not block. */
static tutti_status_t open_pipe(bool is_ours_written, int *ours, int *its)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "pipe");
    }
    *ours = ends[is_ours_written];
    *its = ends[!is_ours_written];
    fcntl(*ours, F_SETFL, O_NONBLOCK);
    return TUTTI_OK;
}

static tutti_status_t open_streams(tt_ssh_host_t *host, int its[3])
{
    TT_TRY(open_pipe(true, &host->in, &its[0]));
    TT_TRY(open_pipe(false, &host->out, &its[1]));
    return open_pipe(false, &host->err, &its[2]);
}

/* error_fd: close-on-exec, where a child says why it cannot execute. */
static tutti_status_t execute(tt_ssh_host_t *host, const int its[3], int error_fd)
{
    const tt_ssh_context_t *context = host->context;
    char command[COMMAND_BYTES], script[COMMAND_BYTES];
    TT_TRY(make_command(context->options, command));
    const char *ssh = context->options->ssh, *name = host->about->name;
    const char *const usual[] = {"ssh",   "-T",
                                 "-o",    "BatchMode=yes",
                                 "-o",    "ServerAliveInterval=5",
                                 "-o",    "ServerAliveCountMax=3",
                                 "--",    name,
                                 command, NULL};
    const char *const other[] = {"/bin/sh", "-c", script, "ssh", name, command, NULL};
    if (ssh != NULL &&
        (size_t)snprintf(script, sizeof script, "exec %s \"$@\"", ssh) >= sizeof script) {
        return TT_FAIL(TUTTI_ERR_ARG, "a command for ssh of more than %d bytes", COMMAND_BYTES);
    }
    char **environment;
    TT_TRY(tt_environment_with(NULL, &environment));
    const tutti_status_t status =
        tt_child_spawn(&(tt_child_options_t){.argv = ssh != NULL ? other : usual,
                                             .envp = environment,
                                             .fds = {its[0], its[1], its[2]},
                                             .signals = context->signals,
                                             .error_fd = error_fd},
                       &host->pid);
    tt_free(environment);
    return status;
}

/* exec takes a moment; nothing else happens here yet. */
static tutti_status_t spawn(tt_ssh_host_t *host, const int its[3])
{
    int ends[2];
    tt_child_error_t error;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "pipe");
    }
    tutti_status_t status = execute(host, its, ends[1]);
    close(ends[1]);
    if (status >= 0 && read(ends[0], &error, sizeof error) == sizeof error) {
        errno = error.code;
        status = TT_FAIL_ERRNO(TUTTI_ERR_NOT_FOUND,
                               "host %s: cannot execute ssh (give another "
                               "client with --ssh)",
                               host->about->name);
    }
    close(ends[0]);
    return status;
}

static tutti_status_t watch(tt_ssh_host_t *host)
{
    tt_loop_t *loop = host->context->loop;
    host->pidfd = pidfd_open(host->pid, 0);
    if (host->pidfd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot watch process %d", host->pid);
    }
    fcntl(host->pidfd, F_SETFD, FD_CLOEXEC);
    TT_TRY(tt_watch_create(loop, host->in, on_in, host, &host->in_watch));
    tt_watch_want(host->in_watch, false, false);
    TT_TRY(tt_watch_create(loop, host->out, on_out, host, &host->out_watch));
    TT_TRY(tt_watch_create(loop, host->err, on_err, host, &host->err_watch));
    return tt_watch_create(loop, host->pidfd, on_exit_of_ssh, host, &host->exit_watch);
}

tutti_status_t tt_ssh_host_start(tt_ssh_host_t *host, const tt_ssh_context_t *context,
                                 const tutti_launch_host_t *about)
{
    int its[3] = {-1, -1, -1};
    host->context = context;
    host->about = about;
    host->report = (tutti_launch_report_t){.failed_rank = -1, .failed_node = -1};
    host->line = tt_alloc_raw(LINE_ROOM, "line of a host");
    TT_TRY_ALLOC(host->line);
    TT_TRY(tt_output_init(&host->words, context->console, 1, -1, true));
    snprintf(host->words.prefix, sizeof host->words.prefix, "[%.28s] ", about->name);
    tutti_status_t status = open_streams(host, its);
    if (status >= 0) {
        status = spawn(host, its);
    }
    for (int i = 0; i < 3; i++) {
        if (its[i] >= 0) {
            close(its[i]);
        }
    }
    return status >= 0 ? watch(host) : status;
}

/* The last line, which says most. */
static void last_words(const tt_ssh_host_t *host, char *text, size_t bytes)
{
    const tt_output_t *words = &host->words;
    size_t end = words->tail_bytes > 0 ? words->tail_bytes - 1 : 0;
    const char *before = end > 0 ? memrchr(words->tail, '\n', end) : NULL;
    const size_t begin = before != NULL ? (size_t)(before - words->tail) + 1 : 0;
    while (end > begin && (unsigned char)words->tail[end - 1] <= ' ') {
        end--;
    }
    snprintf(text, bytes, "%s%.*s", end > begin ? ": " : "", (int)(end - begin),
             end > begin ? words->tail + begin : "");
}

tutti_status_t tt_ssh_host_explain(const tt_ssh_host_t *host, char *text, size_t bytes)
{
    char words[256], how[64];
    const char *name = host->about->name;
    last_words(host, words, sizeof words);
    snprintf(how, sizeof how, host->signal > 0 ? "by signal %d" : "with exit code %d",
             host->signal > 0 ? host->signal : host->code);
    if (host->has_greeted) {
        snprintf(text, bytes, "host %s: lost, ssh ended %s%s", name, how, words);
        return TUTTI_ERR_PEER;
    }
    if (host->signal == 0 && host->code == CODE_SSH) {
        snprintf(text, bytes, "host %s: ssh cannot start anything there%s", name, words);
        return TUTTI_ERR_IO;
    }
    if (host->signal == 0 && (host->code == CODE_NOT_FOUND || host->code == CODE_NOT_EXECUTABLE)) {
        snprintf(text, bytes, "host %s: %s cannot be run there%s; --tutti names it", name,
                 host->context->options->remote != NULL ? host->context->options->remote : "tutti",
                 words);
        return host->code == CODE_NOT_FOUND ? TUTTI_ERR_NOT_FOUND : TUTTI_ERR_UNSUPPORTED;
    }
    snprintf(text, bytes, "host %s: ssh ended %s before tutti answered there%s", name, how, words);
    return TUTTI_ERR_IO;
}

void tt_ssh_host_fini(tt_ssh_host_t *host)
{
    if (host->pid > 0 && !host->has_ended) {
        kill(-host->pid, SIGKILL);
    }
    close_end(&host->exit_watch, &host->pidfd);
    close_end(&host->out_watch, &host->out);
    close_end(&host->err_watch, &host->err);
    hang_up(host);
    tt_output_fini(&host->words);
    tt_free(host->line);
}
