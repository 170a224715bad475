/* The agent runs a job on an event loop: it watches a pidfd and two pipes for each rank, and the
 * pipe from the guard (launcher.c). It is a subreaper: whatever ranks leave behind becomes its
 * child, and is killed when the attempt is over (launch_attempt.c).
 *
 *     (JOINING: other hosts) --> RUNNING --a rank failed, or a signal stops the job--> STOPPING
 *     --grace is over--> KILLED; then perhaps another attempt, from the beginning
 *
 * Ranks are in process groups of their own, so that a signal reaches a rank with its helpers, and
 * die with the agent (PR_SET_PDEATHSIG).
 */
#include "runtime/elastic/launch_agent_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_defaults.h"
#include "runtime/elastic/ssh_job.h"

enum { DYING_MS = 250, LAST_WORDS_MS = 1000 };

static void kill_all(void *user)
{
    tt_agent_t *agent = user;
    agent->has_killed = true;
    tt_agent_signal(agent, SIGKILL);
    if (agent->is_flushing) {
        tt_loop_stop(agent->loop);
    }
}

/* From now on every rank has `grace` to end. */
static void start_stopping(tt_agent_t *agent)
{
    if (!agent->is_stopping) {
        const int64_t grace_ms = agent->options->grace_ms;
        agent->is_stopping = true;
        tt_timer_start(agent->grace, grace_ms > 0 ? grace_ms : TT_LAUNCH_GRACE_MS);
    }
}

/* Notes how a rank ended, if it has, and ends what it left in its group: before it is reaped, for
 * after that another process may get its number, and a group of that number. */
