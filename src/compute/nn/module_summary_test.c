/* What a summary says of modules is what they have and make, on the host and on meta. */
#include "core/base/testing.h"

#include <tutti/tutti.h>

static tutti_module_t *make_net(tutti_context_t *ctx)
{
    tutti_module_t *net;
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net), TUTTI_OK);
    assert_int_equal(tutti_sequential_add(net, &tutti_linear_layer,
                                          &(tutti_linear_options_t){.in = 100, .out = 50}, NULL),
                     TUTTI_OK);
    assert_int_equal(
        tutti_sequential_add(net, &tutti_activation_layer,
                             &(tutti_activation_options_t){.kind = TUTTI_ACTIVATION_RELU}, NULL),
        TUTTI_OK);
    return net;
}

static tutti_buffer_t summarize(const char *device, int64_t width, tutti_status_t want)
{
    tutti_device_t *where;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_buffer_t text = {0};
    assert_int_equal(tutti_device_open(device, NULL, &where), TUTTI_OK);
    const tutti_context_options_t options = {.threads = 1, .device = where};
    assert_int_equal(tutti_context_create(&options, &ctx), TUTTI_OK);
    tutti_module_t *net = make_net(ctx);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, width));
    const tutti_summary_options_t forward = {.inputs = &x, .input_count = 1};
    assert_int_equal(tutti_module_summary(net, &forward, &text), want);
    assert_true(tutti_context_is_training(ctx) && tutti_context_is_grad_enabled(ctx));
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(net);
    tutti_context_release(ctx);
    tutti_device_release(where);
    return text;
}

/* 8 rows: 2 · 8 · 100 · 50 of the products, an element each of relu. */
static void a_summary_counts_what_modules_do(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "meta"};
    for (int i = 0; i < 2; i++) {
        tutti_buffer_t text = summarize(devices[i], 100, TUTTI_OK);
        const char *linear = strstr(text.data, "0: linear");
        const char *relu = strstr(text.data, "1: activation");
        assert_true(linear != NULL && relu != NULL);
        assert_non_null(strstr(linear, "f32[8, 50]"));
        assert_non_null(strstr(linear, " 5050 "));
        assert_non_null(strstr(linear, " 80 k "));
        assert_non_null(strstr(relu, " 400 "));
        assert_non_null(strstr(text.data, "5050 parameters, 5050 of them learn: 19.7 KiB"));
        tutti_buffer_release(&text);
    }
}

/* A layer that is called twice makes 2 · 4 · 8 numbers. */
static void calls_add_up(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *twice, *linear;
    tutti_buffer_t text = {0};
    const tutti_linear_options_t square = {.in = 8, .out = 8};
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &twice), 0);
    assert_int_equal(tutti_sequential_add(twice, &tutti_linear_layer, &square, &linear), 0);
    assert_int_equal(tutti_module_add_child(twice, "again", linear), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 8));
    const tutti_summary_options_t forward = {.inputs = &x, .input_count = 1};
    assert_int_equal(tutti_module_summary(twice, &forward, &text), TUTTI_OK);
    assert_non_null(strstr(strstr(text.data, "0: linear"), " 1.0 k "));
    assert_non_null(strstr(strstr(text.data, "0: linear"), "256 B"));
    tutti_buffer_release(&text);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(twice);
    tutti_context_release(ctx);
}

static void a_failed_forward_leaves_no_hook(void **state)
{
    (void)state;
    tutti_buffer_t text = summarize("cpu", 99, TUTTI_ERR_SHAPE);
    assert_null(text.data);
    tt_expect_error("linear");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_summary_counts_what_modules_do),
        cmocka_unit_test(calls_add_up),
        cmocka_unit_test(a_failed_forward_leaves_no_hook),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
