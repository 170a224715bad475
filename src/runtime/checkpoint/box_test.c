/* Boxes against the elements themselves, over drawn shapes. */
#include "core/base/testing.h"

#include <string.h>

#include "core/base/rng.h"
#include "runtime/checkpoint/box.h"

enum { CASES = 3000, NUMEL_MAX = 4096 };

static uint64_t drawn;

static int64_t draw(int64_t from, int64_t to)
{
    return from +
           (int64_t)tt_rng_below(tt_rng_stream(1, 0, 0, 0, 0), drawn++, (uint64_t)(to - from + 1));
}

static tutti_shape_t draw_shape(void)
{
    tutti_shape_t shape = {.rank = (int)draw(0, 5)};
    for (int d = 0; d < shape.rank; d++) {
        shape.dims[d] = draw(draw(0, 9) == 0 ? 0 : 1, 5);
    }
    return shape;
}

static tt_box_t draw_box(tutti_shape_t whole)
{
    tt_box_t box = {.rank = whole.rank};
    for (int d = 0; d < whole.rank; d++) {
        box.offset[d] = draw(0, whole.dims[d]);
        box.size[d] = draw(0, 2) == 0 ? whole.dims[d] - box.offset[d]
                                      : draw(0, whole.dims[d] - box.offset[d]);
    }
    return box;
}

/* Numbers of a box's elements in the whole, in the box's order. Returns how many. */
static int64_t list_elements(tutti_shape_t whole, const tt_box_t *box, int64_t *list)
{
    const int64_t numel = tt_box_numel(box);
    for (int64_t i = 0; i < numel; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int d = box->rank - 1; d >= 0; d--) {
            at += (box->offset[d] + rest % box->size[d]) * step;
            rest /= box->size[d];
            step *= whole.dims[d];
        }
        list[i] = at;
    }
    return numel;
}

static void an_interval_is_its_boxes_one_after_the_other(void **state)
{
    (void)state;
    static int64_t list[NUMEL_MAX];
    for (int i = 0; i < CASES; i++) {
        const tutti_shape_t whole = draw_shape();
        const int64_t numel = tutti_shape_numel(whole);
        const int64_t first = draw(0, numel), count = draw(0, numel - first);
        tt_box_t boxes[TT_INTERVAL_BOXES_MAX];
        const int box_count = tt_box_of_interval(whole, first, count, boxes);
        assert_true(box_count <= (whole.rank == 0 ? 1 : 2 * whole.rank - 1));
        int64_t next = first;
        for (int k = 0; k < box_count; k++) {
            assert_true(tt_box_is_inside(&boxes[k], whole));
            const int64_t elements = list_elements(whole, &boxes[k], list);
            assert_true(elements > 0);
            for (int64_t j = 0; j < elements; j++) {
                assert_int_equal(list[j], next++);
            }
        }
        assert_int_equal(next, first + count);
    }
}

static bool has(const int64_t *list, int64_t count, int64_t element)
{
    for (int64_t i = 0; i < count; i++) {
        if (list[i] == element) {
            return true;
        }
    }
    return false;
}

static void runs_are_what_two_boxes_share(void **state)
{
    (void)state;
    static int64_t list_a[NUMEL_MAX], list_b[NUMEL_MAX];
    for (int i = 0; i < CASES; i++) {
        const tutti_shape_t whole = draw_shape();
        const tt_box_t a = draw_box(whole), b = draw_box(whole);
        const int64_t count_a = list_elements(whole, &a, list_a);
        const int64_t count_b = list_elements(whole, &b, list_b);
        int64_t shared = 0, expected = 0, last = -1;
        for (tt_runs_t runs = tt_runs_of(&a, &b); runs.count > 0; tt_runs_next(&runs)) {
            assert_true(runs.a > last); /* in order, and none that could be joined */
            for (int64_t j = 0; j < runs.count; j++, shared++) {
                assert_int_equal(list_a[runs.a + j], list_b[runs.b + j]);
            }
            last = runs.a + runs.count - 1;
        }
        for (int64_t j = 0; j < count_a; j++) {
            expected += has(list_b, count_b, list_a[j]);
        }
        assert_int_equal(shared, expected);
        tt_box_t both;
        assert_int_equal(tt_box_intersect(&a, &b, &both), expected > 0);
    }
}

/* Else reading would be a thousand small copies. */
static void whole_rows_are_one_run(void **state)
{
    (void)state;
    const tt_box_t a = {.rank = 3, .offset = {2, 0, 0}, .size = {4, 5, 6}};
    const tt_box_t b = {.rank = 3, .offset = {3, 0, 0}, .size = {9, 5, 6}};
    tt_runs_t runs = tt_runs_of(&a, &b);
    assert_int_equal(runs.count, 3 * 5 * 6);
    assert_int_equal(runs.a, 5 * 6);
    assert_int_equal(runs.b, 0);
    tt_runs_next(&runs);
    assert_int_equal(runs.count, 0);
}

static void boxes_are_printed(void **state)
{
    (void)state;
    char text[32];
    const tt_box_t box = {.rank = 2, .offset = {1, 2}, .size = {2, 3}};
    const tt_box_t scalar = {.rank = 0};
    assert_string_equal(tt_box_format(&box, text, sizeof text), "[1:3, 2:5]");
    assert_string_equal(tt_box_format(&scalar, text, sizeof text), "[]");
    assert_string_equal(tt_box_format(&box, text, 6), "[1:3,");
}

static void a_box_outside_is_seen(void **state)
{
    (void)state;
    const tutti_shape_t whole = TUTTI_SHAPE(4, 6);
    assert_true(tt_box_is_inside(&(tt_box_t){.rank = 2, .offset = {4, 0}, .size = {0, 6}}, whole));
    assert_false(tt_box_is_inside(&(tt_box_t){.rank = 2, .offset = {2, 0}, .size = {3, 6}}, whole));
    assert_false(
        tt_box_is_inside(&(tt_box_t){.rank = 2, .offset = {-1, 0}, .size = {1, 1}}, whole));
    assert_false(
        tt_box_is_inside(&(tt_box_t){.rank = 2, .offset = {0, 0}, .size = {-1, 1}}, whole));
    assert_false(
        tt_box_is_inside(&(tt_box_t){.rank = 2, .offset = {INT64_MAX, 0}, .size = {1, 1}}, whole));
    assert_false(tt_box_is_inside(&(tt_box_t){.rank = 1, .size = {4}}, whole));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_its_boxes_one_after_the_other),
        cmocka_unit_test(runs_are_what_two_boxes_share),
        cmocka_unit_test(whole_rows_are_one_run),
        cmocka_unit_test(boxes_are_printed),
        cmocka_unit_test(a_box_outside_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
