/* Children that are ended, whatever else this process has waited for. */
#include "core/base/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/elastic/child.h"

static void start_sleeper(void)
{
    const pid_t child = fork();
    if (child == 0) {
        sleep(600);
        _exit(0);
    }
    assert_true(child > 0);
}

/* errno may still say what an earlier wait left there. */
static void children_are_killed_after_a_wait_for_none(void **state)
{
    (void)state;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    start_sleeper();
    start_sleeper();
    errno = ECHILD;
    tt_children_kill();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* A child begins as a terminal's programs do: SIGPIPE ends it, also where this process ignores it.
 */
static void a_child_is_ended_by_sigpipe_whatever_this_process_does(void **state)
{
    (void)state;
    static const char *const argv[] = {"sh", "-c", "kill -PIPE $$; exit 3", NULL};
    char *const envp[] = {NULL};
    sigset_t none;
    int ends[2], status;
    pid_t child;
    sigemptyset(&none);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    signal(SIGPIPE, SIG_IGN);
    const tt_child_options_t options = {.argv = argv,
                                        .file = "/bin/sh",
                                        .envp = envp,
                                        .fds = {-1, -1, -1},
                                        .signals = &none,
                                        .error_fd = ends[1]};
    assert_int_equal(tt_child_spawn(&options, &child), TUTTI_OK);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGPIPE);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_ended_by_sigpipe_whatever_this_process_does),
        cmocka_unit_test(children_are_killed_after_a_wait_for_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
