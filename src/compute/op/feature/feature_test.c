/* Operations of op_feature.h and op_volume.h that consist of others, where PyTorch's golden values
 * do not reach: gradients of gradients, what dropouts leave, edges, and what is refused. */
#include <math.h>

#include <tutti/modes.h>
#include <tutti/op_feature.h>
#include <tutti/op_volume.h>

#include "compute/autograd/op_testing.h"

static tutti_tensor_t *leaf(tutti_scope_t *s, tutti_shape_t shape, double low, double high)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F64, shape, low, high);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

static void call_planes(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                        void *user)
{
    const tutti_local_response_options_t response = {.size = 2, .alpha = 0.5};
    const tutti_lp_pool_options_t norms = {.p = 3, .kernel = {2, 2}, .stride = {1, 1}};
    (void)user;
    out[0] = tutti_normalize(s, tutti_pixel_unshuffle(s, in[0], 2), 2, 1, 1e-12);
    out[1] = tutti_local_response_norm(s, in[0], &response);
    out[2] = tutti_pixel_shuffle(s, tutti_channel_shuffle(s, in[0], 2), 2);
    out[3] = tutti_lp_pool2d(s, in[0], &norms);
}

static void call_volumes(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                         void *user)
{
    const tutti_pool_options_t maxima = {.kernel = {2, 2, 2}, .stride = {1, 1, 1}};
    const tutti_avg_pool_options_t means = {.kernel = {2, 2, 2}, .padding = {1, 1, 0}};
    const tutti_interpolate_options_t twice = {.mode = TUTTI_INTERPOLATE_LINEAR,
                                               .scale = {2, 1.5, 1}};
    const tutti_pool_options_t windows = {.kernel = {1, 2, 2}};
    const tutti_max_unpool_options_t back = {.kernel = {1, 2, 2}, .size = {3, 2, 3}};
    (void)user;
    out[0] = tutti_max_pool3d(s, in[0], &maxima, NULL);
    out[1] = tutti_avg_pool3d(s, in[0], &means);
    out[2] = tutti_adaptive_avg_pool3d(s, in[0], (const int64_t[]){2, 1, 2});
    out[3] = tutti_interpolate(s, in[0], &twice);
    tutti_tensor_t *at, *largest = tutti_max_pool3d(s, tutti_square(s, in[0]), &windows, &at);
    out[4] = tutti_max_unpool3d(s, largest, at, &back);
}

static void call_products(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                          void *user)
{
    tutti_tensor_t *rows = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(4), (int64_t[]){2, 0, 2, 1});
    tutti_tensor_t *begins = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2), (int64_t[]){0, 3});
    const tutti_embedding_bag_options_t bags = {.offsets = begins};
    (void)user;
    out[0] = tutti_bilinear(s, in[0], in[1], in[2], NULL);
    out[1] = tutti_embedding_bag(s, rows, in[0], &bags);
    out[2] = tutti_weight_norm(s, in[1], tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(3, 1)), 0);
}

static void check_order_2(fixture_t *f, tutti_gradient_check_fn_t call, tutti_tensor_t **in,
                          int inputs, int outputs)
{
    const tutti_gradient_check_options_t options = {.order = 2};
    if (tutti_gradient_check(f->ctx, call, NULL, in, inputs, outputs, &options) < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

static void gradients_have_gradients(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *planes = leaf(f->s, TUTTI_SHAPE(1, 4, 2, 2), 0.5, 2);
    tutti_tensor_t *volume = leaf(f->s, TUTTI_SHAPE(1, 1, 3, 2, 3), -2, 2);
    tutti_tensor_t *products[] = {leaf(f->s, TUTTI_SHAPE(3, 2), -1, 1),
                                  leaf(f->s, TUTTI_SHAPE(3, 3), -1, 1),
                                  leaf(f->s, TUTTI_SHAPE(2, 2, 3), -1, 1)};
    check_order_2(f, call_planes, &planes, 1, 4);
    check_order_2(f, call_volumes, &volume, 1, 5);
    check_order_2(f, call_products, products, 3, 3);
}

/* ---- dropouts -------------------------------------------------------------------------------- */

enum { CHANNELS = 400, EACH = 6 };

/* Of each channel all elements are 0 or all 2; about a half of them. */
static void expect_whole_channels(fixture_t *f, const tutti_tensor_t *y)
{
    int dropped = 0;
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_int_equal(tutti_tensor_numel(y), CHANNELS * EACH);
    for (int64_t c = 0; c < CHANNELS; c++) {
        const double first = tutti_tensor_at(y, c * EACH);
        assert_true(first == 0 || first == 2);
        dropped += first == 0;
        for (int64_t i = 1; i < EACH; i++) {
            assert_true(tutti_tensor_at(y, c * EACH + i) == first);
        }
    }
    assert_in_range(dropped, CHANNELS / 2 - 60, CHANNELS / 2 + 60);
}

static void whole_channels_are_dropped(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    expect_whole_channels(
        f, tutti_dropout1d(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, CHANNELS / 4, EACH)), 0.5F));
    expect_whole_channels(
        f, tutti_dropout2d(s, tutti_ones(s, TUTTI_BF16, TUTTI_SHAPE(CHANNELS, 2, EACH / 2)), 0.5F));
    expect_whole_channels(
        f, tutti_dropout3d(
               s, tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(4, CHANNELS / 4, 1, 2, EACH / 2)), 0.5F));
}