static void reap(tt_agent_rank_t *rank)
{
    const int flags = WEXITED | WNOHANG;
    siginfo_t info = {0};
    if (rank->has_ended || waitid(P_PIDFD, (id_t)rank->pidfd, &info, flags | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return;
    }
    kill(-rank->pid, SIGKILL);
    (void)waitid(P_PIDFD, (id_t)rank->pidfd, &(siginfo_t){0}, flags);
    rank->has_ended = true;
    rank->code = info.si_code == CLD_EXITED ? info.si_status : 0;
    rank->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    tt_watch_close(rank->exit_watch);
    rank->exit_watch = NULL;
    rank->agent->running--;
}

/* Of ranks that ended before we looked, one that was killed came before those who noticed. */
static const tt_agent_rank_t *find_failure(const tt_agent_t *agent)
{
    const tt_agent_rank_t *found = NULL;
    for (int i = 0; i < agent->rank_count; i++) {
        const tt_agent_rank_t *rank = &agent->ranks[i];
        if (rank->has_ended && rank->signal > 0) {
            return rank;
        }
        if (rank->has_ended && rank->code != 0 && found == NULL) {
            found = rank;
        }
    }
    return found;
}

/* A process that was killed lasts until its memory has been given back: ranks that noticed may end
 * before it has. A rank that is found killed this soon after the failure is its cause. */
static const tt_agent_rank_t *find_cause(const tt_agent_t *agent)
{
    const bool is_recent = tt_clock_ns() - agent->failed_ns < DYING_MS * TT_NS_PER_MS;
    if (agent->nodes != NULL || agent->has_killed || agent->failed_signal > 0 || !is_recent) {
        return NULL;
    }
    for (int i = 0; i < agent->rank_count; i++) {
        if (agent->ranks[i].has_ended && agent->ranks[i].signal == SIGKILL) {
            return &agent->ranks[i];
        }
    }
    return NULL;
}

/* Ranks that end because of a signal (`number`; 0: there was none) have their grace: others are
 * not hit by another one when the first of them has ended. */
static void stop_ranks(tt_agent_t *agent, int number)
{
    if (agent->told != SIGTERM && (number == 0 || agent->told == 0)) {
        agent->told = SIGTERM;
        tt_agent_signal(agent, SIGTERM);
    }
    tt_agent_signal(agent, SIGCONT); /* one that is stopped could not end */
    start_stopping(agent);
}

/* As a shell ends a pipeline whose reader has gone, but for all ranks of all hosts. */
static void check_output(tt_agent_t *agent)
{
    if (!tt_console_has_no_reader(&agent->console) || agent->report->stop_signal != 0 ||
        agent->report->failed_rank >= 0) {
        return;
    }
    agent->was_stopped = true;
    agent->report->stop_signal = SIGPIPE;
    stop_ranks(agent, 0);
    if (agent->nodes != NULL && agent->running == 0) {
        tt_nodes_report(agent->nodes, &(tt_job_end_t){.rank = -1, .stop_signal = SIGPIPE});
    }
}

static void report_failure(tt_agent_t *agent, const tt_agent_rank_t *rank)
{
    tutti_launch_report_t *report = agent->report;
    agent->failed_ns = tt_clock_ns();
    agent->failed_signal = rank->signal;
    report->failed_rank = rank->rank;
    report->exit_code = rank->signal > 0 ? 128 + rank->signal : rank->code;
    tt_job_end_describe(
        &(tt_job_end_t){.rank = rank->rank, .code = rank->code, .signal = rank->signal},
        report->verdict, sizeof report->verdict);
    report->failed_node = agent->options->node_rank;
}

static void note_failure(tt_agent_t *agent, const tt_agent_rank_t *rank)
{
    report_failure(agent, rank);
    stop_ranks(agent, agent->report->stop_signal);
    if (agent->nodes != NULL) {
        tt_nodes_report(agent->nodes, &(tt_job_end_t){.rank = rank->rank,
                                                      .code = rank->code,
                                                      .signal = rank->signal,
                                                      .stop_signal = agent->report->stop_signal});
    }
}

/* Nothing runs here any more; of several hosts, until the end of the job is known. */
static void note_idle(tt_agent_t *agent)
{
    if (agent->nodes == NULL) {
        tt_loop_stop(agent->loop);
        return;
    }
    if (tt_nodes_state(agent->nodes, NULL, NULL) == TT_NODES_ENDED) {
        tt_loop_stop(agent->loop);
    } else if (agent->report->failed_rank < 0 && agent->report->stop_signal == 0) {
        tt_nodes_done(agent->nodes);
    }
}

/* Here or elsewhere: ranks that end now were stopped. */
static bool has_failed(const tt_agent_t *agent)
{
    return agent->report->failed_rank >= 0 || agent->report->failed_node >= 0;
}

static void on_exit_of_rank(void *user)
{
    tt_agent_t *agent = ((tt_agent_rank_t *)user)->agent;
    for (int i = 0; i < agent->rank_count; i++) {
        reap(&agent->ranks[i]);
    }
    tt_attempt_look(agent); /* what it said may be read after its end is seen */
    if (agent->status < 0) {
        return;
    }
    const bool is_first = !has_failed(agent);
    const tt_agent_rank_t *failed = is_first ? find_failure(agent) : find_cause(agent);
    if (failed != NULL && is_first) {
        note_failure(agent, failed);
    } else if (failed != NULL) {
        report_failure(agent, failed);
    }
    if (agent->running == 0) {
        note_idle(agent);
    }
}

/* What a terminal sends goes to groups, as a terminal does; others are the rank's own business. */
static void forward(tt_agent_t *agent, int number)
{
    const bool is_stop =
        number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    const bool is_for_group = is_stop || number == SIGTSTP || number == SIGCONT;
    const bool is_known = is_stop && number == agent->early;
    agent->early = is_known ? 0 : agent->early;
    agent->told = is_stop && !is_known ? number : agent->told;
    for (int i = 0; i < agent->rank_count; i++) {
        const tt_agent_rank_t *rank = &agent->ranks[i];
        if (rank->pid > 0 && !rank->has_ended && !is_known) {
            kill(is_for_group ? -rank->pid : rank->pid, number);
        }
    }
    if (is_stop) {
        agent->was_stopped = true; /* what the nodes agree on may not say so */
        agent->report->stop_signal = number;
        start_stopping(agent);
    }
    if (is_stop && agent->running == 0) { /* before the start, or while others still run */
        agent->report->exit_code = 128 + number;
        if (agent->has_started && agent->nodes != NULL) {
            tt_nodes_report(agent->nodes, &(tt_job_end_t){.rank = -1, .stop_signal = number});
        } else {
            tt_loop_stop(agent->loop);
        }
    }
    agent->interrupts += number == SIGINT;
    if (number == SIGINT && agent->interrupts > 1) {
        kill_all(agent);
    }
}

/* 0: at its end. */
static ssize_t take_signals(tt_agent_t *agent, int fd)
{
    uint8_t numbers[64];
    const ssize_t n = read(fd, numbers, sizeof numbers);
    for (ssize_t i = 0; i < n; i++) {
        forward(agent, numbers[i]);
    }
    return n;
}

static void on_control(void *user)
{
    tt_agent_t *agent = user;
    if (take_signals(agent, agent->control) == 0) { /* the guard is gone */
        kill_all(agent);
        tt_loop_stop(agent->loop);
    }
}

/* ---- several hosts --------------------------------------------------------------------------- */

static void start_joined(tt_agent_t *agent, const tt_nodes_layout_t *layout)
{
    agent->world_size = layout->world_size;
    agent->joined_port = layout->port;
    snprintf(agent->run_id, sizeof agent->run_id, "%s", layout->run_id);
    for (int i = 0; i < agent->rank_count; i++) {
        agent->ranks[i].rank = layout->first_rank + i;
    }
    agent->status = tt_attempt_start(agent);
    if (agent->status < 0) {
        tt_loop_stop(agent->loop);
    }
}

/* What all hosts agree on, in place of what this one saw first. */
static void take_job_end(tt_agent_t *agent, const tt_job_end_t *end)
{
    tutti_launch_report_t *report = agent->report;
    if (end->is_ok) {
        return;
    }
    report->failed_rank = end->rank;
    report->failed_node = end->node;
    report->exit_code = end->rank < 0     ? (end->stop_signal > 0 ? 128 + end->stop_signal : 1)
                        : end->signal > 0 ? 128 + end->signal
                                          : end->code;
    report->stop_signal = end->stop_signal;
    tt_job_end_describe(end, report->verdict, sizeof report->verdict);
}

/* On the loop, whenever the nodes' thread has news. */
static void on_nodes(void *user)
{
    tt_agent_t *agent = user;
    tt_nodes_layout_t layout;
    tt_job_end_t end;
    char text[300];
    if (agent->nodes == NULL) {
        return;
    }
    if (tt_nodes_take_note(agent->nodes, text, sizeof text - 1)) {
        const size_t bytes = strlen(text);
        text[bytes] = '\n';
        tt_output_add(&agent->notes, text, bytes + 1);
    }
    const tt_nodes_state_t state = tt_nodes_state(agent->nodes, &layout, &end);
    if (state == TT_NODES_FAILED) {
        agent->status = tt_nodes_error(agent->nodes);
        tt_loop_stop(agent->loop);
    } else if (state == TT_NODES_JOINED && !agent->has_started) {
        start_joined(agent, &layout);
    }
    if (state == TT_NODES_ENDED) {
        if (!end.is_ok) {
            take_job_end(agent, &end);
            agent->early = agent->told == 0 ? end.stop_signal : agent->early;
            stop_ranks(agent, end.stop_signal);
        }
        if (agent->running == 0) {
            tt_loop_stop(agent->loop);
        }
    }
}

static void wake(void *user)
{
    tt_agent_t *agent = user;
    tt_loop_wake(agent->loop);
}

/* One host: the store of each attempt is all. */
static tutti_status_t open_nodes(tt_agent_t *agent)
{
    const tutti_launch_options_t *options = agent->options;
    if (tt_agent_node_count(agent) == 1) {
        return TUTTI_OK;
    }
    snprintf(agent->notes.prefix, sizeof agent->notes.prefix, "[node %d] ", options->node_rank);
    TT_TRY(tt_nodes_start(&(tt_nodes_options_t){.node_count = options->node_count,
                                                .node_rank = options->node_rank,
                                                .local_count = agent->rank_count,
                                                .host = options->master_host,
                                                .port = options->master_port,
                                                .run_id = options->run_id,
                                                .max_restarts = options->max_restarts,
                                                .join_timeout_ms = options->join_timeout_ms > 0
                                                                       ? options->join_timeout_ms
                                                                       : TT_LAUNCH_JOIN_MS,
                                                .changed = wake,
                                                .user = agent},
                          &agent->nodes));
    if (agent->is_served && options->node_rank == 0) {
        tt_ssh_say_address(options->master_host, tt_nodes_port(agent->nodes));
    }
    return TUTTI_OK;
}

static void leave_nodes(tt_agent_t *agent)
{
    tt_job_end_t end = {.is_ok = true};
    (void)tt_nodes_state(agent->nodes, NULL, &end);
    tt_nodes_close(agent->nodes, &end);
    take_job_end(agent, &end);
    agent->nodes = NULL;
}

/* ---- the whole job --------------------------------------------------------------------------- */

static void on_lifeline(void *user)
{
    tt_agent_t *agent = user;
    if (take_signals(agent, agent->options->lifeline) != 0) {
        return;
    }
    kill_all(agent);
    agent->status = TT_FAIL(TUTTI_ERR_ABORTED, "the process that started the ranks is gone");
    tt_loop_stop(agent->loop);
}

/* A stream took lines that waited for it. */
static void on_console(void *user)
{
    tt_agent_t *agent = user;
    for (int i = 0; i < agent->rank_count; i++) {
        tt_rank_resume(&agent->ranks[i]);
    }
    check_output(agent);
    if (agent->is_flushing && !tt_console_is_busy(&agent->console)) {
        tt_loop_stop(agent->loop);
    }
}

static tutti_status_t watch(tt_agent_t *agent)
{
    tt_watch_t *control, *lifeline;
    TT_TRY(tt_watch_create(agent->loop, agent->control, on_control, agent, &control));
    return agent->options->lifeline == 0 ? TUTTI_OK
                                         : tt_watch_create(agent->loop, agent->options->lifeline,
                                                           on_lifeline, agent, &lifeline);
}

static tutti_status_t prepare(tt_agent_t *agent)
{
    TT_TRY(tt_loop_create(on_nodes, agent, &agent->loop));
    TT_TRY(tt_console_init(&agent->console, agent->loop, on_console, agent));
    agent->console.is_marked = agent->is_served;
    agent->buffer = tt_alloc_raw(TT_READ_BYTES, "read buffer");
    TT_TRY_ALLOC(agent->buffer);
    agent->ranks = tt_alloc_array((size_t)agent->rank_count, sizeof *agent->ranks, "ranks");
    TT_TRY_ALLOC(agent->ranks);
    tt_attempt_init(agent);
    TT_TRY(tt_output_init(&agent->notes, &agent->console, 1, -1, false));
    TT_TRY(tt_timer_create(agent->loop, kill_all, agent, &agent->grace));
    TT_TRY(watch(agent));
    TT_TRY(tt_launch_key_find(&agent->key));
    return open_nodes(agent);
}

static const char *log_error(const tt_agent_t *agent, char text[128])
{
    for (int i = 0; i < agent->rank_count; i++) {
        for (int j = 0; j < TT_STREAMS; j++) {
            const tt_output_t *output = &agent->ranks[i].pumps[j].output;
            if (output->log_error != 0) {
                snprintf(text, 128, "rank %d's log is not all there: %s", agent->ranks[i].rank,
                         strerror(output->log_error));
                return text;
            }
        }
    }
    return NULL;
}

static void keep_tail(const tt_agent_t *agent)
{
    tutti_launch_report_t *report = agent->report;
    const int local = report->failed_rank - agent->ranks[0].rank;
    if (report->failed_rank >= 0 && local >= 0 && local < agent->rank_count) {
        const tt_output_t *output = &agent->ranks[local].pumps[1].output;
        memcpy(report->stderr_tail, output->tail, output->tail_bytes);
        report->stderr_tail[output->tail_bytes] = 0;
    }
}

static void fini(tt_agent_t *agent)
{
    tt_attempt_fini(agent);
    tt_output_fini(&agent->notes);
    tt_console_fini(&agent->console);
    tt_loop_release(agent->loop);
    explicit_bzero(&agent->key, sizeof agent->key);
    tt_free(agent->ranks);
    tt_free(agent->buffer);
}

/* The loop may have ended before it saw what the nodes agree on. */
static void hear_nodes(tt_agent_t *agent)
{
    tt_job_end_t end;
    if (agent->nodes != NULL && tt_nodes_state(agent->nodes, NULL, &end) == TT_NODES_ENDED) {
        take_job_end(agent, &end);
    }
}

/* A rank failed of itself, and may be tried again. */
static bool has_another_attempt(const tt_agent_t *agent)
{
    return agent->status >= 0 && agent->report->failed_rank >= 0 &&
           agent->report->stop_signal == 0 && !agent->was_stopped &&
           agent->attempt < agent->options->max_restarts &&
           (agent->nodes == NULL || tt_nodes_state(agent->nodes, NULL, NULL) == TT_NODES_ENDED);
}

/* Whatever is known of the attempt that failed is forgotten, once it is reported. */
static void begin_another_attempt(tt_agent_t *agent)
{
    char text[320];
    tutti_launch_report_t *report = agent->report;
    const int bytes = snprintf(text, sizeof text, "%s; restart %d of %d\n", report->verdict,
                               agent->attempt + 1, agent->options->max_restarts);
    if (!agent->is_served || agent->options->node_rank == 0) { /* the others say the same */
        tt_output_add(&agent->notes, text, (size_t)bytes);
    }
    tt_attempt_fini(agent);
    tt_timer_stop(agent->grace);
    agent->is_stopping = agent->has_started = agent->has_killed = false;
    agent->told = agent->early = 0;
    agent->attempt++;
    tutti_launch_report_t fresh = {
        .failed_rank = -1, .failed_node = -1, .restart_count = agent->attempt};
    memcpy(fresh.log_dir, report->log_dir, sizeof fresh.log_dir);
    *report = fresh;
    tt_attempt_init(agent);
    agent->status = tt_attempt_open(agent);
    if (agent->status >= 0 && agent->nodes != NULL) {
        tt_nodes_again(agent->nodes, agent->attempt,
                       agent->store != NULL ? tutti_store_port(agent->store) : 0);
    }
}

static void run_attempts(tt_agent_t *agent)
{
    agent->status = tt_attempt_open(agent);
    for (;;) {
        if (agent->status >= 0 && agent->nodes == NULL) {
            agent->status = tt_attempt_start(agent);
        }
        if (agent->status >= 0) {
            tt_loop_run(agent->loop);
        }
        tt_attempt_end(agent);
        hear_nodes(agent);
        if (!has_another_attempt(agent)) {
            return;
        }
        begin_another_attempt(agent);
    }
}

/* What ranks have printed waits for its reader without an end, but once a signal has stopped the
 * job for the rest of the grace only. */
static void flush_console(tt_agent_t *agent)
{
    agent->is_flushing = true;
    if (!agent->was_stopped) {
        tt_timer_stop(agent->grace);
        agent->is_stopping = false;
    } else if (agent->has_killed) {
        tt_timer_start(agent->grace, LAST_WORDS_MS);
    }
    agent->has_killed = false;
    while (tt_console_is_busy(&agent->console) && !agent->has_killed) {
        tt_loop_run(agent->loop);
    }
    check_output(agent);
}

tutti_status_t tt_agent_run(const tt_agent_options_t *run, int control,
                            tutti_launch_report_t *report)
{
    const tutti_launch_options_t *options = run->options;
    tt_agent_t agent = {.options = options,
                        .begin_s = time(NULL),
                        .signals = run->signals,
                        .is_served = run->is_served,
                        .report = report,
                        .control = control,
                        .on_exit = on_exit_of_rank,
                        .on_output = check_output,
                        .key_fd = -1,
                        .start_fd = -1,
                        .rank_count =
                            options->rank_count > 0 ? options->rank_count : tutti_core_count()};
    char text[128];
    *report = (tutti_launch_report_t){.failed_rank = -1, .failed_node = -1};
    agent.world_size = agent.rank_count;
    snprintf(agent.run_id, sizeof agent.run_id, "%s",
             options->run_id != NULL ? options->run_id : "");
    agent.status = prepare(&agent);
    if (agent.status >= 0) {
        run_attempts(&agent);
    }
    if (agent.nodes != NULL) {
        leave_nodes(&agent);
    }
    if (agent.grace != NULL) {
        flush_console(&agent);
    }
    if (agent.status >= 0) {
        keep_tail(&agent);
        tt_console_judge(&agent.console, log_error(&agent, text), report);
    }
    fini(&agent);
    return agent.status;
}
