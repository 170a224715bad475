/* Conformance of all schedules, for 1 to 8 ranks and 1 to 16 micro-batches: they run to their end,
 * do everything once and in canonical order, and a rank's own row is its row of the grid.
 * TUTTI_TEST_SHARE=N runs one of N cases, which TUTTI_SEED draws. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/pipeline.h>

#include "core/tensor/device_testing.h"

enum { RANKS_MAX = 8, MICRO_BATCHES_MAX = 16 };

static bool are_rows_equal(const tutti_pipeline_row_t *a, const tutti_pipeline_row_t *b)
{
    return a->count == b->count &&
           memcmp(a->actions, b->actions, (size_t)a->count * sizeof *a->actions) == 0;
}

static void expect_equal(const tutti_pipeline_schedule_t *a, const tutti_pipeline_schedule_t *b)
{
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_int_equal(a->shards, b->shards);
    assert_memory_equal(a->rank_of_stage, b->rank_of_stage, (size_t)a->stages * sizeof(int));
    for (int rank = 0; rank < a->ranks; rank++) {
        assert_true(are_rows_equal(&a->rows[rank], &b->rows[rank]));
    }
}

/* A text of an error names the micro-batches that would do: each of them does. */
static void expect_numbers_that_would_do(tutti_pipeline_options_t options)
{
    const char *would = strstr(tutti_last_error(), "; ");
    assert_non_null(would);
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", would + 2);
    int count = 0;
    for (char *at = text; *at != 0;) {
        char *end = at;
        const long number = strtol(at, &end, 10);
        if (end == at) {
            at++;
            continue;
        }
        at = end;
        options.micro_batches = (int)number;
        tutti_pipeline_row_t row;
        assert_int_equal(tutti_pipeline_plan_row(&options, 0, &row), TUTTI_OK);
        tutti_pipeline_row_release(&row);
        count++;
    }
    assert_in_range(count, 1, 2);
}

static void expect_own_rows(const tutti_pipeline_options_t *options,
                            const tutti_pipeline_schedule_t *schedule)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        tutti_pipeline_row_t row;
        const size_t before = tt_alloc_stats().bytes;
        assert_int_equal(tutti_pipeline_plan_row(options, rank, &row), TUTTI_OK);
        assert_int_equal(tt_alloc_stats().bytes - before, (size_t)row.count * sizeof *row.actions);
        assert_true(are_rows_equal(&row, &schedule->rows[rank]));
        tutti_pipeline_row_release(&row);
    }
    for (int stage = -1; stage <= schedule->stages; stage++) {
        const bool is_there = stage >= 0 && stage < schedule->stages;
        assert_int_equal(tutti_pipeline_rank_of(options, stage),
                         is_there ? schedule->rank_of_stage[stage] : -1);
    }
    int stages = 0;
    assert_int_equal(tutti_pipeline_stages(options, &stages), TUTTI_OK);
    assert_int_equal(stages, schedule->stages);
}

static void expect_checked(const tutti_pipeline_schedule_t *schedule, bool has_messages)
{
    tutti_pipeline_report_t report;
    tutti_buffer_t grid;
    if (tutti_pipeline_check(schedule, &report, &grid) < 0) {
        fail_msg("%s\n%s", tutti_last_error(), (const char *)grid.data);
    }
    assert_null(grid.data);
    assert_true(report.is_canonical);
    int64_t crossed = 0;
    for (int stage = 0; stage + 1 < schedule->stages; stage++) {
        crossed += schedule->rank_of_stage[stage] != schedule->rank_of_stage[stage + 1];
    }
    const int64_t total = schedule->micro_batches * schedule->shards;
    assert_int_equal(report.messages, has_messages ? 2 * total * crossed : 0);
    assert_in_range(report.open_shards_max, 1, 1);
}

static void expect_text(const tutti_pipeline_schedule_t *schedule)
{
    tutti_buffer_t csv;
    tutti_pipeline_schedule_t read;
    assert_int_equal(tutti_pipeline_write(schedule, &csv), TUTTI_OK);
    assert_int_equal(tutti_pipeline_read(csv.data, csv.bytes, schedule->micro_batches, &read),
                     TUTTI_OK);
    expect_equal(&read, schedule);
    tutti_pipeline_schedule_release(&read);
    tutti_buffer_release(&csv);
}