/* Numbers of mean 0 and variance 1 stay so, and what was dropped is one number. */
static void alpha_dropout_keeps_mean_and_variance(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(200, 100), 0, 1);
    tutti_tensor_t *y = tutti_alpha_dropout(s, x, 0.25F);
    assert_true(fabs(tutti_tensor_item(tutti_mean(s, y))) < 0.05);
    assert_true(fabs(tutti_tensor_item(tutti_var(s, y)) - 1) < 0.1);
    const double q = 0.25, limit = 1.7580993408473766;
    const double a = 1 / sqrt((1 - q) * (1 + limit * limit * q)), low = a * limit * (q - 1);
    int dropped = 0;
    for (int64_t i = 0; i < 20000; i++) {
        const double got = tutti_tensor_at(y, i);
        const double kept = a * tutti_tensor_at(x, i) + a * limit * q;
        const bool is_low = fabs(got - low) < 1e-5;
        dropped += is_low;
        assert_true(is_low || fabs(got - kept) < 1e-5);
    }
    assert_in_range(dropped, 4500, 5500);
    tutti_tensor_t *channels = tutti_feature_alpha_dropout(
        s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, CHANNELS, EACH)), 0.5F);
    for (int64_t i = 0; i < CHANNELS * EACH; i++) {
        assert_true(tutti_tensor_at(channels, i) == tutti_tensor_at(channels, i / EACH * EACH));
    }
}

static void without_training_nothing_is_dropped(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3, 4));
    assert_ptr_equal(tutti_dropout1d(f->s, x, 0), x);
    tutti_context_set_training(f->ctx, false);
    assert_ptr_equal(tutti_dropout1d(f->s, x, 0.5F), x);
    assert_ptr_equal(tutti_alpha_dropout(f->s, x, 0.5F), x);
    assert_ptr_equal(tutti_feature_alpha_dropout(f->s, x, 0.5F), x);
    tutti_context_set_training(f->ctx, true);
}

/* ---- weight norm ----------------------------------------------------------------------------- */

static void columns_have_lengths_of_their_own_though_g_is_of_rows(void **state)
{
    fixture_t *f = *state;
    static const double wanted[] = {0.6, 0.4472135954999579, 1.6, 1.7888543819998317};
    const double directions[] = {3, 1, 4, 2}, lengths[] = {1, 2};
    tutti_tensor_t *v = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(2, 2), directions);
    tutti_tensor_t *g = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(2, 1), lengths);
    tutti_tensor_t *w = tutti_weight_norm(f->s, v, g, 1);
    assert_int_equal(tutti_scope_status(f->s), 0);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(fabs(tutti_tensor_at(w, i) - wanted[i]) < 1e-12);
    }
}

/* ---- spectral norm --------------------------------------------------------------------------- */

/* Many steps find the largest singular value of a diagonal; without training nothing moves. */
static void spectral_norm_finds_the_largest_singular_value(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *w =
        tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2, 3), (float[]){0, 4, 0, 0, 0, -8});
    tutti_tensor_t *u = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
    tutti_tensor_t *v = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3));
    const tutti_spectral_norm_options_t o = {.u = u, .v = v, .iterations = 40, .eps = 1e-12};
    tutti_tensor_t *y = tutti_spectral_norm(s, w, &o);
    assert_true(fabs(tutti_tensor_at(y, 1) - 0.5) < 1e-6);
    assert_true(fabs(tutti_tensor_at(y, 5) + 1) < 1e-6);
    assert_true(fabs(fabs(tutti_tensor_at(u, 1)) - 1) < 1e-6 && fabs(tutti_tensor_at(v, 0)) < 1e-6);
    tutti_context_set_training(f->ctx, false);
    tutti_tensor_t *ones = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
    y = tutti_spectral_norm(s, w,
                            &(tutti_spectral_norm_options_t){.u = ones, .v = v, .eps = 1e-12});
    tutti_context_set_training(f->ctx, true);
    assert_true(tutti_tensor_at(ones, 0) == 1 && tutti_tensor_at(ones, 1) == 1);
    assert_true(fabs(fabs(tutti_tensor_at(y, 1)) - 0.5) < 1e-6);
}

