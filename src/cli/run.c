/* tutti run: the flags of torchrun for one host or several, those of mpirun for hosts that are
 * started from here, and what is printed at the end. The work is tutti_launch().
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "cli/cli.h"
#include "cli/run_parts.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, JOB_RANKS_MAX = 65536 };

typedef struct {
    const char *ranks, *nodes, *redirects, *tees, *log_dir, *run_id;
    const char *master_host, *endpoint, *backend, *key_file;
    const char *hosts, *host_file, *ssh, *folder, *remote;
    tutti_option_texts_t variables;
    int64_t master_port, node_rank, restarts;
    double join_s;
    double grace_s;
    bool is_standalone, is_no_python, is_agent;
} flags_t;

#define FIELD(name) .offset = offsetof(flags_t, name)

static const tutti_option_t table[] = {
    {.name = "nproc-per-node",
     .alias = 'n',
     .kind = TUTTI_OPTION_TEXT,
     FIELD(ranks),
     .argument = "N|auto",
     .about = "ranks to start; auto: one per core"},
    {.name = "master-port",
     .kind = TUTTI_OPTION_INT,
     FIELD(master_port),
     .argument = "PORT",
     .min = 0,
     .max = 65535,
     .about = "port of the store; 0: the system chooses, on one host"},
    {.name = "log-dir",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(log_dir),
     .argument = "DIR",
     .about = "logs go to DIR/ID/attempt_A/RANK/; without --tee and --redirects: --tee 3"},
    {.name = "redirects",
     .alias = 'r',
     .kind = TUTTI_OPTION_TEXT,
     FIELD(redirects),
     .argument = "STREAMS",
     .about = "to logs only: 0 none, 1 stdout, 2 stderr, 3 both, or by rank: 0:1,1:2"},
    {.name = "tee",
     .alias = 't',
     .kind = TUTTI_OPTION_TEXT,
     FIELD(tees),
     .argument = "STREAMS",
     .about = "to logs as well, written in the same way"},
    {.name = "grace",
     .kind = TUTTI_OPTION_REAL,
     FIELD(grace_s),
     .argument = "SECONDS",
     .min = 0.001,
     .max = 1e6,
     .about = "from SIGTERM to SIGKILL, when a job is stopped"},
    {.name = "rdzv-id",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(run_id),
     .argument = "ID",
     .about = "name of the run; made up if not given"},
    {.name = "nnodes",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(nodes),
     .argument = "N",
     .about = "hosts; run the same on each, with its own --node-rank"},
    {.name = "node-rank",
     .kind = TUTTI_OPTION_INT,
     FIELD(node_rank),
     .argument = "R",
     .min = -1,
     .max = 4095,
     .about = "which of the hosts this is, from 0; -1: Slurm says it, or there is one"},
    {.name = "rdzv-endpoint",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(endpoint),
     .argument = "HOST:PORT",
     .about = "where node 0 has the store; it listens on that address only"},
    {.name = "key-file",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(key_file),
     .argument = "FILE",
     .about = "the job's key, the same file on every host, of mode 0600; as TUTTI_KEY_FILE"},
    {.name = "master-addr",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(master_host),
     .argument = "HOST",
     .about = "the same, with --master-port; on one host 127.0.0.1"},
    {.name = "rdzv-backend",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(backend),
     .argument = "static",
     .about = "static or c10d: the same here, node 0 has the store"},
    {.name = "join-timeout",
     .kind = TUTTI_OPTION_REAL,
     FIELD(join_s),
     .argument = "SECONDS",
     .min = 0.001,
     .max = 1e6,
     .about = "until all hosts have come"},
    {.name = "max-restarts",
     .kind = TUTTI_OPTION_INT,
     FIELD(restarts),
     .argument = "R",
     .min = 0,
     .max = 1000000,
     .about = "how often all ranks are started again after one has failed"},
    {.name = "hosts",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(hosts),
     .argument = "HOST:RANKS,…",
     .about = "start the ranks there, by ssh; without a number -n"},
    {.name = "hostfile",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(host_file),
     .argument = "FILE",
     .about = "the same: a line HOST slots=RANKS, or HOST:RANKS, for each"},
    {.name = "export",
     .alias = 'x',
     .kind = TUTTI_OPTION_TEXTS,
     FIELD(variables),
     .argument = "NAME[=VALUE]",
     .about = "an environment variable for the ranks; again and again"},
    {.name = "ssh",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(ssh),
     .argument = "COMMAND",
     .about = "client and options for --hosts, as a shell reads them; default: ssh, without "
              "questions"},
    {.name = "wdir",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(folder),
     .argument = "DIR",
     .about = "folder of the ranks on every one of --hosts; default: this one"},
    {.name = "tutti",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(remote),
     .argument = "FILE",
     .about = "this command on every one of --hosts; default: where it is here"},
    {.name = "agent",
     FIELD(is_agent),
     .about = "be one of another launcher's --hosts, which says over stdin what to do"},
    {.name = "standalone",
     FIELD(is_standalone),
     .about = "one host and a free port, which is the default"},
    {.name = "no-python", FIELD(is_no_python), .about = "run the command as it is; always so"},
    {0}};

static bool parse_number(const char *text, size_t bytes, long max, long *out)
{
    char digits[12] = "";
    if (bytes == 0 || bytes >= sizeof digits || strspn(text, "0123456789") < bytes) {
        return false;
    }
    memcpy(digits, text, bytes);
    *out = strtol(digits, NULL, 10);
    return *out <= max;
}

/* One item of "0:1,1:2", or a lone number for all ranks. */
static bool parse_streams_item(const char *item, size_t bytes, int rank_count, uint8_t *streams)
{
    const char *colon = memchr(item, ':', bytes);
    long rank = -1, value;
    const char *number = colon != NULL ? colon + 1 : item;
    if (!parse_number(number, bytes - (size_t)(number - item), 3, &value) ||
        (colon != NULL && !parse_number(item, (size_t)(colon - item), rank_count - 1, &rank))) {
        return false;
    }
    for (int i = 0; i < rank_count; i++) {
        streams[i] = rank < 0 || i == rank ? (uint8_t)value : streams[i];
    }
    return true;
}

