/* Plans of steps of sharded training: what they hold, what a check finds, how they run in time. */
#include "parallel/ddp/sharded_plan_testing.h"

static void units_come_before_they_are_wanted(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, 0);
    expect_moves(&o, 1, "g0 +1 +2 r1 +3 r2 r3 +3 +2 r3 s0 +1 r2 s1 r1 s2 s3 r0 p0");
    o.prefetch = -1;
    expect_moves(&o, 0, "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
    o.prefetch = 2;
    expect_moves(&o, 0, "g0 +1 +2 +3 r1 r2 r3 +3 +2 +1 r3 s0 r2 s1 r1 s2 s3 r0 p0");
    o.is_first = true;
    expect_moves(&o, 0, "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
}

static void what_is_kept_is_gathered_once(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, 0);
    o.keep_after_forward = true;
    expect_moves(&o, 0, "g0 +1 +2 +3 r3 s0 r2 s1 r1 s2 s3 r0 p0");
    o.shards = 4;
    o.keep_after_backward = true;
    expect_moves(&o, 0, "g0 +1 +2 +3 s0 s1 s2 s3 r0 r1 r2 r3 p0");
}

static void small_parameters_stay(void **state)
{
    (void)state;
    const tutti_sharded_unit_t with_kept[] = {{.name = "", .bytes = 8},
                                              {.name = "a", .bytes = 40},
                                              {.name = "kept", .bytes = 4, .is_kept = true}};
    tutti_sharded_unit_t mixed[3];
    memcpy(mixed, with_kept, sizeof mixed);
    tutti_sharded_options_t o = {.stage = 3, .ranks = 2, .units = with_kept, .unit_count = 3};
    expect_moves(&o, 0, "+0 +1 r1 +1 r1 s0 s1 s2 r0 r2 p0 g2");
    o.holds_all = true;
    expect_moves(&o, 0, "g0 +1 s0 s1 s2 r0 r1 r2 p0 g2");
    o.holds_all = false;
    o.units = mixed; /* what is computed with comes and goes */
    mixed[2].kept_bytes = 8;
    expect_moves(&o, 0, "g2 +0 +1 r1 +1 r1 s0 s1 s2 r0 r2 p0 g2");
}

