/* Masks of cores. */
#include "comm/wire/cores.h"
#include "core/base/testing.h"

static void every_core_counts(void **state)
{
    (void)state;
    uint8_t mask[80] = {0}, cores[TT_CORES_MAX / 8] = {0};
    for (int i = 630; i < 700; i++) {
        cores[i / 8] |= (uint8_t)(1 << i % 8);
    }
    tt_cores_add(mask, sizeof mask, cores, sizeof cores);
    assert_int_equal(tt_cores_count(mask, sizeof mask), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_core_counts),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
