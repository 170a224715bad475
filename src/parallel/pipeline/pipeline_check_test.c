/* Schedules that are wrong: what the check says, and where its grid is marked. Options that are
 * refused. Memory that is missing. */
#include <math.h>
#include <stdio.h>

#include <tutti/pipeline.h>

#include "core/base/testing.h"

static tutti_pipeline_schedule_t read_text(const char *csv)
{
    tutti_pipeline_schedule_t schedule = {0};
    assert_int_equal(tutti_pipeline_read(csv, strlen(csv), 0, &schedule), TUTTI_OK);
    return schedule;
}

/* A schedule that cannot run: the text, and a line of the grid. */
static void expect_bad(const char *csv, const char *error, const char *line)
{
    tutti_pipeline_schedule_t schedule = read_text(csv);
    tutti_pipeline_report_t report = {.messages = 77};
    tutti_buffer_t grid;
    assert_int_equal(tutti_pipeline_check(&schedule, &report, &grid), TUTTI_ERR_ARG);
    tt_expect_error(error);
    assert_int_equal(report.messages, 77);
    if (strstr(grid.data, line) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", line, (const char *)grid.data);
    }
    tutti_buffer_release(&grid);
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_ERR_ARG);
    tt_expect_error(error);
    tutti_pipeline_schedule_release(&schedule);
}

static tutti_pipeline_report_t check_text(const char *csv)
{
    tutti_pipeline_schedule_t schedule = read_text(csv);
    tutti_pipeline_report_t report = {0};
    if (tutti_pipeline_check(&schedule, &report, NULL) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_pipeline_schedule_release(&schedule);
    return report;
}

static void a_cycle_is_named_and_marked(void **state)
{
    (void)state;
    expect_bad("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n",
               "rank 0 waits in 0B0 for 1I0, rank 1 waits in 1F1 for 0F1: a cycle",
               "     1  *0B0           1F0           <-- rank 0 waits for 1I0");
    expect_bad("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
               "1RECV_F1,1F1,1RECV_F0,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n",
               "rank 0 waits in 0B0 for 1SEND_B0, rank 1 waits in 1F1 for 0SEND_F1: a cycle",
               "     1   0SEND_F0     *1F1           <-- rank 1 waits for 0SEND_F1");
    /* three ranks; the first one is not part of the cycle */
    expect_bad("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F1,2F0,2B0,2B1\n",
               "rank 1 waits in 1B0 for 2I0, rank 2 waits in 2F1 for 1F1: a cycle",
               "     1   0F1          *1B0           2F0           <-- rank 1 waits for 2I0");
    expect_bad("0B0,0F0\n", "rank 0 waits in 0B0 for 0F0, which stands behind it",
               "     0  *0B0           <-- rank 0 waits for 0F0");
    expect_bad("0F0,0W0,0I0\n", "rank 0 waits in 0W0 for 0I0, which stands behind it",
               "     1  *0W0           <-- rank 0 waits for 0I0");
}

/* In memory a kind may be any number. */
static void an_unknown_kind_is_named_with_its_place(void **state)
{
    (void)state;
    static const int kinds[] = {-1, TUTTI_PIPELINE_STEP + 1, 1 << 20};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tutti_pipeline_schedule_t own = read_text("0F0,0B0\n1F0,1B0\n");
        tutti_pipeline_report_t report;
        tutti_pipeline_row_t row;
        char text[80];
        own.rows[1].actions[1].kind = (tutti_pipeline_kind_t)kinds[i];
        snprintf(text, sizeof text, "no kind of action with the number %d", kinds[i]);
        assert_int_equal(tutti_pipeline_check(&own, &report, NULL), TUTTI_ERR_ARG);
        tt_expect_error("rank 1, action 1, 1?0: there is");
        tt_expect_error(text);
        const tutti_pipeline_options_t options = {.own = &own};
        assert_int_equal(tutti_pipeline_plan_row(&options, 1, &row), TUTTI_ERR_ARG);
        tt_expect_error("rank 1, action 1: there is");
        tt_expect_error(text);
        tutti_pipeline_schedule_release(&own);
    }
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    expect_bad("0F0,0B0,0F1,0B1\n1F0,1F1,1B1\n", "rank 0 waits in 0B0 for 1I0, which no rank does",
               "*0B0");
    expect_bad("0F0,0B0\n1F0,1I0\n", "rank 1, action 2, the end: 1W0 is missing",
               "     2                *              <-- rank 1: here");
    expect_bad("0F0\n", "rank 0, action 1, the end: 0B0 is missing", "*");
    expect_bad("0F0,0F1,0B0,0B1\n1F0,1B0,1F0,1B1\n",
               "rank 1, action 2, 1F0: this has been done before", "*1F0");
    expect_bad("0F0,0B0,0I0\n", "action 2, 0I0: this has been done before", "*0I0");
    expect_bad("0F0,0I0,0B0,0W0\n", "action 2, 0B0: this has been done before", "*0B0");
    expect_bad("0F0,0B0,0W0\n", "action 2, 0W0: this has been done before", "*0W0");
    expect_bad("0F0,0B0\n1F0,1B0\n0F0\n", "rank 2, action 0, 0F0: stage 0 is of rank 0, too",
               "rank 2");
    expect_bad("0F0,0B0\n\n2F0,2F0,2B0\n", "rank 0 waits in 0B0 for 1I0, which no rank does",
               "<-- rank 2 waits for 1F0");
}

