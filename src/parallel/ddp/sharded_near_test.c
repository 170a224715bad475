/* Plans of units that stay near from their forward to their backward: what they hold, what a check
 * finds, what they cost. */
#include "parallel/ddp/sharded_plan_testing.h"

static void what_stays_near_is_gathered_near(void **state)
{
    (void)state;
    tutti_sharded_options_t o = options_of(3, 4, 0);
    o.reshard_ranks = 2;
    expect_moves(&o, 3, "g0 +1 +2 k1 +3 k2 k3 *3 *2 r3 s0 *1 r2 s1 r1 s2 s3 r0 p0");
    o.prefetch = -1;
    expect_moves(&o, 0, "g0 g1 k1 g2 k2 g3 k3 n3 r3 s0 n2 r2 s1 n1 r1 s2 s3 r0 p0");
    o.reshard_ranks = 4; /* all of them */
    expect_moves(&o, 0, "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
    o.reshard_ranks = 1;
    expect_moves(&o, 0, "g0 g1 g2 g3 r3 s0 r2 s1 r1 s2 s3 r0 p0");
    o.reshard_ranks = 2;
    o.rows = 2; /* all of a row */
    expect_moves(&o, 0, "g0 g1 r1 g2 r2 g3 r3 g3 r3 s0 g2 r2 s1 g1 r1 s2 s3 r0 p0");
    o.rows = 1;
    o.shards = 5; /* rank 3 has one more: the others keep what it gathers, until it does so anew */
    expect_moves(&o, 0,
                 "g0 g1 k1 g2 k2 g3 k3 n3 r3 s0 n2 r2 s1 n1 r1 s2 s3 r0 "
                 "g0 k0 g1 k1 g2 k2 g3 k3 n3 k3 n2 k2 n1 k1 r0 r1 r2 r3 p0");
}

/* A unit that is called twice is near between its backwards; what is computed again stays near
 * until its turn; what has no backward, and what a backward has left, goes with the whole. */
static void what_stays_near_goes_with_its_last_backward(void **state)
{
    (void)state;
    const tutti_sharded_action_t calls[] = {
        {.kind = TUTTI_SHARDED_FORWARD, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 3},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 3},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2, .is_again = true},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 3},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 3, .is_again = true},
        {.kind = TUTTI_SHARDED_BACKWARD, .index = 3},
        {.kind = TUTTI_SHARDED_BACKWARD_END, .index = 3},
        {.kind = TUTTI_SHARDED_BACKWARD, .index = 1},
        {.kind = TUTTI_SHARDED_BACKWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_BACKWARD, .index = 1},
        {.kind = TUTTI_SHARDED_BACKWARD_END, .index = 1},
        {.kind = TUTTI_SHARDED_END},
        {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
        {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2, .is_last = true}};
    tutti_sharded_options_t o = options_of(3, 4, -1);
    o.reshard_ranks = 2;
    o.calls = calls;
    o.call_count = sizeof calls / sizeof calls[0];
    expect_moves(&o, 0, "g1 k1 n1 k1 g2 k2 g3 k3 n2 n3 k2 r3 n1 k1 n1 r1 r2 g2 r2 s0 s1 s2 s3 p0");
}

/* Two losses: all forwards, then a whole backward of each. What the first one does not reach stays
 * for the second, and goes with that. */
