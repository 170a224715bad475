/* Plans as text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "comm/coll/plan.h"
#include "core/base/testing.h"

static void expect_text(tt_plan_request_t request, const char *algorithm, const char *want)
{
    tt_plan_t *plan;
    char text[4000], cut[10];
    assert_int_equal(tt_plan_create(&request, tt_algorithm_find(algorithm), &plan), TUTTI_OK);
    const size_t length = tt_plan_print(plan, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(text));
    assert_int_equal(tt_plan_print(plan, cut, sizeof cut), length);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    tt_plan_release(plan);
}

static void pairwise_all_reduce_has_three_phases(void **state)
{
    (void)state;
    expect_text(
        (tt_plan_request_t){
            .collective = TT_ALL_REDUCE, .rank = 1, .size = 3, .count = 150, .leaves = 4},
        "pairwise",
        "all_reduce pairwise: rank 1 of 3, 150 elements, 4 leaves\n"
        "  round 0: send   piece 0 [128, 150) to 2\n"
        "  round 0: send   piece 0 [0, 64) to 0\n"
        "  round 0: recv   scratch [0, 64) from 0\n"
        "  round 0: recv   scratch [64, 128) from 2\n"
        "  round 1: reduce scratch [0, 64) + piece 0 [64, 128) + scratch [64, 128) to out "
        "[64, 128)\n"
        "  round 2: send   out [64, 128) to 2\n"
        "  round 2: send   out [64, 128) to 0\n"
        "  round 2: recv   out [128, 150) from 2\n"
        "  round 2: recv   out [0, 64) from 0\n");
}

static void direct_reductions_say_where_they_write(void **state)
{
    (void)state;
    expect_text(
        (tt_plan_request_t){.collective = TT_ALL_REDUCE, .rank = 1, .size = 3, .count = 150},
        "direct",
        "all_reduce direct: rank 1 of 3, 150 elements, 3 leaves\n"
        "  round 0: reduce piece 0 [64, 128) of 0 + piece 0 [64, 128) + piece 0 [64, 128) "
        "of 2 to all out [64, 128)\n");
    expect_text((tt_plan_request_t){.collective = TT_REDUCE, .rank = 1, .size = 2, .count = 150},
                "direct",
                "reduce direct: rank 1 of 2, 150 elements, 2 leaves\n"
                "  round 0: reduce piece 0 [128, 150) of 0 + piece 0 [128, 150) to out "
                "[128, 150) of 0\n");
}

static void staged_all_reduce_meets_twice(void **state)
{
    (void)state;
    expect_text(
        (tt_plan_request_t){.collective = TT_ALL_REDUCE, .rank = 0, .size = 2, .count = 200},
        "staged",
        "all_reduce staged: rank 0 of 2, 200 elements, 2 leaves\n"
        "  round 0: copy   piece 0 [128, 200) to stage [128, 200)\n"
        "  round 1: meet   the mates\n"
        "  round 2: reduce piece 0 [0, 128) + stage [0, 128) of 1 to stage_out [0, 128)\n"
        "  round 3: meet   the mates\n"
        "  round 4: copy   stage_out [0, 128) to out [0, 128)\n"
        "  round 4: pull   stage_out [128, 200) of 1 to out [128, 200)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairwise_all_reduce_has_three_phases),
        cmocka_unit_test(direct_reductions_say_where_they_write),
        cmocka_unit_test(staged_all_reduce_meets_twice),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