static bool parse_streams(const char *text, int rank_count, uint8_t *streams)
{
    for (;;) {
        const size_t bytes = strcspn(text, ",");
        if (!parse_streams_item(text, bytes, rank_count, streams)) {
            return false;
        }
        if (text[bytes] == 0) {
            return true;
        }
        text += bytes + 1;
    }
}

/* A job that was stopped ends also where nobody reads why. */
static bool can_print(const tutti_launch_report_t *report)
{
    struct pollfd item = {.fd = STDERR_FILENO, .events = POLLOUT};
    return report->stop_signal == 0 || poll(&item, 1, 0) > 0;
}

static void print_end(const tutti_launch_report_t *report)
{
    if (!can_print(report)) {
        return;
    }
    if (report->log_dir[0] != 0) {
        fprintf(stderr, "logs are in %s\n", report->log_dir);
    }
    if (report->verdict[0] == 0) {
        return;
    }
    if (report->stop_signal != 0) {
        fprintf(stderr, "stopped by SIG%s\n", sigabbrev_np(report->stop_signal));
    } else if (report->stderr_tail[0] != 0) {
        fprintf(stderr, "rank %d, last lines of stderr:\n", report->failed_rank);
        for (const char *line = report->stderr_tail; *line != 0;) {
            const size_t bytes = strcspn(line, "\n");
            fprintf(stderr, "  | %.*s\n", (int)bytes, line);
            line += bytes + (line[bytes] != 0);
        }
    }
    fprintf(stderr, "%s\n", report->verdict);
}

