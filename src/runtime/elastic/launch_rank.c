/* One rank of the agent: its process, on its cores, with its environment, and the two pipes that
 * its output comes through.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_agent_impl.h"
#include "runtime/elastic/launch_environment.h"
#include "runtime/elastic/launch_log.h"

enum { READS_AT_ONCE = 16 };

/* END: the other end is closed; PENDING: nothing is left just now; OK: there may be more. */
static tutti_status_t read_once(tt_agent_rank_t *rank, tt_pump_t *pump)
{
    char *buffer = rank->agent->buffer;
    const ssize_t n = read(pump->fd, buffer, TT_READ_BYTES);
    if (n > 0) {
        tt_output_add(&pump->output, buffer, (size_t)n);
        return TUTTI_OK;
    }
    return n == 0            ? TUTTI_END
           : errno == EAGAIN ? TUTTI_PENDING
           : errno == EINTR  ? TUTTI_OK
                             : TUTTI_END;
}

static void close_pump(tt_pump_t *pump)
{
    tt_watch_close(pump->watch);
    pump->watch = NULL;
    if (pump->fd >= 0) {
        close(pump->fd);
        pump->fd = -1;
        tt_output_finish(&pump->output);
    }
}

/* Others shall have their turn, too. While its lines have no place to go the rank is not read. */
static void pump_stream(tt_agent_rank_t *rank, int stream)
{
    tt_pump_t *pump = &rank->pumps[stream];
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < READS_AT_ONCE && status == TUTTI_OK; i++) {
        if (tt_output_is_full(&pump->output)) {
            tt_watch_want(pump->watch, false, false);
            break;
        }
        status = read_once(rank, pump);
    }
    if (status == TUTTI_END) {
        close_pump(pump);
    }
    rank->agent->on_output(rank->agent);
}

static void signal_group(const tt_agent_rank_t *rank, int number)
{
    if (rank->pid > 0 && !rank->has_ended) {
        kill(-rank->pid, number);
    }
}

void tt_agent_signal(const tt_agent_t *agent, int number)
{
    for (int i = 0; i < agent->rank_count; i++) {
        signal_group(&agent->ranks[i], number);
    }
}

void tt_rank_resume(const tt_agent_rank_t *rank)
{
    for (int stream = 0; stream < TT_STREAMS; stream++) {
        const tt_pump_t *pump = &rank->pumps[stream];
        if (pump->watch != NULL && !tt_output_is_full(&pump->output)) {
            tt_watch_want(pump->watch, true, false);
        }
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

void tt_rank_drain(tt_agent_rank_t *rank, int stream)
{
    tt_pump_t *pump = &rank->pumps[stream];
    if (pump->fd >= 0) {
        while (read_once(rank, pump) == TUTTI_OK) {
        }
        close_pump(pump);
    }
}

static tutti_status_t open_pump(tt_agent_rank_t *rank, int stream, int *write_end)
{
    tt_agent_t *agent = rank->agent;
    const tutti_launch_options_t *options = agent->options;
    const unsigned bit = stream == 0 ? TUTTI_STREAM_STDOUT : TUTTI_STREAM_STDERR;
    const bool is_redirected =
        options->redirects != NULL && (options->redirects[rank->local] & bit) != 0;
    const bool is_teed = options->tees != NULL && (options->tees[rank->local] & bit) != 0;
    int log_fd = -1, ends[2];
    if (is_redirected || is_teed) {
        TT_TRY(tt_log_open(agent->report->log_dir, agent->attempt, rank->rank,
                           stream == 0 ? "stdout.log" : "stderr.log", &log_fd));
    }
    tt_pump_t *pump = &rank->pumps[stream];
    tt_console_t *console = is_redirected && !is_teed ? NULL : &agent->console;
    TT_TRY(tt_output_init(&pump->output, console, stream, log_fd, stream == 1));
    if (agent->world_size > 1 && !(options->is_plain && stream == 0)) {
        snprintf(pump->output.prefix, sizeof pump->output.prefix, "[rank %d] ", rank->rank);
    }
    pump->output.is_live =
        console != NULL && rank->rank == 0 && console->queues[stream].is_terminal;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "rank %d: no pipe for its output", rank->rank);
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pump->fd = ends[0];
    *write_end = ends[1];
    return tt_watch_create(agent->loop, pump->fd, stream == 0 ? on_stdout : on_stderr, rank,
                           &pump->watch);
}

int tt_agent_node_count(const tt_agent_t *agent)
{
    return agent->options->node_count > 0 ? agent->options->node_count : 1;
}

static const char *master_host_of(const tt_agent_t *agent)
{
    return agent->options->master_host != NULL ? agent->options->master_host : "127.0.0.1";
}

static int find_port(const tt_agent_t *agent)
{
    return agent->store != NULL     ? tutti_store_port(agent->store)
           : agent->joined_port > 0 ? agent->joined_port
                                    : agent->options->master_port;
}

static tutti_status_t spawn(tt_agent_rank_t *rank, const tt_binding_t *binding, const int *fds,
                            int error_fd)
{
    tt_agent_t *agent = rank->agent;
    const tt_rank_facts_t facts = {.rank = rank->rank,
                                   .world_size = agent->world_size,
                                   .local_rank = rank->local,
                                   .local_count = agent->rank_count,
                                   .node_rank = agent->options->node_rank,
                                   .node_count = tt_agent_node_count(agent),
                                   .cores = binding->cores,
                                   .master_host = master_host_of(agent),
                                   .master_port = find_port(agent),
                                   .run_id = agent->run_id,
                                   .attempt = agent->attempt,
                                   .begin_s = agent->begin_s,
                                   .max_restarts = agent->options->max_restarts,
                                   .more = agent->options->environment,
                                   .key_fd = agent->key_fd,
                                   .is_watched = rank->pumps[0].output.is_live};
    char **environment;
    TT_TRY(tt_environment_create(&facts, &environment));
    const tt_child_options_t child = {.file = agent->options->executable,
                                      .argv = agent->options->command,
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
    return tt_watch_create(agent->loop, rank->pidfd, agent->on_exit, rank, &rank->exit_watch);
}

/* Rank 0 has the launcher's stdin, unless that is a terminal. The other ranks have none. */
tutti_status_t tt_rank_start(tt_agent_rank_t *rank, const tt_binding_t *binding, int error_fd)
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
