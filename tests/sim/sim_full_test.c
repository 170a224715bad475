/* A thousand simulated worlds. What fails says its seed: TUTTI_SEED=N tests/sim_test replays it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/testing.h"
#include "sim_calls.h"

enum { SEEDS = 1000 };

static void a_thousand_seeds_end_with_the_right_result_or_an_error(void **state)
{
    (void)state;
    char text[1000];
    uint64_t trace;
    for (uint64_t seed = 1000; seed < 1000 + SEEDS; seed++) {
        assert_string_equal(sim_check_seed(seed, &trace, text, sizeof text), "");
        assert_string_equal(sim_check_groups(seed, &trace, text, sizeof text), "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_seeds_end_with_the_right_result_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