static int launch(const tutti_launch_options_t *options)
{
    tutti_launch_report_t report;
    const tutti_status_t status = tutti_launch(options, &report);
    if (status < 0) {
        return tt_cli_fail("run", status == TUTTI_ERR_NOT_FOUND     ? EXIT_NOT_FOUND
                                  : status == TUTTI_ERR_UNSUPPORTED ? EXIT_NOT_EXECUTABLE
                                  : status == TUTTI_ERR_ARG         ? TT_EXIT_USAGE
                                                                    : 1);
    }
    print_end(&report);
    return report.exit_code;
}

/* HOST:PORT or [HOST]:PORT; a lone HOST has torchrun's default port. */
static bool parse_endpoint(const char *text, char host[128], long *port)
{
    const char *colon = strrchr(text, ':');
    const char *bracket = strrchr(text, ']');
    const bool has_port = colon != NULL && (bracket == NULL || colon > bracket);
    const size_t bytes = has_port ? (size_t)(colon - text) : strlen(text);
    const size_t cut = text[0] == '[' && bytes > 2 && text[bytes - 1] == ']';
    *port = 29400;
    if (bytes <= 2 * cut || bytes - 2 * cut >= 128 ||
        (has_port && !parse_number(colon + 1, strlen(colon + 1), 65535, port))) {
        return false;
    }
    memcpy(host, text + cut, bytes - 2 * cut);
    host[bytes - 2 * cut] = 0;
    return true;
}

/* --nnodes and what comes with it, into options; host has room for an endpoint's. */
static int read_nodes(const flags_t *flags, char host[128], tutti_launch_options_t *options)
{
    const char *colon = strchr(flags->nodes, ':');
    const size_t bytes = colon != NULL ? (size_t)(colon - flags->nodes) : strlen(flags->nodes);
    long count, port = flags->master_port;
    if (!parse_number(flags->nodes, bytes, 4096, &count) || count == 0 ||
        (colon != NULL &&
         (strlen(colon + 1) != bytes || strncmp(colon + 1, flags->nodes, bytes)))) {
        return tt_cli_refuse("run", "nnodes", flags->nodes,
                             "a number; hosts that come and go are not supported");
    }
    options->node_count = (int)count;
    options->node_rank = count > 1 ? (int)flags->node_rank : 0;
    options->master_host = flags->master_host;
    if (flags->endpoint != NULL && !flags->is_standalone) {
        if (!parse_endpoint(flags->endpoint, host, &port)) {
            return tt_cli_refuse("run", "rdzv-endpoint", flags->endpoint, "HOST:PORT");
        }
        options->master_host = host;
    }
    options->master_port = (int)port;
    if (options->node_rank >= count) {
        return tt_cli_refuse("run", "nnodes", flags->nodes, "a --node-rank below it");
    }
    if (count > 1 && options->master_host == NULL) {
        return tt_cli_refuse("run", "nnodes", flags->nodes,
                             "--rdzv-endpoint HOST:PORT, too: an address of node 0");
    }
    return 0;
}

/* For this launcher and for the ranks, which may change their directory. */
static int use_key_file(const char *path)
{
    char *whole = realpath(path, NULL);
    const bool is_set = whole != NULL && setenv("TUTTI_KEY_FILE", whole, 1) == 0;
    if (!is_set) {
        fprintf(stderr, "tutti run: --key-file %s: %s; `tutti key FILE` makes one\n", path,
                strerror(errno));
    }
    free(whole);
    return is_set ? 0 : -1;
}

