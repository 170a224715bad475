/* The agent runs a job on an event loop: it watches a pidfd and two pipes for each rank, and the
 * pipe from the guard (launcher.c). It is a subreaper: whatever ranks leave behind becomes its
 * child, and is killed when the job is over.
 *
 *     RUNNING --a rank failed, or somebody stops the job--> STOPPING --grace is over--> KILLED
 *
 * Ranks are in process groups of their own, so that a signal reaches a rank with its helpers, and
 * die with the agent (PR_SET_PDEATHSIG).
 */
#include "runtime/elastic/launch_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/net/child.h"
#include "comm/net/net.h"
#include "core/base/alloc.h"
#include "runtime/elastic/launch_binding.h"
#include "runtime/elastic/launch_environment.h"
#include "runtime/elastic/launch_log.h"
#include "runtime/elastic/launch_output.h"

enum { READ_BYTES = 1 << 16, STREAMS = 2, GRACE_MS_DEFAULT = 30000 };

typedef struct agent agent_t;

typedef struct {
    tt_output_t output;
    tt_watch_t *watch; /* NULL: at its end */
    int fd;            /* -1: at its end */
} pump_t;

typedef struct {
    agent_t *agent;
    int rank;
    pid_t pid; /* 0: not started */
    int pidfd;
    tt_watch_t *exit_watch;
    bool has_ended;
    int code, signal; /* how */
    pump_t pumps[STREAMS];
} rank_t;

struct agent {
    const tutti_launch_options_t *options;
    const sigset_t *signals;
    tutti_launch_report_t *report;
    int rank_count, running, control;
    rank_t *ranks;
    tutti_store_t *store;
    tt_loop_t *loop;
    tt_timer_t *grace;
    tt_console_t console;
    bool is_stopping;
    int interrupts;
    char run_id[64];
    char *buffer; /* READ_BYTES */
};

static void signal_group(const rank_t *rank, int number)
{
    if (rank->pid > 0 && !rank->has_ended) {
        kill(-rank->pid, number);
    }
}

static void signal_all(const agent_t *agent, int number)
{
    for (int i = 0; i < agent->rank_count; i++) {
        signal_group(&agent->ranks[i], number);
    }
}

static void kill_all(void *user)
{
    signal_all(user, SIGKILL);
}

/* From now on every rank has `grace` to end. */
static void start_stopping(agent_t *agent)
{
    if (!agent->is_stopping) {
        const int64_t grace_ms = agent->options->grace_ms;
        agent->is_stopping = true;
        tt_timer_start(agent->grace, grace_ms > 0 ? grace_ms : GRACE_MS_DEFAULT);
    }
}

/* What can be read now. END: the other end is closed; PENDING: nothing is left just now; OK: there
 * may be more, but others shall have their turn. */
