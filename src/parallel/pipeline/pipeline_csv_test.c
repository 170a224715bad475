/* Schedules as text: what is read, what is refused and where; pictures. */
#include <stdio.h>

#include <tutti/pipeline.h>

#include "core/base/testing.h"

static void expect_written(const char *csv, const char *wanted)
{
    tutti_pipeline_schedule_t schedule;
    tutti_buffer_t text;
    if (tutti_pipeline_read(csv, strlen(csv), 0, &schedule) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(tutti_pipeline_write(&schedule, &text), TUTTI_OK);
    assert_string_equal(text.data, wanted);
    assert_int_equal(text.bytes, strlen(wanted));
    tutti_buffer_release(&text);
    tutti_pipeline_schedule_release(&schedule);
}

static void pytorchs_form_is_read(void **state)
{
    (void)state;
    expect_written("0F0,,0B0\r\n,1F0,1B0\r\n", "0F0,0B0\n1F0,1B0\n");
    expect_written("0F0, 0F1 ,\"0B0\",\t0B1", "0F0,0F1,0B0,0B1\n");
    expect_written("0F0,0I0,0W0,0F1,(0I1;0W1)OVERLAP_F_B\n", "0F0,0I0,0W0,0F1,0I1,0W1\n");
    expect_written("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n",
                   "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD0\n");
    expect_written("0F0,0SEND_F0,0RECV_B0,0B0\n\n1RECV_F0,1F0,1B0,1SEND_B0\n",
                   "0F0,0SEND_F0,0RECV_B0,0B0\n\n1RECV_F0,1F0,1B0,1SEND_B0\n");
}

static void steps_and_versions_are_found(void **state)
{
    (void)state;
    const char csv[] = "0F0,0F1,0B0,0STEP,0F2@0,0F3,0B1,0B2,0REDUCE_GRAD,0STEP,0B3,0STEP\n";
    tutti_pipeline_schedule_t schedule;
    assert_int_equal(tutti_pipeline_read(csv, sizeof csv - 1, 2, &schedule), TUTTI_OK);
    assert_int_equal(schedule.shards, 2);
    const tutti_pipeline_action_t *actions = schedule.rows[0].actions;
    static const int wanted[][2] = {{0, 0}, {1, 0}, {0, 0}, {0, 1}, {2, 0}, {3, 1},
                                    {1, 0}, {2, 0}, {2, 0}, {2, 2}, {3, 1}, {3, 3}};
    assert_int_equal(schedule.rows[0].count, 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(actions[i].micro_batch, wanted[i][0]);
        assert_int_equal(actions[i].version, wanted[i][1]);
    }
    tutti_pipeline_schedule_release(&schedule);
    expect_written(csv, "0F0,0F1,0B0,0STEP0,0F2@0,0F3,0B1,0B2,0REDUCE_GRAD2,0STEP2,0B3,0STEP3\n");
}

static void expect_refused(const char *csv, tutti_status_t status, const char *error)
{
    tutti_pipeline_schedule_t schedule = {.ranks = 77};
    assert_int_equal(tutti_pipeline_read(csv, strlen(csv), 3, &schedule), status);
    tt_expect_error(error);
    assert_int_equal(schedule.ranks, 77);
}

static void what_is_no_schedule_is_refused_by_its_place(void **state)
{
    (void)state;
    static const char *const cells[] = {"F0",
                                        "0",
                                        "0F",
                                        "0F0x",
                                        "0X0",
                                        "0F-1",
                                        "0SEND0",
                                        "0UNSHARD0",
                                        "0B0@1",
                                        "0F0@",
                                        "0F0@x",
                                        "-1F0",
                                        "0f0",
                                        "(0F0;1B0)",
                                        "(0F0)OVERLAP_B_F",
                                        "(0F0;)OVERLAP_F_B;",
                                        "0F999999999",
                                        "999999999999F0",
                                        "\"0F0",
                                        "()OVERLAP_F_B",
                                        "0 F0",
                                        "0F0@268435457"};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        char csv[128];
        snprintf(csv, sizeof csv, "0F0,0B0\n1F0,,%s\n", cells[i]);
        expect_refused(csv, TUTTI_ERR_FORMAT, "line 2, cell 3: ");
        tt_expect_error(" is no action; want such as 0F3");
    }
    expect_refused("0F0\x01\n", TUTTI_ERR_FORMAT, "line 1, cell 1: 0F0\\x01 is no action");
    expect_refused("", TUTTI_ERR_FORMAT, "there is no action of a micro-batch");
    expect_refused(",,\n,", TUTTI_ERR_FORMAT, "there is no action of a micro-batch");
    expect_refused("0UNSHARD", TUTTI_ERR_FORMAT, "there is no action of a micro-batch");
    expect_refused("0F0,1F0,1F7\n", TUTTI_ERR_FORMAT,
                   "3 forwards; 2 stages of 8 micro-batches want 16");
    expect_refused("0F0,0F1,0F2,0F3\n", TUTTI_ERR_ARG,
                   "4 micro-batches are not shards of 3 micro-batches each");
    tutti_pipeline_schedule_t schedule;
    assert_int_equal(tutti_pipeline_read("0F0", 3, -1, &schedule), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_read(NULL, 3, 0, &schedule), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_read(NULL, 0, 0, &schedule), TUTTI_ERR_FORMAT);
}

