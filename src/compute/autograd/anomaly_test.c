/* Detection of anomalies (modes.h): who is named, and what passes. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "core/base/alloc.h"

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
} fixture_t;

static int setup_on(void **state, const char *device)
{
    static fixture_t f;
    f = (fixture_t){0};
    if (device != NULL) {
        assert_int_equal(tutti_device_open(device, NULL, &f.device), 0);
    }
    const tutti_context_options_t options = {.threads = 1, .device = f.device};
    assert_int_equal(tutti_context_create(&options, &f.ctx), 0);
    assert_false(tutti_context_set_detect_anomaly(f.ctx, true));
    tutti_context_set_step(f.ctx, 7);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int setup(void **state)
{
    return setup_on(state, NULL);
}

static int setup_strict(void **state)
{
    return setup_on(state, "strict:0");
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return 0;
}

static void expect_told(tutti_status_t status, const char *text)
{
    assert_int_equal(status, TUTTI_ERR_NUMERIC);
    assert_string_equal(tutti_last_error(), text);
}

static tutti_tensor_t *numbers(const fixture_t *f, float a, float b)
{
    return tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(2), (float[]){a, b});
}

static void operation_that_makes_an_infinity(void **state)
{
    const fixture_t *f = *state;
    expect_told(tutti_tensor_status(tutti_log(f->s, numbers(f, 1, 0))),
                "log: output 0, f32[2], holds an infinity (step 7): input 0, f32[2], from 0 to 1");
}

static void operation_that_makes_a_nan(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 4, -3);
    expect_told(tutti_tensor_status(tutti_sqrt(f->s, x)),
                "sqrt: output 0, f32[2], holds NaN (step 7): input 0, f32[2], from -3 to 4");
}

static void number_that_was_bad_before(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 1, NAN), *y = numbers(f, 1, 2);
    expect_told(tutti_tensor_status(tutti_mul(f->s, y, x)),
                "mul: output 0, f32[2], holds NaN (step 7): input 0, f32[2], from 1 to 2; input 1, "
                "f32[2], holds NaN: no operation made that one, it was put there (data, a "
                "parameter's step)");
}

static void infinity_of_infinities_passes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 1, -INFINITY);
    tutti_tensor_t *y = tutti_softmax(f->s, tutti_mul_scalar(f->s, x, 2), -1);
    assert_int_equal(tutti_tensor_status(y), 0);
    assert_true(tutti_tensor_at(y, 0) == 1 && tutti_tensor_at(y, 1) == 0);
    expect_told(tutti_tensor_status(tutti_sub(f->s, x, x)),
                "sub: output 0, f32[2], holds NaN (step 7): input 0, f32[2], from -inf to 1; input "
                "1, f32[2], from -inf to 1");
}

static void masks_pass(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 1, 2);
    tutti_tensor_t *y = tutti_masked_fill(f->s, x, tutti_gt_scalar(f->s, x, 1), -INFINITY);
    assert_int_equal(tutti_tensor_status(y), 0);
    assert_true(isinf(tutti_tensor_at(y, 1)));
    y = tutti_pad(f->s, x, TUTTI_PADDING(1, 0), TUTTI_PAD_CONSTANT, -INFINITY);
    assert_int_equal(tutti_tensor_status(y), 0);
    assert_true(isinf(tutti_tensor_at(y, 0)));
}

/* Blocks are in a list that runs them, and is no module that runs itself. */
static void forward_names_the_module(void **state)
{
    const fixture_t *f = *state;
    tutti_module_t *encoder;
    const tutti_transformer_options_t o = {.width = 2, .heads = 1, .hidden = 2, .layers = 2};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_encoder_layer, &o, &encoder), 0);
    tutti_tensor_t *weight = tutti_module_find(encoder, "layers.1.linear2.bias"), *y;
    assert_int_equal(tutti_tensor_fill(weight, (double)INFINITY), 0);
    assert_int_equal(
        tutti_tensor_fill(tutti_module_find(encoder, "layers.1.linear2.weight"), -(double)INFINITY),
        0);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(3, 1, 2));
    tutti_forward_many(f->s, encoder, &x, 1, &y, 1);
    assert_int_equal(tutti_scope_status(f->s), TUTTI_ERR_NUMERIC);
    assert_non_null(
        strstr(tutti_scope_error(f->s), "linear in encoder.layers.1.linear2: output 0"));
    tutti_module_release(encoder);
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_tensor_t *root_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    (void)m;
    return tutti_sqrt(s, x);
}

