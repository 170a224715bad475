/* Convolution layers: names and shapes of parameters, their bounds, results, and errors. */
#include "core/tensor/device_testing.h"

#include <math.h>
#include <string.h>

#include <tutti/nn_layers.h>

#include "core/base/alloc.h"

typedef struct {
    const tutti_module_ops_t *ops;
    tutti_conv_layer_options_t options;
    tutti_shape_t weight, x, y;
    double fan;
} layer_case_t;

#define DIMS(...)                                                                                  \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { __VA_ARGS__ } \
    }

static const layer_case_t cases[] = {
    {&tutti_conv1d_layer,
     {.in = 4, .out = 6, .kernel = {3}, .move = {.stride = {2}, .groups = 2}},
     DIMS(6, 2, 3),
     DIMS(5, 4, 9),
     DIMS(5, 6, 4),
     6},
    {&tutti_conv2d_layer,
     {.in = 2, .out = 3, .kernel = {3, 2}, .move = {.padding = {1, 1}}},
     DIMS(3, 2, 3, 2),
     DIMS(5, 2, 4, 4),
     DIMS(5, 3, 4, 5),
     12},
    {&tutti_conv_transpose1d_layer,
     {.in = 4, .out = 6, .kernel = {3}, .move = {.stride = {2}, .groups = 2}, .no_bias = true},
     DIMS(4, 3, 3),
     DIMS(5, 4, 3),
     DIMS(5, 6, 7),
     9},
    {&tutti_conv_transpose2d_layer,
     {.in = 2, .out = 3, .kernel = {2, 2}, .move = {.stride = {2, 2}}},
     DIMS(2, 3, 2, 2),
     DIMS(1, 2, 3, 4),
     DIMS(1, 3, 6, 8),
     12},
    {&tutti_conv2d_layer,
     {.in = 2, .out = 12, .kernel = {4, 3}, .move = {.same = true}},
     DIMS(12, 2, 4, 3),
     DIMS(5, 2, 4, 5),
     DIMS(5, 12, 4, 5),
     24},
};

static void check_parameter(const tutti_tensor_t *p, tutti_shape_t shape, double bound)
{
    double largest = 0;
    assert_non_null(p);
    assert_true(tutti_shape_equal(tutti_tensor_shape(p), shape));
    for (int64_t i = 0; i < tutti_shape_numel(shape); i++) {
        largest = fmax(largest, fabs(tutti_tensor_at(p, i)));
    }
    assert_true(largest <= bound * (1 + 1e-6) && largest > bound / 2);
}

static void layers_have_pytorchs_parameters_and_shapes(void **state)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const layer_case_t *c = &cases[i];
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        assert_int_equal(tutti_module_create(ctx, c->ops, &c->options, &m), 0);
        check_parameter(tutti_module_find(m, "weight"), c->weight, 1 / sqrt(c->fan));
        if (c->options.no_bias) {
            assert_null(tutti_module_find(m, "bias"));
        } else {
            check_parameter(tutti_module_find(m, "bias"), TUTTI_SHAPE(c->options.out),
                            1 / sqrt(c->fan));
        }
        const tutti_tensor_t *y = tutti_forward(s, m, tutti_ones(s, TUTTI_F32, c->x));
        assert_int_equal(tutti_scope_status(s), 0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), c->y));
        tutti_module_release(m);
        assert_int_equal(tutti_scope_close(s), 0);
    }
    tutti_context_release(ctx);
}

static void wrong_options_are_named(void **state)
{
    tutti_context_t *ctx;
    tutti_module_t *m;
    tutti_conv_layer_options_t options = {.in = 3, .out = 4, .kernel = {3, 0}};
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_conv2d_layer, &options, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "conv2d: in 3, out 4, kernel 3 and 0"));
    options.kernel[1] = 3;
    options.move.groups = 2;
    assert_int_equal(tutti_module_create(ctx, &tutti_conv2d_layer, &options, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "conv2d: 2 groups do not divide in 3 and out 4"));
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_pytorchs_parameters_and_shapes),
        cmocka_unit_test(wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
