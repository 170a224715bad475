/* Letters to hosts and what they say back: all that is sent arrives, and what is damaged does not.
 */
#include "core/base/testing.h"

#include <stdio.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "runtime/elastic/ssh_job.h"

enum { HEAD_BYTES = 24 };

static const char *const command[] = {"./train", "", "a b'c\"\n=", NULL};
static const char *const environment[] = {"A=b=c\n", "EMPTY=", NULL};
static const char *const settings[] = {"TUTTI_LOG=info", NULL};
static const uint8_t redirects[] = {0, 1, 2, 3}, tees[] = {3, 0, 0, 1};

static const tt_ssh_job_t job = {.name = "node1",
                                 .settings = settings,
                                 .key = {.bytes = {1, 2, 255}},
                                 .options = {.rank_count = 4,
                                             .command = command,
                                             .environment = environment,
                                             .node_count = 3,
                                             .node_rank = 2,
                                             .master_host = "192.0.2.1",
                                             .master_port = 29400,
                                             .join_timeout_ms = INT64_C(1) << 40,
                                             .run_id = "run",
                                             .redirects = redirects,
                                             .tees = tees,
                                             .grace_ms = 1234,
                                             .is_plain = true,
                                             .max_restarts = 5,
                                             .folder = "/a folder"}};

static void assert_list_equal(const char *const *list, const char *const *want)
{
    for (; *want != NULL; list++, want++) {
        assert_string_equal(*list, *want);
    }
    assert_null(*list);
}

static void a_job_arrives_as_it_was_sent(void **state)
{
    (void)state;
    char *letter;
    size_t bytes, said = 0;
    void *memory;
    tt_ssh_job_t got;
    assert_int_equal(tt_ssh_job_pack(&job, &letter, &bytes), TUTTI_OK);
    assert_int_equal(sscanf(letter, "tutti %zu\n", &said), 1);
    assert_int_equal(said, bytes - HEAD_BYTES);
    assert_int_equal(letter[HEAD_BYTES - 1], '\n');
    assert_int_equal(tt_ssh_job_unpack(letter + HEAD_BYTES, said, &got, &memory), TUTTI_OK);
    assert_string_equal(got.name, "node1");
    assert_memory_equal(&got.key, &job.key, sizeof job.key);
    assert_list_equal(got.settings, settings);
    const tutti_launch_options_t *options = &got.options;
    assert_list_equal(options->command, command);
    assert_list_equal(options->environment, environment);
    assert_memory_equal(options->redirects, redirects, sizeof redirects);
    assert_memory_equal(options->tees, tees, sizeof tees);
    assert_int_equal(options->rank_count, 4);
    assert_int_equal(options->node_count, 3);
    assert_int_equal(options->node_rank, 2);
    assert_int_equal(options->master_port, 29400);
    assert_int_equal(options->max_restarts, 5);
    assert_true(options->join_timeout_ms == INT64_C(1) << 40 && options->grace_ms == 1234);
    assert_true(options->is_plain && options->log_dir == NULL);
    assert_string_equal(options->master_host, "192.0.2.1");
    assert_string_equal(options->run_id, "run");
    assert_string_equal(options->folder, "/a folder");
    tt_free(memory);
    tt_free(letter);
}

/* Each text ends with a 0 byte of its own. */
static void expect_refusal(const char *text, size_t bytes, const char *want)
{
    char copy[128];
    void *memory;
    tt_ssh_job_t got;
    memcpy(copy, text, bytes);
    assert_int_equal(tt_ssh_job_unpack(copy, bytes, &got, &memory), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), want));
}

static void what_cannot_be_read_is_refused(void **state)
{
    (void)state;
    expect_refusal("", 0, "cut off");
    expect_refusal("ranks=4", 7, "cut off");
    expect_refusal("ranks=4\0node", 13, "cannot be read: \"node\"");
    expect_refusal("ranks=4\0colour=red", 19, "\"colour\", which is not known here");
    expect_refusal("key=12", 7, "64 hexadecimal digits");
    expect_refusal("ranks=4", 8, "a job without a key");
    static const char streams[] =
        "ranks=4\0redirects=01\0"
        "key=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    expect_refusal(streams, sizeof streams, "a job of 4 ranks with the streams of others");
}

static void memory_that_is_short_is_survived(void **state)
{
    (void)state;
    for (size_t nth = 1;; nth++) {
        char *letter = NULL;
        size_t bytes;
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tt_ssh_job_pack(&job, &letter, &bytes);
        tt_alloc_fail_at(0);
        tt_free(letter);
        if (status >= 0) {
            assert_true(nth > 1);
            return;
        }
        assert_int_equal(status, TUTTI_ERR_NOMEM);
    }
}

/* What tt_ssh_say_end() prints, heard again. */
static tutti_status_t hear(tutti_status_t status, const tutti_launch_report_t *report,
                           tutti_launch_report_t *out)
{
    int ends[2];
    const int old = dup(1);
    tutti_status_t heard = TUTTI_PENDING;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 1);
    tt_ssh_say_end(status, report);
    dup2(old, 1);
    close(old);
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    char line[8192];
    bool is_last = false;
    *out = (tutti_launch_report_t){.failed_rank = -7};
    while (fgets(line, sizeof line, lines) != NULL) {
        assert_false(is_last);
        line[strcspn(line, "\n")] = 0;
        is_last = tt_ssh_hear_end(line, out, &heard);
    }
    assert_true(is_last);
    fclose(lines);
    return heard;
}

static void an_end_arrives_as_it_was_said(void **state)
{
    (void)state;
    const tutti_launch_report_t report = {.exit_code = 137,
                                          .failed_rank = 3,
                                          .failed_node = 1,
                                          .stop_signal = 2,
                                          .restart_count = 4,
                                          .verdict = "rank 3: killed",
                                          .log_dir = "/tmp/logs",
                                          .stderr_tail = "one\n\nthree\n"};
    tutti_launch_report_t got;
    assert_int_equal(hear(TUTTI_OK, &report, &got), TUTTI_OK);
    assert_int_equal(got.exit_code, 137);
    assert_int_equal(got.failed_rank, 3);
    assert_int_equal(got.failed_node, 1);
    assert_int_equal(got.stop_signal, 2);
    assert_int_equal(got.restart_count, 4);
    assert_string_equal(got.verdict, report.verdict);
    assert_string_equal(got.log_dir, report.log_dir);
    assert_string_equal(got.stderr_tail, report.stderr_tail);
    const tutti_status_t failed = TT_FAIL(TUTTI_ERR_ARG, "two\nlines");
    assert_int_equal(hear(failed, &report, &got), TUTTI_ERR_ARG);
    assert_string_equal(got.verdict, "two lines");
    assert_int_equal(got.failed_rank, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_arrives_as_it_was_sent),
        cmocka_unit_test(what_cannot_be_read_is_refused),
        cmocka_unit_test(memory_that_is_short_is_survived),
        cmocka_unit_test(an_end_arrives_as_it_was_said),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
