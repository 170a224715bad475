/* Files that cannot be written whole: a status, the old file as it was, nothing else left. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/place_testing.h"
#include "core/base/testing.h"

typedef struct {
    char folder[64], path[96];
} fixture_t;

enum { SECTOR = 4096, MIB = 1 << 20 };

/* What becomes of a write past the cache: it is done, refused, or cut off within a sector; or any
 * write takes nothing. */
typedef enum { DONE, REFUSED, CUT, NOTHING } fate_t;

static struct {
    fate_t fate;
    size_t direct, cached; /* bytes that went past the cache, and through it */
    bool is_askew;         /* one past it was not of whole sectors */
} disk;

/* Takes the place of the C library's. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    const bool is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    if (disk.fate == NOTHING) {
        return 0;
    }
    if (is_direct && disk.fate == REFUSED) {
        errno = EINVAL;
        return -1;
    }
    if (is_direct) {
        const size_t askew = (uintptr_t)data % SECTOR + bytes % SECTOR;
        disk.is_askew = disk.is_askew || askew != 0 || lseek(fd, 0, SEEK_CUR) % SECTOR != 0;
    }
    if (is_direct && disk.fate == CUT && bytes > SECTOR) { /* as through the cache */
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
        const ssize_t n = syscall(SYS_write, fd, data, SECTOR + 100);
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
        disk.direct += n > 0 ? (size_t)n : 0;
        return n;
    }
    const ssize_t n = syscall(SYS_write, fd, data, bytes);
    *(is_direct ? &disk.direct : &disk.cached) += n > 0 ? (size_t)n : 0;
    return n;
}

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
    tt_expect_error("/tmp: not a regular file");
}

/* Whoever is root and saves to /dev/null had none any more. A pipe stands for it here. */
static void what_is_no_file_is_not_replaced(void **state)
{
    const fixture_t *f = *state;
    char paths[2][128];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", f->folder, i == 0 ? "pipe" : "link");
    }
    assert_int_equal(mkfifo(paths[0], 0600), 0);
    assert_int_equal(symlink("pipe", paths[1]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(save(paths[i], 1), TUTTI_ERR_IO);
        tt_expect_error("not a regular file");
        assert_int_equal(stat(paths[i], &info), 0);
        assert_true(S_ISFIFO(info.st_mode));
    }
    assert_int_equal(unlink(paths[0]), 0);
    assert_int_equal(unlink(paths[1]), 0);
}

/* ---- links ----------------------------------------------------------------------------------- */

static off_t bytes_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

/* It is still one, of these words. */
static void expect_link(const char *path, const char *words)
{
    char got[128];
    const ssize_t bytes = readlink(path, got, sizeof got - 1);
    assert_true(bytes >= 0);
    got[bytes] = 0;
    assert_string_equal(got, words);
}

/* The link alone is in the first folder, the file in the second. */
static void save_through_link(const char *target)
{
    char place[TT_PLACE_BYTES], link[2 * TT_PLACE_BYTES];
    tt_place_make(place);
    snprintf(link, sizeof link, "%s/link", place);
    assert_int_equal(symlink(target, link), 0);
    for (int i = 1; i <= 2; i++) { /* not there, and there */
        assert_int_equal(save(link, (size_t)i * 300), TUTTI_OK);
        expect_link(link, target);
        assert_int_equal(bytes_of(target), i * 300);
    }
    tt_new_file_t file;
    assert_int_equal(tt_new_file_begin(link, &file), TUTTI_OK);
    assert_int_equal(strncmp(file.temporary, target, strlen(target)), 0);
    assert_int_equal(bytes_of(target), 600); /* until the end */
    assert_int_equal(tt_new_file_end(&file, TUTTI_ERR_STATE), TUTTI_ERR_STATE);
    expect_link(link, target);
    assert_int_equal(bytes_of(target), 600);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(place), 0);
}

static void a_link_stays_and_its_target_is_written(void **state)
{
    (void)state;
    char places[2][TT_PLACE_BYTES], target[3 * TT_PLACE_BYTES];
    tt_place_make(places[0]);
    tt_place_make_quick(places[1]); /* of another file system, where there is one */
    for (int i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "%s/target", places[i]);
        save_through_link(target);
        assert_int_equal(unlink(target), 0);
        assert_int_equal(rmdir(places[i]), 0);
    }
}

