/* How an attempt ended: lines in the launchers' store, the one that counts, and what is said. */
#include "core/base/testing.h"

#include "runtime/elastic/launch_nodes.h"

static void expect_words(const tt_job_end_t *end, const char *want)
{
    char text[200];
    tt_job_end_describe(end, text, sizeof text);
    assert_string_equal(text, want);
}

static void an_end_is_told_in_words(void **state)
{
    (void)state;
    expect_words(&(tt_job_end_t){.rank = 2, .code = 7}, "rank 2: exit code 7");
    expect_words(&(tt_job_end_t){.rank = 2, .node = 1, .host = "n", .code = 7},
                 "rank 2 on node 1 (n): exit code 7");
    expect_words(&(tt_job_end_t){.rank = 0, .host = "a", .signal = 1},
                 "rank 0 on node 0 (a): killed by SIGHUP");
    expect_words(&(tt_job_end_t){.signal = 40}, "rank 0: killed by signal 40");
    expect_words(&(tt_job_end_t){.rank = -1, .host = "a", .stop_signal = 1},
                 "node 0 (a): stopped by signal 1");
    expect_words(&(tt_job_end_t){.rank = -1, .node = 3, .host = "b"},
                 "node 3 (b): lost; its launcher was killed, or cannot be reached any more");
}

/* Of these lines the one of this rank counts; -7: none. */
static tt_job_end_t expect_rank(const char *lines, int rank)
{
    tt_job_end_t end = {.rank = -7};
    tt_job_end_choose(lines, &end);
    assert_int_equal(end.rank, rank);
    return end;
}

static void the_line_that_explains_the_others_is_chosen(void **state)
{
    (void)state;
    expect_rank("", -7);
    expect_rank("no line of this kind\n", -7);
    expect_rank("no line of this kind\n1 b 3 5 0 0\n0 a 2 4 0 0\n", 3);
    expect_rank("1 b 3 5 0 0\n0 a 2 4 0 0\n", 3);
    expect_rank("1 b 3 5 0 0\n0 a 2 0 1 0\n2 c 5 0 9 0\n", 2);
    expect_rank("1 b 3 5 0 0\n0 a -1 0 0 2\n", -1);
    expect_rank("1 b 3 5 0 0\nok\n", 3);
    assert_true(expect_rank("ok\n1 b 3 0 9 0\n", -1).is_ok);
    expect_rank("1 b -2 5 0 0\n-1 b 3 5 0 0\n1 b 3 5 -1 0\n1 b 3 5 65 0\n1 b 3 5 0 -1\n"
                "1 b 3 5 0 65\n1 b 3 5 0\n",
                -7);
}

static void what_is_printed_is_read_again(void **state)
{
    (void)state;
    char text[200];
    const tt_job_end_t end = {
        .node = 1, .host = "b", .rank = 3, .code = 5, .signal = 64, .stop_signal = 64};
    for (int i = 0; i < 2; i++) {
        const tt_job_end_t found = i == 0 ? end : expect_rank(text, 3);
        assert_int_equal(tt_job_end_print(&found, text, sizeof text), strlen("1 b 3 5 64 64\n"));
        assert_string_equal(text, "1 b 3 5 64 64\n");
    }
    tt_job_end_print(&(tt_job_end_t){.is_ok = true}, text, sizeof text);
    assert_string_equal(text, "ok\n");
}

/* One that was stopped reads the end; one that was lost does not. */
static void launchers_that_are_lost_are_counted(void **state)
{
    (void)state;
    assert_int_equal(tt_job_end_count_lost(""), 0);
    assert_int_equal(tt_job_end_count_lost("0 a -1 0 0 0\nok\n1 b -1 0 0 2\n2 c 4 1 0 0\n"
                                           "no line of this kind\n3 d -1 0 0 0\n"),
                     2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_is_told_in_words),
        cmocka_unit_test(the_line_that_explains_the_others_is_chosen),
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(launchers_that_are_lost_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
