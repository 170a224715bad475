/* Plans of whole tensors: who writes which, and in which file. */
#include <stdio.h>

#include "core/base/testing.h"
#include "runtime/checkpoint/save_plan.h"

enum { RANKS = 3, ROW = 10 };

static tt_manifest_t *assigned, *plan;

/* A tensor of rows: rank r has `rows[r]` of them. */
static void add(const char *name, bool is_model, const int64_t rows[RANKS])
{
    tt_saved_tensor_t *tensor;
    int64_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        sum += rows[rank];
    }
    assert_int_equal(tt_manifest_add(assigned, name, TUTTI_U8, TUTTI_SHAPE(sum, ROW), &tensor),
                     TUTTI_OK);
    tensor->is_model = is_model;
    int64_t first = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        const tt_saved_slice_t slice = {.box = {2, {first, 0}, {rows[rank], ROW}}, .rank = rank};
        assert_int_equal(rows[rank] > 0 ? tt_manifest_add_slice(tensor, &slice) : TUTTI_OK,
                         TUTTI_OK);
        first += rows[rank];
    }
}

static int begin(void **state)
{
    (void)state;
    return tt_manifest_create(1, RANKS, &assigned);
}

static int end(void **state)
{
    (void)state;
    tt_manifest_release(assigned);
    tt_manifest_release(plan);
    plan = NULL;
    return 0;
}

static void expect(const char *name, int rank, const char *file)
{
    const tt_saved_tensor_t *tensor = tt_manifest_find(plan, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->slice_count, 1);
    const tt_box_t whole = tt_box_of(tensor->shape);
    assert_true(tt_box_equal(&tensor->slices[0].box, &whole));
    assert_int_equal(tensor->slices[0].rank, rank);
    assert_string_equal(plan->files[tensor->slices[0].file].name, file);
}

/* Rank 1 writes what it has, so that it gets none of the others while they have less. */
static void tensors_are_dealt_out_by_bytes(void **state)
{
    (void)state;
    add("small", false, (int64_t[]){1, 1, 1});
    add("own", false, (int64_t[]){0, 8, 0});
    add("large", false, (int64_t[]){2, 2, 2});
    add("middle", false, (int64_t[]){2, 3, 0});
    add("none", false, (int64_t[]){0, 0, 0});
    assert_int_equal(tt_save_plan_whole(assigned, &plan), TUTTI_OK);
    expect("own", 1, "rank-00001-0.safetensors");
    expect("large", 0, "rank-00000-0.safetensors");
    expect("middle", 2, "rank-00002-0.safetensors");
    expect("small", 2, "rank-00002-0.safetensors");
    expect("none", 0, "rank-00000-0.safetensors");
    assert_int_equal(plan->file_count, 3);
    assert_true(plan->is_whole);
    for (size_t i = 0; i < plan->tensor_count; i++) { /* in their order */
        assert_string_equal(plan->tensors[i].name, assigned->tensors[i].name);
    }
}

/* A rank without any has no number among them. */
static void the_model_is_in_files_of_its_own(void **state)
{
    (void)state;
    add("a", true, (int64_t[]){1, 0, 0});
    add("b", true, (int64_t[]){0, 0, 1});
    add("moments", false, (int64_t[]){1, 0, 0});
    add("counts", false, (int64_t[]){0, 1, 0});
    assert_int_equal(tt_manifest_add_text(assigned, "text", tutti_text("said")), TUTTI_OK);
    assert_int_equal(tt_save_plan_whole(assigned, &plan), TUTTI_OK);
    expect("a", 0, "model-00001-of-00002.safetensors");
    expect("b", 2, "model-00002-of-00002.safetensors");
    expect("moments", 0, "rank-00000-0.safetensors");
    expect("counts", 1, "rank-00001-0.safetensors");
    assert_string_equal(plan->files[0].digests, "model-00001-of-00002.digests");
    assert_int_equal(plan->file_count, 4);
    assert_true(tt_manifest_find(plan, "a")->is_model && tt_manifest_find(plan, "b")->is_model);
    assert_false(tt_manifest_find(plan, "moments")->is_model);
    assert_string_equal(tt_manifest_text(plan, "text")->data, "said");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_are_dealt_out_by_bytes, begin, end),
        cmocka_unit_test_setup_teardown(the_model_is_in_files_of_its_own, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
