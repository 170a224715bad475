/* Starts the launchers of a job's hosts by ssh, shows what their ranks print, and tells how it
 * ended.
 *
 *     here                               host 0                     host 1 …
 *     ssh to all   ------------------->  hello                      hello
 *     its part of the job  ----------->  opens the store
 *                  <-------------------  address and port
 *     the others' parts    -------------------------------------->  meets the others there
 *                  <-------------------  lines of ranks, and at last how it ended
 *
 * From then on the launchers are one job of several nodes (launch_nodes.h): who fails is found out
 * and agreed on among themselves. This side only passes signals on, and is the lifeline of all:
 * when it is gone, or an ssh, what runs there ends.
 *
 * Cost: an ssh client and three pipes a host; all start at the same time.
 * Source: mpirun's rsh launcher, which starts a tree of daemons.
 */
#include "runtime/elastic/ssh_hosts.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/net/address.h"
#include "core/base/alloc.h"
#include "core/base/reals.h"
#include "runtime/elastic/child.h"
#include "runtime/elastic/launch_defaults.h"
#include "runtime/elastic/launch_key.h"
#include "runtime/elastic/ssh_host.h"
#include "runtime/elastic/ssh_job.h"

enum {
    HOSTS_MAX = 4096,
    JOB_RANKS_MAX = 65536,
    LEAVE_MS = 10000 /* longer than launchers take to say goodbye */
};

typedef struct {
    const tutti_launch_options_t *options;
    tutti_launch_report_t *report;
    int control;
    tt_loop_t *loop;
    tt_console_t console;
    tt_timer_t *timer; /* until all are told; then, when the job is over, until all have ended */
    tt_ssh_context_t context;
    tt_ssh_host_t *hosts;
    int host_count;
    tt_job_key_t key;
    const char **settings;
    char folder[PATH_MAX]; /* of the ranks */
    bool is_leaving;       /* the job is over, or shall be */
    bool is_flushing;      /* all have ended, but lines still wait for their reader */
    bool has_killed;
    int stop_signal, interrupts;
    tutti_status_t failed; /* of a host, the first */
    char failure[400];
} job_t;

/* ---- options --------------------------------------------------------------------------------- */

static tutti_status_t check_host(const tutti_launch_host_t *host)
{
    const char *const name = host->name != NULL ? host->name : "";
    if (name[0] == 0 || name[0] == '-' || strlen(name) > 255) {
        return TT_FAIL(TUTTI_ERR_ARG, "host \"%.64s\": want a name or an address, as ssh takes it",
                       name);
    }
    if (host->rank_count < 1 || host->rank_count > TUTTI_LAUNCH_RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "host %s: %d ranks; want 1 to %d", name, host->rank_count,
                       TUTTI_LAUNCH_RANKS_MAX);
    }
    return TUTTI_OK;
}

tutti_status_t tt_ssh_hosts_check(tutti_launch_options_t *options)
{
    int64_t ranks = 0;
    if (options->host_count < 1 || options->host_count > HOSTS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%d hosts; want 1 to %d", options->host_count, HOSTS_MAX);
    }
    for (int i = 0; i < options->host_count; i++) {
        TT_TRY(check_host(&options->hosts[i]));
        ranks += options->hosts[i].rank_count;
        for (int j = 0; j < i; j++) {
            if (strcmp(options->hosts[i].name, options->hosts[j].name) == 0) {
                return TT_FAIL(TUTTI_ERR_ARG,
                               "host %s is named twice; name it once, with all of "
                               "its ranks",
                               options->hosts[i].name);
            }
        }
    }
    if (ranks > JOB_RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%lld ranks on all hosts; want at most %d", (long long)ranks,
                       JOB_RANKS_MAX);
    }
    if (options->folder != NULL && options->folder[0] != '/') {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "folder %s: want one that begins with /, for it is another "
                       "host's",
                       options->folder);
    }
    options->node_count = options->host_count;
    options->node_rank = 0;
    return TUTTI_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool has_all_ended(const job_t *job)
{
    for (int i = 0; i < job->host_count; i++) {
        if (!job->hosts[i].has_ended) {
            return false;
        }
    }
    return true;
}

static void kill_ssh(const tt_ssh_host_t *host)
{
    if (host->pid > 0 && !host->has_ended) {
        kill(-host->pid, SIGKILL);
    }
}

static int64_t grace_of(const job_t *job)
{
    return job->options->grace_ms > 0 ? job->options->grace_ms : TT_LAUNCH_GRACE_MS;
}

/* From now on the launchers have the grace of their ranks to end. */
static void start_leaving(job_t *job)
{
    if (!job->is_leaving) {
        job->is_leaving = true;
        tt_timer_start(job->timer, grace_of(job) + LEAVE_MS);
    }
}

