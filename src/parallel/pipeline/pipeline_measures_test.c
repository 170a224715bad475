/* What papers say of schedules: bubbles, activations, versions of weights; the orders that they
 * print; and what a plan costs itself. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/pipeline.h>

#include "core/base/testing.h"

#define SIMULATE(schedule_, costs_, ...)                                                           \
    simulate(&(tutti_pipeline_options_t){.schedule = (schedule_), __VA_ARGS__}, (costs_))

/* Kept until the next one; NULL costs: F = I = W = 1. */
static tutti_pipeline_simulation_t simulated;

static void simulate(const tutti_pipeline_options_t *options, const tutti_pipeline_costs_t *costs)
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_simulation_release(&simulated);
    assert_int_equal(tutti_pipeline_plan(options, &schedule), TUTTI_OK);
    assert_int_equal(tutti_pipeline_simulate(&schedule, costs, 1, &simulated), TUTTI_OK);
    tutti_pipeline_schedule_release(&schedule);
}

static int release_simulated(void **state)
{
    (void)state;
    tutti_pipeline_simulation_release(&simulated);
    return 0;
}

static void expect_near(double value, double wanted)
{
    if (!(value > wanted - 1e-9 && value < wanted + 1e-9)) {
        fail_msg("%.12g instead of %.12g", value, wanted);
    }
}

static void expect_no_idle(void)
{
    for (int rank = 0; rank < simulated.ranks; rank++) {
        expect_near(simulated.loads[rank].idle, 0);
    }
}

/* ---- bubbles ---- */

static void gpipe_and_1f1b_have_the_papers_bubble(void **state)
{
    (void)state;
    const char *const names[] = {"gpipe", "1f1b", "flush"};
    for (int i = 0; i < 3; i++) {
        for (int p = 1; p <= 8; p++) {
            for (int m = p; m <= 20; m++) {
                SIMULATE(names[i], NULL, .ranks = p, .micro_batches = m);
                expect_near(simulated.bubble, (p - 1.0) / (m + p - 1.0));
                expect_near(simulated.time, 3.0 * (m + p - 1));
            }
        }
    }
    SIMULATE("gpipe", NULL, .ranks = 4, .micro_batches = 8);
    expect_near(simulated.bubble, 3.0 / 11);
}

static void interleaved_divides_the_bubble_by_the_stages_of_a_rank(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++) {
        for (int v = 2; v <= 4; v++) {
            SIMULATE("interleaved", NULL, .ranks = p, .micro_batches = 4 * p, .stages_per_rank = v);
            expect_near(simulated.time, 3.0 * 4 * p * v + 3.0 * (p - 1));
            SIMULATE("looped-bfs", NULL, .ranks = p, .micro_batches = 4 * p, .stages_per_rank = v);
            expect_near(simulated.time, 3.0 * 4 * p * v + 3.0 * (p - 1));
        }
    }
    SIMULATE("interleaved", NULL, .ranks = 8, .micro_batches = 32);
    expect_near(simulated.time / simulated.work - 1, 7.0 / 64); /* 10.9 % instead of 21.9 % */
}

static void zb_h1_has_a_third_of_the_bubble(void **state)
{
    (void)state;
    const tutti_pipeline_costs_t uneven = {.forward = 3, .input = 4, .weight = 2};
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p; m <= 20; m++) {
            SIMULATE("zb-h1", NULL, .ranks = p, .micro_batches = m);
            expect_near(simulated.time, 3.0 * m + (p - 1));
            SIMULATE("zb-h1", &uneven, .ranks = p, .micro_batches = m);
            expect_near(simulated.time, 9.0 * m + (p - 1) * (3 + 4 - 2));
        }
    }
}

static void zb_h2_and_zb_v_have_no_hole(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p; m <= 20; m++) {
            SIMULATE("zb-h2", NULL, .ranks = p, .micro_batches = m);
            expect_no_idle();
            expect_near(simulated.time, 3.0 * m + (p - 1));
            SIMULATE("zb-v", NULL, .ranks = p, .micro_batches = m);
            expect_no_idle();
            expect_near(simulated.time, 6.0 * m + (p - 1));
        }
    }
    SIMULATE("zb-v", NULL, .ranks = 4, .micro_batches = 12);
    expect_no_idle();
    expect_near(simulated.time / simulated.work, 75.0 / 72);
}

/* The costs say how many forwards fit in front, and how many Ws are kept for the end. */
static void zb_h2_fills_by_its_costs(void **state)
{
    (void)state;
    const tutti_pipeline_costs_t costs = {.forward = 2, .input = 2, .weight = 1, .message = 1};
    SIMULATE("zb-h2", &costs, .ranks = 4, .micro_batches = 40, .costs = costs);
    expect_no_idle();
    SIMULATE("zb-h2", &costs, .ranks = 4, .micro_batches = 40);
    assert_true(simulated.loads[0].idle > 0);
}

