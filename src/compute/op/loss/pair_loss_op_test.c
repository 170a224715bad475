/* Losses of pairs, where their numbers are few; what every loss refuses. */
#include "core/tensor/device_testing.h"

#include <math.h>

#include <tutti/autograd.h>
#include <tutti/op_loss.h>
#include <tutti/op_reduce.h>
#include <tutti/tensor.h>

/* t (log t - x) of t = 1 is -x. */
static void expect_divergence(tutti_context_t *ctx, tutti_shape_t shape, double want)
{
    static const float logs[] = {-1, -2, -3, -6};
    const tutti_kl_div_options_t options = {.batch_mean = true};
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, shape, logs);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *loss = tutti_kl_div(s, x, tutti_ones(s, TUTTI_F32, shape), &options);
    assert_float_equal(tutti_tensor_item(loss), want, 0);
    assert_int_equal(tutti_backward(s, loss), 0);
    assert_float_equal(tutti_tensor_at(tutti_tensor_grad(x), 0),
                       shape.rank == 0 ? -1 : -1 / (double)shape.dims[0], 0);
    assert_int_equal(tutti_scope_close(s), 0);
}

/* As torch.nn.functional.kl_div(..., reduction='batchmean') counts; a scalar is one. */
static void a_mean_over_the_batch_divides_by_the_first_size(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    expect_divergence(ctx, TUTTI_SCALAR, 1);
    expect_divergence(ctx, TUTTI_SHAPE(4), 3);
    expect_divergence(ctx, TUTTI_SHAPE(2, 2), 6);
    expect_divergence(ctx, TUTTI_SHAPE(1, 4), 12);
    tutti_context_release(ctx);
}

static void an_unknown_reduction_is_named(void **state)
{
    static const char *const names[] = {"mse_loss",     "bce_with_logits", "smooth_l1_loss",
                                        "huber_loss",   "kl_div",          "nll_loss",
                                        "cross_entropy"};
    const tutti_loss_reduction_t reduction = (tutti_loss_reduction_t)3;
    tutti_context_t *ctx;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (int i = 0; i < 7; i++) {
        tutti_scope_t *s;
        char text[64];
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 2));
        tutti_tensor_t *targets = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2));
        const tutti_kl_div_options_t kl = {.reduction = reduction};
        const tutti_nll_loss_options_t nll = {.reduction = reduction};
        const tutti_cross_entropy_options_t entropy = {.reduction = reduction};
        (void)(i == 0   ? tutti_mse_loss(s, x, x, reduction)
               : i == 1 ? tutti_bce_with_logits(s, x, x, reduction)
               : i == 2 ? tutti_smooth_l1_loss(s, x, x, 1, reduction)
               : i == 3 ? tutti_huber_loss(s, x, x, 1, reduction)
               : i == 4 ? tutti_kl_div(s, x, x, &kl)
               : i == 5 ? tutti_nll_loss(s, x, targets, &nll)
                        : tutti_cross_entropy_with(s, x, targets, &entropy));
        snprintf(text, sizeof text, "%s: reduction 3: want TUTTI_LOSS_MEAN", names[i]);
        assert_int_equal(tutti_scope_status(s), TUTTI_ERR_ARG);
        tt_expect_error(text);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    }
    tutti_context_release(ctx);
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

typedef enum { SMOOTH_L1, HUBER, BCE } pair_t;

static tutti_tensor_t *loss_of(tutti_scope_t *s, pair_t kind, tutti_tensor_t *x, tutti_tensor_t *y)
{
    return kind == SMOOTH_L1 ? tutti_smooth_l1_loss(s, x, y, 0.5, TUTTI_LOSS_SUM)
           : kind == HUBER   ? tutti_huber_loss(s, x, y, 2, TUTTI_LOSS_SUM)
                             : tutti_bce_loss(s, x, y, TUTTI_LOSS_SUM);
}

/* cmocka's assert_float_equal takes a NaN for any number. */
static void expect_near(double got, double want)
{
    assert_true(fabs(got - want) <= 1e-12);
}

/* The gradient of input `of`, if it is given, and of its sum that of x. */
static void expect_second(pair_t kind, const double *x, int count, int of, const double *first,
                          const double *want)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    const tutti_backward_options_t recorded = {.create_graph = true};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *in[] = {tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(count), x),
                            tutti_full(s, TUTTI_F64, TUTTI_SHAPE(count), 0.5)},
                   *grads[2], *second;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_tensor_set_requires_grad(in[i], true), 0);
    }
    tutti_tensor_t *loss = loss_of(s, kind, in[0], in[1]);
    assert_int_equal(tutti_grad(s, loss, &recorded, in, 2, grads), 0);
    assert_int_equal(tutti_grad(s, tutti_sum(s, grads[of]), NULL, in, 1, &second), 0);
    for (int i = 0; i < count; i++) {
        if (first != NULL) {
            expect_near(tutti_tensor_at(grads[of], i), first[i]);
        }
        expect_near(tutti_tensor_at(second, i), want[i]);
    }
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_context_release(ctx);
}

/* x equal to the target, near to it on both sides, far, and at infinity. */
static void a_bend_has_a_second_slope_at_its_bottom(void **state)
{
    (void)state;
    const double x[] = {0.5, 0.75, 0.25, 9, -9, INFINITY};
    expect_second(SMOOTH_L1, x, 6, 0, (double[]){0, 0.5, -0.5, 1, -1, 1},
                  (double[]){2, 2, 2, 0, 0, 0});
    expect_second(SMOOTH_L1, x, 6, 1, NULL, (double[]){-2, -2, -2, 0, 0, 0});
    expect_second(HUBER, x, 6, 0, (double[]){0, 0.25, -0.25, 2, -2, 2},
                  (double[]){1, 1, 1, 0, 0, 0});
}

/* -1/x - 1/(1 - x), and where one of the logarithms is bounded the slope of the other alone. */
static void bounded_logarithms_have_no_slope(void **state)
{
    (void)state;
    expect_second(BCE, (double[]){0.5, 0, 1, 0.25}, 4, 1, (double[]){0, 100, -100, log(3)},
                  (double[]){-4, -1, -1, -16.0 / 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_over_the_batch_divides_by_the_first_size),
        cmocka_unit_test(an_unknown_reduction_is_named),
        cmocka_unit_test(a_bend_has_a_second_slope_at_its_bottom),
        cmocka_unit_test(bounded_logarithms_have_no_slope),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
