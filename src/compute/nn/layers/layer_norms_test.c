/* Layer norm and RMS norm over rows of several dimensions, with and without parameters: the numbers
 * are those of the same rows laid flat. */
#include <string.h>

#include <tutti/nn_layers.h>

#include "compute/autograd/op_testing.h"

static const tutti_module_ops_t *const kinds[] = {&tutti_layer_norm_layer, &tutti_rms_norm_layer};

static tutti_module_t *make(fixture_t *f, int kind, const tutti_norm_options_t *options)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, kinds[kind], options, &m), 0);
    return m;
}

static void expect_same(const tutti_tensor_t *x, const tutti_tensor_t *y)
{
    assert_int_equal(tutti_tensor_numel(x), tutti_tensor_numel(y));
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(tutti_tensor_at(x, i) == tutti_tensor_at(y, i));
    }
}

static void rows_of_several_dimensions_are_rows(void **state)
{
    fixture_t *f = *state;
    for (int k = 0; k < 4; k++) {
        const bool no_affine = k >= 2;
        const tutti_norm_options_t wide = {.shape = TUTTI_SHAPE(3, 4), .no_affine = no_affine};
        const tutti_norm_options_t flat = {.width = 12, .no_affine = no_affine};
        tutti_module_t *m = make(f, k % 2, &wide), *plain = make(f, k % 2, &flat);
        assert_int_equal(tutti_module_find(m, "weight") == NULL, no_affine);
        assert_int_equal(tutti_module_find(m, "bias") == NULL, no_affine || k % 2 == 1);
        tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(5, 3, 4), 1, 2);
        tutti_tensor_t *rows = tutti_reshape(f->s, x, TUTTI_SHAPE(5, 12)), *grads[2];
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        tutti_tensor_t *y = tutti_forward(f->s, m, x);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(5, 3, 4)));
        expect_same(y, tutti_forward(f->s, plain, rows));
        tutti_tensor_t *loss = tutti_sum(f->s, tutti_mul(f->s, y, tutti_sin(f->s, x)));
        assert_int_equal(tutti_grad(f->s, loss, NULL, &x, 1, grads), 0);
        tutti_module_release(plain);
        tutti_module_release(m);
    }
}

static void parameters_have_the_shape_of_a_row(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m = make(f, 0, &(tutti_norm_options_t){.shape = TUTTI_SHAPE(2, 3)});
    assert_true(
        tutti_shape_equal(tutti_tensor_shape(tutti_module_find(m, "bias")), TUTTI_SHAPE(2, 3)));
    tutti_module_release(m);
    m = make(f, 0, &(tutti_norm_options_t){.shape = TUTTI_SHAPE(2, 3), .no_bias = true});
    assert_null(tutti_module_find(m, "bias"));
    assert_non_null(tutti_module_find(m, "weight"));
    tutti_module_release(m);
}

static void other_rows_are_refused_also_without_a_weight(void **state)
{
    fixture_t *f = *state;
    for (int k = 0; k < 4; k++) {
        const tutti_norm_options_t options = {.shape = TUTTI_SHAPE(3, 4), .no_affine = k >= 2};
        tutti_module_t *m = make(f, k % 2, &options);
        const tutti_shape_t shapes[] = {TUTTI_SHAPE(4), TUTTI_SHAPE(2, 4), TUTTI_SHAPE(5, 4, 3)};
        for (int i = 0; i < 3; i++) {
            tutti_scope_t *s;
            assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
            (void)tutti_forward(s, m, tutti_ones(s, TUTTI_F32, shapes[i]));
            assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
        }
        tutti_module_release(m);
    }
}

static void sizes_that_are_wrong_are_named(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, kinds[1], NULL, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "rms_norm: width 0: it must be at least 1"));
    const tutti_norm_options_t options = {.shape = TUTTI_SHAPE(3, 0)};
    assert_int_equal(tutti_module_create(f->ctx, kinds[0], &options, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "layer_norm: a shape has 1 to 8 dimensions"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_of_several_dimensions_are_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(parameters_have_the_shape_of_a_row, setup, teardown),
        cmocka_unit_test_setup_teardown(other_rows_are_refused_also_without_a_weight, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sizes_that_are_wrong_are_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
