/* Logging: levels, the sink, and the default sink's lines. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"

typedef struct {
    int lines;
    tt_log_level_t level;
    char last[2048];
} seen_t;

static void keep(tt_log_level_t level, const char *line, void *user)
{
    seen_t *seen = user;
    seen->lines++;
    seen->level = level;
    snprintf(seen->last, sizeof seen->last, "%s", line);
}

static int log_all_levels(seen_t *seen)
{
    seen->lines = 0;
    tt_log(TT_LOG_ERROR, "e");
    tt_log(TT_LOG_WARN, "w");
    tt_log(TT_LOG_INFO, "i");
    tt_log(TT_LOG_DEBUG, "d");
    return seen->lines;
}

static void the_level_decides_what_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *level;
        int lines;
    } cases[] = {{"off", 0}, {"error", 1}, {"warn", 2}, {"info", 3}, {"debug", 4}, {"nonsense", 2}};
    seen_t seen;
    tt_log_set_sink(keep, &seen);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("TUTTI_LOG", cases[i].level, 1);
        assert_int_equal(log_all_levels(&seen), cases[i].lines);
    }
    unsetenv("TUTTI_LOG");
    assert_int_equal(log_all_levels(&seen), 2);
    tt_log_set_sink(NULL, NULL);
}

static void the_sink_gets_level_and_formatted_line(void **state)
{
    (void)state;
    seen_t seen = {0};
    tt_log_set_sink(keep, &seen);
    tt_log(TT_LOG_WARN, "rank %d waits for %s", 3, "rank 5");
    assert_int_equal(seen.level, TT_LOG_WARN);
    assert_string_equal(seen.last, "rank 3 waits for rank 5");
    char longer[3000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    tt_log(TT_LOG_WARN, "%s", longer);
    assert_in_range(strlen(seen.last), 500, 1500);
    tt_log_set_sink(NULL, NULL);
}

static void the_default_sink_writes_a_line_with_the_rank(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    setenv("RANK", "7", 1);
    dup2(ends[1], STDERR_FILENO);
    tt_log(TT_LOG_ERROR, "gone");
    dup2(saved, STDERR_FILENO);
    unsetenv("RANK");
    close(saved);
    close(ends[1]);
    char text[128] = {0};
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "tutti[7] error: gone\n");
}

/* It is cut, and stays a line. */
static void a_line_that_is_too_long_is_cut(void **state)
{
    (void)state;
    int ends[2];
    static char longer[3000], text[4000];
    memset(longer, 'x', sizeof longer - 1);
    assert_int_equal(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    tt_log(TT_LOG_ERROR, "%s", longer);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    const ssize_t bytes = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_in_range(bytes, 500, 1500);
    assert_int_equal(strlen(text), bytes); /* no byte of it is 0 */
    assert_int_equal(text[bytes - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_decides_what_is_seen),
        cmocka_unit_test(the_sink_gets_level_and_formatted_line),
        cmocka_unit_test(the_default_sink_writes_a_line_with_the_rank),
        cmocka_unit_test(a_line_that_is_too_long_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
