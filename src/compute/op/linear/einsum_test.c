/* What einsum refuses, and gradients of its gradients; its values are golden (golden_op_test.c). */
#include <tutti/op_pad.h>

#include "compute/autograd/op_testing.h"

static tutti_tensor_t *filled(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *row = tutti_arange(s, dtype, 1, 1, tutti_shape_numel(shape));
    return tutti_reshape(s, row, shape);
}

static void expect_failure(fixture_t *f, const char *equation, int count, const char *text)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *terms[3] = {filled(s, TUTTI_F32, TUTTI_SHAPE(2, 3)),
                                filled(s, TUTTI_F32, TUTTI_SHAPE(3, 4)),
                                filled(s, TUTTI_F32, TUTTI_SHAPE(2, 3))};
    (void)tutti_einsum(s, equation, terms, count);
    assert_string_equal(tutti_scope_error(s), text);
    assert_true(tutti_scope_close(s) < 0);
}

static void equations_that_are_wrong_are_explained(void **state)
{
    fixture_t *f = *state;
    expect_failure(f, NULL, 1, "einsum: want an equation, and 1 to 8 terms, not 1");
    expect_failure(f, "ij", 0, "einsum: want an equation, and 1 to 8 terms, not 0");
    expect_failure(f, "ij,jk", 1, "einsum: \"ij,jk\" has more terms than the 1 that are given");
    expect_failure(f, "ij->i", 2, "einsum: \"ij->i\" has fewer terms than the 2 that are given");
    expect_failure(
        f, "i1", 1,
        "einsum: '1' at character 1 of \"i1\": want letters, one \"...\" for a term, ',' "
        "and \"->\"");
    expect_failure(f, "i..j", 1,
                   "einsum: '.' at character 1 of \"i..j\": want letters, one \"...\" for a term, "
                   "',' and \"->\"");
    expect_failure(f, "...i...", 1,
                   "einsum: '.' at character 4 of \"...i...\": want letters, one \"...\" for a "
                   "term, ',' and \"->\"");
    expect_failure(f, "ij-k", 1, "einsum: \"ij-k\": '-' without '>'");
    expect_failure(f, "ij->i,j", 1, "einsum: \"ij->i,j\" has more than one result");
    expect_failure(f, "ij->k", 1, "einsum: the result has 'k' that no term has");
    expect_failure(f, "ij->ii", 1, "einsum: the result has 'i' twice");
    expect_failure(f, "ijk", 1, "einsum: term 0 has 2 dimensions, and 3 letters");
    expect_failure(f, "ij,j", 2, "einsum: term 1 has 2 dimensions, and 1 letters");
    expect_failure(f, "ijk...", 1, "einsum: term 0 has 2 dimensions, and 3 letters");
    expect_failure(f, "ii", 1, "einsum: 'i' is 2 and 3 in one term");
    expect_failure(f, "ij,ik", 2, "einsum: 'i' is 2 and 3");
    expect_failure(f, "...j,...k", 2, "einsum: '.' is 2 and 3");
}

static void a_result_has_eight_dimensions_at_most(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *five = filled(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1, 2, 1, 1));
    tutti_tensor_t *y =
        tutti_einsum(f->s, "abcde,fghid->abcefghi", (tutti_tensor_t *[]){five, five}, 2);
    assert_int_equal(tutti_tensor_rank(y), 8);
    (void)tutti_einsum(f->s, "abcde,fghij", (tutti_tensor_t *[]){five, five}, 2);
    assert_string_equal(tutti_scope_error(f->s),
                        "einsum: two terms together have 10 dimensions, more than 8");
}

/* Integers are multiplied and summed as such; blanks do not matter. */
static void integers_stay_whole(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *a = filled(f->s, TUTTI_I64, TUTTI_SHAPE(2, 2));
    tutti_tensor_t *y = tutti_einsum(f->s, " i j , j k -> i k ", (tutti_tensor_t *[]){a, a}, 2);
    assert_int_equal(tutti_tensor_dtype(y), TUTTI_I64);
    const double want[] = {7, 10, 15, 22};
    for (int i = 0; i < 4; i++) {
        assert_true(tutti_tensor_at(y, i) == want[i]);
    }
    y = tutti_einsum(f->s, "ij,ij", (tutti_tensor_t *[]){a, a}, 2);
    assert_true(tutti_tensor_item(y) == 30);
}

static void empty_terms_give_zeros_or_nothing(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *a = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 0));
    tutti_tensor_t *b = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(0, 3));
    tutti_tensor_t *y = tutti_einsum(f->s, "ij,jk", (tutti_tensor_t *[]){a, b}, 2);
    assert_int_equal(tutti_tensor_numel(y), 6);
    assert_true(tutti_tensor_at(y, 5) == 0);
    assert_int_equal(tutti_tensor_numel(tutti_einsum(f->s, "ij", &a, 1)), 0);
    assert_true(tutti_tensor_item(tutti_einsum(f->s, "ij->", &a, 1)) == 0);
}

static void call_three(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                       void *user)
{
    (void)user;
    out[0] = tutti_einsum(s, "aab,bc,...c->...a", in, 3);
}

static void gradients_have_gradients(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *in[3] = {tutti_uniform(f->s, TUTTI_F64, TUTTI_SHAPE(2, 2, 3), -1, 1),
                             tutti_uniform(f->s, TUTTI_F64, TUTTI_SHAPE(3, 2), -1, 1),
                             tutti_uniform(f->s, TUTTI_F64, TUTTI_SHAPE(2, 1, 2), -1, 1)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_tensor_set_requires_grad(in[i], true), 0);
    }
    const tutti_gradient_check_options_t options = {.order = 2};
    assert_int_equal(tutti_gradient_check(f->ctx, call_three, NULL, in, 3, 1, &options), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equations_that_are_wrong_are_explained, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_has_eight_dimensions_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(integers_stay_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(empty_terms_give_zeros_or_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_have_gradients, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
