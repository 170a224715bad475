/* Children that are ended, whatever else this process has waited for. */
#include "core/base/testing.h"

#include <errno.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_are_killed_after_a_wait_for_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
