/* embedding_bag where PyTorch's golden values do not reach: what padding must not touch, and bags
 * of nothing. */
#include <math.h>

#include <tutti/op_feature.h>

#include "compute/autograd/op_testing.h"

/* Padding is as if it was not there, whatever its row holds. */
static void row_of_padding_is_not_read(void **state)
{
    fixture_t *f = *state;
    const float rows[] = {NAN, INFINITY, 1, 2};
    tutti_tensor_t *table = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(2, 2), rows);
    tutti_tensor_t *at = tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(1, 2), (int64_t[]){0, 1});
    for (int mode = TUTTI_BAG_MEAN; mode <= TUTTI_BAG_MAX; mode++) {
        const tutti_embedding_bag_options_t o = {.mode = (tutti_bag_mode_t)mode,
                                                 .has_padding = true};
        tutti_tensor_t *y = tutti_embedding_bag(f->s, at, table, &o);
        assert_true(tutti_tensor_at(y, 0) == 1 && tutti_tensor_at(y, 1) == 2);
    }
}

/* Nor is its weight, and neither gets a gradient. */
static void padding_has_no_part_in_weighted_sums(void **state)
{
    fixture_t *f = *state;
    const double rows[] = {INFINITY, NAN, 1, 2}, factors[] = {5, 3, NAN, INFINITY};
    tutti_tensor_t *at = tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(4), (int64_t[]){0, 1, 0, 0});
    tutti_tensor_t *begins = tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){0, 2});
    tutti_tensor_t *table = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(2, 2), rows);
    tutti_tensor_t *weights = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(4), factors);
    tutti_tensor_t *const in[] = {table, weights};
    tutti_tensor_t *grads[2];
    assert_int_equal(tutti_tensor_set_requires_grad(table, true), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(weights, true), 0);
    const tutti_embedding_bag_options_t o = {
        .mode = TUTTI_BAG_SUM, .offsets = begins, .weights = weights, .has_padding = true};
    tutti_tensor_t *y = tutti_embedding_bag(f->s, at, table, &o);
    assert_true(tutti_tensor_at(y, 0) == 3 && tutti_tensor_at(y, 1) == 6);
    assert_true(tutti_tensor_at(y, 2) == 0 && tutti_tensor_at(y, 3) == 0);
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, in, 2, grads), 0);
    for (int i = 0; i < 4; i++) {
        assert_true(tutti_tensor_at(grads[0], i) == (i < 2 ? 0 : 3));
        assert_true(tutti_tensor_at(grads[1], i) == (i == 1 ? 3 : 0));
    }
}

/* Where no bag has an index, and where there is no bag, the table still gets zeros. */
static void bags_of_nothing_are_in_the_graph(void **state)
{
    fixture_t *f = *state;
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(3, 0), TUTTI_SHAPE(0, 3), TUTTI_SHAPE(0)};
    for (int i = 0; i < 3; i++) {
        for (int mode = TUTTI_BAG_MEAN; mode <= TUTTI_BAG_MAX; mode++) {
            tutti_tensor_t *table = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(4, 2)), *grad;
            assert_int_equal(tutti_tensor_set_requires_grad(table, true), 0);
            tutti_tensor_t *begins = tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(3));
            const tutti_embedding_bag_options_t o = {.mode = (tutti_bag_mode_t)mode,
                                                     .offsets = i < 2 ? NULL : begins};
            tutti_tensor_t *y =
                tutti_embedding_bag(f->s, tutti_zeros(f->s, TUTTI_I64, shapes[i]), table, &o);
            assert_int_equal(tutti_scope_status(f->s), 0);
            assert_int_equal(tutti_tensor_numel(y), i == 1 ? 0 : 6);
            assert_true(tutti_tensor_item(tutti_sum(f->s, y)) == 0);
            assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &table, 1, &grad), 0);
            for (int64_t k = 0; k < 8; k++) {
                assert_true(tutti_tensor_at(grad, k) == 0);
            }
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(row_of_padding_is_not_read),
        TEST(padding_has_no_part_in_weighted_sums),
        TEST(bags_of_nothing_are_in_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
