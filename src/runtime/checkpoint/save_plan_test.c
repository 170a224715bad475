/* Slices that may be saved, and those that may not, against a look at every pair and element. */
#include "core/base/testing.h"
#include "runtime/checkpoint/save_plan.h"

enum { RANKS = 6, ROWS = 4, COLUMNS = 6, ROUNDS = 4000, SLICES_MAX = 8 };

typedef struct {
    tt_saved_slice_t slices[SLICES_MAX];
    size_t count;
} drawn_t;

static int64_t draw(uint64_t *place, int64_t below)
{
    *place = *place * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((*place >> 33) % (uint64_t)below);
}

/* Rows, columns, quarters or all of it, of which some are another rank's, too; now and then one is
 * moved, left out, or there twice. */
static void draw_slices(uint64_t *place, drawn_t *drawn)
{
    static const int64_t cuts[][2] = {{1, 1}, {4, 1}, {1, 3}, {2, 2}, {2, 1}};
    const int64_t *cut = cuts[draw(place, 5)];
    const int64_t high = ROWS / cut[0], wide = COLUMNS / cut[1];
    drawn->count = 0;
    for (int64_t i = 0; i < cut[0] * cut[1]; i++) {
        tt_saved_slice_t slice = {.rank = (int)draw(place, RANKS)};
        slice.box = (tt_box_t){
            .rank = 2, .offset = {i / cut[1] * high, i % cut[1] * wide}, .size = {high, wide}};
        const int64_t fate = draw(place, 16);
        slice.box.size[0] -= fate == 0 && high > 1;
        slice.box.offset[1] -= fate == 1 && slice.box.offset[1] > 0;
        for (int64_t copies = fate == 2 ? 0 : 1 + draw(place, 3) / 2; copies > 0; copies--) {
            drawn->slices[drawn->count++] = slice;
            slice.rank = fate == 3 ? slice.rank : (slice.rank + 1) % RANKS;
        }
    }
}

static bool may_be_saved(const drawn_t *drawn)
{
    bool is_there[ROWS][COLUMNS] = {{false}};
    int64_t count = 0;
    for (size_t i = 0; i < drawn->count; i++) {
        const tt_box_t *box = &drawn->slices[i].box;
        for (size_t k = 0; k < i; k++) {
            tt_box_t both;
            const bool is_copy = tt_box_equal(box, &drawn->slices[k].box);
            if (is_copy ? drawn->slices[i].rank == drawn->slices[k].rank
                        : tt_box_intersect(box, &drawn->slices[k].box, &both)) {
                return false;
            }
        }
        for (int64_t at = 0; at < tt_box_numel(box); at++) {
            bool *element =
                &is_there[box->offset[0] + at / box->size[1]][box->offset[1] + at % box->size[1]];
            count += !*element;
            *element = true;
        }
    }
    return count == ROWS * COLUMNS;
}

/* All of it is written once then. */
static void expect_written(const tt_manifest_t *plan)
{
    int64_t count = 0;
    for (size_t i = 0; i < plan->tensors[0].slice_count; i++) {
        count += tt_box_numel(&plan->tensors[0].slices[i].box);
    }
    assert_int_equal(count, ROWS * COLUMNS);
}

static void slices_are_checked_as_pair_by_pair(void **state)
{
    (void)state;
    uint64_t place = 17;
    int saved = 0;
    for (int round = 0; round < ROUNDS; round++) {
        drawn_t drawn;
        tt_manifest_t *plan;
        tt_saved_tensor_t *tensor;
        draw_slices(&place, &drawn);
        assert_int_equal(tt_manifest_create(1, RANKS, &plan), TUTTI_OK);
        assert_int_equal(tt_manifest_add(plan, "w", TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &tensor),
                         TUTTI_OK);
        for (size_t i = 0; i < drawn.count; i++) {
            assert_int_equal(tt_manifest_add_slice(tensor, &drawn.slices[i]), TUTTI_OK);
        }
        const bool is_fine = may_be_saved(&drawn);
        assert_int_equal(tt_save_plan_assign(plan), is_fine ? TUTTI_OK : TUTTI_ERR_ARG);
        saved += is_fine;
        if (is_fine) {
            expect_written(plan);
        } else {
            tt_expect_error("checkpoint: tensor \"w\": ");
        }
        tt_manifest_release(plan);
    }
    assert_in_range(saved, ROUNDS / 4, ROUNDS - ROUNDS / 4); /* both are met */
}

/* The lower rank first, whoever begins before it in the tensor. */
static void who_overlaps_is_told(void **state)
{
    (void)state;
    tt_manifest_t *plan;
    tt_saved_tensor_t *tensor;
    assert_int_equal(tt_manifest_create(1, RANKS, &plan), TUTTI_OK);
    assert_int_equal(tt_manifest_add(plan, "w", TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &tensor),
                     TUTTI_OK);
    for (int rank = 0; rank < 2; rank++) {
        const tt_saved_slice_t slice = {
            .rank = rank, .box = {.rank = 2, .offset = {1 - rank, 0}, .size = {3, COLUMNS}}};
        assert_int_equal(tt_manifest_add_slice(tensor, &slice), TUTTI_OK);
    }
    assert_int_equal(tt_save_plan_assign(plan), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "checkpoint: tensor \"w\": [1:4, 0:6] of rank 0 and [0:3, 0:6] of rank 1 "
                        "overlap");
    tt_manifest_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_checked_as_pair_by_pair),
        cmocka_unit_test(who_overlaps_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
