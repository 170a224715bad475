/* Texts of the line that moves, where it is no terminal. Terminals: tests/multi/progress_test.py.
 */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/progress.h>

/* What one text becomes, without the memory at its end. */
static const char *show(double seconds_left, const char *text)
{
    static char shown[2048];
    FILE *file = tmpfile();
    tutti_progress_t *progress;
    assert_non_null(file);
    assert_int_equal(tutti_progress_open(&(tutti_progress_options_t){.file = file}, &progress), 0);
    tutti_progress_show(progress, seconds_left, "%s", text);
    assert_int_equal(tutti_progress_close(progress), 0);
    rewind(file);
    assert_non_null(fgets(shown, sizeof shown, file));
    fclose(file);
    char *memory = strrchr(shown, ' '); /* "  1.2 MiB" */
    assert_non_null(memory);
    while (memory > shown && !(memory[-1] == ' ' && memory[0] == ' ')) {
        memory--;
    }
    memory[memory > shown ? -1 : 0] = 0;
    return shown;
}

static void the_time_that_is_left_is_told_where_it_is_known(void **state)
{
    (void)state;
    assert_string_equal(show(12.4, "step 3"), "step 3  12 s left");
    assert_string_equal(show(0, "step 3"), "step 3  0 s left");
    assert_string_equal(show(-1, "step 3"), "step 3");
    assert_string_equal(show(NAN, "step 3"), "step 3");
    assert_string_equal(show(INFINITY, "step 3"), "step 3");
    assert_string_equal(show(1e300, "step 3"), "step 3"); /* 300 digits */
}

/* As long as they are: a path, or a text of a metric. */
static void long_lines_are_whole(void **state)
{
    (void)state;
    for (int bytes = 509; bytes < 1500; bytes += bytes < 514 ? 1 : 300) {
        char text[1600], line[1600];
        memset(text, 'x', sizeof text);
        text[bytes] = 0;
        assert_string_equal(show(-1, text), text);
        FILE *file = tmpfile();
        tutti_progress_t *progress;
        assert_non_null(file);
        assert_int_equal(tutti_progress_open(&(tutti_progress_options_t){.file = file}, &progress),
                         0);
        tutti_progress_print(progress, "%s", text);
        assert_int_equal(tutti_progress_close(progress), 0);
        rewind(file);
        assert_non_null(fgets(line, sizeof line, file));
        fclose(file);
        line[strcspn(line, "\n")] = 0;
        assert_string_equal(line, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_that_is_left_is_told_where_it_is_known),
        cmocka_unit_test(long_lines_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
