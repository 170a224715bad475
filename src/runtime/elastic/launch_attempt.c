/* One attempt of a job: a store of its own with a key of its own, the ranks' processes, and their
 * end, after which nothing of them is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_agent_impl.h"
#include "runtime/elastic/launch_host.h"
#include "runtime/elastic/launch_log.h"

void tt_attempt_init(tt_agent_t *agent)
{
    for (int i = 0; i < agent->rank_count; i++) {
        agent->ranks[i] = (tt_agent_rank_t){.agent = agent, .rank = i, .local = i, .pidfd = -1};
        for (int j = 0; j < TT_STREAMS; j++) {
            agent->ranks[i].pumps[j] = (tt_pump_t){.fd = -1, .output.log_fd = -1};
        }
    }
}

/* After a restart it is another store with another key, so that nothing is left in it and no
 * process of before gets in. Beside the launchers' own store on node 0 it takes a free port. */
tutti_status_t tt_attempt_open(tt_agent_t *agent)
{
    const tutti_launch_options_t *options = agent->options;
    const bool has_nodes = agent->nodes != NULL;
    tutti_status_t status = TUTTI_OK;
    tt_credentials_t *credentials;
    if (has_nodes && agent->attempt == 0) {
        return TUTTI_OK;
    }
    TT_TRY(tt_launch_key_open(&agent->key, agent->attempt, options->master_host, &agent->key_fd,
                              &credentials));
    if (!has_nodes || options->node_rank == 0) {
        status = tt_store_tcp_listen(options->master_host, has_nodes ? 0 : options->master_port,
                                     credentials, &agent->store);
    }
    tt_credentials_release(credentials);
    return status < 0 && options->master_host != NULL ? tt_launch_host_fail(status) : status;
}

static tutti_status_t start_ranks(tt_agent_t *agent, int error_fd)
{
    tt_binding_t *bindings =
        tt_alloc_array((size_t)agent->rank_count, sizeof *bindings, "bindings");
    TT_TRY_ALLOC(bindings);
    tt_bindings_plan(agent->rank_count, bindings);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; status >= 0 && i < agent->rank_count; i++) {
        status = tt_rank_start(&agent->ranks[i], &bindings[i], error_fd);
    }
    tt_free(bindings);
    return status;
}

static void close_start(tt_agent_t *agent)
{
    tt_watch_close(agent->start_watch);
    agent->start_watch = NULL;
    if (agent->start_fd >= 0) {
        close(agent->start_fd);
        agent->start_fd = -1;
    }
}

/* All ranks share one pipe, which is at its end when all of them execute the command. An exec may
 * hang, on a file system that does not answer: the loop waits for it, beside all else. */
void tt_attempt_look(tt_agent_t *agent)
{
    tt_child_error_t error;
    const ssize_t n = agent->start_fd >= 0 ? read(agent->start_fd, &error, sizeof error) : -1;
    if (n == sizeof error) {
        errno = error.code;
        agent->status =
            TT_FAIL_ERRNO(error.code == ENOENT ? TUTTI_ERR_NOT_FOUND : TUTTI_ERR_UNSUPPORTED,
                          "command %s", agent->options->command[0]);
        tt_loop_stop(agent->loop);
    }
    if (n >= 0) {
        close_start(agent);
    }
}

static void on_start(void *user)
{
    tt_attempt_look(user);
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

tutti_status_t tt_attempt_start(tt_agent_t *agent)
{
    int ends[2];
    /* of all attempts, which have folders of their own in it */
    if (agent->report->log_dir[0] == 0 && has_logs(agent->options, agent->rank_count)) {
        TT_TRY(tt_log_directory(agent->options->log_dir, agent->run_id, agent->report->log_dir,
                                sizeof agent->report->log_dir));
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "pipe");
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    agent->start_fd = ends[0];
    agent->has_started = true;
    const tutti_status_t status = start_ranks(agent, ends[1]);
    close(ends[1]);
    TT_TRY(status);
    return tt_watch_create(agent->loop, agent->start_fd, on_start, agent, &agent->start_watch);
}

/* The pipes give what is left in them. */
void tt_attempt_end(tt_agent_t *agent)
{
    close_start(agent);
    tt_agent_signal(agent, SIGKILL);
    tt_children_kill();
    for (int i = 0; i < agent->rank_count; i++) {
        tt_agent_rank_t *rank = &agent->ranks[i];
        for (int j = 0; j < TT_STREAMS; j++) {
            tt_rank_drain(rank, j);
        }
        tt_watch_close(rank->exit_watch);
        rank->exit_watch = NULL;
        rank->has_ended = true;
        if (rank->pidfd >= 0) {
            close(rank->pidfd);
            rank->pidfd = -1;
        }
    }
    agent->running = 0;
}

void tt_attempt_fini(tt_agent_t *agent)
{
    for (int i = 0; agent->ranks != NULL && i < agent->rank_count; i++) {
        for (int j = 0; j < TT_STREAMS; j++) {
            tt_output_fini(&agent->ranks[i].pumps[j].output);
        }
    }
    tutti_store_release(agent->store);
    agent->store = NULL;
    if (agent->key_fd >= 0) {
        close(agent->key_fd);
        agent->key_fd = -1;
    }
}
