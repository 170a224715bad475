/* tutti_launch: two processes watch each other, so that no death leaves anything behind.
 *
 *     guard (the caller) --signals, over a pipe-----> agent (a fork) --> ranks
 *           <------- report, in shared memory -------
 *
 * The guard takes all signals and hands them to the agent; it is what a shell, a batch system or a
 * user knows and kills. If it dies, the agent's pipe is at its end: the agent kills the ranks and
 * all that descends from them. If the agent dies, the ranks die by PR_SET_PDEATHSIG, and what they
 * leave becomes the guard's to kill; both are subreapers. A third SIGINT kills an agent that is
 * stuck.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "comm/net/job_key.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/fail.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_agent.h"
#include "runtime/elastic/ssh_hosts.h"

enum { NODES_MAX = 4096 };

/* What the agent writes when all is over. */
typedef struct {
    _Atomic bool is_whole;
    tutti_status_t status;
    char text[TT_ERROR_TEXT_BYTES]; /* of a failure */
    tutti_launch_report_t report;
} answer_t;

typedef struct {
    pid_t agent;
    int control;      /* pipe to the agent */
    answer_t *answer; /* shared with it */
    sigset_t mask;    /* the caller's, to be restored */
    struct sigaction on_child;
    int was_subreaper;
    bool is_filled[3]; /* which of the standard streams the caller has closed */
} guard_t;

static tutti_status_t check_run_id(const char *run_id)
{
    const char *const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t bytes = strlen(run_id);
    if (bytes == 0 || bytes > 63 || run_id[0] == '.' || strspn(run_id, allowed) != bytes) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "run id \"%.64s\": want 1 to 63 letters, digits, '-', '_' or '.'", run_id);
    }
    return TUTTI_OK;
}

static tutti_status_t check_options(const tutti_launch_options_t *options)
{
    if (options->command == NULL || options->command[0] == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "no command to run");
    }
    if (options->rank_count < 0 || options->rank_count > TUTTI_LAUNCH_RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d ranks; want 1 to %d, or 0 for one per core",
                       options->rank_count, TUTTI_LAUNCH_RANKS_MAX);
    }
    if (options->master_port < 0 || options->master_port > 65535 || options->grace_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "port %d, grace %lld ms: want 0 to 65535, and 0 or more",
                       options->master_port, (long long)options->grace_ms);
    }
    if (options->max_restarts < 0 || options->lifeline < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d restarts, lifeline %d: want 0 or more",
                       options->max_restarts, options->lifeline);
    }
    return options->run_id != NULL ? check_run_id(options->run_id) : TUTTI_OK;
}

static tutti_status_t check_nodes(const tutti_launch_options_t *options, bool is_served)
{
    /* the launcher that it serves hands its port to the others */
    const bool finds_port = is_served && options->node_rank == 0;
    if (options->node_count < 1 || options->node_count > NODES_MAX || options->node_rank < 0 ||
        options->node_rank >= options->node_count || options->join_timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "node %d of %d, %lld ms to join: want at most %d nodes, a node below their "
                       "number, and 0 or more ms",
                       options->node_rank, options->node_count, (long long)options->join_timeout_ms,
                       NODES_MAX);
    }
    if (options->node_count > 1 &&
        (options->master_host == NULL || (options->master_port == 0 && !finds_port))) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d nodes need the address and the port of node 0's store",
                       options->node_count);
    }
    if (options->master_host != NULL && strlen(options->master_host) > 100) {
        return TT_FAIL(TUTTI_ERR_ARG, "host %.100s…: want at most 100 characters",
                       options->master_host);
    }
    return TUTTI_OK;
}

/* Several hosts have no other way to know each other. The store reads it again. */
static tutti_status_t check_key(void)
{
    tt_job_key_t key;
    bool found;
    TT_TRY(tt_job_key_find(&key, &found));
    explicit_bzero(&key, sizeof key);
    return found ? TUTTI_OK
                 : TT_FAIL(TUTTI_ERR_ARG,
                           "several nodes need a key, the same on all: make a file with `tutti key "
                           "FILE`, copy it to every host, and give it with --key-file FILE (or "
                           "TUTTI_KEY_FILE)");
}

/* One node unless told otherwise; which one this is Slurm may know. */
static tutti_status_t complete_nodes(tutti_launch_options_t *options, bool is_served)
{
    options->node_count = options->node_count == 0 ? 1 : options->node_count;
    if (options->node_rank == -1 && options->node_count > 1) {
        int64_t node;
        if (!tt_config_is_set(TT_CONFIG_SLURM_NODE)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%d nodes, but not which of them this is; give --node-rank 0 on the "
                           "first host, 1 on the second …",
                           options->node_count);
        }
        TT_TRY(tt_config_int(TT_CONFIG_SLURM_NODE, 0, NODES_MAX - 1, &node));
        options->node_rank = (int)node;
    }
    options->node_rank = options->node_rank == -1 ? 0 : options->node_rank;
    TT_TRY(check_nodes(options, is_served));
    return options->node_count > 1 ? check_key() : TUTTI_OK;
}

