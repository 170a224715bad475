/* Simulated worlds, a few seeds; sim_full_test runs a thousand. TUTTI_SEED=N looks at one alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/config.h"
#include "core/base/testing.h"
#include "sim_calls.h"

enum { SEEDS = 60 };

static void seeds_end_with_the_right_result_or_an_error(void **state)
{
    (void)state;
    char text[600];
    uint64_t trace;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        int64_t seed;
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
        assert_string_equal(sim_check_seed((uint64_t)seed, &trace, text, sizeof text), "");
        return;
    }
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_string_equal(sim_check_seed(seed, &trace, text, sizeof text), "");
    }
}

static void a_seed_replays_everything(void **state)
{
    (void)state;
    char text[600];
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint64_t once, again;
        sim_check_seed(seed, &once, text, sizeof text);
        sim_check_seed(seed, &again, text, sizeof text);
        assert_int_equal(once, again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_end_with_the_right_result_or_an_error),
        cmocka_unit_test(a_seed_replays_everything),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
