/* Plans as text and as pictures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan.h"
#include "core/base/alloc.h"
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
        "  round 0: copy   piece 0 [128, 200) to bounce [128, 200)\n"
        "  round 1: barrier of the local ranks\n"
        "  round 2: reduce piece 0 [0, 128) + bounce [0, 128) of 1 to all bounce_back "
        "[0, 128)\n"
        "  round 3: barrier of the local ranks\n"
        "  round 4: copy   bounce_back [0, 128) to out [0, 128)\n"
        "  round 4: copy   bounce_back [128, 200) to out [128, 200)\n");
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        count++;
    }
    return count;
}

/* The picture of an algorithm over 4 ranks; to be freed. */
static char *draw(tt_plan_request_t request, const char *algorithm)
{
    tt_plan_t *plans[80];
    for (request.rank = 0; request.rank < request.size; request.rank++) {
        assert_int_equal(
            tt_plan_create(&request, tt_algorithm_find(algorithm), &plans[request.rank]), TUTTI_OK);
    }
    const size_t length = tt_plan_draw(plans, request.hosts, NULL, 0);
    char *text = tt_alloc(length + 1, "test");
    assert_int_equal(tt_plan_draw(plans, request.hosts, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    for (int rank = 0; rank < request.size; rank++) {
        tt_plan_release(plans[rank]);
    }
    assert_string_equal(text + length - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    return text;
}

static void pictures_have_an_arrow_for_each_message(void **state)
{
    (void)state;
    char *text = draw((tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = 4, .count = 1000},
                      "recursive_doubling");
    assert_int_equal(count_of(text, "sends to"), 2 * 4);
    assert_int_equal(count_of(text, "&#931;"), 2 * 4);
    assert_int_equal(count_of(text, "is read by"), 0);
    assert_non_null(strstr(text, "rank 2 sends to rank 3: 1000"));
    tt_free(text);
    text = draw((tt_plan_request_t){.collective = TT_REDUCE, .size = 3, .count = 1000}, "direct");
    assert_int_equal(count_of(text, "is read by"), 3 * 2);
    assert_int_equal(count_of(text, "writes into"), 2);
    tt_free(text);
    static const int hosts[] = {0, 0, 1, 1};
    text =
        draw((tt_plan_request_t){.collective = TT_BARRIER, .size = 4, .hosts = hosts}, "two_level");
    assert_int_equal(count_of(text, "sends to"), 2);
    assert_int_equal(count_of(text, "waits for its local ranks"), 4);
    assert_int_equal(count_of(text, "host 1"), 2);
    tt_free(text);
}

static void pictures_end_somewhere(void **state)
{
    (void)state;
    char *text = draw((tt_plan_request_t){.collective = TT_BROADCAST, .size = 70, .count = 100},
                      "scatter_gather");
    assert_non_null(strstr(text, "12 rounds and 6 ranks more"));
    tt_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairwise_all_reduce_has_three_phases),
        cmocka_unit_test(direct_reductions_say_where_they_write),
        cmocka_unit_test(staged_all_reduce_meets_twice),
        cmocka_unit_test(pictures_have_an_arrow_for_each_message),
        cmocka_unit_test(pictures_end_somewhere),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