static void actions_are_cut_to_their_room(void **state)
{
    (void)state;
    const tutti_pipeline_action_t action = {
        .kind = TUTTI_PIPELINE_REDUCE, .stage = 1023, .micro_batch = 4095};
    char text[8];
    assert_int_equal(tutti_pipeline_action_text(&action, text, sizeof text), 19);
    assert_string_equal(text, "1023RED");
}

/* ---- pictures ---- */

static tutti_buffer_t draw(const tutti_pipeline_options_t *options,
                           const tutti_pipeline_costs_t *costs, bool is_svg)
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_simulation_t simulation;
    tutti_buffer_t picture;
    assert_int_equal(tutti_pipeline_plan(options, &schedule), TUTTI_OK);
    assert_int_equal(tutti_pipeline_simulate(&schedule, costs, 1, &simulation), TUTTI_OK);
    assert_int_equal(tutti_pipeline_draw(&schedule, &simulation, is_svg, &picture), TUTTI_OK);
    tutti_pipeline_simulation_release(&simulation);
    tutti_pipeline_schedule_release(&schedule);
    return picture;
}

static void expect_picture(const tutti_pipeline_options_t *options,
                           const tutti_pipeline_costs_t *costs, const char *wanted)
{
    tutti_buffer_t text = draw(options, costs, false);
    assert_string_equal(text.data, wanted);
    tutti_buffer_release(&text);
}

static void text_is_drawn_in_time(void **state)
{
    (void)state;
    expect_picture(&(tutti_pipeline_options_t){.ranks = 2, .micro_batches = 3}, NULL,
                   "rank 0    F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
                   "rank 1    .. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n"
                   "\n"
                   "time 12, work of the busiest rank 9, bubble 25.0 %\n"
                   "rank 0   works 9, waits 3 between its first and last action, holds 2\n"
                   "rank 1   works 9, waits 0 between its first and last action, holds 1\n");
    expect_picture(&(tutti_pipeline_options_t){.schedule = "zb-v", .ranks = 1},
                   &(tutti_pipeline_costs_t){.forward = 2, .input = 2, .weight = 2, .step = 2},
                   "rank 0    0F0 1F0 1I0 1W0 0I0 0W0 0S0 1S0\n"
                   "\n"
                   "time 16, work of the busiest rank 16, bubble 0.0 %\n"
                   "rank 0   works 16, waits 0 between its first and last action, holds 2\n");
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void long_schedules_end_with_dots(void **state)
{
    (void)state;
    const tutti_pipeline_options_t options = {.ranks = 2, .micro_batches = 1000};
    tutti_buffer_t text = draw(&options, NULL, false);
    assert_int_equal(count_of(text.data, " ...\n"), 2);
    assert_in_range(text.bytes, 2 * 400 * 4, 2 * 410 * 6);
    tutti_buffer_release(&text);
}

static void a_box_for_each_computation(void **state)
{
    (void)state;
    const tutti_pipeline_options_t options = {.schedule = "zb-h1", .ranks = 3, .micro_batches = 4};
    tutti_buffer_t svg = draw(&options, NULL, true);
    assert_int_equal(count_of(svg.data, "<title>"), 3 * 3 * 4);
    assert_non_null(strstr(svg.data, "<title>2W3: "));
    assert_non_null(strstr(svg.data, "3 stages, 4 micro-batches, time 14, bubble 14.3 %"));
    assert_int_equal(count_of(svg.data, "<g>"), count_of(svg.data, "</g>"));
    assert_string_equal((const char *)svg.data + svg.bytes - strlen("</svg>\n"), "</svg>\n");
    assert_null(strstr(svg.data, "left out"));
    tutti_buffer_release(&svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_form_is_read),
        cmocka_unit_test(steps_and_versions_are_found),
        cmocka_unit_test(what_is_no_schedule_is_refused_by_its_place),
        cmocka_unit_test(actions_are_cut_to_their_room),
        cmocka_unit_test(text_is_drawn_in_time),
        cmocka_unit_test(long_schedules_end_with_dots),
        cmocka_unit_test(a_box_for_each_computation),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