static const tutti_module_ops_t root_layer = {.name = "root", .forward = root_forward};

static tutti_module_t *sequential_around(const fixture_t *f, tutti_module_t *m)
{
    tutti_module_t *net;
    const tutti_sequential_options_t options = {.modules = &m, .count = 1};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_sequential_layer, &options, &net), 0);
    tutti_module_release(m);
    return net;
}

static tutti_module_t *new_net(const fixture_t *f)
{
    tutti_module_t *root;
    assert_int_equal(tutti_module_create(f->ctx, &root_layer, NULL, &root), 0);
    return sequential_around(f, sequential_around(f, root));
}

static void gradient_names_the_module_of_its_forward(void **state)
{
    const fixture_t *f = *state;
    tutti_module_t *net = new_net(f);
    tutti_tensor_t *x = numbers(f, 4, 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_forward(f->s, net, x));
    expect_told(tutti_backward(f->s, loss),
                "gradient of sqrt in sequential.0.0: that of input 0, f32[2], holds an infinity "
                "(step 7): incoming gradient 0, f32[2], from 1 to 1; saved 0, f32[2], from 0 to 2");
    tutti_module_release(net);
}

static tutti_tensor_t *large_half(const fixture_t *f)
{
    tutti_tensor_t *x = tutti_cast(f->s, numbers(f, 300, 2), TUTTI_F16);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

/* 300 · 65504 is none of f16's; what comes of it is not its maker's either. */
static void overflow_of_half_gradients_passes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = large_half(f), *y = large_half(f);
    tutti_tensor_t *grad = tutti_full(f->s, TUTTI_F16, TUTTI_SHAPE(2), 60000);
    tutti_tensor_t *sub = tutti_sub(f->s, x, x);
    tutti_tensor_t *z =
        tutti_mul(f->s, tutti_mul(f->s, sub, y), tutti_ones(f->s, TUTTI_F16, TUTTI_SHAPE(2)));
    assert_int_equal(tutti_backward_with(f->s, z, &(tutti_backward_options_t){.grad_output = grad}),
                     0);
    assert_true(isnan(tutti_tensor_at(tutti_tensor_grad(x), 0)));
}

/* 1e6 is none of f16's: where a gradient is cast, where it is recorded, and where two are added. */
static void overflow_of_half_gradients_passes_everywhere(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *grad = NULL, *x = tutti_cast(f->s, numbers(f, 2, 1), TUTTI_F16);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *wide = tutti_mul_scalar(f->s, tutti_cast(f->s, x, TUTTI_F32), 1e6);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, wide)), 0);
    assert_true(isinf(tutti_tensor_at(tutti_tensor_grad(x), 0)));
    tutti_tensor_t *sum = tutti_add(f->s, tutti_mul(f->s, x, tutti_square(f->s, x)), x);
    const tutti_backward_options_t recorded = {
        .create_graph = true, .grad_output = tutti_full(f->s, TUTTI_F16, TUTTI_SHAPE(2), 60000)};
    assert_int_equal(tutti_grad(f->s, sum, &recorded, &x, 1, &grad), 0);
    assert_true(isinf(tutti_tensor_at(grad, 0)));
}

/* As a training does it whose scale is too large. */
static void overflow_under_autocast_passes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 1, 2);
    tutti_tensor_t *w = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 2));
    assert_int_equal(tutti_tensor_set_requires_grad(w, true), 0);
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F16);
    tutti_tensor_t *y = tutti_linear(f->s, x, w, NULL);
    tutti_tensor_t *loss = tutti_mul_scalar(f->s, tutti_sum(f->s, y), 524288);
    assert_int_equal(tutti_backward(f->s, loss), 0);
    assert_true(isinf(tutti_tensor_at(tutti_tensor_grad(w), 0)));
}

