/* Available memory, read from made-up /proc and /sys below a folder: machine, control groups of
 * both versions, groups above. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/device/heap.h"
#include "core/device/heap_memory.h"

enum { MIB = 1 << 20, PATH_BYTES = 512 };

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s", "/tmp/tutti-heap-memory-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

/* Make the folders above a path. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, name);
    make_folders(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_number(const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
    put(name, text);
}

static void put_machine(uint64_t total_mib, uint64_t available_mib)
{
    char text[200];
    snprintf(text, sizeof text,
             "MemTotal:       %llu kB\nMemFree:  1 kB\nMemAvailable:   %llu kB\nBuffers: 7 kB\n",
             (unsigned long long)total_mib * 1024, (unsigned long long)available_mib * 1024);
    put("proc/meminfo", text);
}

static uint64_t available_mib(void)
{
    tt_memory_t memory;
    tt_memory_available(root, &memory);
    return memory.bytes / MIB;
}

static void the_machine_says_what_is_available(void **state)
{
    (void)state;
    tt_memory_t memory;
    tt_memory_available(root, &memory);
    assert_true(memory.bytes == UINT64_MAX);
    put_machine(1000, 900);
    assert_int_equal(available_mib(), 900);
    assert_int_equal(tt_memory_check(root, UINT64_C(868) * MIB, "test"), TUTTI_OK);
    assert_int_equal(tt_memory_check(root, UINT64_C(870) * MIB, "the test"), TUTTI_ERR_NOMEM);
    tt_expect_error("cannot get 912261120 bytes of shared memory for the test: 943718400 are "
                    "available (");
    tt_expect_error("proc/meminfo");
    put_machine(1000, 10);
    assert_int_equal(tt_memory_check(root, 1, "test"), TUTTI_ERR_NOMEM);
}

static void a_limit_of_version_2_counts_file_cache_as_available(void **state)
{
    (void)state;
    put_machine(1000, 900);
    put("proc/self/cgroup", "0::/user/job\n");
    put("sys/fs/cgroup/user/job/memory.max", "max\n");
    put_number("sys/fs/cgroup/user/job/memory.current", 10 * MIB);
    assert_int_equal(available_mib(), 900);
    put_number("sys/fs/cgroup/user/job/memory.max", 500 * MIB);
    put_number("sys/fs/cgroup/user/job/memory.current", 450 * MIB);
    assert_int_equal(available_mib(), 50);
    char stat[200];
    snprintf(stat, sizeof stat, "anon 1\nfile 2\ninactive_file %d\nactive_file %d\n", 100 * MIB,
             30 * MIB);
    put("sys/fs/cgroup/user/job/memory.stat", stat);
    assert_int_equal(available_mib(), 180);
    put_number("sys/fs/cgroup/user/memory.max", 200 * MIB); /* the group above */
    put_number("sys/fs/cgroup/user/memory.current", 190 * MIB);
    assert_int_equal(available_mib(), 10);
}

static void a_limit_of_version_1_is_found_among_the_controllers(void **state)
{
    (void)state;
    put_machine(1000, 900);
    put("proc/self/cgroup", "9:name=systemd:/\n5:cpu,cpuacct:/x\n4:pids,memory:/box/7\n0::/\n");
    put_number("sys/fs/cgroup/memory/box/7/memory.limit_in_bytes", UINT64_C(0x7ffffffffffff000));
    put_number("sys/fs/cgroup/memory/box/7/memory.usage_in_bytes", 1);
    assert_int_equal(available_mib(), 900);
    put_number("sys/fs/cgroup/memory/memory.limit_in_bytes", 300 * MIB); /* as in a container */
    put_number("sys/fs/cgroup/memory/memory.usage_in_bytes", 120 * MIB);
    put("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
    assert_int_equal(available_mib(), 190);
    tt_memory_t memory;
    tt_memory_available(root, &memory);
    assert_non_null(strstr(memory.source, "/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    assert_true(memory.total == 300 * MIB);
}

/* A heap under a limit: what does not fit is NOMEM, what fits goes on, what is freed is had again.
 */
static void a_heap_stays_within_the_limit(void **state)
{
    (void)state;
    put_machine(320, 64);
    tt_device_t *heap;
    const tt_heap_options_t options = {.root = root};
    assert_int_equal(tt_device_open(&tt_device_heap, &options, &heap), TUTTI_OK);
    void *fits = tt_device_alloc(heap, 50 * MIB, "test");
    assert_non_null(fits);
    put_machine(320, 14);
    assert_null(tt_device_alloc(heap, 6 * MIB, "gradients"));
    tt_expect_error("cannot get 6291456 bytes of shared memory for gradients: 14680064 are");
    assert_int_equal(tt_heap_usage(heap).populated_bytes, 50 * MIB);
    put_machine(320, 5);
    assert_null(tt_device_alloc(heap, 100, "a small one"));
    put_machine(320, 14);
    void *small = tt_device_alloc(heap, 100, "test");
    assert_non_null(small);
    put_machine(320, 5);
    tt_device_free(heap, small, 100);
    small = tt_device_alloc(heap, 200, "test"); /* of a page that is there */
    assert_non_null(small);
    assert_null(tt_device_alloc(heap, 400 << 10, "test"));
    tt_device_free(heap, small, 200);
    void *reserved;
    assert_int_equal(tt_heap_reserve(heap, 100 * MIB, "test", &reserved), TUTTI_OK);
    assert_int_equal(tt_heap_populate(heap, reserved, MIB), TUTTI_ERR_NOMEM);
    tt_device_free(heap, reserved, 100 * MIB);
    tt_device_free(heap, fits, 50 * MIB);
    tutti_device_release(heap);
}

static int remove_root(void **state)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    const int result = system(command); /* a name of our own making */
    (void)state;
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_machine_says_what_is_available, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_limit_of_version_2_counts_file_cache_as_available,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_limit_of_version_1_is_found_among_the_controllers,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_heap_stays_within_the_limit, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
