/* A store in a file whose disk is full: RLIMIT_FSIZE stands for that. */
#include "core/base/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/store.h>

/* Where the log begins: another place after each compaction. */
static uint64_t start_of(const char *path)
{
    uint64_t head[4];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, head, sizeof head), sizeof head);
    close(fd);
    return head[2];
}

static void set_many(tutti_store_t *store, int count)
{
    static char value[40000];
    for (int i = 0; i < count; i++) {
        assert_int_equal(
            tutti_store_set(store, tutti_text("k"), tutti_bytes_of(value, sizeof value)), TUTTI_OK);
    }
}

/* The log is compacted when it has 2.8 MB; there is room for 3 MB, and the copy of what is needed
 * takes 0.4 MB. */
static void a_full_disk_puts_compaction_off_until_the_log_is_twice_as_long(void **state)
{
    (void)state;
    enum { WRITES = 62, FULL_BYTES = 3000000 }; /* so many writes have 2.9 MB */
    static char big[400000];
    struct rlimit before, full;
    tutti_store_t *store;
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-store-file.%d", (int)getpid());
    assert_int_equal(tutti_store_file_open(path, &store), TUTTI_OK);
    assert_int_equal(tutti_store_set(store, tutti_text("big"), tutti_bytes_of(big, sizeof big)),
                     TUTTI_OK);
    const uint64_t start = start_of(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = (struct rlimit){FULL_BYTES, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    set_many(store, WRITES);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(start_of(path), start);
    set_many(store, WRITES / 2);
    assert_int_equal(start_of(path), start);
    set_many(store, WRITES);
    assert_int_not_equal(start_of(path), start);
    tutti_store_release(store);
    unlink(path);
}

static void what_is_no_file_for_a_store_is_refused(void **state)
{
    (void)state;
    tutti_store_t *store;
    char folder[] = "/tmp/tutti-store-file-XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/fifo", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(tutti_store_file_open(NULL, &store), TUTTI_ERR_ARG);
    tt_expect_error("store_file_open: path is NULL");
    assert_int_equal(tutti_store_file_open("", &store), TUTTI_ERR_IO);
    tt_expect_error("store_file_open: cannot open path \"\": No such file or directory");
    assert_int_equal(tutti_store_file_open(folder, &store), TUTTI_ERR_IO);
    tt_expect_error("\": Is a directory");
    assert_int_equal(tutti_store_file_open(path, &store), TUTTI_ERR_ARG);
    tt_expect_error("/fifo\" is no regular file");
    assert_int_equal(tutti_store_file_open(link, &store), TUTTI_ERR_ARG);
    tt_expect_error("/link\" is a symbolic link");
    unlink(link);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_puts_compaction_off_until_the_log_is_twice_as_long),
        cmocka_unit_test(what_is_no_file_for_a_store_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