/* Three shards on two ranks: rank 0 has one, and takes part in the gathers of the other. */
static void ranks_with_fewer_shards_follow(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, -1);
    o.shards = 3;
    expect_moves(&o, 0,
                 "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 "
                 "g0 r0 g1 r1 g2 r2 g3 r3 g3 r3 g2 r2 g1 r1 p0");
    expect_moves(&o, 1,
                 "g0 g1 r1 g2 r2 g3 r3 g3 r3 g2 r2 g1 r1 r0 "
                 "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
    o.shards = 1;
    expect_moves(&o, 1, "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
    expect_moves(&o, 0, "s0 s1 s2 s3 g0 r0 g1 r1 g2 r2 g3 r3 g3 r3 g2 r2 g1 r1 p0");
}

static void below_stage_3_nothing_comes(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(0, 2, 0);
    expect_moves(&o, 0, "s0 s1 s2 s3");
    o.stage = 2;
    expect_moves(&o, 0, "s0 s1 s2 s3 p0");
}

/* A unit that is called twice, another that is computed again, a third one without a backward. */
static void calls_may_be_any(void **state)
{
    (void)state;
    const tutti_sharded_action_t calls[] = {
        {.kind = TUTTI_SHARDED_FORWARD, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2, .is_again = true},
        {.kind = TUTTI_SHARDED_BACKWARD, .index = 2},
        {.kind = TUTTI_SHARDED_BACKWARD_END, .index = 2},
        {.kind = TUTTI_SHARDED_BACKWARD, .index = 1},
        {.kind = TUTTI_SHARDED_END},
        {.kind = TUTTI_SHARDED_UNSHARD, .index = 3}};
    tutti_sharded_options_t o = options_of(3, 2, -1);
    o.calls = calls;
    o.call_count = sizeof calls / sizeof calls[0];
    expect_moves(&o, 0, "g1 r1 g2 r2 g1 r1 g2 r2 g1 r1 g3 s0 s1 s2 s3 r3 p0");
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    tutti_sharded_plan_t plan;
    const struct {
        tutti_sharded_options_t options;
        const char *text;
    } cases[] = {
        {{.stage = 4, .unit_count = 1, .units = units}, "stage 4: want 0 to 3"},
        {{.ranks = 3, .rows = 2, .unit_count = 1, .units = units}, "2 rows of 3 ranks"},
        {{.ranks = 4097, .unit_count = 1, .units = units}, "on 4097 ranks"},
        {{.ranks = 8, .rows = 2, .reshard_ranks = 3, .unit_count = 1, .units = units},
         "3 of 4 ranks keep a unit: want a divisor of 4, or 0"},
        {{.stage = 3,
          .ranks = 4,
          .units = units,
          .unit_count = 1,
          .reshard_ranks = 2,
          .keep_after_forward = true},
         "2 ranks keep a unit, and keep_after_forward keeps it whole on each: take one of them"},
        {{.ranks = 2, .reshard_ranks = -1, .unit_count = 1, .units = units}, "-1 of 2 ranks keep"},
        {{.unit_count = 0, .units = units}, "0 units"},
        {{.unit_count = 1,
          .units = units,
          .buckets = &(tutti_sharded_bucket_t){1, 8},
          .bucket_count = 1},
         "bucket 0 is of unit 1 of 1"},
        {{.unit_count = 1, .units = &(tutti_sharded_unit_t){.is_kept = true}},
         "unit 0 of 1 is kept"},
        {{.unit_count = 1, .units = &(tutti_sharded_unit_t){.forward = -1}}, "takes -1 and 0"},
        {{.unit_count = 1,
          .units = units,
          .calls = &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_FORWARD},
          .call_count = 1},
         "1 forwards do not end"},
        {{.unit_count = 1,
          .units = units,
          .calls = &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_GATHER},
          .call_count = 1},
         "call 0: no kind 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tutti_sharded_plan(&cases[i].options, &plan), TUTTI_ERR_ARG);
        if (strstr(tutti_last_error(), cases[i].text) == NULL) {
            fail_msg("case %zu: \"%s\" instead of \"%s\"", i, tutti_last_error(), cases[i].text);
        }
    }
    nothing_is_left();
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void drop(tutti_sharded_row_t *row, int at)
{
    memmove(&row->actions[at], &row->actions[at + 1],
            (size_t)(row->count - at - 1) * sizeof *row->actions);
    row->count--;
}

static void swap(tutti_sharded_row_t *row, int a, int b)
{
    const tutti_sharded_action_t action = row->actions[a];
    row->actions[a] = row->actions[b];
    row->actions[b] = action;
}

static void drop_gather(tutti_sharded_row_t *row)
{
    drop(row, find(row, TUTTI_SHARDED_GATHER, 2));
}

static void drop_release(tutti_sharded_row_t *row)
{
    drop(row, find(row, TUTTI_SHARDED_RELEASE, 0));
}

static void release_early(tutti_sharded_row_t *row)
{
    const int at = find(row, TUTTI_SHARDED_RELEASE, 0);
    swap(row, at, at - 1);
}

static void gather_too_early(tutti_sharded_row_t *row)
{
    const int at = find(row, TUTTI_SHARDED_GATHER, 2);
    for (int i = at; i > find(row, TUTTI_SHARDED_GATHER, 1); i--) {
        swap(row, i, i - 1);
    }
}

static void swap_buckets(tutti_sharded_row_t *row)
{
    swap(row, find(row, TUTTI_SHARDED_SCATTER, 0), find(row, TUTTI_SHARDED_SCATTER, 1));
}

static void keep_bucket(tutti_sharded_row_t *row)
{
    drop(row, find(row, TUTTI_SHARDED_SCATTER, 3));
}

static void begin_nowhere(tutti_sharded_row_t *row)
{
    row->actions[0] = (tutti_sharded_action_t){.kind = TUTTI_SHARDED_FORWARD, .index = 4};
}

/* The same units in another order: nothing of the row itself is wrong. */
static void gather_in_other_order(tutti_sharded_row_t *row)
{
    const int a = find(row, TUTTI_SHARDED_GATHER, 0), b = find(row, TUTTI_SHARDED_GATHER, 1);
    swap(row, a, b);
}

static void a_check_finds_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(tutti_sharded_row_t *row);
        const char *text;
    } cases[] = {
        {drop_gather, "(forward b): the unit is not there"},
        {drop_release, "(gather a): the unit is there"},
        {release_early, "(release a): the unit is in use"},
        {gather_too_early, "2 units are gathered early; prefetch allows 1"},
        {swap_buckets, "(scatter 1): buckets leave in their order, and the next one is 0"},
        {keep_bucket, "(finish): 3 of 4 buckets have left"},
        {begin_nowhere, "there is no such unit"},
        {gather_in_other_order, "rank 0 gathers another unit in this place"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tutti_sharded_options_t o = options_of(3, 2, 0);
        tutti_sharded_plan_t plan = plan_of(&o);
        cases[i].spoil(&plan.rows[1]);
        assert_int_equal(tutti_sharded_check(&plan), TUTTI_ERR_ARG);
        if (strstr(tutti_last_error(), cases[i].text) == NULL ||
            strstr(tutti_last_error(), "rank 1, action") == NULL) {
            fail_msg("case %zu: \"%s\" instead of \"%s\"", i, tutti_last_error(), cases[i].text);
        }
        tutti_sharded_plan_release(&plan);
        nothing_is_left();
    }
}

