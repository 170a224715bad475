/* tutti_launch() in the process that calls it: what it refuses, what it leaves, ranks that hang in
 * exec, and memory that runs out in the agent, which is a fork of this process. What it does with
 * jobs is tested by tests/multi.
 */
#include "core/base/testing.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/launch.h>

enum { DEADLINE_MS = 30000 };

static int hung_fd; /* where a rank says that it hangs */

/* Takes the place of the C library's, in ranks. A file system that does not answer is one on which
 * "hang" lies; a test that fails leaves nobody there for long. */
int execvpe(const char *file, char *const argv[], char *const envp[])
{
    if (strcmp(file, "hang") == 0) {
        alarm(2 * DEADLINE_MS / 1000);
        (void)!write(hung_fd, "x", 1);
        pause();
    }
    return execve(file, argv, envp);
}

static tutti_status_t launch(const char *file, int rank_count, tutti_launch_report_t *report)
{
    const tutti_launch_options_t options = {.command = (const char *const[]){file, NULL},
                                            .rank_count = rank_count};
    return tutti_launch(&options, report);
}

/* What a caller does at a signal is no business of its ranks. */
static void end_as_caller(int number)
{
    (void)number;
    _exit(9);
}

/* A launcher whose two ranks hang in exec gets a signal. Its wait status, once no process of the
 * job is left: each holds the write end of the pipe. */
static int end_of_hung_job(int number)
{
    int ends[2], status;
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t launcher = fork();
    if (launcher == 0) {
        tutti_launch_report_t report;
        hung_fd = ends[1];
        signal(SIGTERM, end_as_caller);
        _exit(launch("hang", 2, &report) >= 0 ? report.exit_code : 1);
    }
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read(ends[0], &byte, 1), 1);
    }
    kill(launcher, number);
    assert_int_equal(poll(&(struct pollfd){.fd = ends[0]}, 1, DEADLINE_MS), 1);
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    close(ends[0]);
    return status;
}

static void a_job_that_hangs_in_exec_hears_signals(void **state)
{
    (void)state;
    const int status = end_of_hung_job(SIGTERM);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

static void a_job_that_hangs_in_exec_ends_with_its_launcher(void **state)
{
    (void)state;
    assert_int_equal(WTERMSIG(end_of_hung_job(SIGKILL)), SIGKILL);
}

/* Memory that processes share shows as this file. */
static bool shares_memory(void)
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, file) != NULL) {
        found |= strstr(line, "/dev/zero") != NULL;
    }
    fclose(file);
    return found;
}

static void nothing_is_left_in_the_caller(void **state)
{
    (void)state;
    tutti_launch_report_t report;
    sigset_t before, after;
    const int descriptors = tt_count_descriptors();
    sigprocmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(launch("/bin/true", 2, &report), TUTTI_OK);
    assert_int_equal(report.exit_code, 0);
    assert_int_equal(launch("/bin/false", 2, &report), TUTTI_OK);
    assert_int_equal(report.exit_code, 1);
    assert_int_equal(launch("/none", 2, &report), TUTTI_ERR_NOT_FOUND);
    tt_expect_error("command /none: No such file");
    assert_int_equal(tt_count_descriptors(), descriptors);
    assert_false(shares_memory());
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number <= 64; number++) {
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child */
}

static tutti_status_t launch_without(size_t allocation)
{
    tutti_launch_report_t report;
    tt_alloc_fail_at(allocation);
    const tutti_status_t status = launch("/bin/true", 2, &report);
    tt_alloc_fail_at(0);
    return status;
}

/* The nth allocation fails, for every n: there is none that a job could do without. Output is
 * watched where it goes into a pipe: here it does, whatever runs this program. */
static void every_allocation_that_fails_ends_the_job_with_nomem(void **state)
{
    (void)state;
    enum { MORE = 10, MOST = 200 };
    int ends[2];
    const int output = dup(STDOUT_FILENO);
    size_t nth = 1;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    tutti_status_t status = TUTTI_ERR_NOMEM, later = TUTTI_OK;
    for (; status == TUTTI_ERR_NOMEM && nth < MOST; nth++) {
        status = launch_without(nth);
    }
    for (size_t i = 0; later == TUTTI_OK && i < MORE; i++) {
        later = launch_without(nth + i);
    }
    dup2(output, STDOUT_FILENO);
    close(output);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(status, TUTTI_OK);
    assert_in_range(nth, 10, MOST - 1);
    assert_int_equal(later, TUTTI_OK);
}

static void expect_refusal(tutti_launch_options_t options, const char *text)
{
    tutti_launch_report_t report;
    options.command = (const char *const[]){"/bin/true", NULL};
    assert_int_equal(tutti_launch(&options, &report), TUTTI_ERR_ARG);
    tt_expect_error(text);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    expect_refusal((tutti_launch_options_t){.rank_count = -1}, "-1 ranks; want 1 to 4096");
    expect_refusal((tutti_launch_options_t){.grace_ms = -1}, "grace -1 ms");
    expect_refusal((tutti_launch_options_t){.max_restarts = -1}, "-1 restarts");
    expect_refusal((tutti_launch_options_t){.run_id = "a b"}, "run id \"a b\"");
    expect_refusal((tutti_launch_options_t){.node_rank = 1}, "node 1 of 1");
    expect_refusal((tutti_launch_options_t){.node_rank = -2}, "node -2 of 1");
    expect_refusal((tutti_launch_options_t){.node_count = 4097}, "at most 4096 nodes");
    expect_refusal((tutti_launch_options_t){.node_count = 2, .node_rank = 2}, "node 2 of 2");
    expect_refusal((tutti_launch_options_t){.node_count = 2}, "need the address and the port");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_hangs_in_exec_hears_signals),
        cmocka_unit_test(a_job_that_hangs_in_exec_ends_with_its_launcher),
        cmocka_unit_test(nothing_is_left_in_the_caller),
        cmocka_unit_test(every_allocation_that_fails_ends_the_job_with_nomem),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
