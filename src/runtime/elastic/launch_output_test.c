/* Lines of ranks: logs, tails, long lines, progress, and what a terminal is given. What else is
 * shown is tested by tests/multi.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
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

/* Until it ends with `end`; what comes at all comes soon. */
static size_t read_until(int fd, const char *end, char *text, size_t room)
{
    const size_t length = strlen(end);
    size_t bytes = 0;
    while ((bytes < length || memcmp(text + bytes - length, end, length) != 0) &&
           poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000) == 1) {
        const ssize_t n = read(fd, text + bytes, room - bytes);
        if (n <= 0) {
            break;
        }
        bytes += (size_t)n;
    }
    return bytes;
}

static void ignore(void *user)
{
    (void)user;
}

static void show_two_ranks(tt_loop_t *loop)
{
    tt_console_t console = {0};
    tt_output_t outputs[2];
    assert_int_equal(tt_console_init(&console, loop, ignore, NULL), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_output_init(&outputs[i], &console, 0, -1, false), TUTTI_OK);
        snprintf(outputs[i].prefix, sizeof outputs[i].prefix, "%d:", i);
        outputs[i].is_live = i == 0;
    }
    add(&outputs[0], "step 1\r");
    add(&outputs[1], "hello\n");
    add(&outputs[0], "step 2\rdone\n");
    add(&outputs[1], "more\n");
    add(&outputs[0], "step three\r");
    add(&outputs[1], "left");
    tt_output_finish(&outputs[1]);
    tt_output_finish(&outputs[0]);
    for (int i = 0; i < 2; i++) {
        tt_output_fini(&outputs[i]);
    }
    tt_console_fini(&console);
}

/* It is cut where the terminal, of 10 columns, would begin another line. */
static void progress_is_erased_before_lines_and_drawn_behind_them(void **state)
{
    (void)state;
    const char *want = "\r\033[K0:step 1"
                       "\r\033[K1:hello\n\r\033[K0:step 1"
                       "\r\033[K0:done\n1:more\n"
                       "\r\033[K0:step th"
                       "\r\033[K\r\033[K0:step th"
                       "\r\033[K1:left\n"
                       "\r\033[K0:step three\n";
    char shown[512];
    int master, slave;
    struct termios raw;
    tt_loop_t *loop;
    const struct winsize size = {.ws_row = 5, .ws_col = 10};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    assert_int_equal(tcgetattr(slave, &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(slave, TCSANOW, &raw), 0);
    assert_int_equal(tt_loop_create(NULL, NULL, &loop), TUTTI_OK);
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    dup2(slave, STDOUT_FILENO);
    show_two_ranks(loop);
    dup2(before, STDOUT_FILENO);
    const size_t bytes = read_until(master, "three\n", shown, sizeof shown);
    tt_loop_release(loop);
    close(before);
    close(slave);
    close(master);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(shown, want, bytes);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tail_has_whole_lines),
        cmocka_unit_test(a_line_longer_than_the_tail_is_cut),
        cmocka_unit_test(endless_progress_keeps_its_last_state),
        cmocka_unit_test(a_full_disk_ends_the_log_only),
        cmocka_unit_test(progress_is_erased_before_lines_and_drawn_behind_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
