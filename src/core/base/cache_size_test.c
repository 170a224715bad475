/* The last cache's size out of a folder such as Linux has. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cache_size.h"
#include "core/base/testing.h"

static size_t size_with(const char *const *sizes, int count)
{
    char folder[] = "/tmp/tutti-cache-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/index%d", folder, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/index%d/size", folder, i);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(sizes[i], file) >= 0 && fclose(file) == 0);
    }
    const size_t bytes = tt_last_cache_bytes_in(folder);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/index%d/size", folder, i);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof path, "%s/index%d", folder, i);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    return bytes;
}

static void the_largest_is_found(void **state)
{
    (void)state;
    assert_int_equal(size_with((const char *[]){"32K\n", "32K\n", "1024K\n", "32768K\n"}, 4),
                     32 << 20);
    assert_int_equal(size_with((const char *[]){"32K\n", "2M\n"}, 2), 2 << 20);
    assert_int_equal(size_with((const char *[]){"512"}, 1), 512);
    assert_int_equal(size_with((const char *[]){"", "none\n"}, 2), 0);
    assert_int_equal(tt_last_cache_bytes_in("/nowhere"), 0);
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(tt_last_cache_bytes() >= 64 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_is_found),
        cmocka_unit_test(this_machine_has_some),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