static void what_stays_near_waits_for_every_backward(void **state)
{
    (void)state;
    const tutti_sharded_action_t calls[] = {{.kind = TUTTI_SHARDED_FORWARD, .index = 1},
                                            {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
                                            {.kind = TUTTI_SHARDED_FORWARD, .index = 3},
                                            {.kind = TUTTI_SHARDED_FORWARD_END, .index = 3},
                                            {.kind = TUTTI_SHARDED_FORWARD, .index = 1},
                                            {.kind = TUTTI_SHARDED_FORWARD_END, .index = 1},
                                            {.kind = TUTTI_SHARDED_FORWARD, .index = 2},
                                            {.kind = TUTTI_SHARDED_FORWARD_END, .index = 2},
                                            {.kind = TUTTI_SHARDED_BACKWARD, .index = 3},
                                            {.kind = TUTTI_SHARDED_BACKWARD_END, .index = 3},
                                            {.kind = TUTTI_SHARDED_BACKWARD, .index = 1},
                                            {.kind = TUTTI_SHARDED_END},
                                            {.kind = TUTTI_SHARDED_BACKWARD, .index = 1},
                                            {.kind = TUTTI_SHARDED_END}};
    tutti_sharded_options_t o = options_of(3, 4, -1);
    o.reshard_ranks = 2;
    o.calls = calls;
    o.call_count = sizeof calls / sizeof calls[0];
    expect_moves(&o, 0, "g1 k1 g3 k3 n1 k1 g2 k2 n3 r3 n1 k1 n1 r1 r2 s0 s1 s2 s3 p0");
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void drop_keep(tutti_sharded_row_t *row)
{
    row->actions[find(row, TUTTI_SHARDED_KEEP, 1)].kind = TUTTI_SHARDED_RELEASE;
}

static void gather_from_all(tutti_sharded_row_t *row)
{
    row->actions[find(row, TUTTI_SHARDED_GATHER, 4)].is_near = false;
}

static void keep_for_ever(tutti_sharded_row_t *row)
{
    row->actions[find(row, TUTTI_SHARDED_RELEASE, 0)].kind = TUTTI_SHARDED_KEEP;
}

/* Twice; the row itself is right. */
static void keep_nothing(tutti_sharded_row_t *row)
{
    drop_keep(row);
    row->actions[find(row, TUTTI_SHARDED_GATHER, 5)].is_near = false;
}

static void a_check_finds_what_is_wrong_with_what_stays_near(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(tutti_sharded_row_t *row);
        const char *text;
    } cases[] = {
        {drop_keep, "(gather b): nothing was kept of it"},
        {gather_from_all, "(gather c): what was kept of it is not used"},
        {keep_for_ever, "rank 1: unit 3 (c) does not go"},
        {keep_nothing, "(gather b): rank 0 gathers another unit in this place"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_sharded_options_t o = options_of(3, 4, 0);
        o.reshard_ranks = 2;
        tutti_sharded_plan_t plan = plan_of(&o);
        cases[i].spoil(&plan.rows[1]);
        assert_int_equal(tutti_sharded_check(&plan), TUTTI_ERR_ARG);
        if (strstr(tutti_last_error(), cases[i].text) == NULL) {
            fail_msg("case %zu: \"%s\" instead of \"%s\"", i, tutti_last_error(), cases[i].text);
        }
        tutti_sharded_plan_release(&plan);
        nothing_is_left();
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* 80 bytes on 4 ranks, sets of 2: 60 sent to all, 40 to the set, at another rate. */
static void what_stays_near_costs_what_it_says(void **state)
{
    (void)state;
    const tutti_sharded_unit_t two[] = {{.name = ""},
                                        {.name = "a", .bytes = 80, .forward = 2, .backward = 4},
                                        {.name = "b", .bytes = 80, .forward = 2, .backward = 4}};
    const tutti_sharded_costs_t rates = {
        .bytes_per_second = 20, .latency = 0.5, .near_bytes_per_second = 80, .near_latency = 0.25};
    tutti_sharded_options_t o = {
        .stage = 3, .ranks = 4, .reshard_ranks = 2, .prefetch = -1, .units = two, .unit_count = 3};
    tutti_sharded_simulation_t s = simulate(&o, &rates);
    /* two gathers of 3.5, two forwards, two gathers of 0.75, which do not wait for the bucket that
     * is under way, two backwards; the last bucket */
    assert_float_equal(s.time, 2 * 3.5 + 4 + 2 * 0.75 + 8 + 3.5, 1e-9);
    assert_float_equal(s.wire, 4 * 3.5, 1e-9);
    assert_int_equal(s.sent_bytes, 4 * 60);
    assert_int_equal(s.near_bytes, 2 * 40);
    assert_int_equal(s.peak_unit_bytes, 80 + 2 * 40); /* b is whole, and both have a part */
    tutti_sharded_simulation_release(&s);
    o.is_shared = true; /* nothing is gathered */
    s = simulate(&o, &rates);
    assert_int_equal(s.near_bytes + (int64_t)s.peak_unit_bytes, 0);
    tutti_sharded_simulation_release(&s);
    nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stays_near_is_gathered_near),
        cmocka_unit_test(what_stays_near_goes_with_its_last_backward),
        cmocka_unit_test(what_stays_near_waits_for_every_backward),
        cmocka_unit_test(a_check_finds_what_is_wrong_with_what_stays_near),
        cmocka_unit_test(what_stays_near_costs_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
