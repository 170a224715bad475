/* Folders of steps among what others have put beside them: links, files, folders. */
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/folder.h"
#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "runtime/checkpoint/step_folders.h"

enum { PATH_BYTES = 192, SECONDS_MAX = 20 };

static char place[TT_PLACE_BYTES], folder[96];
static int lines;

static void count(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)user;
    lines += strstr(line, "is left") != NULL;
}

static int begin(void **state)
{
    (void)state;
    tt_place_make(place);
    snprintf(folder, sizeof folder, "%s/run", place);
    assert_int_equal(tt_folder_make(folder), TUTTI_OK);
    lines = 0;
    tt_log_set_sink(count, NULL);
    alarm(SECONDS_MAX); /* a loop that does not end */
    return 0;
}

static int end(void **state)
{
    (void)state;
    alarm(0);
    tt_log_set_sink(NULL, NULL);
    tt_place_remove(place);
    return 0;
}

static const char *path_of(const char *name)
{
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static bool is_there(const char *name)
{
    struct stat what;
    return lstat(path_of(name), &what) == 0;
}

static void put_file(const char *name)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* One that is published, and those before it that are not kept. */
static void save(int64_t step)
{
    assert_int_equal(tt_steps_begin(folder, step), TUTTI_OK);
    assert_int_equal(tt_steps_publish(folder, step), TUTTI_OK);
}

/* Of another training, as one that this one began with. */
static void put_linked_step(void)
{
    assert_int_equal(tt_folder_make(path_of("other")), TUTTI_OK);
    put_file("other/weights");
    assert_int_equal(symlink("../other", path_of("run/step-000000000001")), 0);
}

static void a_link_goes_and_not_what_it_leads_to(void **state)
{
    (void)state;
    put_linked_step();
    save(2);
    assert_int_equal(tt_steps_prune(folder, 2, 1, NULL, 0), TUTTI_OK);
    assert_true(is_there("other/weights"));
    assert_false(is_there("run/step-000000000001"));
    assert_false(is_there("run/.half-000000000001"));
}

static void a_link_is_replaced_and_not_what_it_leads_to(void **state)
{
    (void)state;
    put_linked_step();
    save(1);
    assert_true(is_there("other/weights"));
    assert_false(is_there("run/.half-000000000001"));
    assert_false(is_there("run/step-000000000001/weights"));
}

static void a_link_to_nothing_is_removed(void **state)
{
    (void)state;
    assert_int_equal(symlink("nowhere", path_of("run/step-000000000001")), 0);
    assert_int_equal(symlink("nowhere", path_of("run/.half-000000000007")), 0);
    assert_int_equal(symlink("nowhere", path_of("run/.old-000000000002")), 0);
    save(2);
    assert_int_equal(tt_steps_prune(folder, 2, 1, NULL, 0), TUTTI_OK);
    save(3);
    assert_false(is_there("run/step-000000000001"));
    assert_false(is_there("run/.half-000000000001"));
    assert_false(is_there("run/.half-000000000007"));
    assert_false(is_there("run/.old-000000000002"));
    assert_int_equal(lines, 0);
}

static void a_file_of_a_steps_name_is_removed(void **state)
{
    (void)state;
    put_file("run/step-000000000001");
    save(2);
    assert_int_equal(tt_steps_prune(folder, 2, 1, NULL, 0), TUTTI_OK);
    assert_false(is_there("run/step-000000000001"));
    assert_false(is_there("run/.half-000000000001"));
}

static void named_ones_stay_beside_the_newest(void **state)
{
    (void)state;
    const int64_t named[] = {3, 77, 6, 1};
    for (int64_t step = 1; step <= 7; step++) {
        save(step);
    }
    assert_int_equal(tt_steps_prune(folder, 6, 2, named, 4), TUTTI_OK);
    for (int64_t step = 1; step <= 7; step++) {
        char name[40];
        snprintf(name, sizeof name, "run/step-%012d", (int)step);
        assert_int_equal(is_there(name), step != 2 && step != 4);
    }
}

/* A folder in a step, such as a file server's own: it cannot be removed, and costs no training. */
static void what_cannot_be_removed_is_left(void **state)
{
    (void)state;
    assert_int_equal(tt_folder_make(path_of("run/step-000000000001/@eaDir")), TUTTI_OK);
    put_file("run/step-000000000001/weights");
    assert_int_equal(tt_folder_make(path_of("run/.old-000000000002/@eaDir")), TUTTI_OK);
    assert_int_equal(tt_folder_make(path_of("run/step-000000000002")), TUTTI_OK);
    put_file("run/step-000000000002/weights");
    assert_int_equal(tt_steps_prune(folder, 2, 1, NULL, 0), TUTTI_ERR_IO);
    tt_expect_error("/run/.half-000000000001/@eaDir: Is a directory");
    save(3);
    assert_true(lines > 0);
    assert_true(is_there("run/.half-000000000001/@eaDir"));
    assert_false(is_there("run/.half-000000000001/weights"));
    assert_true(is_there("run/step-000000000003"));
}

/* Only a step that is there makes an old one superfluous. */
static void an_old_one_that_cannot_come_back_is_kept(void **state)
{
    (void)state;
    assert_int_equal(tt_folder_make(path_of("run/.old-000000000002")), TUTTI_OK);
    put_file("run/.old-000000000002/weights");
    put_file("run/step-000000000002");
    assert_int_equal(tt_steps_recover(folder), TUTTI_ERR_IO);
    tt_expect_error("/run/step-000000000002: Not a directory");
    assert_true(is_there("run/.old-000000000002/weights"));
}

static void a_steps_name_is_known_in_any_path(void **state)
{
    static const char *const named[] = {"step-000000000012", "/step-000000000012",
                                        "a/b/step-000000000012", "./step-000000000012//"};
    static const char *const others[] = {"",
                                         "/",
                                         "step-12",
                                         "step-0000000000120",
                                         "step-00000000001x",
                                         "step-000000000012/model",
                                         ".half-000000000012",
                                         "a-step-000000000012",
                                         "step-"};
    (void)state;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        int64_t step = -1;
        assert_true(tt_steps_is_named(named[i], &step));
        assert_int_equal(step, 12);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int64_t step = -1;
        assert_false(tt_steps_is_named(others[i], &step));
        assert_int_equal(step, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_link_goes_and_not_what_it_leads_to, begin, end),
        cmocka_unit_test_setup_teardown(a_link_is_replaced_and_not_what_it_leads_to, begin, end),
        cmocka_unit_test_setup_teardown(a_link_to_nothing_is_removed, begin, end),
        cmocka_unit_test_setup_teardown(a_file_of_a_steps_name_is_removed, begin, end),
        cmocka_unit_test_setup_teardown(named_ones_stay_beside_the_newest, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_removed_is_left, begin, end),
        cmocka_unit_test_setup_teardown(an_old_one_that_cannot_come_back_is_kept, begin, end),
        cmocka_unit_test(a_steps_name_is_known_in_any_path),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
