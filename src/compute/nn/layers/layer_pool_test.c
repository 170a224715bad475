/* Pooling layers and flatten: shapes of results, defaults, and errors. */
#include "core/tensor/device_testing.h"

#include <string.h>

#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>

#include "core/base/alloc.h"

static const tutti_pool_options_t halves = {.kernel = {2, 2, 2}};
static const tutti_pool_options_t shifted = {
    .kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .ceil_mode = true};
static const tutti_avg_pool_options_t means = {.kernel = {3, 3, 3}, .stride = {2, 2, 2}};
static const tutti_adaptive_pool_options_t three = {.size = {3}}, one = {.size = {1, 1}};
static const tutti_lp_pool_options_t norms = {.p = 2, .kernel = {2, 2, 2}, .ceil_mode = true};
static const tutti_interpolate_options_t twice = {.scale = {2, 2, 2}};
static const tutti_interpolate_options_t smaller = {
    .mode = TUTTI_INTERPOLATE_CUBIC, .scale = {0.4, 0.5}, .antialias = true};
static const tutti_interpolate_options_t wrong = {
    .mode = TUTTI_INTERPOLATE_AREA, .size = {2, 2}, .align_corners = true};
static const tutti_flatten_options_t inner = {.first = -2, .last = -1};

typedef struct {
    const tutti_module_ops_t *ops;
    const void *options;
    tutti_shape_t x, y;
} layer_case_t;

#define DIMS(...)                                                                                  \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { __VA_ARGS__ } \
    }

static const layer_case_t cases[] = {
    {&tutti_max_pool1d_layer, &halves, DIMS(2, 3, 7), DIMS(2, 3, 3)},
    {&tutti_max_pool1d_layer, &shifted, DIMS(2, 3, 7), DIMS(2, 3, 7)},
    {&tutti_max_pool2d_layer, &halves, DIMS(2, 3, 6, 8), DIMS(2, 3, 3, 4)},
    {&tutti_max_pool2d_layer, &shifted, DIMS(3, 6, 7), DIMS(3, 6, 4)},
    {&tutti_avg_pool1d_layer, &means, DIMS(2, 3, 7), DIMS(2, 3, 3)},
    {&tutti_avg_pool2d_layer, &means, DIMS(2, 3, 6, 8), DIMS(2, 3, 2, 3)},
    {&tutti_adaptive_max_pool1d_layer, &three, DIMS(2, 3, 7), DIMS(2, 3, 3)},
    {&tutti_adaptive_max_pool2d_layer, &three, DIMS(2, 3, 6, 8), DIMS(2, 3, 3, 8)},
    {&tutti_adaptive_avg_pool1d_layer, &three, DIMS(2, 3, 7), DIMS(2, 3, 3)},
    {&tutti_adaptive_avg_pool2d_layer, &one, DIMS(2, 3, 6, 8), DIMS(2, 3, 1, 1)},
    {&tutti_upsample_layer, &twice, DIMS(2, 3, 6, 8), DIMS(2, 3, 12, 16)},
    {&tutti_upsample_layer, &twice, DIMS(2, 3, 1, 6, 8), DIMS(2, 3, 2, 12, 16)},
    {&tutti_upsample_layer, &smaller, DIMS(2, 3, 6, 8), DIMS(2, 3, 2, 4)},
    {&tutti_max_pool3d_layer, &halves, DIMS(2, 3, 7, 6, 8), DIMS(2, 3, 3, 3, 4)},
    {&tutti_avg_pool3d_layer, &means, DIMS(3, 7, 6, 8), DIMS(3, 3, 2, 3)},
    {&tutti_adaptive_max_pool3d_layer, &three, DIMS(2, 3, 7, 6, 8), DIMS(2, 3, 3, 6, 8)},
    {&tutti_adaptive_avg_pool3d_layer, &one, DIMS(2, 3, 7, 6, 8), DIMS(2, 3, 1, 1, 8)},
    {&tutti_lp_pool1d_layer, &norms, DIMS(2, 3, 7), DIMS(2, 3, 4)},
    {&tutti_lp_pool2d_layer, &norms, DIMS(2, 3, 7, 6), DIMS(2, 3, 4, 3)},
    {&tutti_lp_pool3d_layer, &norms, DIMS(2, 3, 7, 6, 8), DIMS(2, 3, 4, 3, 4)},
    {&tutti_flatten_layer, NULL, DIMS(2, 3, 4, 5), DIMS(2, 60)},
    {&tutti_flatten_layer, &inner, DIMS(2, 3, 4, 5), DIMS(2, 3, 20)},
};

static void layers_have_pytorchs_shapes(void **state)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const layer_case_t *c = &cases[i];
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        assert_int_equal(tutti_module_create(ctx, c->ops, c->options, &m), 0);
        const tutti_tensor_t *y = tutti_forward(s, m, tutti_ones(s, TUTTI_F32, c->x));
        assert_int_equal(tutti_scope_status(s), 0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), c->y));
        tutti_module_release(m);
        assert_int_equal(tutti_scope_close(s), 0);
    }
    tutti_context_release(ctx);
}