static tutti_status_t drain(rank_t *rank, pump_t *pump)
{
    char *buffer = rank->agent->buffer;
    for (int i = 0; i < 16; i++) {
        const ssize_t n = read(pump->fd, buffer, READ_BYTES);
        if (n > 0) {
            tt_output_add(&pump->output, buffer, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            return TUTTI_PENDING;
        } else if (n == 0 || errno != EINTR) {
            return TUTTI_END;
        }
    }
    return TUTTI_OK;
}

static void close_pump(pump_t *pump)
{
    tt_watch_close(pump->watch);
    pump->watch = NULL;
    if (pump->fd >= 0) {
        close(pump->fd);
        pump->fd = -1;
        tt_output_finish(&pump->output);
    }
}

static void pump_stream(rank_t *rank, int stream)
{
    if (drain(rank, &rank->pumps[stream]) == TUTTI_END) {
        close_pump(&rank->pumps[stream]);
    }
}

static void on_stdout(void *user)
{
    pump_stream(user, 0);
}

static void on_stderr(void *user)
{
    pump_stream(user, 1);
}

static void describe_end(const rank_t *rank, char *text, size_t bytes)
{
    const char *name = rank->signal > 0 ? sigabbrev_np(rank->signal) : NULL;
    if (name != NULL) {
        snprintf(text, bytes, "rank %d: killed by SIG%s", rank->rank, name);
    } else if (rank->signal > 0) {
        snprintf(text, bytes, "rank %d: killed by signal %d", rank->rank, rank->signal);
    } else {
        snprintf(text, bytes, "rank %d: exit code %d", rank->rank, rank->code);
    }
}

/* Notes how a rank ended, if it has, and ends what it left in its group. */
static void reap(rank_t *rank)
{
    siginfo_t info = {0};
    if (rank->has_ended || waitid(P_PIDFD, (id_t)rank->pidfd, &info, WEXITED | WNOHANG) != 0 ||
        info.si_pid == 0) {
        return;
    }
    kill(-rank->pid, SIGKILL);
    rank->has_ended = true;
    rank->code = info.si_code == CLD_EXITED ? info.si_status : 0;
    rank->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    tt_watch_close(rank->exit_watch);
    rank->exit_watch = NULL;
    rank->agent->running--;
}

/* Of ranks that ended before we looked, one that was killed came before those who noticed. */
static const rank_t *find_failure(const agent_t *agent)
{
    const rank_t *found = NULL;
    for (int i = 0; i < agent->rank_count; i++) {
        const rank_t *rank = &agent->ranks[i];
        if (rank->has_ended && rank->signal > 0) {
            return rank;
        }
        if (rank->has_ended && rank->code != 0 && found == NULL) {
            found = rank;
        }
    }
    return found;
}

static void note_failure(agent_t *agent, const rank_t *rank)
{
    tutti_launch_report_t *report = agent->report;
    report->failed_rank = rank->rank;
    report->exit_code = rank->signal > 0 ? 128 + rank->signal : rank->code;
    describe_end(rank, report->verdict, sizeof report->verdict);
    signal_all(agent, SIGTERM);
    signal_all(agent, SIGCONT); /* one that is stopped could not end */
    start_stopping(agent);
}

static void on_exit_of_rank(void *user)
{
    agent_t *agent = ((rank_t *)user)->agent;
    for (int i = 0; i < agent->rank_count; i++) {
        reap(&agent->ranks[i]);
    }
    const rank_t *failed = agent->report->failed_rank < 0 ? find_failure(agent) : NULL;
    if (failed != NULL) {
        note_failure(agent, failed);
    }
    if (agent->running == 0) {
        tt_loop_stop(agent->loop);
    }
}

/* What a terminal sends goes to groups, as a terminal does; others are the rank's own business. */
static void forward(agent_t *agent, int number)
{
    const bool is_stop =
        number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    const bool is_for_group = is_stop || number == SIGTSTP || number == SIGCONT;
    for (int i = 0; i < agent->rank_count; i++) {
        const rank_t *rank = &agent->ranks[i];
        if (rank->pid > 0 && !rank->has_ended) {
            kill(is_for_group ? -rank->pid : rank->pid, number);
        }
    }
    if (is_stop) {
        agent->report->stop_signal = number;
        start_stopping(agent);
    }
    agent->interrupts += number == SIGINT;
    if (number == SIGINT && agent->interrupts > 1) {
        kill_all(agent);
    }
}

static void on_control(void *user)
{
    agent_t *agent = user;
    uint8_t numbers[64];
    const ssize_t n = read(agent->control, numbers, sizeof numbers);
    for (ssize_t i = 0; i < n; i++) {
        forward(agent, numbers[i]);
    }
    if (n == 0) { /* nobody waits for this job any more */
        kill_all(agent);
        tt_loop_stop(agent->loop);
    }
}

static tutti_status_t open_pump(rank_t *rank, int stream, int *write_end)
{
    agent_t *agent = rank->agent;
    const tutti_launch_options_t *options = agent->options;
    const unsigned bit = stream == 0 ? TUTTI_STREAM_STDOUT : TUTTI_STREAM_STDERR;
    const bool is_redirected =
        options->redirects != NULL && (options->redirects[rank->rank] & bit) != 0;
    const bool is_teed = options->tees != NULL && (options->tees[rank->rank] & bit) != 0;
    int log_fd = -1, ends[2];
    if (is_redirected || is_teed) {
        TT_TRY(tt_log_open(agent->report->log_dir, rank->rank,
                           stream == 0 ? "stdout.log" : "stderr.log", &log_fd));
    }
    pump_t *pump = &rank->pumps[stream];
    tt_console_t *console = is_redirected && !is_teed ? NULL : &agent->console;
    TT_TRY(tt_output_init(&pump->output, console, stream + 1, log_fd, stream == 1));
    if (agent->rank_count > 1) {
        snprintf(pump->output.prefix, sizeof pump->output.prefix, "[rank %d] ", rank->rank);
    }
    pump->output.is_live = console != NULL && rank->rank == 0 && agent->console.is_terminal[stream];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "rank %d: no pipe for its output", rank->rank);
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pump->fd = ends[0];
    *write_end = ends[1];
    return tt_watch_create(agent->loop, pump->fd, stream == 0 ? on_stdout : on_stderr, rank,
                           &pump->watch);
}