/* -inf was put there: the gradient of what it is multiplied by is infinite, too. */
static void infinite_gradient_of_an_infinity_passes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *x = numbers(f, 1, 2), *w = numbers(f, 1, 2);
    assert_int_equal(tutti_tensor_set_requires_grad(w, true), 0);
    x = tutti_masked_fill(f->s, x, tutti_gt_scalar(f->s, x, 1), -INFINITY);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, x, w))), 0);
    assert_true(isinf(tutti_tensor_at(tutti_tensor_grad(w), 1)));
}

/* A query that sees nothing gives zeros, and is none. */
static void query_without_keys_passes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *q = tutti_uniform(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1, 2, 4), -1, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(q, true), 0);
    tutti_tensor_t *mask =
        tutti_from_data(f->s, TUTTI_BOOL, TUTTI_SHAPE(2, 2), (bool[]){true, true, false, true});
    tutti_tensor_t *y = tutti_masked_attention(
        f->s, q, q, q, &(tutti_masked_attention_options_t){.mask = mask}, NULL);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    assert_true(tutti_tensor_at(y, 0) == 0 && tutti_tensor_at(y, 4) == tutti_tensor_at(q, 0));
}

static void recorded_gradient_is_named_as_one(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *grad = NULL, *x = numbers(f, 4, 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_sqrt(f->s, x));
    const tutti_backward_options_t recorded = {.create_graph = true};
    expect_told(tutti_grad(f->s, loss, &recorded, &x, 1, &grad),
                "gradient of sqrt: that of input 0, f32[2], holds an infinity (step 7): incoming "
                "gradient 0, f32[2], from 1 to 1; saved 0, f32[2], from 0 to 2");
}

/* ---- the switch ------------------------------------------------------------------------------ */

static void environment_switches_it_on(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    assert_int_equal(setenv("TUTTI_DETECT_ANOMALY", "1", 1), 0);
    assert_int_equal(tutti_context_create(NULL, &ctx), 0);
    assert_true(tutti_context_detects_anomaly(ctx));
    tutti_context_release(ctx);
    assert_int_equal(setenv("TUTTI_DETECT_ANOMALY", "2", 1), 0);
    assert_int_equal(tutti_context_create(NULL, &ctx), TUTTI_ERR_ARG);
    assert_int_equal(unsetenv("TUTTI_DETECT_ANOMALY"), 0);
}

static void without_it_numbers_go_on(void **state)
{
    const fixture_t *f = *state;
    assert_true(tutti_context_set_detect_anomaly(f->ctx, false));
    assert_int_equal(tutti_tensor_status(tutti_log(f->s, numbers(f, 1, 0))), 0);
}

#define on(test, device) cmocka_unit_test_setup_teardown(test, device, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on(operation_that_makes_an_infinity, setup),
        on(operation_that_makes_an_infinity, setup_strict),
        on(operation_that_makes_a_nan, setup),
        on(number_that_was_bad_before, setup),
        on(infinity_of_infinities_passes, setup),
        on(infinity_of_infinities_passes, setup_strict),
        on(masks_pass, setup),
        on(forward_names_the_module, setup),
        on(gradient_names_the_module_of_its_forward, setup),
        on(gradient_names_the_module_of_its_forward, setup_strict),
        on(overflow_of_half_gradients_passes, setup),
        on(overflow_of_half_gradients_passes_everywhere, setup),
        on(overflow_under_autocast_passes, setup),
        on(overflow_under_autocast_passes, setup_strict),
        on(infinite_gradient_of_an_infinity_passes, setup),
        on(query_without_keys_passes, setup),
        on(query_without_keys_passes, setup_strict),
        on(recorded_gradient_is_named_as_one, setup),
        on(without_it_numbers_go_on, setup),
        cmocka_unit_test(environment_switches_it_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