/* Computations alone, and what is then added to them. */
static void expect_lowered(tutti_pipeline_options_t options,
                           const tutti_pipeline_schedule_t *schedule)
{
    tutti_pipeline_schedule_t bare, again;
    options.compute_only = true;
    assert_int_equal(tutti_pipeline_plan(&options, &bare), TUTTI_OK);
    expect_own_rows(&options, &bare);
    expect_text(&bare);
    expect_checked(&bare, false);
    const tutti_pipeline_options_t own = {.own = &bare, .sharded = options.sharded};
    assert_int_equal(tutti_pipeline_plan(&own, &again), TUTTI_OK);
    expect_equal(&again, schedule);
    expect_own_rows(&own, &again);
    tutti_pipeline_schedule_release(&again);
    const tutti_pipeline_options_t whole = {.own = schedule, .sharded = options.sharded};
    assert_int_equal(tutti_pipeline_plan(&whole, &again), TUTTI_OK);
    expect_equal(&again, schedule);
    tutti_pipeline_schedule_release(&again);
    tutti_pipeline_schedule_release(&bare);
}

/* With and without messages the times are the same, and every rank has all of its work. */
static void expect_simulated(const tutti_pipeline_schedule_t *schedule)
{
    const tutti_pipeline_costs_t costs = {
        .forward = 2, .input = 3, .weight = 1, .message = 0.5, .activation = 1, .pending = 0.5};
    tutti_pipeline_simulation_t s;
    assert_int_equal(tutti_pipeline_simulate(schedule, &costs, 1, &s), TUTTI_OK);
    const double total = schedule->micro_batches * schedule->shards;
    double longest = 0;
    for (int rank = 0; rank < s.ranks; rank++) {
        int stages = 0;
        for (int stage = 0; stage < schedule->stages; stage++) {
            stages += schedule->rank_of_stage[stage] == rank;
        }
        assert_true(s.loads[rank].busy == 6 * total * stages);
        assert_true(s.loads[rank].idle >= -1e-9);
        longest = s.loads[rank].end > longest ? s.loads[rank].end : longest;
    }
    assert_true(s.time == longest && s.time >= s.work && s.bubble >= -1e-9 && s.bubble < 1);
    /* the first micro-batch goes through all stages and back */
    assert_true(s.time >= 5.0 * schedule->stages);
    tutti_pipeline_simulation_release(&s);
}

/* Whether the options could be planned. */
static bool expect_good(const tutti_pipeline_options_t *options)
{
    tutti_pipeline_schedule_t schedule;
    if (tutti_pipeline_plan(options, &schedule) < 0) {
        expect_numbers_that_would_do(*options);
        return false;
    }
    expect_own_rows(options, &schedule);
    expect_checked(&schedule, true);
    expect_text(&schedule);
    expect_lowered(*options, &schedule);
    expect_simulated(&schedule);
    tutti_pipeline_schedule_release(&schedule);
    return true;
}

static int planned, refused, left_out; /* cases of a schedule */

static void try_sizes(tutti_pipeline_options_t options, size_t schedule, bool is_sharded)
{
    for (options.ranks = 1; options.ranks <= RANKS_MAX; options.ranks++) {
        for (int m = 1; m <= MICRO_BATCHES_MAX; m++) {
            if (!tt_test_takes((schedule << 16) + (size_t)(planned + refused + left_out))) {
                left_out++;
                continue;
            }
            options.micro_batches = m;
            options.sharded = is_sharded && m % 2 == 0;
            const bool is_planned = expect_good(&options);
            planned += is_planned;
            refused += !is_planned;
        }
    }
}

static void every_schedule_is_whole_and_canonical(void **state)
{
    (void)state;
    tutti_pipeline_about_t about;
    size_t i = 0;
    for (; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        tutti_pipeline_options_t options = {.schedule = about.name};
        planned = refused = left_out = 0;
        try_sizes(options, i, !about.is_asynchronous);
        options.shards = about.is_asynchronous ? 1 : 3;
        try_sizes(options, i, !about.is_asynchronous);
        options.stages_per_rank = about.stages_per_rank_max == 0 ? 3 : 0;
        options.vertical_sync = strcmp(about.name, "pipedream") == 0;
        try_sizes(options, i, !about.is_asynchronous);
        assert_true(left_out > 0 || planned > 3 * RANKS_MAX);
        printf("%-16s %d planned, %d refused, %d left out\n", about.name, planned, refused,
               left_out);
    }
    assert_int_equal(i, 12);
}

/* Not left to the draw: the smallest and a usual size of each. */
static void usual_sizes_are_planned(void **state)
{
    (void)state;
    tutti_pipeline_about_t about;
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        assert_true(
            expect_good(&(tutti_pipeline_options_t){.schedule = about.name, .micro_batches = 2}));
        assert_true(expect_good(
            &(tutti_pipeline_options_t){.schedule = about.name, .ranks = 4, .micro_batches = 8}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_sizes_are_planned),
        cmocka_unit_test(every_schedule_is_whole_and_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
