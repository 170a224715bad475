/* Sets of cores, and who uses them, on a machine with more than 1,024. */
#include "core/base/core_set.h"

#include <pthread.h>

#include "core/base/core_share.h"
#include "core/base/many_cores_test.h"
#include "core/base/threads.h"
#include "core/base/testing.h"

/* What threads were bound to, in the order in which they were started. */
static tt_core_set_t bound[TT_MANY_USABLE];
static int bound_count;

int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t *set)
{
    (void)thread;
    assert_true(bytes <= sizeof bound[0] && bound_count < TT_MANY_USABLE);
    memcpy(&bound[bound_count++], set, bytes);
    return 0;
}

static void expect_cores(const tt_core_set_t *set, int first, int count)
{
    for (int core = 0; core < TT_CORES_MAX; core++) {
        assert_int_equal(tt_core_set_has(set, core), core >= first && core < first + count);
    }
}

static void all_cores_are_known(void **state)
{
    (void)state;
    tt_core_set_t all;
    assert_int_equal(tt_core_set_of(0, &all), TT_MANY_USABLE);
    expect_cores(&all, TT_MANY_FIRST, TT_MANY_USABLE);
    assert_int_equal(tt_core_share(), TT_MANY_USABLE);
}

static void a_part_is_counted_from_the_lowest_core(void **state)
{
    (void)state;
    tt_core_set_t all, part;
    tt_core_set_of(0, &all);
    part = tt_core_set_part(&all, 0, 1);
    expect_cores(&part, TT_MANY_FIRST, 1);
    part = tt_core_set_part(&all, 3, 4);
    expect_cores(&part, TT_MANY_FIRST + 3, 4);
    part = tt_core_set_part(&all, TT_MANY_USABLE, 1);
    expect_cores(&part, 0, 0);
}

static void each_worker_of_a_pool_has_a_core(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    tt_threads_t *threads;
    assert_int_equal(tt_threads_create(THREADS, &threads), TUTTI_OK);
    tt_threads_release(threads);
    assert_int_equal(bound_count, THREADS - 1);
    for (int i = 0; i < bound_count; i++) {
        expect_cores(&bound[i], TT_MANY_FIRST + 1 + i, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cores_are_known),
        cmocka_unit_test(a_part_is_counted_from_the_lowest_core),
        cmocka_unit_test(each_worker_of_a_pool_has_a_core),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