static void messages_take_their_time(void **state)
{
    (void)state;
    const tutti_pipeline_costs_t costs = {.forward = 1, .input = 1, .weight = 1, .message = 2};
    SIMULATE("gpipe", &costs, .ranks = 3, .micro_batches = 1);
    expect_near(simulated.time, 3 * 3 + 4 * 2);
    SIMULATE("zb-v", &costs, .ranks = 1, .micro_batches = 3);
    expect_near(simulated.time, 18); /* none between stages of a rank */
    const tutti_pipeline_costs_t step = {.forward = 1, .input = 1, .weight = 1, .step = 5};
    SIMULATE("1f1b", &step, .ranks = 1, .micro_batches = 2);
    expect_near(simulated.time, 11);
}

static void stages_may_cost_differently(void **state)
{
    (void)state;
    tutti_pipeline_schedule_t schedule;
    const tutti_pipeline_options_t options = {.schedule = "gpipe", .ranks = 2, .micro_batches = 3};
    const tutti_pipeline_costs_t costs[] = {{.forward = 1, .input = 1, .weight = 1},
                                            {.forward = 2, .backward = 5}};
    assert_int_equal(tutti_pipeline_plan(&options, &schedule), TUTTI_OK);
    tutti_pipeline_simulation_release(&simulated);
    assert_int_equal(tutti_pipeline_simulate(&schedule, costs, 2, &simulated), TUTTI_OK);
    expect_near(simulated.loads[0].busy, 9);
    expect_near(simulated.loads[1].busy, 21);
    expect_near(simulated.time, 1 + 21 + 2);
    expect_near(simulated.work, 21);
    tutti_pipeline_schedule_release(&schedule);
}

/* ---- activations ---- */

static void activations_are_the_papers(void **state)
{
    (void)state;
    enum { M = 24 };
    const tutti_pipeline_costs_t costs = {.activation = 1, .pending = 0.25};
    for (int p = 1; p <= 8; p++) {
        for (int i = 1; i <= p; i++) {
            SIMULATE("gpipe", &costs, .ranks = p, .micro_batches = M);
            expect_near(simulated.loads[i - 1].activations_max, M);
            SIMULATE("1f1b", &costs, .ranks = p, .micro_batches = M);
            expect_near(simulated.loads[i - 1].activations_max, p - i + 1);
            SIMULATE("zb-h1", &costs, .ranks = p, .micro_batches = M);
            expect_near(simulated.loads[i - 1].activations_max, (p - i + 1) + (i - 1) * 0.25);
            SIMULATE("zb-h2", &costs, .ranks = p, .micro_batches = M);
            expect_near(simulated.loads[i - 1].activations_max,
                        (2 * p - 2 * i + 1) + (2 * i - 2) * 0.25);
            SIMULATE("interleaved", &costs, .ranks = p, .micro_batches = 4 * p);
            expect_near(simulated.loads[i - 1].activations_max, 2 * (p - i) + p + 1);
            /* of half the layers each: no rank holds more than rank 0 of 1f1b */
            SIMULATE("zb-v", &costs, .ranks = p, .micro_batches = M);
            assert_true(simulated.loads[i - 1].activations_max <= 2 * p);
            SIMULATE("dualpipe-v", &costs, .ranks = p, .micro_batches = M);
            assert_true(simulated.loads[i - 1].activations_max <= 2 * (p + 1));
        }
    }
}

static void shards_are_more_micro_batches(void **state)
{
    (void)state;
    tutti_pipeline_row_t one, more;
    tutti_pipeline_options_t options = {.schedule = "zb-h1", .ranks = 3, .micro_batches = 12};
    assert_int_equal(tutti_pipeline_plan_row(&options, 1, &one), TUTTI_OK);
    options.micro_batches = 4;
    options.shards = 3;
    assert_int_equal(tutti_pipeline_plan_row(&options, 1, &more), TUTTI_OK);
    int reductions = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < more.count; i++) {
        const tutti_pipeline_action_t *action = &more.actions[i];
        if (action->kind == TUTTI_PIPELINE_REDUCE) {
            assert_int_equal(action->micro_batch, 4 * reductions++ + 3);
            assert_int_equal(more.actions[i - 1].kind, TUTTI_PIPELINE_W);
            assert_int_equal(more.actions[i - 1].micro_batch, action->micro_batch);
            at += reductions == 3;
        } else {
            assert_memory_equal(action, &one.actions[at++], sizeof *action);
        }
    }
    assert_int_equal(reductions, 3);
    assert_int_equal(at, one.count);
    tutti_pipeline_row_release(&one);
    tutti_pipeline_row_release(&more);
}

