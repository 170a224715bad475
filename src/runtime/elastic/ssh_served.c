/* The launcher of one host of a job that was started by ssh: reads its part of the job from its
 * standard input, does what tutti_launch() does, and says on standard output how it went.
 *
 * What is left of standard input is its lifeline: signals for the ranks come through it, and when
 * it ends, because the launcher, ssh or the connection is gone, everything here ends.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "runtime/elastic/launch_agent.h"
#include "runtime/elastic/ssh_job.h"

enum { HEAD_BYTES = 24 };

static tutti_status_t read_all(char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = read(STDIN_FILENO, data + done, bytes - done);
        if (n <= 0) {
            return TT_FAIL(TUTTI_ERR_IO,
                           "standard input ended before the job was there; --agent is "
                           "for `tutti run --hosts`");
        }
        done += (size_t)n;
    }
    return TUTTI_OK;
}

static tutti_status_t read_job(tt_ssh_job_t *job, char **text, size_t *bytes, void **lists)
{
    char head[HEAD_BYTES + 1] = "";
    size_t count = 0;
    TT_TRY(read_all(head, HEAD_BYTES));
    if (sscanf(head, "tutti %zu\n", &count) != 1 || count == 0 || count > TT_SSH_LETTER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "standard input is no job; --agent is for `tutti run --hosts`");
    }
    char *letter = tt_alloc(count, "job");
    TT_TRY_ALLOC(letter);
    tutti_status_t status = read_all(letter, count);
    if (status >= 0) {
        status = tt_ssh_job_unpack(letter, count, job, lists);
    }
    if (status < 0) {
        explicit_bzero(letter, count);
        tt_free(letter);
        return status;
    }
    *text = letter;
    *bytes = count;
    return TUTTI_OK;
}

/* For this launcher, and for its ranks. */
static tutti_status_t set_variables(const char *const *settings)
{
    for (; *settings != NULL; settings++) {
        char name[64];
        const size_t bytes = strcspn(*settings, "=");
        snprintf(name, sizeof name, "%.*s", (int)(bytes < 64 ? bytes : 63), *settings);
        setenv(name, *settings + bytes + ((*settings)[bytes] != 0), 1);
    }
    return tt_config_check();
}

/* As sealed memory, which the ranks inherit. */
static tutti_status_t set_key(const tt_job_key_t *key)
{
    char number[16];
    int fd;
    TT_TRY(tt_job_key_to_fd(key, &fd));
    snprintf(number, sizeof number, "%d", fd);
    if (fcntl(fd, F_SETFD, 0) != 0 || setenv("TUTTI_KEY_FD", number, 1) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "the job's key");
    }
    return TUTTI_OK;
}

/* The address that ssh came to reaches this host, and its name may not: "CLIENT PORT HOST PORT".
 * One with a scope, as fe80::1%eth0, means something on this host only. */
static const char *own_address(char text[64])
{
    const char *words = tt_config_text(TT_CONFIG_SSH_CONNECTION);
    return sscanf(words, "%*s %*s %63s", text) == 1 && strchr(text, '%') == NULL ? text : NULL;
}

static tutti_status_t move_lifeline(int *out)
{
    const int lifeline = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (lifeline < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "standard input");
    }
    close(nothing);
    *out = lifeline;
    return TUTTI_OK;
}

static tutti_status_t serve(tt_ssh_job_t *job, tutti_launch_report_t *report)
{
    char address[64];
    tutti_launch_options_t *options = &job->options;
    if (options->folder != NULL && chdir(options->folder) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", options->folder);
    }
    TT_TRY(set_variables(job->settings));
    TT_TRY(set_key(&job->key));
    if (options->node_count > 1 && options->master_host == NULL) {
        const char *own = own_address(address);
        options->master_host = own != NULL ? own : job->name;
    }
    TT_TRY(move_lifeline(&options->lifeline));
    return tt_launch_ranks(&(tt_agent_options_t){.options = options, .is_served = true}, report);
}

tutti_status_t tutti_launch_serve(int *exit_code)
{
    tt_ssh_job_t job;
    tutti_launch_report_t report = {.exit_code = 1};
    char *text;
    size_t bytes;
    void *lists;
    TT_WANT("launch", exit_code);
    tt_ssh_say_hello();
    TT_TRY(read_job(&job, &text, &bytes, &lists));
    const tutti_status_t status = serve(&job, &report);
    tt_ssh_say_end(status, &report);
    explicit_bzero(text, bytes);
    explicit_bzero(&job.key, sizeof job.key);
    tt_free(lists);
    tt_free(text);
    *exit_code = status < 0 ? 1 : report.exit_code;
    return TUTTI_OK;
}
