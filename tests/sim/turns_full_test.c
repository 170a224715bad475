/* A thousand seeds of calls through shared memory whose ranks take turns. TUTTI_SEED=N looks at
 * one alone. */
#include "core/base/testing.h"

#include "core/base/config.h"
#include "turns_calls.h"

enum { SEEDS = 1000 };

static void calls_through_memory_end_well_or_fail(void **state)
{
    (void)state;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        int64_t seed;
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
        turns_check((uint64_t)seed, 2);
        return;
    }
    turns_check(0, SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_through_memory_end_well_or_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