/* --hosts says where; the flags of nodes say where this one is. */
static int check_host_flags(const flags_t *flags)
{
    if (flags->hosts != NULL && flags->host_file != NULL) {
        return tt_cli_refuse("run", "hostfile", flags->host_file, "either it or --hosts");
    }
    if (flags->hosts != NULL || flags->host_file != NULL) {
        const bool has_nodes = strcmp(flags->nodes, "1") != 0 || flags->node_rank != -1 ||
                               flags->endpoint != NULL || flags->is_standalone;
        return !has_nodes ? 0
                          : tt_cli_refuse("run", flags->hosts != NULL ? "hosts" : "hostfile",
                                          flags->hosts != NULL ? flags->hosts : flags->host_file,
                                          "no --nnodes, --node-rank, --rdzv-endpoint or "
                                          "--standalone beside it");
    }
    const char *const value = flags->ssh != NULL      ? flags->ssh
                              : flags->folder != NULL ? flags->folder
                                                      : flags->remote;
    return value == NULL ? 0
                         : tt_cli_refuse("run",
                                         flags->ssh != NULL      ? "ssh"
                                         : flags->folder != NULL ? "wdir"
                                                                 : "tutti",
                                         value, "--hosts or --hostfile, too");
}

static int check_flags(const flags_t *flags)
{
    const char *const backend = flags->backend;
    if (strcmp(backend, "static") != 0 && strcmp(backend, "c10d") != 0) {
        return tt_cli_refuse("run", "rdzv-backend", backend, "static or c10d");
    }
    if (flags->is_standalone && strcmp(flags->nodes, "1") != 0 &&
        strcmp(flags->nodes, "1:1") != 0) {
        return tt_cli_refuse("run", "nnodes", flags->nodes, "1 with --standalone");
    }
    return check_host_flags(flags);
}

static bool parse_ranks(const char *text, long *out)
{
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        *out = tutti_core_count();
        return true;
    }
    return parse_number(text, strlen(text), TUTTI_LAUNCH_RANKS_MAX, out) && *out > 0;
}

/* "NAME=value" of the environment; NULL: there is none. */
static const char *find_variable(const char *name)
{
    const size_t bytes = strlen(name);
    for (char *const *at = environ; *at != NULL; at++) {
        if (strncmp(*at, name, bytes) == 0 && (*at)[bytes] == '=') {
            return *at;
        }
    }
    return NULL;
}

/* -x: a name alone has the value that it has here. `out` has room for all, and for NULL. */
static int read_variables(const tutti_option_texts_t *variables, const char **out)
{
    for (int i = 0; i < variables->count; i++) {
        const char *text = variables->texts[i];
        out[i] = strchr(text, '=') != NULL ? text : find_variable(text);
        if (text[0] == 0 || text[0] == '=' || out[i] == NULL) {
            return tt_cli_refuse("run", "export", text,
                                 "NAME=VALUE, or the name of a variable that is set here");
        }
    }
    return 0;
}

/* What is logged of which rank; the arrays have room for all. */
static int read_streams(const flags_t *flags, int rank_count, uint8_t *redirects, uint8_t *tees)
{
    const bool is_plain = flags->redirects == NULL && flags->tees == NULL;
    const char *tee_text = is_plain && flags->log_dir != NULL ? "3" : flags->tees;
    const char *const want = "0 to 3, or RANK:0 to RANK:3 with commas between";
    if (flags->redirects != NULL && !parse_streams(flags->redirects, rank_count, redirects)) {
        return tt_cli_refuse("run", "redirects", flags->redirects, want);
    }
    if (tee_text != NULL && !parse_streams(tee_text, rank_count, tees)) {
        return tt_cli_refuse("run", "tee", tee_text, want);
    }
    return 0;
}

/* The ranks of all hosts, or of this one. */
static int count_ranks(const tutti_launch_options_t *options)
{
    int count = options->rank_count;
    for (int i = 0; i < options->host_count; i++) {
        count = (i > 0 ? count : 0) + options->hosts[i].rank_count;
    }
    return count;
}