static tutti_status_t spawn(rank_t *rank, const tt_binding_t *binding, const int *fds, int error_fd)
{
    agent_t *agent = rank->agent;
    const tt_rank_facts_t facts = {.rank = rank->rank,
                                   .rank_count = agent->rank_count,
                                   .cores = binding->cores,
                                   .master_port = tutti_store_port(agent->store),
                                   .run_id = agent->run_id,
                                   .is_watched = rank->pumps[0].output.is_live};
    char **environment;
    TT_TRY(tt_environment_create(&facts, &environment));
    const tt_child_options_t child = {.argv = agent->options->command,
                                      .envp = environment,
                                      .fds = {fds[0], fds[1], fds[2]},
                                      .cpus = &binding->cpus,
                                      .signals = agent->signals,
                                      .error_fd = error_fd};
    const tutti_status_t status = tt_child_spawn(&child, &rank->pid);
    tt_free(environment);
    TT_TRY(status);
    agent->running++;
    rank->pidfd = pidfd_open(rank->pid, 0);
    if (rank->pidfd < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "rank %d: cannot watch process %d", rank->rank,
                             rank->pid);
    }
    fcntl(rank->pidfd, F_SETFD, FD_CLOEXEC);
    return tt_watch_create(agent->loop, rank->pidfd, on_exit_of_rank, rank, &rank->exit_watch);
}

/* Rank 0 reads what the launcher was given, unless that is a terminal, which belongs to nobody. */
static tutti_status_t start_rank(rank_t *rank, const tt_binding_t *binding, int error_fd)
{
    int fds[3] = {rank->rank == 0 && !isatty(0) ? 0 : -1, -1, -1};
    tutti_status_t status = open_pump(rank, 0, &fds[1]);
    if (status >= 0) {
        status = open_pump(rank, 1, &fds[2]);
    }
    if (status >= 0) {
        status = spawn(rank, binding, fds, error_fd);
    }
    for (int i = 1; i < 3; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return status;
}

static tutti_status_t start_ranks(agent_t *agent, int error_fd)
{
    tt_binding_t *bindings =
        tt_alloc_array((size_t)agent->rank_count, sizeof *bindings, "bindings");
    TT_TRY_ALLOC(bindings);
    tutti_status_t status = tt_bindings_plan(agent->rank_count, bindings);
    for (int i = 0; status >= 0 && i < agent->rank_count; i++) {
        status = start_rank(&agent->ranks[i], &bindings[i], error_fd);
    }
    tt_free(bindings);
    return status;
}

/* All ranks share one pipe, which is at its end when all of them execute the command. */
static tutti_status_t check_started(const agent_t *agent, int error_fd)
{
    tt_child_error_t error;
    if (read(error_fd, &error, sizeof error) != sizeof error) {
        return TUTTI_OK;
    }
    errno = error.code;
    return TT_FAIL_ERRNO(error.code == ENOENT ? TUTTI_ERR_NOT_FOUND : TUTTI_ERR_UNSUPPORTED,
                         "command %s", agent->options->command[0]);
}

static tutti_status_t start_job(agent_t *agent)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "pipe");
    }
    tutti_status_t status = start_ranks(agent, ends[1]);
    close(ends[1]);
    if (status >= 0) {
        status = check_started(agent, ends[0]);
    }
    close(ends[0]);
    return status;
}

