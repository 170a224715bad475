/* Simulated worlds, a few seeds; sim_full_test runs a thousand. TUTTI_SEED=N looks at one alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/config.h"
#include "core/base/testing.h"
#include "sim_calls.h"

enum { SEEDS = 60, SEEDS_OF_GROUPS = 30 };

typedef const char *check_t(uint64_t seed, uint64_t *trace, char *text, size_t text_bytes);

static void check_seeds(check_t *check, uint64_t seeds)
{
    char text[1000];
    uint64_t trace;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        int64_t seed;
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
        assert_string_equal(check((uint64_t)seed, &trace, text, sizeof text), "");
        return;
    }
    for (uint64_t seed = 0; seed < seeds; seed++) {
        assert_string_equal(check(seed, &trace, text, sizeof text), "");
    }
}

static void calls_end_with_the_right_result_or_an_error(void **state)
{
    (void)state;
    check_seeds(sim_check_seed, SEEDS);
}

static void groups_go_on_with_those_that_are_left(void **state)
{
    (void)state;
    check_seeds(sim_check_groups, SEEDS_OF_GROUPS);
}

static void check_replay(check_t *check)
{
    char text[1000];
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint64_t once, again;
        check(seed, &once, text, sizeof text);
        check(seed, &again, text, sizeof text);
        assert_int_equal(once, again);
    }
}

static void a_seed_replays_everything(void **state)
{
    (void)state;
    check_replay(sim_check_seed);
    check_replay(sim_check_groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_end_with_the_right_result_or_an_error),
        cmocka_unit_test(groups_go_on_with_those_that_are_left),
        cmocka_unit_test(a_seed_replays_everything),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