typedef struct {
    tutti_tensor_t *weight, *u, *v;
} bounded_t;

static tutti_status_t bounded_init(tutti_module_t *m, const void *options)
{
    bounded_t *b = tutti_module_state(m);
    *b = *(const bounded_t *)options;
    return tutti_module_add_parameter(m, "weight", b->weight);
}

static tutti_tensor_t *bounded_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const bounded_t *b = tutti_module_state(m);
    const tutti_spectral_norm_options_t o = {.u = b->u, .v = b->v, .eps = 1e-12};
    return tutti_linear(s, x, tutti_spectral_norm(s, b->weight, &o), NULL);
}

static const tutti_module_ops_t bounded_layer = {
    .name = "bounded",
    .state_bytes = sizeof(bounded_t),
    .init = bounded_init,
    .forward = bounded_forward,
};

typedef tutti_tensor_t *(*run_t)(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

/* dw, u and v, one behind the other, of a forward and its backward. */
static tutti_tensor_t *run_bounded(fixture_t *f, run_t run)
{
    tutti_scope_t *s = f->s;
    const float weight[] = {1, 2, 3, -1, 0.5F, 0.25F, 0.125F, -2, 1};
    const bounded_t b = {
        .weight = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(3, 3), weight),
        .u = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){0.6F, 0.8F, 0}),
        .v = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){0.6F, 0, 0.8F})};
    tutti_module_t *m;
    assert_int_equal(tutti_tensor_set_requires_grad(b.weight, true), 0);
    assert_int_equal(tutti_module_create(f->ctx, &bounded_layer, &b, &m), 0);
    tutti_tensor_t *y = run(s, m, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3)));
    assert_int_equal(tutti_backward(s, tutti_sum(s, tutti_square(s, y))), 0);
    tutti_tensor_t *dw = tutti_reshape(s, tutti_tensor_grad(b.weight), TUTTI_SHAPE(9));
    tutti_module_release(m);
    return tutti_cat(s, (tutti_tensor_t *[]){dw, b.u, b.v}, 3, 0);
}

static void spectral_norm_that_is_computed_again_moves_once(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *once = run_bounded(f, tutti_forward), *again = run_bounded(f, tutti_recompute);
    assert_int_equal(tutti_tensor_numel(once), 15);
    for (int i = 0; i < 15; i++) {
        assert_true(tutti_tensor_at(once, i) == tutti_tensor_at(again, i));
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void rows_of_zeros_stay_zeros_and_have_a_slope(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3)), *grad;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *y = tutti_normalize(f->s, x, 2, 1, 1e-3);
    assert_true(tutti_tensor_at(y, 5) == 0);
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &x, 1, &grad), 0);
    assert_true(fabs(tutti_tensor_at(grad, 0) - 1e3) < 1e-9);
}

/* eps⁴ is none of f32's, nor the square of another eps. */
static void rows_of_zeros_stay_zeros_where_the_bound_is_too_small(void **state)
{
    fixture_t *f = *state;
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3)), *grad;
        const double p = i == 0 ? 4 : 2, eps = i == 0 ? 1e-12 : 1e-25;
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        tutti_tensor_t *y = tutti_normalize(f->s, x, p, 1, eps);
        assert_true(tutti_tensor_at(y, 5) == 0);
        assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &x, 1, &grad), 0);
        assert_true(fabs(tutti_tensor_at(grad, 0) * eps - 1) < 1e-6);
    }
}

