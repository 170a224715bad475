/* Losses that consist of other operations, where PyTorch's golden values do not reach: what they
 * refuse, edges, and gradients of gradients; and kl_div's of a target that is 0. */
#include <math.h>

#include <tutti/op_likelihood.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_testing.h"

static tutti_tensor_t *leaf(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, double low,
                            double high)
{
    tutti_tensor_t *x = tutti_uniform(s, dtype, shape, low, high);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void expect_no_slope(fixture_t *f, tutti_tensor_t *x, tutti_tensor_t *loss)
{
    tutti_tensor_t *grad;
    assert_true(tutti_tensor_item(loss) == 0);
    assert_int_equal(tutti_grad(f->s, loss, NULL, &x, 1, &grad), 0);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(grad == NULL || tutti_tensor_at(grad, i) == 0);
    }
}

/* Differences that are the margin, exactly. */
static void hinges_have_no_slope_at_their_edge(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    const tutti_margin_options_t margin = {TUTTI_LOSS_SUM, 1};
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 2));
    tutti_tensor_t *minus = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(1, 2), -1);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    expect_no_slope(f, x, tutti_hinge_embedding_loss(s, x, minus, &margin));
    tutti_tensor_t *zeros = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1, 2));
    tutti_tensor_t *ones = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 2));
    expect_no_slope(f, x, tutti_margin_ranking_loss(s, x, zeros, ones, &margin));
    tutti_tensor_t *step = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(1, 2), (float[]){1, 0});
    assert_int_equal(tutti_tensor_set_requires_grad(step, true), 0);
    tutti_tensor_t *first = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(1));
    expect_no_slope(f, step, tutti_multi_margin_loss(s, step, first, NULL));
}

/* The variance is bounded, and its gradient is that of the bound. */
static void a_small_variance_is_bounded_and_has_a_gradient(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *var = tutti_full(f->s, TUTTI_F64, TUTTI_SHAPE(1), 1e-9), *grad;
    assert_int_equal(tutti_tensor_set_requires_grad(var, true), 0);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(1));
    tutti_tensor_t *y = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(1));
    tutti_tensor_t *loss = tutti_gaussian_nll_loss(f->s, x, y, var, NULL);
    assert_true(fabs(tutti_tensor_item(loss) - 0.5 * (log(1e-6) + 1e6)) < 1e-6);
    assert_int_equal(tutti_grad(f->s, loss, NULL, &var, 1, &grad), 0);
    assert_true(fabs(tutti_tensor_item(grad) / (0.5 * (1e6 - 1e12)) - 1) < 1e-9);
}

/* A bound that is far away is not lost beside the variance, and an infinite one is no NaN. */
static void variances_of_any_size_are_bounded(void **state)
{
    fixture_t *f = *state;
    const double inf = (double)INFINITY;
    tutti_tensor_t *var =
        tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){-100, -1, INFINITY});
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(3));
    const tutti_gaussian_nll_options_t each = {.reduction = TUTTI_LOSS_NONE};
    tutti_tensor_t *losses = tutti_gaussian_nll_loss(f->s, x, x, var, &each);
    assert_true(fabs(tutti_tensor_at(losses, 0) - log(1e-6) / 2) < 1e-6);
    assert_true(fabs(tutti_tensor_at(losses, 1) - log(1e-6) / 2) < 1e-6);
    assert_true(tutti_tensor_at(losses, 2) == inf);
}

/* The distance of a vector to itself has no slope, whatever the norm. */
static void equal_vectors_have_a_distance_without_a_slope(void **state)
{
    fixture_t *f = *state;
    for (int i = 0; i < 4; i++) {
        tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3)), *grad;
        tutti_tensor_t *y = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3));
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        const double p[] = {0.5, 1, 2, 3};
        tutti_tensor_t *distance = tutti_pairwise_distance(f->s, x, y, p[i], 0);
        assert_true(tutti_tensor_at(distance, 1) == 0);
        assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, distance), NULL, &x, 1, &grad), 0);
        assert_true(tutti_tensor_at(grad, 5) == 0);
    }
}