/* Those that run something get the signal. */
static void stop_hosts(job_t *job, int number)
{
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i].is_told) {
            tt_ssh_host_signal(&job->hosts[i], number);
        } else {
            kill_ssh(&job->hosts[i]);
        }
    }
    start_leaving(job);
}

__attribute__((format(printf, 3, 4))) static void fail(job_t *job, tutti_status_t status,
                                                       const char *format, ...)
{
    va_list args;
    if (job->failed < 0 || job->is_leaving) {
        return; /* what ends now was ended */
    }
    va_start(args, format);
    tt_format_list(job->failure, sizeof job->failure, format, args);
    va_end(args);
    job->failed = status;
    stop_hosts(job, SIGTERM);
}

static void on_timer(void *user)
{
    job_t *job = user;
    for (int i = 0; i < job->host_count && !job->is_leaving; i++) {
        if (!job->hosts[i].is_told) {
            fail(job, TUTTI_ERR_TIMEOUT,
                 "host %s: tutti has not answered there until --join-timeout "
                 "was over",
                 job->hosts[i].about->name);
            return;
        }
    }
    job->has_killed = true;
    for (int i = 0; i < job->host_count; i++) {
        kill_ssh(&job->hosts[i]);
    }
    if (job->is_flushing) {
        tt_loop_stop(job->loop);
    }
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Without the user and an address's brackets. */
static void plain_name(const char *name, char out[256])
{
    const char *at = strrchr(name, '@');
    const char *host = at != NULL ? at + 1 : name;
    const size_t bytes = strlen(host), cut = bytes > 2 && host[0] == '[' && host[bytes - 1] == ']';
    snprintf(out, 256, "%.*s", (int)(bytes - 2 * cut), host + cut);
}

static void tell(job_t *job, int node)
{
    const tutti_launch_options_t *options = job->options;
    char name[256];
    char *letter;
    size_t bytes;
    int first_rank = 0;
    for (int i = 0; i < node; i++) {
        first_rank += options->hosts[i].rank_count;
    }
    plain_name(options->hosts[node].name, name);
    tt_ssh_job_t part = {
        .options = *options, .key = job->key, .name = name, .settings = job->settings};
    part.options.node_rank = node;
    part.options.rank_count = options->hosts[node].rank_count;
    part.options.redirects = options->redirects != NULL ? options->redirects + first_rank : NULL;
    part.options.tees = options->tees != NULL ? options->tees + first_rank : NULL;
    part.options.folder = options->folder != NULL ? options->folder : job->folder;
    if (node > 0) {
        part.options.master_host = job->hosts[0].address;
        part.options.master_port = job->hosts[0].port;
    }
    const tutti_status_t status = tt_ssh_job_pack(&part, &letter, &bytes);
    explicit_bzero(&part.key, sizeof part.key);
    if (status < 0) {
        fail(job, status, "host %s: %s", options->hosts[node].name, tutti_last_error());
        return;
    }
    tt_ssh_host_tell(&job->hosts[node], letter, bytes);
}

/* Who came to a host by its loopback cannot say where others find it. */
static bool is_reachable(job_t *job)
{
    char name[256];
    for (int i = 1; i < job->host_count && job->options->master_host == NULL; i++) {
        plain_name(job->hosts[i].about->name, name);
        if (tt_address_is_loopback(job->hosts[0].address) && !tt_address_is_loopback(name)) {
            fail(job, TUTTI_ERR_ARG,
                 "host %s is %s here, where host %s does not find it; give one of "
                 "its addresses with --master-addr",
                 job->hosts[0].about->name, job->hosts[0].address, name);
            return false;
        }
    }
    return true;
}

/* Host 0 first: the others need its address. */
static void tell_hosts(job_t *job)
{
    int told = 0;
    for (int i = 0; i < job->host_count && !job->is_leaving; i++) {
        const tt_ssh_host_t *host = &job->hosts[i];
        const bool is_ready = i == 0 || job->hosts[0].port > 0;
        if (host->has_greeted && !host->is_told && is_ready && (i == 0 || is_reachable(job))) {
            tell(job, i);
        }
        told += host->is_told;
    }
    if (told == job->host_count && !job->is_leaving) {
        tt_timer_stop(job->timer);
    }
}

/* As a shell ends a pipeline whose reader has gone. */
static void check_output(job_t *job)
{
    if (tt_console_has_no_reader(&job->console) && job->stop_signal == 0 && job->failed >= 0) {
        job->stop_signal = SIGPIPE;
        stop_hosts(job, SIGTERM);
    }
}

/* A host has said something, or its ssh has ended. */
static void on_move(void *user)
{
    job_t *job = user;
    char text[400];
    for (int i = 0; i < job->host_count; i++) {
        const tt_ssh_host_t *host = &job->hosts[i];
        if (host->has_ended && !host->has_reported && job->failed >= 0 && !job->is_leaving) {
            const tutti_status_t status = tt_ssh_host_explain(host, text, sizeof text);
            fail(job, status, "%s", text);
        } else if (host->has_reported) {
            start_leaving(job);
        }
    }
    tell_hosts(job);
    check_output(job);
    if (has_all_ended(job)) {
        tt_loop_stop(job->loop);
    }
}

/* ---- signals and output ---------------------------------------------------------------------- */

static void forward(job_t *job, int number)
{
    const bool is_stop =
        number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (is_stop) {
        job->stop_signal = number;
        stop_hosts(job, number);
    }
    for (int i = 0; i < job->host_count && !is_stop; i++) {
        if (job->hosts[i].is_told) {
            tt_ssh_host_signal(&job->hosts[i], number);
        }
    }
}

static void on_control(void *user)
{
    job_t *job = user;
    uint8_t numbers[64];
    const ssize_t n = read(job->control, numbers, sizeof numbers);
    for (ssize_t i = 0; i < n; i++) {
        forward(job, numbers[i]);
    }
    if (n == 0) { /* the guard is gone, and all ends with it */
        on_timer(job);
        tt_loop_stop(job->loop);
    }
}

static void on_console(void *user)
{
    job_t *job = user;
    for (int i = 0; i < job->host_count; i++) {
        tt_ssh_host_resume(&job->hosts[i]);
    }
    check_output(job);
    if (job->is_flushing && !tt_console_is_busy(&job->console)) {
        tt_loop_stop(job->loop);
    }
}

/* As launch_agent.c's. */
static void flush_console(job_t *job)
{
    job->is_flushing = true;
    tt_timer_stop(job->timer);
    if (job->stop_signal != 0) {
        tt_timer_start(job->timer, grace_of(job));
    }
    job->has_killed = false;
    while (tt_console_is_busy(&job->console) && !job->has_killed) {
        tt_loop_run(job->loop);
    }
}

/* ---- how it ended ---------------------------------------------------------------------------- */

typedef bool (*is_cause_t)(const tt_ssh_host_t *host);

static bool is_rank(const tt_ssh_host_t *host)
{
    return host->status >= 0 && host->report.failed_rank >= 0 && host->report.stop_signal == 0;
}

static bool is_refusal(const tt_ssh_host_t *host)
{
    return host->status < 0 && host->status != TUTTI_ERR_ABORTED;
}

static bool is_lost(const tt_ssh_host_t *host)
{
    return host->status >= 0 && host->report.exit_code != 0;
}

static bool is_any(const tt_ssh_host_t *host)
{
    return host->status < 0;
}

static const tt_ssh_host_t *find(const job_t *job, is_cause_t is_cause)
{
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i].has_reported && is_cause(&job->hosts[i])) {
            return &job->hosts[i];
        }
    }
    return NULL;
}