/* Of what is 0 behind a ReLU, a root and a power below 1 have no gradient. */
static void zeros_have_no_slope_that_is_infinite(void **state)
{
    fixture_t *f = *state;
    const double values[] = {0, 0, 3, 4};
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(1, 2, 2), values), *grad;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    const tutti_lp_pool_options_t pairs = {.p = 2, .kernel = {2}};
    tutti_tensor_t *y = tutti_lp_pool1d(f->s, x, &pairs);
    assert_true(tutti_tensor_at(y, 0) == 0 && tutti_tensor_at(y, 1) == 5);
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, &x, 1, &grad), 0);
    assert_true(tutti_tensor_at(grad, 0) == 0 && fabs(tutti_tensor_at(grad, 2) - 0.6) < 1e-15);
    y = tutti_sum(f->s, tutti_normalize(f->s, x, 0.5, 1, 1e-12));
    assert_int_equal(tutti_grad(f->s, y, NULL, &x, 1, &grad), 0);
    assert_true(fabs(tutti_tensor_at(grad, 0) - 1.0 / 3) < 1e-15); /* of the quotient */
}

/* A sum over no features is 0, and the bias is left of it. */
static void forms_of_no_features_are_the_bias(void **state)
{
    fixture_t *f = *state;
    const int64_t sizes[][2] = {{0, 3}, {2, 0}, {0, 0}};
    for (int k = 0; k < 3; k++) {
        const int64_t i = sizes[k][0], j = sizes[k][1];
        tutti_tensor_t *in[] = {leaf(f->s, TUTTI_SHAPE(2, 5, i), 1, 2),
                                leaf(f->s, TUTTI_SHAPE(2, 5, j), 1, 2),
                                leaf(f->s, TUTTI_SHAPE(4, i, j), 1, 2),
                                leaf(f->s, TUTTI_SHAPE(4), 1, 2)},
                       *grads[4];
        tutti_tensor_t *y = tutti_bilinear(f->s, in[0], in[1], in[2], in[3]);
        assert_int_equal(tutti_scope_status(f->s), 0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(2, 5, 4)));
        for (int64_t at = 0; at < 40; at++) {
            assert_true(tutti_tensor_at(y, at) == tutti_tensor_at(in[3], at % 4));
        }
        assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), NULL, in, 4, grads), 0);
        for (int64_t at = 0; at < tutti_tensor_numel(grads[1 - k % 2]); at++) {
            assert_true(tutti_tensor_at(grads[1 - k % 2], at) == 0);
        }
        assert_true(tutti_tensor_at(grads[3], 3) == 10);
    }
}

/* A window may begin before x and skip it: its maximum is -infinity, at no place. */
static void a_window_without_elements_has_no_place(void **state)
{
    fixture_t *f = *state;
    const tutti_pool_options_t gap = {
        .kernel = {2, 1, 1}, .stride = {1, 1, 1}, .padding = {1}, .dilation = {3, 1, 1}};
    tutti_tensor_t *at, *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1, 2, 1, 1));
    tutti_tensor_t *y = tutti_max_pool3d(f->s, x, &gap, &at);
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_int_equal(tutti_tensor_numel(y), 1);
    assert_true(isinf(tutti_tensor_at(y, 0)) && tutti_tensor_at(y, 0) < 0);
    assert_int_equal((int)tutti_tensor_at(at, 0), -1);
}

static void no_volumes_have_no_maxima(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *at, *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(0, 3, 4, 2, 2));
    (void)tutti_max_pool3d(f->s, x, &(tutti_pool_options_t){.kernel = {2, 1, 1}}, &at);
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_true(tutti_shape_equal(tutti_tensor_shape(at), TUTTI_SHAPE(0, 3, 2, 2, 2)));
}

/* ---- what they refuse ------------------------------------------------------------------------ */

static void expect_failure(fixture_t *f,
                           tutti_tensor_t *(*call)(tutti_scope_t *s, tutti_tensor_t *x),
                           const char *text)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    (void)call(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 4)));
    assert_string_equal(tutti_scope_error(s), text);
    assert_true(tutti_scope_close(s) < 0);
}

static tutti_tensor_t *shuffle_odd_channels(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_pixel_shuffle(s, x, 2);
}

static tutti_tensor_t *unshuffle_odd_planes(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_pixel_unshuffle(s, x, 2);
}

static tutti_tensor_t *shuffle_by_nothing(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_pixel_shuffle(s, x, 0);
}

static tutti_tensor_t *shuffle_unlike_groups(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_channel_shuffle(s, x, 2);
}

static tutti_tensor_t *drop_more_than_all(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_dropout1d(s, x, 1.5F);
}

static tutti_tensor_t *drop_planes_of_a_volume(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_dropout3d(s, x, 0.5F);
}