/* A target of 0 has the divergence 0, no gradient, and no gradient of it. */
static void kl_div_of_a_target_of_0_is_a_number(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(2), (double[]){0.5, -1});
    tutti_tensor_t *p = tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(2), (double[]){0, 0.5});
    tutti_tensor_t *in[2] = {x, p}, *first[2], *second[2];
    const tutti_backward_options_t record = {.create_graph = true};
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(p, true), 0);
    tutti_tensor_t *loss =
        tutti_kl_div(s, x, p, &(tutti_kl_div_options_t){.reduction = TUTTI_LOSS_SUM});
    assert_true(fabs(tutti_tensor_item(loss) - 0.5 * (log(0.5) + 1)) < 1e-15);
    assert_int_equal(tutti_grad(s, loss, &record, in, 2, first), 0);
    assert_true(tutti_tensor_at(first[0], 0) == 0 && tutti_tensor_at(first[1], 0) == 0);
    assert_true(fabs(tutti_tensor_at(first[1], 1) - (log(0.5) + 2)) < 1e-15);
    assert_int_equal(tutti_grad(s, tutti_sum(s, first[1]), NULL, in, 2, second), 0);
    assert_true(tutti_tensor_at(second[1], 0) == 0);
    assert_true(fabs(tutti_tensor_at(second[1], 1) - 2) < 1e-15);
}

/* ---- distances ------------------------------------------------------------------------------- */

/* The square of the distance, times a number of the user's; a call is counted. */
typedef struct {
    double factor;
    int calls;
} square_t;

static tutti_tensor_t *square_distance(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y,
                                       void *user)
{
    square_t *square = user;
    square->calls++;
    tutti_tensor_t *d = tutti_square(s, tutti_sub(s, x, y));
    return tutti_mul_scalar(s, tutti_sum_over(s, d, TUTTI_DIMS(-1), false), square->factor);
}

static void a_distance_of_ones_own_is_called_for_each_pair(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *x[3];
    for (int i = 0; i < 3; i++) { /* squares 1, 9 and 4 of distances 1, 3 and 2 */
        x[i] = tutti_full(s, TUTTI_F64, TUTTI_SHAPE(2, 1), (double[]){0, 1, 3}[i]);
    }
    square_t square = {.factor = 1};
    tutti_triplet_distance_options_t o = {
        .reduction = TUTTI_LOSS_SUM, .margin = 10, .distance = square_distance, .user = &square};
    tutti_tensor_t *y = tutti_triplet_margin_with_distance_loss(s, x[0], x[1], x[2], &o);
    assert_true(tutti_tensor_item(y) == 2 * (10 + 1 - 9) && square.calls == 2);
    o.swap = true;
    y = tutti_triplet_margin_with_distance_loss(s, x[0], x[1], x[2], &o);
    assert_true(tutti_tensor_item(y) == 2 * (10 + 1 - 4) && square.calls == 5);
    o = (tutti_triplet_distance_options_t){.reduction = TUTTI_LOSS_SUM};
    y = tutti_triplet_margin_with_distance_loss(s, x[1], x[2], x[0], &o);
    assert_true(fabs(tutti_tensor_item(y) - 4) < 1e-5); /* 1 + 2 - 1, of each row */
}

