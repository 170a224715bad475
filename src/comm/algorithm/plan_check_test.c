/* The check of a round against the definition: every pair of steps, every element. */
#include "comm/plan/plan_check.h"
#include "comm/algorithm/algorithms.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

enum { STEPS = 12, ROUNDS = 4000, ROOM = 100 };

static bool overlap(tt_part_t a, size_t a_count, tt_part_t b, size_t b_count)
{
    return a.buffer == b.buffer && a.index == b.index && a.offset < b.offset + b_count &&
           b.offset < a.offset + a_count;
}

/* Whether two copies of a round touch the same, at least one of them writing. */
static bool has_overlap(const tt_step_t *steps, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            const tt_step_t *a = &steps[i], *b = &steps[j];
            if (overlap(a->dst, a->count, b->dst, b->count) ||
                overlap(a->dst, a->count, b->src, b->count) ||
                overlap(a->src, a->count, b->dst, b->count)) {
                return true;
            }
        }
    }
    return false;
}

/* Copies in order, in reverse order, or in any order, of a few elements each. */
static void draw_steps(tt_rng_t rng, tt_step_t *steps, int count)
{
    const uint64_t order = tt_rng_below(rng, 1000, 3);
    for (int i = 0; i < count; i++) {
        const size_t at = order == 0 ? (size_t)i : (size_t)(count - 1 - i);
        const uint64_t draw = (uint64_t)i * 8;
        const size_t any = (size_t)tt_rng_below(rng, draw, ROOM - 8);
        const bool is_out = tt_rng_below(rng, draw + 1, 2) == 1;
        steps[i] = (tt_step_t){.kind = TT_STEP_COPY,
                               .src = {TT_BUFFER_SCRATCH, 0, order == 2 ? any : at * 8},
                               .dst = {is_out ? TT_BUFFER_OUT : TT_BUFFER_SCRATCH, 0,
                                       (size_t)tt_rng_below(rng, draw + 2, 10 * ROOM)},
                               .count = 1 + (size_t)tt_rng_below(rng, draw + 3, 8)};
    }
}

static void every_overlap_is_found_and_no_other(void **state)
{
    (void)state;
    const tt_plan_t plan = {.algorithm = &tt_algorithm_pairwise,
                            .collective = TT_ALL_GATHER,
                            .size = 1,
                            .room[TT_BUFFER_SCRATCH] = 11 * ROOM};
    const tt_plan_request_t request = {.collective = TT_ALL_GATHER, .size = 1};
    tt_plan_check_t check = {0};
    int found = 0;
    for (int k = 0; k < ROUNDS; k++) {
        tt_step_t steps[STEPS];
        draw_steps(tt_rng_stream(7, (uint64_t)k, 0, 0, 0), steps, 1 + k % STEPS);
        const tt_plan_round_t round = {.steps = steps, .count = 1 + k % STEPS};
        const tutti_status_t status = tt_plan_check_round(&check, &plan, &request, 0, &round);
        const bool want = has_overlap(steps, round.count);
        assert_int_equal(status, want ? TUTTI_ERR_ARG : TUTTI_OK);
        found += want;
    }
    assert_true(found > ROUNDS / 10 && found < ROUNDS * 9 / 10);
    tt_plan_check_close(&check);
}

static void a_step_beyond_its_buffer_is_found(void **state)
{
    (void)state;
    const tt_plan_t plan = {.algorithm = &tt_algorithm_pairwise,
                            .collective = TT_ALL_GATHER,
                            .size = 1,
                            .room[TT_BUFFER_SCRATCH] = ROOM};
    const tt_plan_request_t request = {.collective = TT_ALL_GATHER, .size = 1};
    tt_plan_check_t check = {0};
    for (size_t more = 0; more < 2; more++) {
        const tt_step_t step = {.kind = TT_STEP_COPY,
                                .src = {TT_BUFFER_SCRATCH, 0, ROOM - 5},
                                .dst = {TT_BUFFER_OUT, 0, 0},
                                .count = 5 + more};
        const tt_plan_round_t round = {.steps = &step, .count = 1};
        assert_int_equal(tt_plan_check_round(&check, &plan, &request, 3, &round),
                         more > 0 ? TUTTI_ERR_ARG : TUTTI_OK);
    }
    tt_expect_error("step 0 of round 3 goes beyond its buffer");
    tt_plan_check_close(&check);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_overlap_is_found_and_no_other),
        cmocka_unit_test(a_step_beyond_its_buffer_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