static void messages_have_both_ends(void **state)
{
    (void)state;
    expect_bad("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
               "rank 1, action 0, 1F0: want 1RECV_F0 before it", "*1F0");
    expect_bad("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
               "pipeline: rank 1 waits in 1F0 for 0SEND_F0, which no rank does", "*1F0");
    expect_bad("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
               "rank 0 waits in 0SEND_F0 for 0F0, which stands behind it", "*0SEND_F0");
    expect_bad("0F0,0SEND_B0,0B0\n", "0SEND_B0: there is no stage -1", "*0SEND_B0");
    expect_bad("0F0,0SEND_F0,0B0\n", "0SEND_F0: there is no stage 1", "*0SEND_F0");
    expect_bad("0F0,0SEND_F0,1F0,1B0,0B0\n", "0SEND_F0: stage 1 is on this rank, too", "*0SEND_F0");
    expect_bad("0F0,0SEND_F0,0RECV_B0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
               "action 4, 0RECV_B0: this has been done before", "*0RECV_B0");
    expect_bad("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1RECV_B0,1F0,1B0,1SEND_B0\n",
               "1RECV_B0: there is no stage 2", "*1RECV_B0");
}

static void versions_must_be_there(void **state)
{
    (void)state;
    expect_bad("0F0@1,0B0,0STEP0\n", "0F0: weights of version 1; the newest is 0", "*0F0");
    expect_bad("0F0,0B0,0STEP0,0F1,0B1\n", "stage 0 has gradients that no STEP takes in", "*");
    tutti_pipeline_schedule_t schedule = read_text("0F0,0B0,0STEP0,0F1,0B1,0STEP1\n");
    tutti_pipeline_report_t report;
    schedule.rows[0].actions[4].version = 0;
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_ERR_ARG);
    tt_expect_error("0B1: weights of version 0; its forward used 1");
    schedule.rows[0].actions[4].version = 1;
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_OK);
    schedule.rows[0].actions[4].micro_batch = 2;
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_ERR_ARG);
    tt_expect_error("there are 2 micro-batches");
    schedule.rows[0].actions[4].stage = -1;
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_ERR_ARG);
    tt_expect_error("there are 1 stages");
    tutti_pipeline_schedule_release(&schedule);
}

/* ---- schedules of a wrong form ---- */

