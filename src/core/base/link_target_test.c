/* Links are followed to their end, by the names that they say; what open() would not open is an
 * error, and a file that is not there is none. */
#include "core/base/link_target.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/place_testing.h"
#include "core/base/testing.h"

/* Names are those of the current folder. */
static int enter(void **state)
{
    static char place[TT_PLACE_BYTES];
    tt_place_make(place);
    *state = place;
    return chdir(place) == 0 && mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    tt_place_remove(*state);
    return chdir("/");
}

static void make_file(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
}

static void expect(const char *path, const char *want)
{
    char target[PATH_MAX] = "";
    assert_int_equal(tt_link_target(path, target), TUTTI_OK);
    assert_string_equal(target, want);
}

static void expect_failure(const char *path, const char *why)
{
    char target[PATH_MAX];
    assert_int_equal(tt_link_target(path, target), TUTTI_ERR_IO);
    tt_expect_error(why);
}

static void what_is_no_link_is_itself(void **state)
{
    (void)state;
    make_file("a/file");
    assert_int_equal(symlink("a", "folder"), 0);
    expect("a/file", "a/file");
    expect("nothing", "nothing");
    expect("none/nothing", "none/nothing");
    expect("folder/file", "folder/file"); /* links in front of the last part are the system's */
}

static void each_link_is_seen_from_its_own_folder(void **state)
{
    char absolute[2 * TT_PLACE_BYTES], beyond[2 * TT_PLACE_BYTES];
    snprintf(absolute, sizeof absolute, "%s/a/file", (const char *)*state);
    snprintf(beyond, sizeof beyond, "%s/a/beside", (const char *)*state);
    make_file("a/file");
    assert_int_equal(symlink("file", "a/beside"), 0);
    assert_int_equal(symlink("../a/beside", "b/across"), 0);
    assert_int_equal(symlink("b/across", "first"), 0);
    assert_int_equal(symlink(beyond, "b/absolute"), 0);
    expect("a/beside", "a/file");
    expect("b/across", "b/../a/file");
    expect("first", "b/../a/file");
    expect("b/absolute", absolute);
}

static void a_target_need_not_be_there(void **state)
{
    (void)state;
    assert_int_equal(symlink("new", "a/dangling"), 0);
    assert_int_equal(symlink("a/dangling", "chain"), 0);
    assert_int_equal(symlink("none/new", "lost"), 0);
    expect("chain", "a/new");
    expect("lost", "none/new"); /* whoever creates it says that the folder is not there */
}

static void loops_and_files_as_folders_are_errors(void **state)
{
    (void)state;
    make_file("a/file");
    assert_int_equal(symlink("self", "self"), 0);
    assert_int_equal(symlink("b/there", "a/here"), 0);
    assert_int_equal(symlink("../a", "a/b"), 0);
    assert_int_equal(symlink("here", "a/there"), 0);
    assert_int_equal(symlink("a/file/x", "through"), 0);
    expect_failure("self", "self: cannot follow it: Too many levels of symbolic links");
    expect_failure("a/here", "a/here: cannot follow it: Too many levels of symbolic links");
    expect_failure("through", "through: cannot follow it: Not a directory");
}

static void as_many_links_as_the_system_follows_are_followed(void **state)
{
    (void)state;
    enum { SYSTEMS = 40 };
    char name[16], next[16] = "end";
    make_file("end");
    for (int i = 1; i <= SYSTEMS + 1; i++) {
        snprintf(name, sizeof name, "link%d", i);
        assert_int_equal(symlink(next, name), 0);
        memcpy(next, name, sizeof next);
    }
    expect("link40", "end");
    expect_failure("link41", "link41: cannot follow it: Too many levels of symbolic links");
}

/* The system takes 4095 bytes for each link, and we for all that it says. */
static void a_path_that_is_too_long_is_an_error(void **state)
{
    (void)state;
    char content[PATH_MAX], name[PATH_MAX + 2];
    memset(content, '/', sizeof content);
    memcpy(content, "..", 2);
    snprintf(content + PATH_MAX - 7, 7, "a/file");
    make_file("a/file");
    assert_int_equal(symlink(content, "a/long"), 0);
    assert_int_equal(access("a/long", F_OK), 0);
    expect_failure("a/long", "a/long: cannot follow it: File name too long");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(tt_link_target(name, content), TUTTI_ERR_IO);
}

static void a_file_without_a_name_is_not_made_one(void **state)
{
    (void)state;
    char link[64];
    const int fd = open("gone", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_int_equal(symlink(link, "out"), 0);
    char target[PATH_MAX];
    assert_int_equal(tt_link_target("out", target), TUTTI_OK);
    assert_string_equal(strrchr(target, '/'), "/gone");
    assert_int_equal(unlink("gone"), 0);
    expect_failure("out", "out: leads to a file without a name");
    close(fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        T(what_is_no_link_is_itself),
        T(each_link_is_seen_from_its_own_folder),
        T(a_target_need_not_be_there),
        T(loops_and_files_as_folders_are_errors),
        T(as_many_links_as_the_system_follows_are_followed),
        T(a_path_that_is_too_long_is_an_error),
        T(a_file_without_a_name_is_not_made_one),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