static bool has_logs(const tutti_launch_options_t *options, int rank_count)
{
    for (int i = 0; i < rank_count; i++) {
        if ((options->redirects != NULL && options->redirects[i] != 0) ||
            (options->tees != NULL && options->tees[i] != 0)) {
            return true;
        }
    }
    return false;
}

static tutti_status_t prepare(agent_t *agent)
{
    const tutti_launch_options_t *options = agent->options;
    TT_TRY(tt_console_init(&agent->console, agent->control));
    agent->buffer = tt_alloc_raw(READ_BYTES, "read buffer");
    TT_TRY_ALLOC(agent->buffer);
    agent->ranks = tt_alloc_array((size_t)agent->rank_count, sizeof *agent->ranks, "ranks");
    TT_TRY_ALLOC(agent->ranks);
    for (int i = 0; i < agent->rank_count; i++) {
        agent->ranks[i] = (rank_t){.agent = agent, .rank = i, .pidfd = -1};
        for (int j = 0; j < STREAMS; j++) {
            agent->ranks[i].pumps[j] = (pump_t){.fd = -1, .output.log_fd = -1};
        }
    }
    if (has_logs(options, agent->rank_count)) {
        TT_TRY(tt_log_directory(options->log_dir, agent->run_id, agent->report->log_dir,
                                sizeof agent->report->log_dir));
    }
    TT_TRY(tt_loop_create(NULL, NULL, &agent->loop));
    TT_TRY(tt_timer_create(agent->loop, kill_all, agent, &agent->grace));
    tt_watch_t *watch;
    TT_TRY(tt_watch_create(agent->loop, agent->control, on_control, agent, &watch));
    return tutti_store_tcp_listen(NULL, options->master_port, &agent->store);
}

/* The job is over, or never began: nothing of it stays, and the pipes give what is left in them. */
static void end_job(agent_t *agent)
{
    kill_all(agent);
    tt_children_kill();
    for (int i = 0; agent->ranks != NULL && i < agent->rank_count; i++) {
        rank_t *rank = &agent->ranks[i];
        for (int j = 0; j < STREAMS; j++) {
            if (rank->pumps[j].fd >= 0) {
                while (drain(rank, &rank->pumps[j]) == TUTTI_OK) {
                }
                close_pump(&rank->pumps[j]);
            }
        }
        tt_watch_close(rank->exit_watch);
        if (rank->pidfd >= 0) {
            close(rank->pidfd);
        }
    }
}

static void keep_tail(const agent_t *agent)
{
    tutti_launch_report_t *report = agent->report;
    if (report->failed_rank >= 0) {
        const tt_output_t *output = &agent->ranks[report->failed_rank].pumps[1].output;
        memcpy(report->stderr_tail, output->tail, output->tail_bytes);
        report->stderr_tail[output->tail_bytes] = 0;
    }
}

static void fini(agent_t *agent)
{
    for (int i = 0; agent->ranks != NULL && i < agent->rank_count; i++) {
        for (int j = 0; j < STREAMS; j++) {
            tt_output_fini(&agent->ranks[i].pumps[j].output);
        }
    }
    tt_loop_release(agent->loop);
    tutti_store_release(agent->store);
    tt_console_fini(&agent->console);
    tt_free(agent->ranks);
    tt_free(agent->buffer);
}

tutti_status_t tt_agent_run(const tutti_launch_options_t *options, int control,
                            const sigset_t *signals, tutti_launch_report_t *report)
{
    agent_t agent = {.options = options,
                     .signals = signals,
                     .report = report,
                     .control = control,
                     .rank_count =
                         options->rank_count > 0 ? options->rank_count : tutti_core_count()};
    *report = (tutti_launch_report_t){.failed_rank = -1};
    snprintf(agent.run_id, sizeof agent.run_id, "%s", options->run_id);
    signal(SIGPIPE, SIG_IGN);
    tutti_status_t status = prepare(&agent);
    if (status >= 0) {
        status = start_job(&agent);
    }
    if (status >= 0) {
        tt_loop_run(agent.loop);
    }
    end_job(&agent);
    if (status >= 0) {
        keep_tail(&agent);
    }
    fini(&agent);
    return status;
}
