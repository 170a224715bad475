/* Weights and variances that are broadcast: each is what the whole tensor would be, and nothing
 * that would make the losses larger is taken. PyTorch's values: tests/golden. */
#include <math.h>

#include <tutti/op_likelihood.h>

#include "compute/autograd/op_testing.h"

static tutti_tensor_t *random_leaf(fixture_t *f, tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_uniform(f->s, TUTTI_F64, shape, 0.1, 0.9);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static void expect_same(const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    assert_int_equal(tutti_tensor_numel(a), tutti_tensor_numel(b));
    for (int64_t i = 0; i < tutti_tensor_numel(a); i++) {
        assert_true(fabs(tutti_tensor_at(a, i) - tutti_tensor_at(b, i)) < 1e-14);
    }
}

static void a_weight_counts_each_loss_and_its_gradient(void **state)
{
    fixture_t *f = *state;
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(3), TUTTI_SHAPE(2, 1), TUTTI_SHAPE(2, 3),
                                    TUTTI_SCALAR};
    for (int i = 0; i < 4; i++) {
        tutti_tensor_t *x = random_leaf(f, TUTTI_SHAPE(2, 3)),
                       *y = random_leaf(f, TUTTI_SHAPE(2, 3));
        tutti_tensor_t *weight = random_leaf(f, shapes[i]), *in[] = {x, y, weight};
        tutti_tensor_t *got[3], *want[3];
        const tutti_bce_options_t options = {.reduction = TUTTI_LOSS_SUM, .weight = weight};
        tutti_tensor_t *loss = tutti_bce_loss_with(f->s, x, y, &options);
        tutti_tensor_t *plain =
            tutti_sum(f->s, tutti_mul(f->s, tutti_bce_loss(f->s, x, y, TUTTI_LOSS_NONE), weight));
        expect_same(loss, plain);
        assert_int_equal(tutti_grad(f->s, loss, NULL, in, 3, got), 0);
        assert_int_equal(tutti_grad(f->s, plain, NULL, in, 3, want), 0);
        for (int k = 0; k < 3; k++) {
            expect_same(got[k], want[k]);
        }
    }
}

/* The mean is over all losses, not over weights. */
static void a_mean_is_over_losses(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *half = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3), 0.5);
    const tutti_bce_options_t options = {
        .weight = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){0, 3, 6})};
    const tutti_tensor_t *loss = tutti_bce_loss_with(f->s, half, half, &options);
    assert_true(fabs(tutti_tensor_item(loss) - 3 * log(2)) < 1e-6);
    assert_true(tutti_tensor_item(tutti_bce_loss_with(f->s, half, half, NULL)) ==
                tutti_tensor_item(tutti_bce_loss(f->s, half, half, TUTTI_LOSS_MEAN)));
}

static void a_variance_is_broadcast(void **state)
{
    fixture_t *f = *state;
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(1, 3, 4), TUTTI_SHAPE(2, 1, 4),
                                    TUTTI_SHAPE(1, 1, 1), TUTTI_SHAPE(2, 3, 1), TUTTI_SHAPE(2, 3)};
    for (int i = 0; i < 5; i++) {
        tutti_tensor_t *x = random_leaf(f, TUTTI_SHAPE(2, 3, 4));
        tutti_tensor_t *y = random_leaf(f, TUTTI_SHAPE(2, 3, 4));
        tutti_tensor_t *var = random_leaf(f, shapes[i]), *got, *want;
        tutti_tensor_t *as_x = i == 4 ? tutti_unsqueeze(f->s, var, 2) : var;
        as_x = tutti_expand(f->s, as_x, TUTTI_SHAPE(2, 3, 4));
        tutti_tensor_t *loss = tutti_gaussian_nll_loss(f->s, x, y, var, NULL);
        tutti_tensor_t *whole = tutti_gaussian_nll_loss(f->s, x, y, as_x, NULL);
        expect_same(loss, whole);
        assert_int_equal(tutti_grad(f->s, loss, NULL, &var, 1, &got), 0);
        assert_int_equal(tutti_grad(f->s, whole, NULL, &var, 1, &want), 0);
        expect_same(got, want);
    }
}

static void expect_error(fixture_t *f, int which, const char *text)
{
    tutti_scope_t *s = open_scope_to_fail(f);
    tutti_tensor_t *x = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(1, 3), 0.5);
    tutti_tensor_t *larger = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    if (which == 0) {
        (void)tutti_bce_loss_with(s, x, x, &(tutti_bce_options_t){.weight = larger});
    } else if (which == 1) {
        (void)tutti_bce_loss_with(s, x, x, &(tutti_bce_options_t){.pos_weight = larger});
    } else {
        (void)tutti_gaussian_nll_loss(s, x, x, larger, NULL);
    }
    close_failed_scope(s, text);
}

static void what_would_make_losses_larger_is_refused(void **state)
{
    fixture_t *f = *state;
    expect_error(f, 0, "bce_loss: the weight must be broadcast to [1, 3]: [2, 3]");
    expect_error(f, 1, "bce_loss: pos_weight goes with logits only");
    expect_error(f, 2, "gaussian_nll_loss: the variance must be broadcast to [1, 3]: [2, 3]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_weight_counts_each_loss_and_its_gradient, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_mean_is_over_losses, setup, teardown),
        cmocka_unit_test_setup_teardown(a_variance_is_broadcast, setup, teardown),
        cmocka_unit_test_setup_teardown(what_would_make_losses_larger_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