/* Two stages, one action each way. */
typedef struct {
    int ranks, stages, micro_batches, shards, rank_of_stage;
    bool has_no_stages, has_no_rows, has_no_actions;
    const char *says;
} form_t;

static const form_t forms[] = {
    {2, 2, 1, 1, 99999999, .says = "rank_of_stage[1] is 99999999; there are 2 ranks"},
    {2, 2, 1, 1, 2, .says = "rank_of_stage[1] is 2; there are 2 ranks"},
    {2, 2, 1, 1, -2, .says = "rank_of_stage[1] is -2; there are 2 ranks"},
    {2, 2, 0, 1, 1, .says = "micro_batches is 0; want 1 to"},
    {2, 2, -1, -1, 1, .says = "shards is -1; want 1 to"},
    {2, 2, 1, 0, 1, .says = "shards is 0; want 1 to"},
    {2, 2, 1 << 16, 1 << 16, 1, .says = "micro_batches is 65536; want 1 to 2048"},
    {2, 1 << 30, 1, 1, 1, .says = "stages is 1073741824; want 1 to"},
    {2, 0, 1, 1, 1, .says = "stages is 0; want 1 to"},
    {0, 2, 1, 1, -1, .says = "ranks is 0; want 1 to"},
    {2, 2, 1, 1, 1, .has_no_stages = true, .says = "rank_of_stage is NULL"},
    {2, 2, 1, 1, 1, .has_no_rows = true, .says = "rows are NULL"},
    {2, 2, 1, 1, 1, .has_no_actions = true, .says = "row of rank 1 has 2 actions, which are NULL"},
};

/* By everything that takes a schedule. */
static void refuse_form(const form_t *form, const tutti_pipeline_schedule_t *schedule)
{
    tutti_pipeline_report_t report;
    tutti_pipeline_row_t row;
    tutti_pipeline_simulation_t simulation = {.ranks = schedule->ranks};
    tutti_buffer_t text = {0};
    const tutti_pipeline_options_t options = {.own = schedule};
    assert_int_equal(tutti_pipeline_check(schedule, &report, &text), TUTTI_ERR_ARG);
    tt_expect_error(form->says);
    assert_int_equal(tutti_pipeline_simulate(schedule, NULL, 1, &simulation), TUTTI_ERR_ARG);
    tt_expect_error(form->says);
    assert_int_equal(tutti_pipeline_draw(schedule, &simulation, false, &text), TUTTI_ERR_ARG);
    tt_expect_error(form->says);
    assert_int_equal(tutti_pipeline_write(schedule, &text), TUTTI_ERR_ARG);
    tt_expect_error(form->says);
    assert_int_equal(tutti_pipeline_plan_row(&options, 0, &row), TUTTI_ERR_ARG);
    tt_expect_error(form->says);
}

static void schedules_of_a_wrong_form_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const form_t *form = &forms[i];
        tutti_pipeline_action_t actions[] = {{TUTTI_PIPELINE_F, 0, 0, 0},
                                             {TUTTI_PIPELINE_B, 0, 0, 0}};
        tutti_pipeline_row_t rows[] = {{actions, 2}, {form->has_no_actions ? NULL : actions, 2}};
        int rank_of_stage[] = {0, form->rank_of_stage};
        refuse_form(form, &(tutti_pipeline_schedule_t){
                              .ranks = form->ranks,
                              .stages = form->stages,
                              .micro_batches = form->micro_batches,
                              .shards = form->shards,
                              .rank_of_stage = form->has_no_stages ? NULL : rank_of_stage,
                              .rows = form->has_no_rows ? NULL : rows});
    }
}

