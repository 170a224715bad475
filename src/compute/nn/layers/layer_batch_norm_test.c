/* Batch norm's buffers: names, running and cumulative statistics, evaluation, saving. */
#include "core/tensor/scope_testing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>

#include "core/base/alloc.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1, .seed = 5});
}

static tutti_module_t *create(tt_fixture_t *f, tutti_batch_norm_layer_options_t options)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_batch_norm_layer, &options, &m), 0);
    return m;
}

static double number(tutti_module_t *m, const char *name)
{
    return tutti_tensor_at(tutti_module_find(m, name), 0);
}

/* One channel with the values a and b. */
static void feed(tt_fixture_t *f, tutti_module_t *m, float a, float b)
{
    const float values[] = {a, b};
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(2, 1), values);
    assert_int_equal(tutti_tensor_status(tutti_forward(f->s, m, x)), 0);
}

static tutti_status_t append_name(void *user, const char *name, tutti_tensor_t *tensor)
{
    char *text = user;
    const size_t used = strlen(text);
    snprintf(text + used, 256 - used, "%s%s ", name, tutti_tensor_requires_grad(tensor) ? "*" : "");
    return TUTTI_OK;
}

static void names_are_those_of_pytorch(void **state)
{
    tt_fixture_t *f = *state;
    char names[256] = "", buffers[256] = "";
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 2});
    assert_int_equal(tutti_module_each_tensor(m, append_name, names), 0);
    assert_int_equal(tutti_module_each_buffer(m, append_name, buffers), 0);
    assert_string_equal(names, "weight* bias* running_mean running_var num_batches_tracked ");
    assert_string_equal(buffers, "running_mean running_var num_batches_tracked ");
    assert_int_equal(tutti_module_parameter_count(m), 2);
    tutti_module_release(m);
}

static void running_statistics_follow_the_batches(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 1});
    assert_true(number(m, "running_mean") == 0 && number(m, "running_var") == 1);
    feed(f, m, 1, 5); /* mean 3, sample variance 8 */
    assert_true(fabs(number(m, "running_mean") - 0.3) < 1e-6);
    assert_true(fabs(number(m, "running_var") - 1.7) < 1e-6);
    assert_true(number(m, "num_batches_tracked") == 1);
    tutti_context_set_training(f->ctx, false);
    feed(f, m, 100, 200);
    tutti_context_set_training(f->ctx, true);
    assert_true(fabs(number(m, "running_mean") - 0.3) < 1e-6);
    assert_true(number(m, "num_batches_tracked") == 1);
    tutti_module_release(m);
}

static void cumulative_statistics_are_plain_averages(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m =
        create(f, (tutti_batch_norm_layer_options_t){.width = 1, .cumulative = true});
    feed(f, m, 1, 5);
    assert_true(fabs(number(m, "running_mean") - 3) < 1e-6);
    feed(f, m, 3, 7);
    tutti_tensor_t *none = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(0, 1));
    assert_int_equal(tutti_tensor_status(tutti_forward(f->s, m, none)), 0);
    assert_true(number(m, "num_batches_tracked") == 2);
    feed(f, m, 10, 10);
    assert_true(fabs(number(m, "running_mean") - 6) < 1e-6);
    assert_true(fabs(number(m, "running_var") - 16.0 / 3) < 1e-5);
    tutti_module_release(m);
}

/* A context on a device, whose layer takes plain averages. */
static tutti_module_t *create_on(const char *name, tutti_device_t **device, tutti_context_t **ctx)
{
    tutti_module_t *m;
    const tutti_batch_norm_layer_options_t options = {.width = 2, .cumulative = true};
    assert_int_equal(tutti_device_open(name, NULL, device), 0);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = *device}, ctx), 0);
    assert_int_equal(tutti_module_create(*ctx, &tutti_batch_norm_layer, &options, &m), 0);
    return m;
}

/* The count of batches is read there. */
static void cumulative_statistics_tell_what_failed_on_the_device(void **state)
{
    (void)state;
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m = create_on("strict:0", &device, &ctx);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *table = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(5, 2));
    tutti_tensor_t *at = tutti_full(s, TUTTI_I64, TUTTI_SHAPE(3), 9);
    tutti_tensor_t *y = tutti_forward(s, m, tutti_embedding(s, at, table));
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_scope_error(s), "embedding: index 9 at [0] is outside"));
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    assert_int_equal(tutti_device_synchronize(device, 0), TUTTI_ERR_ARG);
    assert_true(number(m, "num_batches_tracked") == 0);
    assert_true(number(m, "running_mean") == 0);
    tutti_module_release(m);
    tutti_context_release(ctx);
    tutti_device_release(device);
}

