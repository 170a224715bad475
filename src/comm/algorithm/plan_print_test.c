/* Plans as text and as pictures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
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
    text =
        draw((tt_plan_request_t){.collective = TT_ALL_GATHER, .size = 66, .count = 66}, "direct");
    assert_non_null(strstr(text, "0 rounds and 2 ranks more"));
    tt_free(text);
    text =
        draw((tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = 40, .count = 4000}, "ring");
    assert_non_null(strstr(text, "53 rounds and 0 ranks more"));
    tt_free(text);
    text = draw((tt_plan_request_t){.collective = TT_BARRIER, .size = 64}, "dissemination");
    assert_null(strstr(text, "ranks more"));
    tt_free(text);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) < 0.2; /* texts have one digit behind the point */
}

/* An arrow's line from (x, y) of `at`, and its head: tip and the two ends of its base. */
static bool is_arrow(const char *at)
{
    double width, x[5], y[5];
    if (sscanf(at,
               "<path fill=\"none\" stroke=\"%*[^\"]\" stroke-dasharray=\"%*[^\"]\" "
               "stroke-width=\"%lf\" d=\"M%lf %lfL%lf %lf\"/><path fill=\"%*[^\"]\" "
               "d=\"M%lf %lfL%lf %lfL%lf %lfZ\"/>",
               &width, &x[0], &y[0], &x[1], &y[1], &x[2], &y[2], &x[3], &y[3], &x[4],
               &y[4]) != 11) {
        return false;
    }
    const double line = hypot(x[1] - x[0], y[1] - y[0]), head = hypot(x[2] - x[1], y[2] - y[1]);
    return is_near(head, 6 + width) && is_near(hypot(x[4] - x[3], y[4] - y[3]), head) &&
           is_near(hypot(x[2] - x[0], y[2] - y[0]), line + head) &&
           is_near((x[3] + x[4]) / 2, x[1]) && is_near((y[3] + y[4]) / 2, y[1]) &&
           is_near(hypot(x[3] - x[2], y[3] - y[2]), hypot(x[4] - x[2], y[4] - y[2]));
}

static void arrows_have_a_head_at_the_end_of_their_line(void **state)
{
    (void)state;
    char *text = draw((tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = 4, .count = 1000},
                      "recursive_doubling");
    int arrows = 0;
    const char *at = text;
    for (; (at = strstr(at, "<path fill=\"none\"")) != NULL; at++, arrows++) {
        assert_true(is_arrow(at));
    }
    assert_int_equal(arrows, 2 * 4 + 3); /* and three in the legend */
    tt_free(text);
}

/* Where the tag begins that holds `at`. */
static const char *tag_of(const char *at)
{
    while (*at != '<') {
        at--;
    }
    return at;
}

static void what_belongs_together_has_one_middle(void **state)
{
    (void)state;
    int x, y, width, height, middle, base, sums = 0, heads = 0;
    char *text = draw((tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = 4, .count = 1000},
                      "recursive_doubling");
    for (const char *at = text; (at = strstr(at, "r=\"9\"")) != NULL; at++, sums++) {
        assert_int_equal(sscanf(tag_of(at),
                                "<circle fill=\"#fff\" stroke=\"#1f2937\" cx=\"%d\" cy=\"%d\" "
                                "r=\"9\"/><text x=\"%d\" y=\"%d\"",
                                &x, &y, &middle, &base),
                         4);
        assert_int_equal(middle, x);
        assert_int_equal(base, y + 4); /* letters stand on their line */
    }
    for (const char *at = text; (at = strstr(at, "rx=\"6\"")) != NULL; at++, heads++) {
        assert_int_equal(sscanf(tag_of(at),
                                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" "
                                "fill=\"%*[^\"]\"/><text x=\"%d\" y=\"%d\">rank",
                                &x, &y, &width, &height, &middle, &base),
                         6);
        assert_int_equal(middle, x + width / 2);
        assert_int_equal(base, y + height / 2 + 4);
    }
    assert_int_equal(sums, 2 * 4);
    assert_int_equal(heads, 4);
    tt_free(text);
}

/* Bands are white every other time, and their number is in the middle. */
static void each_round_is_a_band(void **state)
{
    (void)state;
    char *text =
        draw((tt_plan_request_t){.collective = TT_ALL_REDUCE, .size = 4, .count = 4000}, "ring");
    int rounds = 0, end = 0;
    for (const char *at = text; (at = strstr(at, " x=\"0\" y=")) != NULL; at++, rounds++) {
        int y, height, base, number;
        char colour[8];
        assert_int_equal(sscanf(tag_of(at),
                                "<rect fill=\"%7[^\"]\" x=\"0\" y=\"%d\" width=\"%*d\" "
                                "height=\"%d\"/><text x=\"%*d\" y=\"%d\">%d<",
                                colour, &y, &height, &base, &number),
                         5);
        assert_string_equal(colour, rounds % 2 == 0 ? "#f1f5f9" : "#fff");
        assert_int_equal(number, rounds);
        assert_int_equal(base, y + height / 2 + 4);
        assert_true(rounds == 0 || y == end);
        end = y + height;
    }
    assert_int_equal(rounds, 9);
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
        cmocka_unit_test(arrows_have_a_head_at_the_end_of_their_line),
        cmocka_unit_test(what_belongs_together_has_one_middle),
        cmocka_unit_test(each_round_is_a_band),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