static void reports_say_what_is_held(void **state)
{
    (void)state;
    assert_false(check_text("0F0,0F1,0B1,0B0\n").is_canonical);
    assert_false(check_text("0F0,0I0,0F1,0I1,0W1,0W0\n").is_canonical);
    assert_true(check_text("0F0,0F1,0I1,0I0,0W0,0W1\n").is_canonical);
    assert_false(check_text("0F1,0F0,0I1,0I0,0W0,0W1\n").is_canonical);
    assert_false(check_text("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n").is_canonical);
    assert_int_equal(check_text("0F0,0F1,0I0,0I1,0W0,0W1\n").activations_max, 2);
    assert_int_equal(check_text("0F0,0B0,0F1,0B1\n").activations_max, 1);
    assert_int_equal(check_text("0F0,0F1,0B0,0STEP0,0B1,0STEP1\n").versions_max, 2);
    assert_int_equal(check_text("0F0,0B0,0STEP0,0F1,0B1,0STEP1\n").versions_max, 1);
    assert_int_equal(check_text("0F0,0B0,0STEP0,0F1@0,0B1,0STEP1\n").versions_max, 2);
}

/* Two shards of two: canonical within each, two of them open. */
static void shards_may_mix(void **state)
{
    (void)state;
    const char csv[] = "0F0,0F1,0F2,0F3,0B0,0B2,0B1,0B3\n";
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_report_t report;
    assert_int_equal(tutti_pipeline_read(csv, strlen(csv), 2, &schedule), TUTTI_OK);
    assert_int_equal(schedule.shards, 2);
    assert_int_equal(tutti_pipeline_check(&schedule, &report, NULL), TUTTI_OK);
    assert_true(report.is_canonical);
    assert_int_equal(report.open_shards_max, 2);
    tutti_pipeline_row_t row;
    const tutti_pipeline_options_t options = {.own = &schedule};
    assert_int_equal(tutti_pipeline_plan_row(&options, 0, &row), TUTTI_OK);
    char text[256] = "";
    for (int64_t i = 4; i < row.count; i++) {
        char action[TUTTI_PIPELINE_TEXT_MAX];
        tutti_pipeline_action_text(&row.actions[i], action, sizeof action);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %s", action);
    }
    assert_string_equal(text, " 0B0 0B2 0B1 0REDUCE_GRAD1 0B3 0REDUCE_GRAD3 0STEP3");
    tutti_pipeline_row_release(&row);
    tutti_pipeline_schedule_release(&schedule);
}

/* ---- options ---- */

static void expect_refused(const tutti_pipeline_options_t *options, const char *error)
{
    tutti_pipeline_row_t row = {.count = -5};
    tutti_pipeline_schedule_t schedule;
    int stages = 0;
    assert_int_equal(tutti_pipeline_plan_row(options, 0, &row), TUTTI_ERR_ARG);
    tt_expect_error(error);
    assert_int_equal(row.count, -5);
    assert_int_equal(tutti_pipeline_plan(options, &schedule), TUTTI_ERR_ARG);
    tt_expect_error(error);
    assert_int_equal(tutti_pipeline_stages(options, &stages), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_rank_of(options, 0), -1);
}

#define REFUSED(error, ...) expect_refused(&(tutti_pipeline_options_t){__VA_ARGS__}, (error))

