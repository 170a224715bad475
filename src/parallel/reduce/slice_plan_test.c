/* Cuts: as even as grains allow, and nowhere else. */
#include "parallel/reduce/slice_plan.h"

#include <stdlib.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/base/testing.h"

enum { PARAMS_MAX = 12, RANKS_MAX = 9 };

static void expect(const tt_slice_param_t *params, int count, int64_t numel, int ranks,
                   const int64_t *want)
{
    int64_t cuts[RANKS_MAX + 1];
    tt_slice_plan(params, count, numel, ranks, cuts);
    for (int i = 0; i <= ranks; i++) {
        assert_int_equal(cuts[i], want[i]);
    }
}

static void cuts_fall_at_grains(void **state)
{
    (void)state;
    const tt_slice_param_t one[] = {{0, 100, 16}};
    expect(one, 1, 100, 1, (int64_t[]){0, 100});
    expect(one, 1, 100, 2, (int64_t[]){0, 48, 100}); /* of 50 and 48 */
    expect(one, 1, 100, 3, (int64_t[]){0, 32, 64, 100});
    /* the last grain is shorter, and its end is one, too */
    expect((tt_slice_param_t[]){{0, 34, 32}}, 1, 34, 2, (int64_t[]){0, 32, 34});
    /* nothing to cut at: one rank has all */
    expect((tt_slice_param_t[]){{0, 10, 16}}, 1, 16, 2, (int64_t[]){0, 0, 16});
    expect((tt_slice_param_t[]){{0, 10, 0}}, 1, 16, 3, (int64_t[]){0, 0, 16, 16});
}

static void parameters_begin_where_they_can_be_cut(void **state)
{
    (void)state;
    const tt_slice_param_t several[] = {{0, 10, 0}, {16, 100, 0}, {128, 20, 0}};
    expect(several, 3, 160, 2, (int64_t[]){0, 128, 160});
    expect(several, 3, 160, 4, (int64_t[]){0, 16, 128, 128, 160});
    expect((tt_slice_param_t[]){{0, 0, 0}}, 1, 0, 3, (int64_t[]){0, 0, 0, 0});
}

static uint64_t drawn;

static int draw(int below)
{
    return (int)tt_rng_below(tt_rng_stream(5, 0, 0, 0, 0), drawn++, (uint64_t)below);
}

/* All places where a cut may be. */
static bool is_place(const tt_slice_param_t *params, int count, int64_t numel, int64_t cut)
{
    for (int i = 0; i < count; i++) {
        const int64_t behind = cut - params[i].offset;
        if (behind == 0 || (params[i].grain > 0 && behind > 0 && behind < params[i].numel &&
                            behind % params[i].grain == 0)) {
            return true;
        }
    }
    return cut == numel;
}

static int64_t nearest_place(const tt_slice_param_t *params, int count, int64_t numel, int64_t want)
{
    int64_t distance = 0;
    while (!is_place(params, count, numel, want - distance) &&
           !is_place(params, count, numel, want + distance)) {
        distance++;
    }
    return distance;
}

static void drawn_cuts_are_the_nearest_places(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        tt_slice_param_t params[PARAMS_MAX];
        int64_t cuts[RANKS_MAX + 1], numel = 0;
        const int count = 1 + draw(PARAMS_MAX), ranks = 1 + draw(RANKS_MAX);
        for (int i = 0; i < count; i++) {
            params[i] = (tt_slice_param_t){numel, draw(90), draw(3) == 0 ? 0 : 8 << draw(3)};
            numel += (params[i].numel + 15) / 16 * 16;
        }
        tt_slice_plan(params, count, numel, ranks, cuts);
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[ranks], numel);
        for (int r = 1; r < ranks; r++) {
            const int64_t want = numel * r / ranks;
            assert_true(cuts[r] >= cuts[r - 1] && is_place(params, count, numel, cuts[r]));
            assert_int_equal(llabs(cuts[r] - want), nearest_place(params, count, numel, want));
        }
    }
}

static int no_block_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_fall_at_grains),
        cmocka_unit_test(parameters_begin_where_they_can_be_cut),
        cmocka_unit_test(drawn_cuts_are_the_nearest_places),
    };
    return cmocka_run_group_tests(tests, NULL, no_block_is_left);
}