/* The hosts, or the nodes, are in options. */
static int run_job(const flags_t *flags, tutti_launch_options_t *options)
{
    static uint8_t redirects[JOB_RANKS_MAX], tees[JOB_RANKS_MAX];
    static const char *variables[TUTTI_OPTION_TEXTS_MAX + 1];
    const int rank_count = count_ranks(options);
    if (rank_count > JOB_RANKS_MAX) {
        fprintf(stderr, "tutti run: %d ranks; want at most %d\n", rank_count, JOB_RANKS_MAX);
        return TT_EXIT_USAGE;
    }
    int code = read_streams(flags, rank_count, redirects, tees);
    code = code != 0 ? code : read_variables(&flags->variables, variables);
    if (code != 0 || (flags->key_file != NULL && use_key_file(flags->key_file) != 0)) {
        return TT_EXIT_USAGE;
    }
    options->run_id = flags->run_id;
    options->log_dir = flags->log_dir;
    options->redirects = redirects;
    options->tees = tees;
    options->environment = variables;
    options->max_restarts = (int)flags->restarts;
    options->join_timeout_ms = (int64_t)(flags->join_s * 1000);
    options->grace_ms = (int64_t)(flags->grace_s * 1000);
    return launch(options);
}

/* Where this command is, it is on the other hosts, too. */
static int find_remote(const char *given, char path[PATH_MAX], const char **out)
{
    const ssize_t bytes = given == NULL ? readlink("/proc/self/exe", path, PATH_MAX - 1) : 0;
    if (bytes < 0) {
        fprintf(stderr, "tutti run: /proc/self/exe: %s; give --tutti\n", strerror(errno));
        return 1;
    }
    path[bytes] = 0;
    *out = given != NULL ? given : path;
    return 0;
}

static int run_on_hosts(const flags_t *flags, int ranks, tutti_launch_options_t *options)
{
    char path[PATH_MAX];
    tt_run_hosts_t hosts;
    int code = tt_run_hosts_read(flags->hosts, flags->host_file, ranks, &hosts);
    if (code != 0) {
        return code;
    }
    options->hosts = hosts.all;
    options->host_count = hosts.count;
    options->master_host = flags->master_host;
    options->master_port = (int)flags->master_port;
    options->ssh = flags->ssh;
    options->folder = flags->folder;
    code = find_remote(flags->remote, path, &options->remote);
    code = code != 0 ? code : run_job(flags, options);
    tt_run_hosts_free(&hosts);
    return code;
}

/* Here, or on hosts that are started from here. */
static int run_command(const flags_t *flags, char **command)
{
    long rank_count;
    char host[128];
    if (!parse_ranks(flags->ranks, &rank_count)) {
        return tt_cli_refuse("run", "nproc-per-node", flags->ranks,
                             "a number from 1 to 4096, or auto");
    }
    tutti_launch_options_t options = {.rank_count = (int)rank_count,
                                      .command = (const char *const *)command};
    if (flags->hosts != NULL || flags->host_file != NULL) {
        return run_on_hosts(flags, (int)rank_count, &options);
    }
    const int code = read_nodes(flags, host, &options);
    return code != 0 ? code : run_job(flags, &options);
}

static int serve(int rest, int argc)
{
    int code = 0;
    if (rest < argc) {
        fprintf(stderr, "tutti run: --agent takes its command from stdin\n");
        return TT_EXIT_USAGE;
    }
    return tutti_launch_serve(&code) < 0 ? tt_cli_fail("run", 1) : code;
}

int tt_verb_run(int argc, char **argv)
{
    const flags_t defaults = {.ranks = "1",
                              .nodes = "1",
                              .backend = "static",
                              .node_rank = -1,
                              .grace_s = 30,
                              .join_s = 600};
    flags_t flags = defaults;
    int rest = 0;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &flags, &rest);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti run [OPTION …] [--] COMMAND [ARGUMENT …]", table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("run", TT_EXIT_USAGE);
    }
    if (flags.is_agent) {
        return serve(rest, argc);
    }
    if (rest >= argc) {
        fprintf(stderr, "tutti run: no command; usage: tutti run -n 2 COMMAND [ARGUMENT …]\n");
        return TT_EXIT_USAGE;
    }
    const int code = check_flags(&flags);
    return code != 0 ? code : run_command(&flags, argv + rest);
}
