/* Which cores ranks get, on a machine with more than 1,024, of which hwloc knows none. */
#include "runtime/elastic/launch_binding.h"

#include <tutti/launch.h>

#include "core/base/many_cores_test.h"
#include "core/base/testing.h"

static void expect_cores(const tt_binding_t *binding, int first, int count)
{
    assert_int_equal(binding->cores, count);
    for (int core = 0; core < TT_CORES_MAX; core++) {
        assert_int_equal(tt_core_set_has(&binding->cpus, core),
                         core >= first && core < first + count);
    }
}

static void ranks_share_all_cores(void **state)
{
    (void)state;
    tt_binding_t bindings[TT_MANY_USABLE + 2];
    assert_int_equal(tutti_core_count(), TT_MANY_USABLE);
    tt_bindings_plan(3, bindings);
    expect_cores(&bindings[0], TT_MANY_FIRST, 2);
    expect_cores(&bindings[1], TT_MANY_FIRST + 2, 3);
    expect_cores(&bindings[2], TT_MANY_FIRST + 5, 3);
    tt_bindings_plan(TT_MANY_USABLE + 2, bindings);
    for (int rank = 0; rank < TT_MANY_USABLE + 2; rank++) {
        expect_cores(&bindings[rank], TT_MANY_FIRST + rank % TT_MANY_USABLE, 1);
    }
}

static void expect_one_core(int core)
{
    tt_binding_t bindings[2];
    assert_int_equal(tutti_core_count(), 1);
    tt_bindings_plan(2, bindings);
    expect_cores(&bindings[0], core, 1);
    expect_cores(&bindings[1], core, 1);
}

static void a_lone_core_is_shared_and_core_0_stands_for_unknown_ones(void **state)
{
    (void)state;
    tt_many_usable = 1;
    expect_one_core(TT_MANY_FIRST);
    tt_many_usable = 0;
    expect_one_core(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_all_cores),
        cmocka_unit_test(a_lone_core_is_shared_and_core_0_stands_for_unknown_ones),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
