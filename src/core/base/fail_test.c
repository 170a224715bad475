/* Statuses and the text of the last failure. */
#include "core/base/testing.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_status_has_a_name_and_a_text(void **state)
{
    (void)state;
#define X(name, value, text)                                                                       \
    assert_string_equal(tutti_status_name(name), #name);                                           \
    assert_string_equal(tutti_status_text(name), text);                                            \
    assert_int_equal(name, value);
    TUTTI_STATUS_LIST(X)
#undef X
    assert_string_equal(tutti_status_name((tutti_status_t)-1000), "TUTTI_ERR_?");
    assert_string_equal(tutti_status_text((tutti_status_t)-1000), "unknown status");
}

static void the_text_is_what_was_recorded_last(void **state)
{
    (void)state;
    assert_int_equal(TT_FAIL(TUTTI_ERR_PEER, "rank %d closed", 3), TUTTI_ERR_PEER);
    assert_string_equal(tutti_last_error(), "rank 3 closed");
    assert_int_equal(TT_FAIL(TUTTI_ERR_IO, "step 7: %s", tutti_last_error()), TUTTI_ERR_IO);
    assert_string_equal(tutti_last_error(), "step 7: rank 3 closed");
    assert_int_equal(tt_fail_again(TUTTI_ERR_ABORTED, "100%"), TUTTI_ERR_ABORTED);
    assert_string_equal(tutti_last_error(), "100%");
}

static void a_system_error_is_appended(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(TT_FAIL_ERRNO(TUTTI_ERR_IO, "open %s", "a.txt"), TUTTI_ERR_IO);
    assert_string_equal(tutti_last_error(), "open a.txt: No such file or directory");
}

static void a_long_text_is_cut(void **state)
{
    (void)state;
    char longer[2 * TT_ERROR_TEXT_BYTES];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    errno = ENOENT;
    (void)TT_FAIL_ERRNO(TUTTI_ERR_IO, "%s", longer);
    assert_int_equal(strlen(tutti_last_error()), TT_ERROR_TEXT_BYTES - 1);
}

static void *fail_elsewhere(void *user)
{
    const int was_empty = tutti_last_error()[0] == 0;
    (void)TT_FAIL(TUTTI_ERR_IO, "elsewhere");
    return was_empty ? user : NULL;
}

static void each_thread_has_its_own_text(void **state)
{
    (void)state;
    (void)TT_FAIL(TUTTI_ERR_IO, "here");
    pthread_t thread;
    int token;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &token), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &token);
    assert_string_equal(tutti_last_error(), "here");
}

static tutti_status_t pass_on(tutti_status_t first, int *reached)
{
    TT_TRY(first);
    *reached += 1;
    TUTTI_CHECK(first);
    *reached += 1;
    return TUTTI_OK;
}

static tutti_status_t climb_down(tutti_status_t first, int *undone)
{
    tutti_status_t status;
    TT_TRY_GOTO(status, first, undo);
    return status;
undo:
    *undone = 1;
    return status;
}

static void failures_are_passed_on_and_other_statuses_are_not(void **state)
{
    (void)state;
    int reached = 0, undone = 0;
    assert_int_equal(pass_on(TUTTI_ERR_PEER, &reached), TUTTI_ERR_PEER);
    assert_int_equal(reached, 0);
    assert_int_equal(pass_on(TUTTI_END, &reached), TUTTI_OK);
    assert_int_equal(reached, 2);
    assert_int_equal(climb_down(TUTTI_PENDING, &undone), TUTTI_PENDING);
    assert_int_equal(undone, 0);
    assert_int_equal(climb_down(TUTTI_ERR_IO, &undone), TUTTI_ERR_IO);
    assert_int_equal(undone, 1);
}

static void a_broken_invariant_aborts_and_says_which(void **state)
{
    (void)state;
    int ends[2], exit_status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        TT_ASSERT(ends[0] < 0);
        _exit(0);
    }
    close(ends[1]);
    char text[256] = {0};
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_true(WIFSIGNALED(exit_status) && WTERMSIG(exit_status) == SIGABRT);
    assert_non_null(strstr(text, "broken invariant: ends[0] < 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_text),
        cmocka_unit_test(the_text_is_what_was_recorded_last),
        cmocka_unit_test(a_system_error_is_appended),
        cmocka_unit_test(a_long_text_is_cut),
        cmocka_unit_test(each_thread_has_its_own_text),
        cmocka_unit_test(failures_are_passed_on_and_other_statuses_are_not),
        cmocka_unit_test(a_broken_invariant_aborts_and_says_which),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
