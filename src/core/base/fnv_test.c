/* FNV-1a against the numbers that its authors publish. */
#include "core/base/testing.h"

#include "core/base/fnv.h"

static void fnv_gives_the_published_numbers(void **state)
{
    (void)state;
    assert_true(tt_fnv(TT_FNV_BEGIN, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(tt_fnv(TT_FNV_BEGIN, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(tt_fnv(TT_FNV_BEGIN, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    const uint64_t foo = tt_fnv(TT_FNV_BEGIN, "foo", 3); /* in two pieces */
    assert_true(tt_fnv(foo, "bar", 3) == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fnv_gives_the_published_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
