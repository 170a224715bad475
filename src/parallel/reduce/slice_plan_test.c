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
    int64_t cuts[RANKS_MAX + 1], totals[RANKS_MAX] = {0};
    tt_slice_plan(&(tt_slice_flat_t){params, count, numel}, ranks, totals, cuts);
    for (int i = 0; i <= ranks; i++) {
        assert_int_equal(cuts[i], want[i]);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(totals[i], want[i + 1] - want[i]);
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

typedef struct {
    tt_slice_param_t params[PARAMS_MAX];
    int count;
    int64_t numel, grain; /* the largest gap between two places */
} drawn_t;

static void draw_flat(drawn_t *flat)
{
    *flat = (drawn_t){.count = 1 + draw(PARAMS_MAX)};
    for (int i = 0; i < flat->count; i++) {
        const int64_t at = flat->numel, numel = draw(90), grain = draw(3) == 0 ? 0 : 8 << draw(3);
        flat->params[i] = (tt_slice_param_t){at, numel, grain};
        flat->numel += (numel + 15) / 16 * 16;
        const bool is_one = grain == 0 || grain >= numel;
        const int64_t gap =
            is_one ? flat->numel - at : (grain + 15) / 16 * 16; /* the last one has the padding */
        flat->grain = gap > flat->grain ? gap : flat->grain;
    }
}

static void drawn_cuts_are_the_nearest_places(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        drawn_t flat;
        int64_t cuts[RANKS_MAX + 1], totals[RANKS_MAX] = {0};
        const int ranks = 1 + draw(RANKS_MAX);
        draw_flat(&flat);
        tt_slice_plan(&(tt_slice_flat_t){flat.params, flat.count, flat.numel}, ranks, totals, cuts);
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[ranks], flat.numel);
        for (int r = 1; r < ranks; r++) {
            const int64_t want = flat.numel * r / ranks;
            assert_true(cuts[r] >= cuts[r - 1] &&
                        is_place(flat.params, flat.count, flat.numel, cuts[r]));
            assert_int_equal(llabs(cuts[r] - want),
                             nearest_place(flat.params, flat.count, flat.numel, want));
        }
    }
}

/* ---- several buckets ------------------------------------------------------------------------- */

static void what_ranks_have_counts(void **state)
{
    (void)state;
    const tt_slice_param_t grains[] = {{0, 80, 1}}, two[] = {{0, 40, 0}, {40, 40, 0}};
    int64_t cuts[4], totals[3] = {9, 4, 6};
    tt_slice_plan(&(tt_slice_flat_t){grains, 1, 8}, 3, totals, cuts);
    assert_memory_equal(cuts, ((int64_t[]){0, 0, 5, 8}), sizeof cuts);
    assert_memory_equal(totals, ((int64_t[]){9, 9, 9}), sizeof totals);
    tt_slice_plan(&(tt_slice_flat_t){grains, 1, 10}, 3, totals, cuts); /* 3 1/3 each */
    assert_memory_equal(cuts, ((int64_t[]){0, 3, 6, 10}), sizeof cuts);
    assert_memory_equal(totals, ((int64_t[]){12, 12, 13}), sizeof totals);
    /* buckets of one parameter each, which is not cut: they go round */
    int64_t owners[3] = {0};
    for (int i = 0; i < 3; i++) {
        tt_slice_plan(&(tt_slice_flat_t){two, 1, 40}, 3, owners, cuts);
    }
    assert_memory_equal(owners, ((int64_t[]){40, 40, 40}), sizeof owners);
}

/* The common height of what all have: as much as comes makes the lower ones equal. */
static int64_t level_of(const int64_t *totals, int ranks, int64_t comes)
{
    int64_t level = 0, room = 0;
    while (room < comes) {
        level++;
        room = 0;
        for (int r = 0; r < ranks; r++) {
            room += totals[r] < level ? level - totals[r] : 0;
        }
    }
    return level;
}

/* Any row of buckets leaves no rank farther from the highest level than the largest grain so far:
 * however many there are, nothing adds up. */
static void totals_stay_within_a_grain(void **state)
{
    (void)state;
    int64_t alone = 0, carried = 0;
    for (int turn = 0; turn < 300; turn++) {
        int64_t totals[RANKS_MAX] = {0}, sums[RANKS_MAX] = {0}, grain = 0, highest = 0;
        const int ranks = 2 + draw(RANKS_MAX - 1);
        for (int i = 0; i < 40; i++) {
            drawn_t flat;
            int64_t cuts[RANKS_MAX + 1], none[RANKS_MAX] = {0};
            draw_flat(&flat);
            grain = flat.grain > grain ? flat.grain : grain;
            const int64_t level = level_of(totals, ranks, flat.numel);
            highest = level > highest ? level : highest;
            const tt_slice_flat_t given = {flat.params, flat.count, flat.numel};
            tt_slice_plan(&given, ranks, none, cuts);
            for (int r = 0; r < ranks; r++) {
                sums[r] += none[r];
            }
            tt_slice_plan(&given, ranks, totals, cuts);
            for (int r = 0; r < ranks; r++) {
                assert_true(is_place(flat.params, flat.count, flat.numel, cuts[r]));
                assert_true(cuts[r + 1] >= cuts[r]);
                assert_true(llabs(totals[r] - highest) <= grain + 1);
            }
        }
        for (int r = 1; r < ranks; r++) {
            alone = llabs(sums[r] - sums[0]) > alone ? llabs(sums[r] - sums[0]) : alone;
            carried =
                llabs(totals[r] - totals[0]) > carried ? llabs(totals[r] - totals[0]) : carried;
        }
    }
    print_message("40 buckets: %lld elements apart, each cut for itself %lld\n", (long long)carried,
                  (long long)alone);
    assert_true(carried * 3 < alone);
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
        cmocka_unit_test(what_ranks_have_counts),
        cmocka_unit_test(totals_stay_within_a_grain),
    };
    return cmocka_run_group_tests(tests, NULL, no_block_is_left);
}