static void who_waits_for_ever_is_named(void **state)
{
    (void)state;
    const tutti_sharded_options_t o = options_of(2, 2, 0);
    tutti_sharded_plan_t plan = plan_of(&o);
    tutti_sharded_simulation_t simulation;
    drop(&plan.rows[1], find(&plan.rows[1], TUTTI_SHARDED_PUBLISH, 0));
    assert_int_equal(tutti_sharded_simulate(&plan, NULL, &simulation), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "rank 0 waits for ever in action"));
    tutti_sharded_plan_release(&plan);
    nothing_is_left();
}

/* ---- time ------------------------------------------------------------------------------------ */

/* 40 bytes on 2 ranks at 20 bytes a second: 1 s and the latency of 0.5 s for a unit, which is used
 * for 2 s forward and 4 s backward. */
static const tutti_sharded_unit_t timed[] = {
    {.name = "", .bytes = 0},
    {.name = "a", .bytes = 40, .forward = 2, .backward = 4},
    {.name = "b", .bytes = 40, .forward = 2, .backward = 4}};
static const tutti_sharded_costs_t costs = {.bytes_per_second = 20, .latency = 0.5, .step = 3};

/*     computes   0 ····1.5 F1 3.5 F2 5.5 ···· B2 … B1 … step
 *     wire         G1  1.5 G2 3           R2      R1
 */
static void what_is_early_hides_the_wire(void **state)
{
    (void)state;
    tutti_sharded_options_t o = {.stage = 3, .ranks = 2, .units = timed, .unit_count = 3};
    tutti_sharded_simulation_t s = simulate(&o, &costs);
    /* G1 is waited for; G2 is hidden. b is gathered again behind its forward, from 5.5 to 7, and a
     * behind it, to 8.5, while b goes backward to 11. R2 hides behind a's, to 15; R1 does not, to
     * 16.5; then the step. */
    assert_float_equal(s.time, 16.5 + 3, 1e-9);
    assert_float_equal(s.compute, 12 + 3, 1e-9);
    assert_float_equal(s.exposed, 4.5, 1e-9);
    assert_float_equal(s.wire, 6 * 1.5, 1e-9);
    assert_int_equal(s.sent_bytes, 6 * 20);
    assert_int_equal(s.peak_unit_bytes, 80);
    assert_int_equal(s.peak_gradient_bytes, 80);
    tutti_sharded_simulation_release(&s);
    o.prefetch = -1;
    s = simulate(&o, &costs);
    /* b's bucket is on the wire before a's last gather */
    assert_float_equal(s.time, 4 * 1.5 + 12 + 2 * 1.5 + 3, 1e-9);
    assert_int_equal(s.peak_unit_bytes, 40);
    tutti_sharded_simulation_release(&s);
    nothing_is_left();
}

static void stages_send_what_the_guide_says(void **state)
{
    (void)state;
    static const int64_t sent[] = {2 * 200 * 3 / 4, 2 * 200 * 3 / 4, 2 * 200 * 3 / 4,
                                   (80 + 2 * 120 + 200) * 3 / 4};
    for (int stage = 0; stage <= 3; stage++) {
        const tutti_sharded_options_t o = options_of(stage, 4, 0);
        tutti_sharded_simulation_t s = simulate(&o, NULL);
        assert_int_equal(s.sent_bytes, sent[stage]);
        assert_int_equal(s.peak_unit_bytes, stage == 3 ? 160 : 0);
        assert_int_equal(s.peak_gradient_bytes, stage < 2 ? 200 : 120);
        tutti_sharded_simulation_release(&s);
    }
    tutti_sharded_options_t o = options_of(3, 4, 0);
    o.rows = 2; /* units from the row alone, slices to the other one */
    tutti_sharded_simulation_t s = simulate(&o, NULL);
    assert_int_equal(s.sent_bytes, (80 + 2 * 120) / 2 + 200 * 3 / 4 + 200 / 4);
    tutti_sharded_simulation_release(&s);
    o.is_shared = true;
    s = simulate(&o, NULL);
    assert_int_equal(s.sent_bytes, 200 * 3 / 4 + 200 / 4);
    assert_int_equal(s.peak_unit_bytes, 0);
    tutti_sharded_simulation_release(&s);
    nothing_is_left();
}