/* k shards of m micro-batches fill and drain once: they are k m micro-batches. */
static void shards_have_one_bubble(void **state)
{
    (void)state;
    for (int p = 1; p <= 5; p++) {
        for (int k = 1; k <= 4; k++) {
            for (int m = 1; m <= 6; m++) {
                SIMULATE("1f1b", NULL, .ranks = p, .micro_batches = m, .shards = k);
                expect_near(simulated.time, 3.0 * (k * m + p - 1));
                expect_near(simulated.bubble, (p - 1.0) / (k * m + p - 1.0));
                assert_int_equal(simulated.loads[p - 1].accumulators_max, 1);
            }
        }
    }
    tutti_pipeline_about_t about;
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        if (!about.is_asynchronous) { /* 3 micro-batches alone are no multiple of 4, or too few */
            SIMULATE(about.name, NULL, .ranks = 4, .micro_batches = 3, .shards = 4);
            const double time = simulated.time, bubble = simulated.bubble;
            SIMULATE(about.name, NULL, .ranks = 4, .micro_batches = 12);
            expect_near(time, simulated.time);
            expect_near(bubble, simulated.bubble);
        }
    }
}

static void later_shards_wait_for_all_stages(void **state)
{
    (void)state;
    SIMULATE("looped-bfs", NULL, .ranks = 2, .micro_batches = 2, .shards = 4);
    /* stage 2 of all shards, then stage 0 of the first */
    assert_int_equal(simulated.loads[0].accumulators_max, 5);
    SIMULATE("looped-bfs", NULL, .ranks = 2, .micro_batches = 8);
    assert_int_equal(simulated.loads[0].accumulators_max, 2);
    SIMULATE("zb-v", NULL, .ranks = 2, .micro_batches = 2, .shards = 4);
    assert_in_range(simulated.loads[0].accumulators_max, 2, 4);
}

/* ---- versions of weights ---- */

/* The version that each micro-batch uses on a stage, from the actions. */
static void expect_versions(const tutti_pipeline_options_t *options, int versions,
                            int (*version)(int p, int s, int t))
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_report_t report;
    assert_int_equal(tutti_pipeline_plan(options, &schedule), TUTTI_OK);
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_OK);
    assert_int_equal(report.versions_max, versions);
    for (int rank = 0; rank < schedule.ranks; rank++) {
        int steps = 0;
        for (int64_t i = 0; i < schedule.rows[rank].count; i++) {
            const tutti_pipeline_action_t *action = &schedule.rows[rank].actions[i];
            const int wanted = version(options->ranks, rank + 1, action->micro_batch);
            if (action->kind <= TUTTI_PIPELINE_W) {
                assert_int_equal(action->version, wanted > 0 ? wanted : 0);
            }
            if (action->kind == TUTTI_PIPELINE_STEP) {
                assert_int_equal(action->version, ++steps);
            }
        }
        assert_int_equal(steps, schedule.micro_batches /
                                    (options->accumulate > 0 ? options->accumulate : 1));
    }
    tutti_pipeline_schedule_release(&schedule);
}

static int stashed(int p, int s, int t)
{
    return t - p + s;
}

static int synchronised(int p, int s, int t)
{
    (void)s;
    return t - p + 1;
}

static int one_behind(int p, int s, int t)
{
    (void)s;
    (void)p;
    return t / 6 - 1;
}

static void pipedream_uses_the_papers_versions(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++) {
        tutti_pipeline_options_t options = {
            .schedule = "pipedream", .ranks = p, .micro_batches = 18};
        expect_versions(&options, p, stashed);
        options.vertical_sync = true;
        expect_versions(&options, p, synchronised);
        options = (tutti_pipeline_options_t){
            .schedule = "2bw", .ranks = p, .micro_batches = 18, .accumulate = 6};
        expect_versions(&options, 2, one_behind);
    }
}

/* ---- orders ---- */

static void expect_row(const char *schedule, int ranks, int micro_batches, int rank,
                       const char *wanted)
{
    const tutti_pipeline_options_t options = {
        .schedule = schedule, .ranks = ranks, .micro_batches = micro_batches, .compute_only = true};
    tutti_pipeline_row_t row;
    char text[2048] = "";
    assert_int_equal(tutti_pipeline_plan_row(&options, rank, &row), TUTTI_OK);
    for (int64_t i = 0; i < row.count; i++) {
        char action[TUTTI_PIPELINE_TEXT_MAX];
        tutti_pipeline_action_text(&row.actions[i], action, sizeof action);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "", action);
    }
    assert_string_equal(text, wanted);
    tutti_pipeline_row_release(&row);
}

