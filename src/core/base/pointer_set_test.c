/* Sets of addresses: what is in them, and how many looks that takes. */
#include "core/base/pointer_set.h"

#include "core/base/testing.h"

enum { COUNT = 10000 };

static const void *address(size_t i, size_t apart)
{
    return (const void *)(uintptr_t)(0x7f0000001000 + i * apart);
}

/* Blocks of an allocator stand apart by a power of two, or nearly. */
static void an_addition_takes_a_few_looks(void **state)
{
    (void)state;
    static const size_t apart[] = {8, 16, 48, 64, 112, 240, 4096, 65536, 1 << 20};
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) {
        tt_pointer_set_t set = {0};
        bool is_new;
        for (size_t i = 0; i < 2 * COUNT; i++) {
            assert_int_equal(tt_pointer_set_add(&set, address(i % COUNT, apart[k]), &is_new), 0);
            assert_int_equal(is_new, i < COUNT);
        }
        assert_int_equal(set.count, COUNT);
        for (size_t i = 0; i < 2 * COUNT; i++) {
            assert_int_equal(tt_pointer_set_has(&set, address(i, apart[k])), i < COUNT);
        }
        if (set.looks > 4 * 2 * COUNT) {
            fail_msg("%zu looks for %d additions %zu bytes apart", set.looks, 2 * COUNT, apart[k]);
        }
        tt_pointer_set_release(&set);
        assert_false(tt_pointer_set_has(&set, address(0, apart[k])));
    }
}

static void without_memory_the_set_stays(void **state)
{
    (void)state;
    tt_pointer_set_t set = {0};
    bool is_new;
    for (size_t i = 0; i < COUNT; i++) {
        tt_alloc_fail_at(1);
        tutti_status_t status = tt_pointer_set_add(&set, address(i, 16), &is_new);
        tt_alloc_fail_at(0);
        if (status < 0) {
            assert_int_equal(status, TUTTI_ERR_NOMEM);
            assert_int_equal(set.count, i);
            assert_int_equal(tt_pointer_set_add(&set, address(i, 16), &is_new), TUTTI_OK);
        }
        assert_true(is_new);
    }
    assert_int_equal(tt_pointer_set_add(&set, address(0, 16), &is_new), TUTTI_OK);
    assert_false(is_new);
    tt_pointer_set_release(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_addition_takes_a_few_looks),
        cmocka_unit_test(without_memory_the_set_stays),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