static void options_are_refused_by_name(void **state)
{
    (void)state;
    REFUSED("no schedule \"zb-u\"; did you mean \"zb-v\"", .schedule = "zb-u");
    REFUSED("9 micro-batches do not satisfy interleaved on 4 ranks, which wants whole rounds of at "
            "least one micro-batch for each rank; 8 or 10 would",
            .schedule = "interleaved", .ranks = 4, .micro_batches = 9);
    REFUSED("3 micro-batches of each shard do not satisfy interleaved on 4 ranks",
            .schedule = "interleaved", .ranks = 4, .micro_batches = 3, .shards = 3);
    REFUSED("7 micro-batches do not satisfy dualpipe-v on 4 ranks, which wants at least one for "
            "each stage; 8 would",
            .schedule = "dualpipe-v", .ranks = 4, .micro_batches = 7);
    REFUSED("10 micro-batches do not satisfy 2bw on 4 ranks", .schedule = "2bw", .ranks = 4,
            .micro_batches = 10);
    REFUSED("accumulate is 3; want 4 to", .schedule = "2bw", .ranks = 4, .micro_batches = 12,
            .accumulate = 3);
    REFUSED("1f1b has no accumulate; 2bw has", .accumulate = 3);
    REFUSED("2bw has no vertical_sync; pipedream has", .schedule = "2bw", .vertical_sync = true);
    REFUSED("shards is 2; pipedream steps behind its micro-batches", .schedule = "pipedream",
            .shards = 2);
    REFUSED("it cannot be sharded", .schedule = "pipedream", .sharded = true);
    REFUSED("stages_per_rank is 2; 1f1b has 1", .stages_per_rank = 2);
    REFUSED("stages_per_rank is 1; interleaved wants 2 to", .schedule = "interleaved",
            .stages_per_rank = 1);
    REFUSED("stages_per_rank is -1", .schedule = "looped-bfs", .stages_per_rank = -1);
    REFUSED("ranks is -1; want 1 to", .ranks = -1);
    REFUSED("micro_batches is -3; want 1 to", .micro_batches = -3);
    REFUSED("shards is -1; want 1 to", .shards = -1);
    REFUSED("micro_batches is 2147483647; want 1 to", .micro_batches = 2147483647, .shards = 2);
    REFUSED("the cost \"input\" is -1", .costs.input = -1);
    REFUSED("the cost \"weight\" is nan", .costs.weight = NAN);
    tutti_pipeline_row_t row;
    assert_int_equal(tutti_pipeline_plan_row(&(tutti_pipeline_options_t){.ranks = 3}, 3, &row),
                     TUTTI_ERR_ARG);
    tt_expect_error("rank 3 of 3");
    assert_int_equal(tutti_pipeline_plan_row(NULL, 0, &row), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_plan(NULL, NULL), TUTTI_ERR_ARG);
    tutti_pipeline_row_release(NULL);
    tutti_pipeline_schedule_release(NULL);
    tutti_pipeline_simulation_release(NULL);
}

static void ones_own_schedule_has_its_own_numbers(void **state)
{
    (void)state;
    tutti_pipeline_schedule_t own = read_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    int stages = 0;
    const tutti_pipeline_options_t options = {.own = &own, .ranks = 2, .micro_batches = 2};
    assert_int_equal(tutti_pipeline_stages(&options, &stages), TUTTI_OK);
    assert_int_equal(stages, 2);
    assert_int_equal(tutti_pipeline_rank_of(&options, 1), 1);
    REFUSED("ranks is 3; the schedule of one's own has 2", .own = &own, .ranks = 3);
    REFUSED("micro_batches is 4; the schedule of one's own has 2", .own = &own, .micro_batches = 4);
    REFUSED("shards is 2; the schedule of one's own has 1", .own = &own, .shards = 2);
    REFUSED("and \"1f1b\": one of them is too many", .own = &own, .schedule = "1f1b");
    own.rows[0].actions[1].stage = 2;
    tutti_pipeline_row_t row;
    assert_int_equal(tutti_pipeline_plan_row(&options, 0, &row), TUTTI_ERR_ARG);
    tt_expect_error("action 1 is of stage 2, micro-batch 1; there are 2 stages, 2 micro-batches");
    own.rows[0].actions[1] = (tutti_pipeline_action_t){.micro_batch = -1};
    assert_int_equal(tutti_pipeline_plan_row(&options, 0, &row), TUTTI_ERR_ARG);
    tutti_pipeline_schedule_release(&own);
    own = read_text("0F0,0B0,0STEP0,0F1,0B1,0STEP1\n");
    const tutti_pipeline_options_t sharded = {.own = &own, .sharded = true};
    assert_int_equal(tutti_pipeline_plan_row(&sharded, 0, &row), TUTTI_ERR_ARG);
    tt_expect_error("cannot be sharded");
    tutti_pipeline_schedule_release(&own);
}