static void indices_are_a_second_output(void **state)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m;
    tutti_tensor_t *out[3];
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_max_pool2d_layer, &halves, &m), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x =
        tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(1, 2, 4), (float[]){1, 2, 3, 3, 5, 4, 3, 3});
    tutti_forward_many(s, m, &x, 1, out, 2);
    assert_int_equal((int)tutti_tensor_at(out[0], 0), 5);
    assert_int_equal((int)tutti_tensor_at(out[1], 0), 4);
    assert_int_equal((int)tutti_tensor_at(out[1], 1), 2);
    tutti_forward_many(s, m, &x, 1, out, 3);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(),
                           "max_pool2d takes one tensor and gives one or two, not 1 and 3"));
    tutti_module_release(m);
    tutti_context_release(ctx);
}

typedef struct {
    const tutti_module_ops_t *pool, *unpool;
    tutti_shape_t shape;
    float back[8];
} unpool_case_t;

static const unpool_case_t unpool_cases[] = {
    {&tutti_max_pool1d_layer, &tutti_max_unpool1d_layer, DIMS(1, 8), {0, 2, 3, 0, 5, 0, 3, 0}},
    {&tutti_max_pool2d_layer, &tutti_max_unpool2d_layer, DIMS(1, 2, 4), {0, 0, 3, 0, 5, 0, 0, 0}},
    {&tutti_max_pool3d_layer, &tutti_max_unpool3d_layer, DIMS(1, 2, 2, 2), {0, 0, 0, 0, 5}},
};

static void expect_maxima_back(tutti_scope_t *s, const unpool_case_t *c)
{
    tutti_module_t *down, *up;
    tutti_tensor_t *out[2], *y;
    tutti_context_t *ctx = tutti_scope_context(s);
    const tutti_max_unpool_options_t back = {.kernel = {2, 2, 2}};
    assert_int_equal(tutti_module_create(ctx, c->pool, &halves, &down), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, c->unpool, &back, &up), TUTTI_OK);
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, c->shape, (float[]){1, 2, 3, 3, 5, 4, 3, 3});
    tutti_forward_many(s, down, &x, 1, out, 2);
    tutti_forward_many(s, up, out, 2, &y, 1);
    assert_int_equal(tutti_scope_status(s), TUTTI_OK);
    assert_true(tutti_shape_equal(tutti_tensor_shape(y), c->shape));
    for (int i = 0; i < 8; i++) {
        assert_true(tutti_tensor_at(y, i) == (double)c->back[i]);
    }
    tutti_forward_many(s, up, out, 1, &y, 1);
    assert_non_null(strstr(tutti_scope_error(s), "takes 2 tensors and gives one, not 1 and 1"));
    tutti_module_release(down);
    tutti_module_release(up);
}

static void maxima_go_back_to_their_places(void **state)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (size_t i = 0; i < sizeof unpool_cases / sizeof unpool_cases[0]; i++) {
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        expect_maxima_back(s, &unpool_cases[i]);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    }
    tutti_context_release(ctx);
}

static void wrong_options_are_named(void **state)
{
    tutti_context_t *ctx;
    tutti_module_t *m;
    tutti_pool_options_t options = {.kernel = {2}};
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_max_pool2d_layer, &options, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "max_pool2d: kernel 0 must be at least 1"));
    options.padding[0] = 2;
    assert_int_equal(tutti_module_create(ctx, &tutti_max_pool1d_layer, &options, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(
        strstr(tutti_last_error(), "max_pool1d: padding 2 must be from 0 to half of the kernel 2"));
    assert_int_equal(tutti_module_create(ctx, &tutti_avg_pool2d_layer, NULL, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "avg_pool2d: kernel 0 must be at least 1"));
    const tutti_adaptive_pool_options_t negative = {.size = {2, -3}};
    assert_int_equal(tutti_module_create(ctx, &tutti_adaptive_avg_pool2d_layer, &negative, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(
        strstr(tutti_last_error(), "adaptive_avg_pool2d: size -3 must not be negative"));
    assert_int_equal(tutti_module_create(ctx, &tutti_max_unpool2d_layer, &options, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "max_unpool2d: kernel 0 must be at least 1"));
    assert_int_equal(tutti_module_create(ctx, &tutti_upsample_layer, NULL, &m), TUTTI_ERR_ARG);
    assert_non_null(
        strstr(tutti_last_error(), "upsample: size 0, scale 0: one of them must be given"));
    assert_int_equal(tutti_module_create(ctx, &tutti_upsample_layer, &wrong, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(),
                           "upsample: align_corners goes with the modes linear and cubic only"));
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_pytorchs_shapes),
        cmocka_unit_test(indices_are_a_second_output),
        cmocka_unit_test(maxima_go_back_to_their_places),
        cmocka_unit_test(wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