static tutti_tensor_t *bilinear_of_other_rows(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_bilinear(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 2, 4)),
                          tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(5, 4, 4)), NULL);
}

static tutti_tensor_t *maxima_by_frequency(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *row = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(3));
    const tutti_embedding_bag_options_t o = {
        .mode = TUTTI_BAG_MAX, .offsets = row, .scale_by_frequency = true};
    (void)x;
    return tutti_embedding_bag(s, row, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 2)), &o);
}

/* Of three indices. */
static tutti_tensor_t *bags_at(tutti_scope_t *s, int64_t first, int64_t second, int64_t third)
{
    const int64_t begins[] = {first, second, third};
    const tutti_embedding_bag_options_t o = {
        .offsets = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(3), begins)};
    return tutti_embedding_bag(s, tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(3)),
                               tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 2)), &o);
}

static tutti_tensor_t *bags_that_begin_late(tutti_scope_t *s, tutti_tensor_t *x)
{
    (void)x;
    return bags_at(s, 1, 2, 3);
}

static tutti_tensor_t *bags_that_fall(tutti_scope_t *s, tutti_tensor_t *x)
{
    (void)x;
    return bags_at(s, 0, 2, 1);
}

static tutti_tensor_t *bags_behind_all_indices(tutti_scope_t *s, tutti_tensor_t *x)
{
    (void)x;
    assert_int_equal(tutti_tensor_status(bags_at(s, 0, 0, 3)), TUTTI_OK); /* two are empty */
    return bags_at(s, 0, 3, 4);
}

static tutti_tensor_t *pool_planes_as_volumes(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *at;
    return tutti_max_pool3d(s, x, &(tutti_pool_options_t){.kernel = {1, 1, 1}}, &at);
}

static tutti_tensor_t *pool_by_no_power(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_lp_pool1d(s, x, &(tutti_lp_pool_options_t){.kernel = {2}});
}

static tutti_tensor_t *weights_of_no_dimension(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_weight_norm(s, x, x, 3);
}

static tutti_tensor_t *weights_of_larger_lengths(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_weight_norm(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 2, 3, 4)), 0);
}

static tutti_tensor_t *norms_of_nothing(tutti_scope_t *s, tutti_tensor_t *x)
{
    (void)x;
    return tutti_lp_pool2d(s, NULL, &(tutti_lp_pool_options_t){.p = 2, .kernel = {1, 1}});
}

static tutti_tensor_t *norms_of_integers(tutti_scope_t *s, tutti_tensor_t *x)
{
    const tutti_lp_pool_options_t o = {.p = 2, .kernel = {1, 1}};
    return tutti_lp_pool2d(s, tutti_cast(s, x, TUTTI_I64), &o);
}

/* x is [2, 3, 4]. */
static tutti_tensor_t *unpool(tutti_scope_t *s, tutti_tensor_t *x, tutti_shape_t indices,
                              tutti_max_unpool_options_t o)
{
    return tutti_max_unpool1d(s, x, tutti_full(s, TUTTI_I64, indices, 8), &o);
}

static tutti_tensor_t *unpool_by_other_indices(tutti_scope_t *s, tutti_tensor_t *x)
{
    return unpool(s, x, TUTTI_SHAPE(2, 3, 5), (tutti_max_unpool_options_t){.kernel = {2}});
}

static tutti_tensor_t *unpool_without_a_kernel(tutti_scope_t *s, tutti_tensor_t *x)
{
    return unpool(s, x, TUTTI_SHAPE(2, 3, 4), (tutti_max_unpool_options_t){.stride = {2}});
}

static tutti_tensor_t *unpool_to_nothing(tutti_scope_t *s, tutti_tensor_t *x)
{
    const tutti_max_unpool_options_t o = {.kernel = {1}, .padding = {2}};
    return unpool(s, x, TUTTI_SHAPE(2, 3, 4), o);
}

static tutti_tensor_t *unpool_planes_as_volumes(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_max_unpool3d(s, x, x, NULL);
}

static tutti_tensor_t *spectrum_without_vectors(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_spectral_norm(s, x, NULL);
}

static tutti_tensor_t *spectrum_of_other_vectors(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *u = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
    return tutti_spectral_norm(s, x, &(tutti_spectral_norm_options_t){.u = u, .v = u});
}

