/* How an attempt of a job ended, as lines of text in the launchers' store. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "runtime/elastic/launch_nodes.h"

int tt_job_end_print(const tt_job_end_t *end, char *text, size_t bytes)
{
    return end->is_ok ? snprintf(text, bytes, "ok\n")
                      : snprintf(text, bytes, "%d %s %d %d %d %d\n", end->node, end->host,
                                 end->rank, end->code, end->signal, end->stop_signal);
}

/* False: it is no line of launch/end. */
static bool parse_line(const char *line, tt_job_end_t *end)
{
    tt_job_end_t found = {.is_ok = strncmp(line, "ok\n", 3) == 0, .rank = -1};
    if (!found.is_ok && (sscanf(line, "%9d %63s %9d %9d %9d %9d", &found.node, found.host,
                                &found.rank, &found.code, &found.signal, &found.stop_signal) != 6 ||
                         found.rank < -1 || found.node < 0 || found.signal < 0 ||
                         found.signal > 64 || found.stop_signal < 0 || found.stop_signal > 64)) {
        return false;
    }
    *end = found;
    return true;
}

static void describe_rank(const tt_job_end_t *end, char *text, size_t bytes)
{
    const char *name = end->signal > 0 ? sigabbrev_np(end->signal) : NULL;
    if (name != NULL) {
        snprintf(text, bytes, "killed by SIG%s", name);
    } else if (end->signal > 0) {
        snprintf(text, bytes, "killed by signal %d", end->signal);
    } else {
        snprintf(text, bytes, "exit code %d", end->code);
    }
}

void tt_job_end_describe(const tt_job_end_t *end, char *text, size_t bytes)
{
    char node[96] = "", how[32];
    snprintf(node, sizeof node, "node %d (%s)", end->node, end->host);
    describe_rank(end, how, sizeof how);
    if (end->rank >= 0) {
        const bool has_node = end->host[0] != 0;
        snprintf(text, bytes, "rank %d%s%s: %s", end->rank, has_node ? " on " : "",
                 has_node ? node : "", how);
    } else if (end->stop_signal > 0) {
        snprintf(text, bytes, "%s: stopped by signal %d", node, end->stop_signal);
    } else {
        snprintf(text, bytes, "%s: lost; its launcher was killed, or cannot be reached any more",
                 node);
    }
}

void tt_job_end_choose(const char *text, tt_job_end_t *end)
{
    bool is_first = true;
    for (const char *line = text; *line != 0;) {
        tt_job_end_t candidate;
        const bool is_cause = parse_line(line, &candidate) && !candidate.is_ok &&
                              (candidate.rank < 0 || candidate.signal > 0);
        if (is_cause || is_first) {
            is_first = !parse_line(line, end);
        }
        if (is_cause || end->is_ok) {
            return;
        }
        line += strcspn(line, "\n");
        line += *line != 0;
    }
}

int tt_job_end_count_lost(const char *text)
{
    int lost = 0;
    for (const char *line = text; *line != 0; line += *line != 0) {
        tt_job_end_t end;
        lost += parse_line(line, &end) && !end.is_ok && end.rank < 0 && end.stop_signal == 0;
        line += strcspn(line, "\n");
    }
    return lost;
}