static void a_link_that_leads_nowhere_is_named(void **state)
{
    const fixture_t *f = *state;
    static const char *const targets[] = {"none/file", "link", "."};
    static const char *const errors[] = {"link: cannot create ", "link: cannot follow it: Too many",
                                         "link: not a regular file"};
    char link[128];
    snprintf(link, sizeof link, "%s/link", f->folder);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(symlink(targets[i], link), 0);
        assert_int_equal(save(link, 1), TUTTI_ERR_IO);
        tt_expect_error(errors[i]);
        expect_link(link, targets[i]);
        assert_int_equal(unlink(link), 0);
    }
}

/* ---- past the page cache --------------------------------------------------------------------- */

static char byte_at(size_t i)
{
    return (char)(i * 7 + i / 251);
}

/* In parts of an odd length. */
static tutti_status_t save_direct(const char *path, size_t bytes, size_t part)
{
    tt_new_file_t file;
    char *data = tt_alloc_raw(bytes + 1, "test");
    for (size_t i = 0; i < bytes; i++) {
        data[i] = byte_at(i);
    }
    tutti_status_t status = tt_new_file_begin_direct(path, &file);
    for (size_t at = 0; status >= 0 && at < bytes; at += part) {
        status = tt_new_file_write(&file, data + at, bytes - at < part ? bytes - at : part);
    }
    status = tt_new_file_end(&file, status);
    tt_free(data);
    return status;
}

static void expect_bytes(const char *path, size_t bytes)
{
    tt_file_t file;
    char *data = tt_alloc_raw(bytes + 1, "test");
    assert_int_equal(tt_file_open(path, &file), TUTTI_OK);
    assert_int_equal(file.bytes, bytes);
    assert_int_equal(tt_file_read_at(&file, 0, data, bytes), TUTTI_OK);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], byte_at(i));
    }
    tt_file_close(&file);
    tt_free(data);
}

/* Whether the file system takes what goes past its cache at all. */
static bool is_able(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is = fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0;
    close(fd);
    return is;
}

static void what_goes_past_the_cache_is_the_same_file(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   SECTOR - 1,
                                   SECTOR,
                                   SECTOR + 1,
                                   MIB - 1,
                                   MIB,
                                   MIB + 1,
                                   2 * MIB,
                                   3 * MIB + SECTOR,
                                   2 * MIB + 2 * SECTOR - 1};
    fixture_t *f = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/direct", f->folder);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (fate_t fate = DONE; fate <= CUT; fate++) {
            memset(&disk, 0, sizeof disk);
            disk.fate = fate;
            assert_int_equal(save_direct(path, sizes[i], 70001), TUTTI_OK);
            disk.fate = DONE;
            expect_bytes(path, sizes[i]);
            assert_false(disk.is_askew);
            assert_int_equal(disk.direct + disk.cached, sizes[i]);
            if (fate == DONE && is_able(path)) {
                assert_int_equal(disk.cached, sizes[i] % SECTOR);
            }
        }
    }
    assert_int_equal(unlink(path), 0);
}

/* Through the cache or past it: an error, and not an endless loop. */
static void a_disk_that_takes_nothing_is_a_status(void **state)
{
    fixture_t *f = *state;
    disk.fate = NOTHING;
    const tutti_status_t plain = save(f->path, 5), direct = save_direct(f->path, 5, 5);
    disk.fate = DONE;
    assert_int_equal(plain, TUTTI_ERR_IO);
    assert_int_equal(direct, TUTTI_ERR_IO);
    tt_expect_error("of 5 bytes the system has taken none");
}

static void a_limit_holds_past_the_cache(void **state)
{
    fixture_t *f = *state;
    struct rlimit before, small = {.rlim_cur = MIB};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const tutti_status_t status = save_direct(f->path, 2 * MIB, MIB);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TUTTI_ERR_IO);
    tt_expect_error("File too large");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_limit_on_the_size_of_files_is_a_status),
        T(a_failure_of_the_writer_removes_what_was_written),
        T(places_that_cannot_be_written_are_named),
        T(what_is_no_file_is_not_replaced),
        T(a_link_stays_and_its_target_is_written),
        T(a_link_that_leads_nowhere_is_named),
        T(what_goes_past_the_cache_is_the_same_file),
        T(a_disk_that_takes_nothing_is_a_status),
        T(a_limit_holds_past_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
