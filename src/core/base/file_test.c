/* Files that cannot be written whole: a status, the old file as it was, nothing else left. */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/testing.h"

typedef struct {
    char folder[64], path[96];
} fixture_t;

static tutti_status_t save(const char *path, size_t bytes)
{
    tt_new_file_t file;
    char *data = tt_alloc(bytes, "test");
    tutti_status_t status = tt_new_file_begin(path, &file);
    if (status >= 0) {
        status = tt_new_file_end(&file, tt_new_file_write(&file, data, bytes));
    }
    tt_free(data);
    return status;
}

static int setup(void **state)
{
    static fixture_t f;
    snprintf(f.folder, sizeof f.folder, "/tmp/tutti-file-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/file", f.folder);
    assert_int_equal(save(f.path, 100), 0);
    *state = &f;
    return 0;
}

/* The old file is whole, and alone in its folder. */
static int teardown(void **state)
{
    fixture_t *f = *state;
    struct stat info;
    return stat(f->path, &info) == 0 && info.st_size == 100 && unlink(f->path) == 0 &&
                   rmdir(f->folder) == 0
               ? 0
               : -1;
}

/* As under `ulimit -f`, with the signal as programs have it: without a handler it would end this
 * test. */
static void a_limit_on_the_size_of_files_is_a_status(void **state)
{
    fixture_t *f = *state;
    struct rlimit before, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const tutti_status_t whole = save(f->path, 5000), again = save(f->path, 4097);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(whole, TUTTI_ERR_IO);
    assert_int_equal(again, TUTTI_ERR_IO);
    tt_expect_error("File too large");
}

static void a_failure_of_the_writer_removes_what_was_written(void **state)
{
    fixture_t *f = *state;
    tt_new_file_t file;
    assert_int_equal(tt_new_file_begin(f->path, &file), 0);
    assert_int_equal(tt_new_file_write(&file, "new", 3), 0);
    assert_int_equal(tt_new_file_end(&file, TUTTI_ERR_STATE), TUTTI_ERR_STATE);
}

static void places_that_cannot_be_written_are_named(void **state)
{
    (void)state;
    assert_int_equal(save("/nonexistent/file", 1), TUTTI_ERR_IO);
    tt_expect_error("/nonexistent/file: cannot create");
    assert_int_equal(save("/tmp", 1), TUTTI_ERR_IO);
    tt_expect_error("/tmp: cannot replace it by");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_limit_on_the_size_of_files_is_a_status),
        T(a_failure_of_the_writer_removes_what_was_written),
        T(places_that_cannot_be_written_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