/* Where rows are the same there is no slope, nor a gradient of it, of any norm. */
static void coincident_rows_have_gradients_of_0(void **state)
{
    static const double norms[] = {0, 0.5, 1, 1.5, 2, 3, INFINITY};
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    const tutti_backward_options_t record = {.create_graph = true};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 4)), *first, *plain, *second;
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        tutti_tensor_t *d = tutti_sum(s, tutti_pdist(s, x, norms[k]));
        d = tutti_add(s, d, tutti_sum(s, tutti_cdist(s, x, tutti_detach(s, x), norms[k])));
        assert_true(tutti_tensor_item(d) == 0);
        const tutti_backward_options_t again = {.retain_graph = true};
        assert_int_equal(tutti_grad(s, d, &again, &x, 1, &plain), 0);
        assert_int_equal(tutti_grad(s, d, &record, &x, 1, &first), 0);
        second = NULL;
        if (first != NULL && tutti_tensor_requires_grad(first)) {
            tutti_tensor_t *weights = tutti_arange(s, TUTTI_F64, 1, 1, 12);
            weights = tutti_reshape(s, weights, TUTTI_SHAPE(3, 4));
            tutti_tensor_t *sum = tutti_sum(s, tutti_mul(s, first, weights));
            assert_int_equal(tutti_grad(s, sum, NULL, &x, 1, &second), 0);
        }
        for (int64_t i = 0; i < 12; i++) {
            assert_true(plain == NULL || tutti_tensor_at(plain, i) == 0);
            assert_true(first == NULL || tutti_tensor_at(first, i) == 0);
            assert_true(second == NULL || tutti_tensor_at(second, i) == 0);
        }
    }
}

/* The slope of each row is a constant: the gradient of dx = slope g by g is the slope. */
static void a_label_loss_has_a_gradient_by_its_gradient(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(3), (double[]){0.5, 0, 3});
    tutti_tensor_t *g = tutti_full(s, TUTTI_F64, TUTTI_SCALAR, 2), *dx, *dg;
    const int64_t labels[] = {0, 2, -1};
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(g, true), 0);
    tutti_tensor_t *loss = tutti_multilabel_margin_loss(
        s, x, tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(3), labels), TUTTI_LOSS_NONE);
    const tutti_backward_options_t record = {.create_graph = true, .grad_output = g};
    assert_int_equal(tutti_grad(s, loss, &record, &x, 1, &dx), 0);
    assert_true(fabs(tutti_tensor_at(dx, 0) + 2 / 3.0) < 1e-15 && tutti_tensor_at(dx, 2) == 0);
    assert_int_equal(tutti_grad(s, tutti_select(s, dx, 0, 1), NULL, &g, 1, &dg), 0);
    assert_true(fabs(tutti_tensor_item(dg) - 1 / 3.0) < 1e-15);
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

static void call_margins(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                         void *user)
{
    const tutti_margin_options_t margin = {TUTTI_LOSS_SUM, 0.3};
    (void)user;
    out[0] = tutti_triplet_margin_loss(s, in[0], in[1], in[2], NULL);
    out[1] = tutti_cosine_similarity(s, in[0], in[1], -1, 1e-8);
    out[2] = tutti_margin_ranking_loss(s, in[0], in[1], tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 4)),
                                       &margin);
    out[3] = tutti_soft_margin_loss(s, in[0], tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 4)),
                                    TUTTI_LOSS_MEAN);
}

static void call_distances(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                           void *user)
{
    square_t square = {.factor = 0.5};
    const tutti_triplet_distance_options_t options = {
        .swap = true, .distance = square_distance, .user = &square};
    (void)user;
    out[0] = tutti_triplet_margin_with_distance_loss(s, in[0], in[1], in[2], &options);
    out[1] = tutti_pdist(s, tutti_cat(s, (tutti_tensor_t *[]){in[0], in[1]}, 2, 0), 2);
    out[2] = tutti_cdist(s, in[0], in[1], 2);
    out[3] = tutti_cdist(s, in[0], tutti_unsqueeze(s, in[2], 0), 3);
}

static void call_likelihoods(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                             void *user)
{
    tutti_tensor_t *var = tutti_add_scalar(s, tutti_square(s, in[2]), 0.5);
    const tutti_cross_entropy_options_t entropy = {.label_smoothing = 0.1};
    (void)user;
    out[0] = tutti_gaussian_nll_loss(s, in[0], in[1], var, NULL);
    out[1] = tutti_focal_loss(s, in[0], tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 4)), NULL);
    out[2] = tutti_cross_entropy_with(s, in[0], tutti_softmax(s, in[1], -1), &entropy);
    out[3] = tutti_poisson_nll_loss(s, in[0], tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 4)), NULL);
}