/* Offsets of a device are not waited for: what they say is seen on the host alone. */
static void offsets_that_are_no_bags_are_refused(void **state)
{
    fixture_t *f = *state;
    if (tt_test_device() != NULL) {
        print_message("skipped: %s does not show offsets to the host\n", tt_test_device());
        skip();
    }
    expect_failure(f, bags_that_begin_late,
                   "embedding_bag: offsets begin with 1: the first bag begins at 0");
    expect_failure(f, bags_that_fall,
                   "embedding_bag: offset 2 is 1: they must rise, in [0, 3], of as many indices");
    expect_failure(f, bags_behind_all_indices,
                   "embedding_bag: offset 2 is 4: they must rise, in [0, 3], of as many indices");
}

static void what_is_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    expect_failure(f, weights_of_no_dimension,
                   "weight_norm: there is no dimension 3, or no floating v");
    expect_failure(f, weights_of_larger_lengths,
                   "weight_norm: g must be broadcast to v: f32[2, 2, 3, 4] and f32[2, 3, 4]");
    expect_failure(f, norms_of_nothing, "a tensor is NULL");
    expect_failure(f, norms_of_integers, "lp_pool2d: x must be of a floating dtype, not i64");
    expect_failure(f, spectrum_without_vectors,
                   "spectral_norm: u and v are required, iterations must not be negative");
    expect_failure(f, spectrum_of_other_vectors,
                   "spectral_norm: the weight must be floating, [O, ...], u [O] and v the other "
                   "sizes' product: f32[2, 3, 4]");
    expect_failure(f, shuffle_odd_channels,
                   "pixel_shuffle: x must be [..., C r r, H, W] for this r: 2: f32[2, 3, 4]");
    expect_failure(f, unshuffle_odd_planes,
                   "pixel_unshuffle: x must be [..., C, H r, W r] for this r: 2: f32[2, 3, 4]");
    expect_failure(f, shuffle_by_nothing,
                   "pixel_shuffle: the factor must be from 1 to 2^31 - 1: 0: f32[2, 3, 4]");
    expect_failure(f, shuffle_unlike_groups,
                   "channel_shuffle: x must be [N, C, ...], C a multiple of these groups: 2: "
                   "f32[2, 3, 4]");
    expect_failure(f, drop_more_than_all, "dropout1d: p must be in [0, 1], not 1.5");
    expect_failure(f, drop_planes_of_a_volume, "dropout3d: x must have 4 or 5 dimensions, not 3");
    expect_failure(f, bilinear_of_other_rows,
                   "bilinear: x must be [..., I], y [..., J], weight [O, I, J]: f32[2, 3, 4], "
                   "f32[2, 2, 4] and f32[5, 4, 4]");
    expect_failure(f, maxima_by_frequency,
                   "embedding_bag: scale_by_frequency goes not with maxima");
    expect_failure(f, pool_planes_as_volumes,
                   "max_pool3d: x must be [N, C, D, H, W] or [C, D, H, W]: f32[2, 3, 4]");
    expect_failure(f, pool_by_no_power, "lp_pool1d: p must not be 0");
    expect_failure(f, unpool_by_other_indices,
                   "max_unpool1d: x must have 2 or 3 dimensions, and the indices its shape: "
                   "f32[2, 3, 4] and i64[2, 3, 5]");
    expect_failure(f, unpool_without_a_kernel,
                   "max_unpool1d: kernel 0 must be at least 1; stride 2, padding 0 and size 0 not "
                   "negative");
    expect_failure(f, unpool_to_nothing, "max_unpool1d: y would have the size 0");
    expect_failure(f, unpool_planes_as_volumes,
                   "max_unpool3d: x must have 4 or 5 dimensions, and the indices its shape: "
                   "f32[2, 3, 4] and f32[2, 3, 4]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gradients_have_gradients),
        TEST(whole_channels_are_dropped),
        TEST(alpha_dropout_keeps_mean_and_variance),
        TEST(without_training_nothing_is_dropped),
        TEST(columns_have_lengths_of_their_own_though_g_is_of_rows),
        TEST(spectral_norm_finds_the_largest_singular_value),
        TEST(spectral_norm_that_is_computed_again_moves_once),
        TEST(rows_of_zeros_stay_zeros_and_have_a_slope),
        TEST(zeros_have_no_slope_that_is_infinite),
        TEST(rows_of_zeros_stay_zeros_where_the_bound_is_too_small),
        TEST(forms_of_no_features_are_the_bias),
        TEST(a_window_without_elements_has_no_place),
        TEST(no_volumes_have_no_maxima),
        TEST(offsets_that_are_no_bags_are_refused),
        TEST(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
