/* The advice against jobs that are played with random failures: no other interval of a grid loses
 * noticeably less. */
#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "runtime/checkpoint/save_advice.h"

enum { FAILURES = 200000, GRID = 60 };

static double gaps[FAILURES]; /* between failures, whose mean is near 1 */

static void draw_gaps(void)
{
    const tt_rng_t rng = tt_rng_stream(12, 0, 0, 0, 0);
    for (uint64_t i = 0; i < FAILURES; i++) {
        gaps[i] = -log(((double)tt_rng_u32(rng, i) + 0.5) / 4294967296.0);
    }
}

/* The share that is lost in a job which saves at this interval, and fails at those times; M is 1.
 */
static double play(double interval, double cost)
{
    double kept = 0, all = 0;
    for (size_t i = 0; i < FAILURES; i++) {
        kept += floor(gaps[i] / (interval + cost)) * interval;
        all += gaps[i];
    }
    return 1 - kept / all;
}

static void no_other_interval_loses_noticeably_less(void **state)
{
    (void)state;
    static const double costs[] = {1e-4, 1e-3, 1e-2, 0.1, 0.5, 1};
    draw_gaps();
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        const double advised = tt_advice_interval(costs[i], 1);
        double best = 1;
        for (int k = 0; k < GRID; k++) { /* a quarter to four times as much */
            best = fmin(best, play(advised * exp2(4.0 * k / (GRID - 1) - 2), costs[i]));
        }
        assert_true(play(advised, costs[i]) <= 1.01 * best);
    }
}

static void what_is_lost_is_what_a_played_job_loses(void **state)
{
    (void)state;
    static const double cases[][2] = {{1e-4, 0.01}, {1e-2, 0.05}, {1e-2, 0.5}, {0.1, 0.4}, {1, 1}};
    draw_gaps();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double lost = tt_advice_lost(cases[i][1], cases[i][0], 1);
        assert_true(fabs(play(cases[i][1], cases[i][0]) / lost - 1) < 0.01);
    }
}

/* Young's is the first term; a save that hardly ever ends is Daly's other case. */
static void the_edges_are_as_published(void **state)
{
    (void)state;
    assert_true(fabs(tt_advice_interval(1e-8, 1) / sqrt(2e-8) - 1) < 1e-3);
    assert_true(fabs(tt_advice_interval(2, 86400) - 586.545) < 0.001);
    assert_true(tt_advice_interval(2, 1) == 1);
    assert_true(tt_advice_interval(5, 1) == 1);
    assert_true(fabs(tt_advice_interval(120, 3600 * 24) - 4474.03) < 0.01);
}

static void advice_changes_by_more_than_half(void **state)
{
    (void)state;
    assert_true(tt_advice_has_changed(100, 0));
    assert_false(tt_advice_has_changed(149, 100));
    assert_true(tt_advice_has_changed(151, 100));
    assert_false(tt_advice_has_changed(67, 100));
    assert_true(tt_advice_has_changed(66, 100));
}

static void expect(const tt_save_facts_t *facts, double interval, const char *expected)
{
    char text[TT_ADVICE_BYTES];
    assert_true(fabs(tt_advice_text(facts, text) / interval - 1) < 1e-3);
    assert_string_equal(text, expected);
}

static void the_log_says_cost_failures_and_both_intervals(void **state)
{
    (void)state;
    tt_save_facts_t facts = {.cost = 2.3, .interval = 180, .steps = 60, .mtbf = 86400};
    expect(&facts, 628.9,
           "checkpoint: a save costs 2.3 s; with a failure each 24 h, one each 10 min (210 steps) "
           "loses least: 0.73 % of the time; now each 3.0 min: 1.4 %");
    facts.mtbf = 0;
    facts.failures = 2;
    facts.job_seconds = 14400;
    expect(&facts, 180.4,
           "checkpoint: a save costs 2.3 s; with a failure each 2.0 h, one each 3.0 min (60 steps) "
           "loses least: 2.5 % of the time; now each 3.0 min: 2.5 %");
    facts.failures = 0;
    facts.least = 600; /* one cannot be written more often */
    facts.steps = 0;
    facts.interval = 1800;
    expect(&facts, 600,
           "checkpoint: a save costs 2.3 s; no failure in 4.0 h; if one came each 4.0 h, one each "
           "10 min loses least: 2.5 % of the time; now each 30 min: 6.2 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_interval_loses_noticeably_less),
        cmocka_unit_test(what_is_lost_is_what_a_played_job_loses),
        cmocka_unit_test(the_edges_are_as_published),
        cmocka_unit_test(advice_changes_by_more_than_half),
        cmocka_unit_test(the_log_says_cost_failures_and_both_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