static void gradients_have_gradients(void **state)
{
    fixture_t *f = *state;
    const tutti_gradient_check_options_t options = {.order = 2};
    tutti_tensor_t *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = leaf(f->s, TUTTI_F64, TUTTI_SHAPE(3, 4), -1, 1);
    }
    if (tutti_gradient_check(f->ctx, call_margins, NULL, in, 3, 4, &options) < 0 ||
        tutti_gradient_check(f->ctx, call_distances, NULL, in, 3, 4, &options) < 0 ||
        tutti_gradient_check(f->ctx, call_likelihoods, NULL, in, 3, 4, &options) < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

/* ---- what they refuse ------------------------------------------------------------------------ */

static void expect_failure(fixture_t *f,
                           tutti_tensor_t *(*call)(tutti_scope_t *s, tutti_tensor_t *x),
                           const char *text)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    (void)call(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3)));
    assert_string_equal(tutti_scope_error(s), text);
    assert_true(tutti_scope_close(s) < 0);
}

static tutti_tensor_t *rank_of_unlike_shapes(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_margin_ranking_loss(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3)), x, NULL);
}

static tutti_tensor_t *hinge_of_integers(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_hinge_embedding_loss(s, tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(2, 3)), x, NULL);
}

static tutti_tensor_t *distance_of_no_norm(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_pairwise_distance(s, x, x, 0, 1e-6);
}

static tutti_tensor_t *reduction_of_nothing(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_soft_margin_loss(s, x, x, (tutti_loss_reduction_t)7);
}

static tutti_tensor_t *power_of_three(tutti_scope_t *s, tutti_tensor_t *x)
{
    const tutti_multi_margin_options_t options = {.p = 3};
    return tutti_multi_margin_loss(s, x, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)), &options);
}

static tutti_tensor_t *weights_of_other_classes(tutti_scope_t *s, tutti_tensor_t *x)
{
    const tutti_cross_entropy_options_t options = {.weight =
                                                       tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2))};
    return tutti_cross_entropy_with(s, x, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2)), &options);
}

static tutti_tensor_t *probabilities_of_other_classes(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_cross_entropy(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2)));
}

static tutti_tensor_t *variance_of_other_rows(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_gaussian_nll_loss(s, x, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 2)), NULL);
}

static void what_is_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    expect_failure(f, rank_of_unlike_shapes,
                   "margin_ranking_loss: the second input must have the shape [2, 3], of an input "
                   "of [2, 3]: [3]");
    expect_failure(f, hinge_of_integers,
                   "hinge_embedding_loss: the input must be of a floating dtype: i64[2, 3]");
    expect_failure(f, distance_of_no_norm, "pairwise_distance: p must be above 0, not 0");
    expect_failure(f, reduction_of_nothing,
                   "soft_margin_loss: reduction 7: want TUTTI_LOSS_MEAN, TUTTI_LOSS_SUM or "
                   "TUTTI_LOSS_NONE");
    expect_failure(f, power_of_three, "multi_margin_loss: p must be 1 or 2, not 3");
    expect_failure(f, weights_of_other_classes,
                   "cross_entropy: want a floating weight for each class: f32[2, 3] and f32[2]");
    expect_failure(f, probabilities_of_other_classes,
                   "cross_entropy: targets of a floating dtype are probabilities (classes are i64, "
                   "i32 or u8), and must have the shape [2, 3], of an input of [2, 3]: [2]");
    expect_failure(f, variance_of_other_rows,
                   "gaussian_nll_loss: the variance must be broadcast to [2, 3]: [3, 2]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hinges_have_no_slope_at_their_edge),
        TEST(a_small_variance_is_bounded_and_has_a_gradient),
        TEST(variances_of_any_size_are_bounded),
        TEST(equal_vectors_have_a_distance_without_a_slope),
        TEST(kl_div_of_a_target_of_0_is_a_number),
        TEST(a_distance_of_ones_own_is_called_for_each_pair),
        TEST(coincident_rows_have_gradients_of_0),
        TEST(a_label_loss_has_a_gradient_by_its_gradient),
        TEST(gradients_have_gradients),
        TEST(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