/* In the agent's process. It leaves the terminal's group: signals come through the guard only. */
__attribute__((noreturn)) static void be_agent(const tt_agent_options_t *options,
                                               const guard_t *guard, int control)
{
    answer_t *answer = guard->answer;
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fcntl(control, F_SETFL, O_NONBLOCK);
    const size_t blocks = tt_alloc_stats().blocks;
    answer->status = options->options->hosts != NULL
                         ? tt_ssh_hosts_run(options, control, &answer->report)
                         : tt_agent_run(options, control, &answer->report);
    snprintf(answer->text, sizeof answer->text, "%s", tutti_last_error());
    answer->is_whole = true;
    TT_ASSERT(tt_alloc_stats().blocks == blocks);
    _exit(0);
}

static void make_run_id(char run_id[20])
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
        number = (uint64_t)tt_clock_ns();
    }
    snprintf(run_id, 20, "%016llx", (unsigned long long)number);
}

/* Both ends of the pipe are closed on exec, and each process keeps its own only. */
static tutti_status_t start_agent(const tt_agent_options_t *options, guard_t *guard)
{
    int control[2];
    if (pipe2(control, O_CLOEXEC) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "pipe");
    }
    guard->agent = fork();
    if (guard->agent == 0) {
        close(control[1]);
        be_agent(options, guard, control[0]);
    }
    close(control[0]);
    fcntl(control[1], F_SETFL, O_NONBLOCK); /* a stuck agent must not make the guard stuck */
    guard->control = control[1];
    return guard->agent > 0 ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "cannot start a process");
}

/* All signals wait for sigwaitinfo; if SIGCHLD were ignored, waitpid would fail. A stream that is
 * closed is at its end: else a pipe of ours would get its number, and rank 0 read the signals. */
static void take_over(guard_t *guard)
{
    for (int i = 0; i < 3; i++) {
        guard->is_filled[i] = fcntl(i, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) == i;
    }
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &guard->mask);
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &usual, &guard->on_child);
    prctl(PR_GET_CHILD_SUBREAPER, &guard->was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Signals that are about the agent's end must not hit the caller. */
static void give_back(const guard_t *guard)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    sigaddset(&ours, SIGPIPE);
    while (sigtimedwait(&ours, NULL, &(struct timespec){0}) > 0) {
    }
    prctl(PR_SET_CHILD_SUBREAPER, guard->was_subreaper);
    sigaction(SIGCHLD, &guard->on_child, NULL);
    sigprocmask(SIG_SETMASK, &guard->mask, NULL);
    for (int i = 0; i < 3; i++) {
        if (guard->is_filled[i]) {
            close(i);
        }
    }
}

/* An agent that is gone, or stuck, takes none. */
static void pass_on(const guard_t *guard, int number, int *interrupts)
{
    const uint8_t byte = (uint8_t)number;
    (void)!write(guard->control, &byte, 1);
    *interrupts += number == SIGINT;
    if (*interrupts > 2) {
        kill(guard->agent, SIGKILL);
    }
    if (number == SIGTSTP) {
        raise(SIGSTOP); /* as the shell expects; SIGCONT arrives as a signal */
    }
}

/* Behind nohup, or in the background of a script: a signal that is blocked waits though it is
 * ignored. */
static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Until the agent is gone. */
static void stand_guard(const guard_t *guard)
{
    int interrupts = 0;
    while (waitpid(guard->agent, NULL, WNOHANG) != guard->agent) {
        sigset_t all;
        sigfillset(&all);
        const int number = sigwaitinfo(&all, NULL);
        if (number > 0 && number != SIGCHLD && number != SIGPIPE && !is_ignored(number)) {
            pass_on(guard, number, &interrupts);
        }
    }
}

static tutti_status_t read_answer(const guard_t *guard, tutti_launch_report_t *report)
{
    const answer_t *answer = guard->answer;
    if (!answer->is_whole) {
        return TT_FAIL(TUTTI_ERR_ABORTED, "the launcher's agent was killed, and all ranks with it");
    }
    if (answer->status < 0) {
        return tt_fail_again(answer->status, answer->text);
    }
    *report = answer->report;
    return TUTTI_OK;
}

tutti_status_t tt_launch_ranks(const tt_agent_options_t *options, tutti_launch_report_t *report)
{
    char run_id[20];
    tutti_launch_options_t launch = *options->options;
    TT_TRY(check_options(&launch));
    TT_TRY(launch.hosts != NULL ? tt_ssh_hosts_check(&launch)
                                : complete_nodes(&launch, options->is_served));
    if (launch.run_id == NULL && launch.node_rank == 0) {
        make_run_id(run_id);
        launch.run_id = run_id; /* the other nodes take node 0's */
    }
    guard_t guard = {.control = -1};
    tt_agent_options_t complete = *options;
    complete.options = &launch;
    complete.signals = options->signals != NULL ? options->signals : &guard.mask;
    guard.answer =
        mmap(NULL, sizeof *guard.answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guard.answer == MAP_FAILED) {
        return TT_FAIL_ERRNO(TUTTI_ERR_NOMEM, "launch: no memory to share");
    }
    take_over(&guard);
    tutti_status_t status = start_agent(&complete, &guard);
    if (status >= 0) {
        stand_guard(&guard);
        tt_children_kill();
        status = read_answer(&guard, report);
    }
    if (guard.control >= 0) {
        close(guard.control);
    }
    give_back(&guard);
    munmap(guard.answer, sizeof *guard.answer);
    return status;
}

tutti_status_t tutti_launch(const tutti_launch_options_t *options, tutti_launch_report_t *report)
{
    TT_WANT("launch", options);
    TT_WANT("launch", report);
    return tt_launch_ranks(&(tt_agent_options_t){.options = options}, report);
}