/* Rank 0 would wait for rank 1's buckets, which waits for rank 0's part in its gathers. */
static void nobody_waits_for_buckets_for_ever(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, 0);
    o.shards = 3;
    tutti_sharded_simulation_t s = simulate(&o, NULL);
    assert_float_equal(s.time, 0.1, 1e-9); /* the reducer's patience */
    assert_int_equal(s.peak_gradient_bytes, 200);
    tutti_sharded_simulation_release(&s);
    nothing_is_left();
}

/* Rank 0, which has no shard, has no bucket to fill: it starts all of them at once, and follows. */
static void ranks_without_shards_wait_for_no_bucket(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, 0);
    o.shards = 1;
    tutti_sharded_simulation_t s = simulate(&o, NULL);
    assert_float_equal(s.time, 0, 1e-9);
    tutti_sharded_simulation_release(&s);
    nothing_is_left();
}

static void many_ranks_are_planned(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 1024, 2);
    o.shards = 1500;
    tutti_sharded_plan_t plan = plan_of(&o);
    assert_int_equal(tutti_sharded_check(&plan), TUTTI_OK);
    tutti_sharded_plan_release(&plan);
    nothing_is_left();
}

/* ---- pictures -------------------------------------------------------------------------------- */

static tutti_buffer_t draw(const tutti_sharded_options_t *options, bool is_svg)
{
    tutti_sharded_plan_t plan = plan_of(options);
    tutti_sharded_simulation_t simulation;
    tutti_buffer_t picture;
    assert_int_equal(tutti_sharded_simulate(&plan, &costs, &simulation), TUTTI_OK);
    assert_int_equal(tutti_sharded_draw(&plan, &simulation, is_svg, &picture), TUTTI_OK);
    tutti_sharded_simulation_release(&simulation);
    tutti_sharded_plan_release(&plan);
    return picture;
}

static void a_timeline_shows_computing_and_the_wire(void **state)
{
    (void)state;
    const tutti_sharded_options_t o = {.stage = 3, .ranks = 2, .units = timed, .unit_count = 3};
    tutti_buffer_t text = draw(&o, false);
    assert_non_null(strstr(text.data, "0-1       .. F1 F2 -- .. B2 -- B1 -- -- .. S  --\n"
                                      "wire      G1 G2 .. .. G2 G1 .. R0 .. .. R1 .. ..\n"));
    assert_non_null(strstr(text.data, "time 19.5 s: computes 15, waits 4.5 (23.1 %)"));
    assert_non_null(strstr(text.data, "sends 120 bytes, and has at most 80 bytes of units and 80 "
                                      "of gradients under way"));
    tutti_buffer_release(&text);
    tutti_buffer_t svg = draw(&o, true);
    assert_non_null(strstr(svg.data, "<title>gather a: 0 to 1.5</title>"));
    assert_non_null(strstr(svg.data, "stage 3, 2 ranks, 3 units, time 19.5 s"));
    tutti_buffer_release(&svg);
    nothing_is_left();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void what_fails_leaves_nothing(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 2, 0);
    o.shards = 3;
    for (size_t nth = 1;; nth++) {
        tutti_sharded_plan_t plan;
        tt_alloc_fail_at(nth);
        tutti_status_t status = tutti_sharded_plan(&o, &plan);
        if (status >= 0) {
            status = tutti_sharded_check(&plan);
            tutti_sharded_plan_release(&plan);
        }
        tt_alloc_fail_at(0);
        nothing_is_left();
        if (status >= 0) {
            assert_true(nth > 20);
            return;
        }
        assert_int_equal(status, TUTTI_ERR_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_come_before_they_are_wanted),
        cmocka_unit_test(what_is_kept_is_gathered_once),
        cmocka_unit_test(small_parameters_stay),
        cmocka_unit_test(ranks_with_fewer_shards_follow),
        cmocka_unit_test(below_stage_3_nothing_comes),
        cmocka_unit_test(calls_may_be_any),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(a_check_finds_what_is_wrong),
        cmocka_unit_test(who_waits_for_ever_is_named),
        cmocka_unit_test(what_is_early_hides_the_wire),
        cmocka_unit_test(stages_send_what_the_guide_says),
        cmocka_unit_test(nobody_waits_for_buckets_for_ever),
        cmocka_unit_test(ranks_without_shards_wait_for_no_bucket),
        cmocka_unit_test(many_ranks_are_planned),
        cmocka_unit_test(a_timeline_shows_computing_and_the_wire),
        cmocka_unit_test(what_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