/* Of all that is known what explains the rest: a rank's failure, on which all hosts agree; what
 * ended the job here; a launcher that could not do its part; a host that went. */
static const tt_ssh_host_t *find_cause(const job_t *job)
{
    const is_cause_t causes[] = {is_rank, is_refusal, is_lost, is_any};
    const size_t count = job->failed < 0 ? 1 : sizeof causes / sizeof causes[0];
    const tt_ssh_host_t *host = NULL;
    for (size_t i = 0; i < count && host == NULL; i++) {
        host = find(job, causes[i]);
    }
    return host;
}

static tutti_status_t judge(job_t *job)
{
    tutti_launch_report_t *report = job->report;
    const tt_ssh_host_t *host = find_cause(job);
    if (host != NULL && host->status < 0) {
        char text[400];
        snprintf(text, sizeof text, "host %.64s: %.300s", host->about->name, host->report.verdict);
        return tt_fail_again(host->status, text);
    }
    if (host == NULL && job->failed < 0 && job->failed != TUTTI_ERR_PEER) {
        return tt_fail_again(job->failed, job->failure);
    }
    *report = host != NULL ? host->report : job->hosts[0].report;
    if (host == NULL && job->failed < 0) {
        report->exit_code = 1;
        snprintf(report->verdict, sizeof report->verdict, "%s", job->failure);
    }
    return TUTTI_OK;
}

