/* Folders: made with all above them, and removed, also by several processes at once. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/folder.h"
#include "core/base/place_testing.h"

enum { FILES = 300, ROUNDS = 5, REMOVERS = 3 };

static char place[TT_PLACE_BYTES];

static int begin(void **state)
{
    (void)state;
    tt_place_make(place);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(place);
    return 0;
}

static void put_file(const char *folder, int number)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%d", folder, number);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void make(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", place, name);
    assert_int_equal(tt_folder_make(path), TUTTI_OK);
}

static void a_folder_is_made_with_all_above_it(void **state)
{
    (void)state;
    char path[128];
    make(path, "a/b/c");
    make(path, "a/b/c"); /* it is there */
    put_file(place, 1);
    snprintf(path, sizeof path, "%s/1/below", place);
    assert_int_equal(tt_folder_make(path), TUTTI_ERR_IO);
    tt_expect_error("/1: Not a directory");
    assert_int_equal(tt_folder_make(""), TUTTI_ERR_ARG);
}

/* The C library's, which notes what it flushes. */
static char flushed[4][128];
static int flushes;
static int error; /* what it fails with; 0: with nothing */

int fsync(int fd)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, flushed[flushes % 4], sizeof flushed[0] - 1);
    flushed[flushes++ % 4][bytes < 0 ? 0 : bytes] = 0;
    errno = error;
    return error == 0 ? 0 : -1;
}

/* A crash may lose a name that its folder has not been flushed with. */
static void the_names_of_new_folders_are_flushed(void **state)
{
    (void)state;
    char path[128], a[128], b[128];
    make(a, "a");
    flushes = 0;
    make(path, "a//b/c/");
    make(b, "a/b");
    make(path, "a/b/c");
    assert_int_equal(flushes, 2);
    assert_string_equal(flushed[0], a);
    assert_string_equal(flushed[1], b);
    assert_int_equal(chdir(place), 0);
    assert_int_equal(tt_folder_make("here"), TUTTI_OK);
    assert_string_equal(flushed[2], place);
    assert_int_equal(chdir("/"), 0);
}

static void a_name_that_cannot_be_flushed_is_not_left(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/lost", place);
    error = ENOSPC;
    assert_int_equal(tt_folder_make(path), TUTTI_ERR_IO);
    tt_expect_error("No space left on device");
    error = 0;
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(tt_folder_make(path), TUTTI_OK);
}

static void a_folder_in_it_is_not_removed(void **state)
{
    (void)state;
    char path[128];
    make(path, "a/b");
    snprintf(path, sizeof path, "%s/a", place);
    assert_int_equal(tt_folder_remove(path), TUTTI_ERR_IO);
    tt_expect_error("/a/b: Is a directory");
}

/* What another process has removed meanwhile is removed. */
static void several_may_remove_it_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char path[128];
        int ready[2];
        pid_t removers[REMOVERS];
        make(path, "shared");
        assert_int_equal(pipe(ready), 0);
        for (int i = 0; i < FILES; i++) {
            put_file(path, i);
        }
        for (int i = 0; i < REMOVERS; i++) {
            removers[i] = fork();
            if (removers[i] == 0) {
                char byte;
                close(ready[1]);
                (void)!read(ready[0], &byte, 1); /* until all are there */
                _exit(tt_folder_remove(path) < 0);
            }
        }
        close(ready[0]);
        close(ready[1]);
        for (int i = 0; i < REMOVERS; i++) {
            int code;
            assert_int_equal(waitpid(removers[i], &code, 0), removers[i]);
            assert_int_equal(code, 0);
        }
        assert_int_equal(access(path, F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_is_made_with_all_above_it, begin, end),
        cmocka_unit_test_setup_teardown(the_names_of_new_folders_are_flushed, begin, end),
        cmocka_unit_test_setup_teardown(a_name_that_cannot_be_flushed_is_not_left, begin, end),
        cmocka_unit_test_setup_teardown(a_folder_in_it_is_not_removed, begin, end),
        cmocka_unit_test_setup_teardown(several_may_remove_it_at_once, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