static void cumulative_statistics_have_a_shape_on_meta(void **state)
{
    (void)state;
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m = create_on("meta", &device, &ctx);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(3, 2));
    assert_int_equal(tutti_tensor_status(tutti_forward(s, m, x)), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_module_release(m);
    tutti_context_release(ctx);
    tutti_device_release(device);
}

static void evaluation_uses_the_running_statistics(void **state)
{
    tt_fixture_t *f = *state;
    const float values[] = {7};
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 1, .eps = 1});
    assert_int_equal(tutti_tensor_fill(tutti_module_find(m, "running_mean"), 4), 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(m, "running_var"), 3), 0);
    tutti_context_set_training(f->ctx, false);
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1), values);
    assert_true(tutti_tensor_item(tutti_forward(f->s, m, x)) == 1.5);
    tutti_context_set_training(f->ctx, true);
    tutti_module_release(m);
}

static void a_failed_forward_counts_nothing(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 1});
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    (void)tutti_forward(s, m, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 1)));
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
    assert_non_null(strstr(tutti_last_error(), "more than one value while training"));
    assert_true(number(m, "num_batches_tracked") == 0 && number(m, "running_mean") == 0);
    tutti_module_release(m);
}

static void buffers_are_saved_and_loaded(void **state)
{
    tt_fixture_t *f = *state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-batch-norm-%d", (int)getpid());
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 1});
    tutti_module_t *copy = create(f, (tutti_batch_norm_layer_options_t){.width = 1});
    feed(f, m, 1, 5);
    assert_int_equal(tutti_module_save(m, path, NULL, 0), 0);
    assert_int_equal(tutti_module_load(copy, path), 0);
    (void)unlink(path);
    assert_true(number(copy, "running_var") == number(m, "running_var"));
    assert_true(number(copy, "num_batches_tracked") == 1);
    tutti_module_release(copy);
    tutti_module_release(m);
}

/* The layer with relu, given a residual, and without. */
static void relu_and_a_residual_are_part_of_the_layer(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 3, .relu = true});
    tutti_module_t *plain = create(f, (tutti_batch_norm_layer_options_t){.width = 3});
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3, 20), 1, 2);
    tutti_tensor_t *in[] = {x, tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3, 20), 0, 1)}, *y;
    tutti_forward_many(f->s, m, in, 2, &y, 1);
    tutti_tensor_t *norm = tutti_forward(f->s, plain, x);
    tutti_tensor_t *want = tutti_relu(f->s, tutti_add(f->s, norm, in[1]));
    assert_memory_equal(tt_test_host(y), tt_test_host(want), tutti_tensor_bytes(want));
    y = tutti_forward(f->s, m, x);
    want = tutti_relu(f->s, norm);
    assert_memory_equal(tt_test_host(y), tt_test_host(want), tutti_tensor_bytes(want));
    tutti_module_release(plain);
    tutti_module_release(m);
}

static void three_inputs_are_too_many(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m = create(f, (tutti_batch_norm_layer_options_t){.width = 1});
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 1)), *in[] = {x, x, x}, *y;
    tutti_forward_many(s, m, in, 3, &y, 1);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(),
                           "batch_norm takes x, and perhaps a residual, and gives one tensor, not "
                           "3 and 1"));
    tutti_module_release(m);
}

static void options_are_checked(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_batch_norm_layer, NULL, &m), TUTTI_ERR_ARG);
    const tutti_group_norm_options_t options = {.width = 6, .groups = 4};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_group_norm_layer, &options, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "4 groups do not divide the width, 6"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(names_are_those_of_pytorch),
        TEST(running_statistics_follow_the_batches),
        TEST(cumulative_statistics_are_plain_averages),
        TEST(cumulative_statistics_tell_what_failed_on_the_device),
        TEST(cumulative_statistics_have_a_shape_on_meta),
        TEST(evaluation_uses_the_running_statistics),
        TEST(a_failed_forward_counts_nothing),
        TEST(buffers_are_saved_and_loaded),
        TEST(relu_and_a_residual_are_part_of_the_layer),
        TEST(three_inputs_are_too_many),
        TEST(options_are_checked),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