static void complete(job_t *job)
{
    tutti_launch_report_t *report = job->report;
    if (job->stop_signal != 0) {
        report->stop_signal = job->stop_signal;
        report->exit_code = 128 + job->stop_signal;
        if (report->verdict[0] == 0) {
            snprintf(report->verdict, sizeof report->verdict, "the job was stopped");
        }
    }
    for (int i = 0; i < job->host_count; i++) {
        const tutti_launch_report_t *other = &job->hosts[i].report;
        if (report->stderr_tail[0] == 0) {
            memcpy(report->stderr_tail, other->stderr_tail, sizeof report->stderr_tail);
        }
        if (report->log_dir[0] == 0) {
            memcpy(report->log_dir, other->log_dir, sizeof report->log_dir);
        }
    }
    tt_console_judge(&job->console, NULL, report);
}

/* ---- the whole job --------------------------------------------------------------------------- */

/* Settings of Tutti go with the job, but for those that launchers make. */
static tutti_status_t find_settings(job_t *job)
{
    static const char *const own[] = {"TUTTI_KEY_FD=",      "TUTTI_KEY_FILE=", "TUTTI_SPAWN=",
                                      "TUTTI_AGENT_STORE=", "TUTTI_TERMINAL=", "TUTTI_JOB_BEGIN="};
    size_t count = 0, room = 1;
    for (char *const *at = environ; *at != NULL; at++) {
        room++;
    }
    job->settings = tt_alloc_array(room, sizeof *job->settings, "settings");
    TT_TRY_ALLOC(job->settings);
    for (char *const *at = environ; *at != NULL; at++) {
        bool is_sent = strncmp(*at, "TUTTI_", 6) == 0;
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            is_sent = is_sent && strncmp(*at, own[i], strlen(own[i])) != 0;
        }
        if (is_sent) {
            job->settings[count++] = *at;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t find_key(job_t *job)
{
    bool is_found;
    TT_TRY(tt_job_key_find(&job->key, &is_found));
    return is_found ? TUTTI_OK : tt_job_key_make(&job->key);
}

static tutti_status_t prepare(job_t *job)
{
    tt_watch_t *control;
    TT_TRY(tt_loop_create(NULL, NULL, &job->loop));
    TT_TRY(tt_console_init(&job->console, job->loop, on_console, job));
    TT_TRY(tt_timer_create(job->loop, on_timer, job, &job->timer));
    TT_TRY(tt_watch_create(job->loop, job->control, on_control, job, &control));
    TT_TRY(find_key(job));
    TT_TRY(find_settings(job));
    if (getcwd(job->folder, sizeof job->folder) == NULL && job->options->folder == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "the current folder");
    }
    job->hosts = tt_alloc_array((size_t)job->options->host_count, sizeof *job->hosts, "hosts");
    TT_TRY_ALLOC(job->hosts);
    return TUTTI_OK;
}

static tutti_status_t start_hosts(job_t *job)
{
    const tutti_launch_options_t *options = job->options;
    for (int i = 0; i < options->host_count; i++) {
        job->hosts[i].in = job->hosts[i].out = job->hosts[i].err = job->hosts[i].pidfd = -1;
        job->hosts[i].words.log_fd = -1;
        job->host_count = i + 1;
        TT_TRY(tt_ssh_host_start(&job->hosts[i], &job->context, &options->hosts[i]));
    }
    tt_timer_start(job->timer,
                   options->join_timeout_ms > 0 ? options->join_timeout_ms : TT_LAUNCH_JOIN_MS);
    return TUTTI_OK;
}

static void fini(job_t *job)
{
    for (int i = 0; i < job->host_count; i++) {
        tt_ssh_host_fini(&job->hosts[i]);
    }
    tt_children_kill();
    tt_console_fini(&job->console);
    tt_loop_release(job->loop);
    explicit_bzero(&job->key, sizeof job->key);
    tt_free(job->settings);
    tt_free(job->hosts);
}

tutti_status_t tt_ssh_hosts_run(const tt_agent_options_t *options, int control,
                                tutti_launch_report_t *report)
{
    job_t job = {.options = options->options, .report = report, .control = control};
    *report = (tutti_launch_report_t){.failed_rank = -1, .failed_node = -1};
    tutti_status_t status = prepare(&job);
    job.context = (tt_ssh_context_t){.loop = job.loop,
                                     .console = &job.console,
                                     .options = job.options,
                                     .signals = options->signals,
                                     .moved = on_move,
                                     .user = &job};
    if (status >= 0) {
        status = start_hosts(&job);
    }
    if (status >= 0) {
        tt_loop_run(job.loop);
        status = judge(&job);
        flush_console(&job);
    }
    if (status >= 0) {
        complete(&job);
    }
    fini(&job);
    return status;
}