static void costs_are_refused_by_name(void **state)
{
    (void)state;
    tutti_pipeline_schedule_t schedule = read_text("0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    tutti_pipeline_simulation_t simulation;
    const tutti_pipeline_costs_t costs[3] = {[2].message = -1};
    assert_int_equal(tutti_pipeline_simulate(&schedule, costs, 2, &simulation), TUTTI_ERR_ARG);
    tt_expect_error("costs of 2 stages; there are 3");
    assert_int_equal(tutti_pipeline_simulate(&schedule, costs, 3, &simulation), TUTTI_ERR_ARG);
    tt_expect_error("the cost \"message\" is -1");
    assert_int_equal(tutti_pipeline_simulate(&schedule, NULL, 7, &simulation), TUTTI_OK);
    tutti_pipeline_simulation_release(&simulation);
    schedule.rows[1].actions[1].micro_batch = 5;
    assert_int_equal(tutti_pipeline_simulate(&schedule, NULL, 1, &simulation), TUTTI_ERR_ARG);
    tutti_pipeline_schedule_release(&schedule);
}

/* ---- memory ---- */

static tutti_status_t use_all(void)
{
    const tutti_pipeline_options_t options = {
        .schedule = "zb-v", .ranks = 2, .micro_batches = 2, .shards = 2};
    tutti_pipeline_schedule_t schedule = {0}, read = {0}, own = {0};
    tutti_pipeline_simulation_t simulation = {0};
    tutti_pipeline_report_t report;
    tutti_buffer_t csv = {0}, text = {0};
    tutti_status_t status;
    TT_TRY_GOTO(status, tutti_pipeline_plan(&options, &schedule), done);
    TT_TRY_GOTO(status, tutti_pipeline_write(&schedule, &csv), done);
    TT_TRY_GOTO(status, tutti_pipeline_read(csv.data, csv.bytes, 2, &read), done);
    TT_TRY_GOTO(status, tutti_pipeline_plan(&(tutti_pipeline_options_t){.own = &read}, &own), done);
    TT_TRY_GOTO(status, tutti_pipeline_check(&own, &report, &text), done);
    TT_TRY_GOTO(status, tutti_pipeline_simulate(&own, NULL, 1, &simulation), done);
    TT_TRY_GOTO(status, tutti_pipeline_draw(&own, &simulation, false, &text), done);
    tutti_buffer_release(&text);
    TT_TRY_GOTO(status, tutti_pipeline_draw(&own, &simulation, true, &text), done);
    own.rows[0].count -= 3;
    status =
        tutti_pipeline_check(&own, &report, NULL) == TUTTI_ERR_NOMEM ? TUTTI_ERR_NOMEM : TUTTI_OK;
done:
    tutti_buffer_release(&csv);
    tutti_buffer_release(&text);
    tutti_pipeline_simulation_release(&simulation);
    tutti_pipeline_schedule_release(&own);
    tutti_pipeline_schedule_release(&read);
    tutti_pipeline_schedule_release(&schedule);
    return status;
}

static void missing_memory_is_a_status(void **state)
{
    (void)state;
    size_t nth = 0;
    do {
        tt_alloc_fail_at(++nth);
        const tutti_status_t status = use_all();
        assert_int_equal(status, tt_alloc_has_failed() ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, 0);
    } while (tt_alloc_has_failed());
    tt_alloc_fail_at(0);
    assert_true(nth > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cycle_is_named_and_marked),
        cmocka_unit_test(an_unknown_kind_is_named_with_its_place),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(messages_have_both_ends),
        cmocka_unit_test(versions_must_be_there),
        cmocka_unit_test(schedules_of_a_wrong_form_are_refused),
        cmocka_unit_test(reports_say_what_is_held),
        cmocka_unit_test(shards_may_mix),
        cmocka_unit_test(options_are_refused_by_name),
        cmocka_unit_test(ones_own_schedule_has_its_own_numbers),
        cmocka_unit_test(costs_are_refused_by_name),
        cmocka_unit_test(missing_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
