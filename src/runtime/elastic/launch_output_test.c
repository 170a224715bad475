/* Lines of ranks: logs, tails, long lines, progress. What is shown is tested by tests/multi. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "runtime/elastic/launch_output.h"

static void add(tt_output_t *output, const char *text)
{
    tt_output_add(output, text, strlen(text));
}

static void expect_tail(const tt_output_t *output, const char *want)
{
    assert_int_equal(output->tail_bytes, strlen(want));
    assert_memory_equal(output->tail, want, strlen(want));
}

static void the_tail_has_whole_lines(void **state)
{
    (void)state;
    tt_output_t output;
    assert_int_equal(tt_output_init(&output, NULL, 1, -1, true), TUTTI_OK);
    add(&output, "fir");
    expect_tail(&output, "");
    add(&output, "st\nsecond\r\nthi");
    expect_tail(&output, "first\nsecond\n");
    tt_output_finish(&output);
    expect_tail(&output, "first\nsecond\nthi\n");
    for (int i = 0; i < 1000; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %d\n", i);
        add(&output, line);
    }
    assert_true(output.tail_bytes <= TT_TAIL_BYTES && output.tail_bytes > TT_TAIL_BYTES - 20);
    assert_memory_equal(output.tail, "line ", 5);
    assert_memory_equal(output.tail + output.tail_bytes - 9, "line 999\n", 9);
    tt_output_fini(&output);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_line_longer_than_the_tail_is_cut(void **state)
{
    (void)state;
    tt_output_t output;
    char *text = tt_alloc(3 * TT_LINE_BYTES_MAX, "text");
    memset(text, 'x', 3 * TT_LINE_BYTES_MAX);
    assert_int_equal(tt_output_init(&output, NULL, 1, -1, true), TUTTI_OK);
    add(&output, "before\n");
    tt_output_add(&output, text, 3 * TT_LINE_BYTES_MAX);
    add(&output, "\n");
    assert_int_equal(output.tail_bytes, TT_TAIL_BYTES);
    assert_int_equal(output.tail[TT_TAIL_BYTES - 1], '\n');
    add(&output, "after\n");
    expect_tail(&output, "after\n");
    tt_output_fini(&output);
    tt_free(text);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void endless_progress_keeps_its_last_state(void **state)
{
    (void)state;
    tt_output_t output;
    assert_int_equal(tt_output_init(&output, NULL, 1, -1, true), TUTTI_OK);
    for (int i = 0; i < 100000; i++) {
        char text[32];
        if (i % 2 == 0) {
            snprintf(text, sizeof text, "\rstep %d", i);
        } else {
            snprintf(text, sizeof text, "\rstep %d\r", i);
        }
        add(&output, text);
    }
    assert_true(output.bytes < 64);
    expect_tail(&output, "");
    add(&output, "\n");
    expect_tail(&output, "step 99999\n");
    tt_output_fini(&output);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* /dev/full takes nothing: the log ends, the output goes on. */
static void a_full_disk_ends_the_log_only(void **state)
{
    (void)state;
    tt_output_t output;
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(tt_output_init(&output, NULL, 1, full, true), TUTTI_OK);
    add(&output, "a line\n");
    assert_int_equal(output.log_fd, -1);
    add(&output, "another\n");
    expect_tail(&output, "a line\nanother\n");
    tt_output_fini(&output);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tail_has_whole_lines),
        cmocka_unit_test(a_line_longer_than_the_tail_is_cut),
        cmocka_unit_test(endless_progress_keeps_its_last_state),
        cmocka_unit_test(a_full_disk_ends_the_log_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