static void rows_are_in_the_fields_order(void **state)
{
    (void)state;
    expect_row("gpipe", 2, 3, 1, "1F0 1F1 1F2 1B0 1B1 1B2");
    expect_row("1f1b", 4, 6, 2, "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5");
    expect_row("interleaved", 2, 4, 1,
               "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
    expect_row("looped-bfs", 2, 2, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
    expect_row("zb-h1", 3, 4, 1, "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3");
    expect_row("zb-h2", 2, 4, 0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
    expect_row("zb-v", 2, 3, 1,
               "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
    expect_row("interleaved-zb", 2, 2, 0, "0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1");
    expect_row("dualpipe-v", 2, 4, 1,
               "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
    expect_row("pipedream", 2, 3, 0, "0F0 0F1 0B0 0STEP0 0F2 0B1 0STEP1 0B2 0STEP2");
    expect_row("2bw", 2, 4, 1, "1F0 1B0 1F1 1B1 1STEP1 1F2 1B2 1F3 1B3 1STEP3");
}

static void what_stands_around_computations_is_in_its_place(void **state)
{
    (void)state;
    const tutti_pipeline_options_t options = {
        .schedule = "1f1b", .ranks = 3, .micro_batches = 1, .shards = 2, .sharded = true};
    tutti_pipeline_schedule_t schedule;
    tutti_buffer_t csv;
    assert_int_equal(tutti_pipeline_plan(&options, &schedule), TUTTI_OK);
    assert_int_equal(tutti_pipeline_write(&schedule, &csv), TUTTI_OK);
    assert_string_equal(csv.data,
                        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0REDUCE_GRAD0,0RECV_B1,"
                        "0B1,0REDUCE_GRAD1,0RESHARD,0STEP1\n"
                        "1UNSHARD,1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_B0,1B0,"
                        "1SEND_B0,1REDUCE_GRAD0,1RECV_B1,1B1,1SEND_B1,1REDUCE_GRAD1,1RESHARD,"
                        "1STEP1\n"
                        "2UNSHARD,2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD0,2RECV_F1,2F1,2B1,"
                        "2SEND_B1,2REDUCE_GRAD1,2RESHARD,2STEP1\n");
    tutti_buffer_release(&csv);
    tutti_pipeline_schedule_release(&schedule);
}

/* ---- costs of a plan ---- */

/* 1,024 stages, 4,096 micro-batches: 0.1 s is promised, and ten times that is failed. */
static void a_row_of_a_large_pipeline_is_cheap(void **state)
{
    (void)state;
    tutti_pipeline_about_t about;
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        const int per_rank = about.stages_per_rank_min;
        const tutti_pipeline_options_t options = {
            .schedule = about.name, .ranks = 1024 / per_rank, .micro_batches = 4096};
        struct timespec begin, end;
        tutti_pipeline_row_t row;
        const tt_alloc_stats_t before = tt_alloc_stats();
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        assert_int_equal(tutti_pipeline_plan_row(&options, 300, &row), TUTTI_OK);
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        const tt_alloc_stats_t after = tt_alloc_stats();
        assert_int_equal(after.bytes - before.bytes, (size_t)row.count * sizeof *row.actions);
        assert_in_range(after.allocations - before.allocations, 1, 2);
        /* two or three computations, four messages, and what an asynchronous one steps */
        assert_in_range(row.count, 2 * 4096 * per_rank, 8 * 4096 * per_rank + 2);
        const double ms = 1e3 * (double)(end.tv_sec - begin.tv_sec) +
                          1e-6 * (double)(end.tv_nsec - begin.tv_nsec);
        printf("%-16s %lld actions, %.2f ms\n", about.name, (long long)row.count, ms);
        assert_true(ms < 1000);
        tutti_pipeline_row_release(&row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_and_1f1b_have_the_papers_bubble),
        cmocka_unit_test(interleaved_divides_the_bubble_by_the_stages_of_a_rank),
        cmocka_unit_test(zb_h1_has_a_third_of_the_bubble),
        cmocka_unit_test(zb_h2_and_zb_v_have_no_hole),
        cmocka_unit_test(zb_h2_fills_by_its_costs),
        cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(stages_may_cost_differently),
        cmocka_unit_test_teardown(activations_are_the_papers, release_simulated),
        cmocka_unit_test(shards_are_more_micro_batches),
        cmocka_unit_test(shards_have_one_bubble),
        cmocka_unit_test_teardown(later_shards_wait_for_all_stages, release_simulated),
        cmocka_unit_test(pipedream_uses_the_papers_versions),
        cmocka_unit_test(rows_are_in_the_fields_order),
        cmocka_unit_test(what_stands_around_computations_is_in_its_place),
        cmocka_unit_test(a_row_of_a_large_pipeline_is_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
