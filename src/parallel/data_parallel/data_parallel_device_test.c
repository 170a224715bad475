/* DataParallel over devices: the bits of replicas in threads. */
#include <tutti/devices.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/device_testing.h"
#include "parallel/data_parallel/data_parallel_testing.h"

enum { REPLICAS = 3, ROWS = 11, STEPS = 3 };

/* Weights after some steps of training; devices NULL: in threads. */
static void train(const plan_t *plan, tutti_device_t *const *devices, tutti_device_t *rows_on,
                  tutti_dtype_t dtype, char *digest)
{
    const tutti_context_options_t context = {
        .threads = 1, .seed = 42, .device = devices == NULL ? NULL : devices[0]};
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = build,
                                                   .user = (void *)(uintptr_t)plan,
                                                   .devices = devices};
    rig_t rig;
    tutti_optim_t *optim;
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build(rig.ctx, (void *)(uintptr_t)plan, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_module_cast(rig.module, dtype), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    assert_int_equal(
        tutti_optim_create(rig.ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.1}, &optim),
        TUTTI_OK);
    assert_int_equal(tutti_optim_add_module(optim, rig.module, NULL, NULL), TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
        tutti_context_set_step(rig.ctx, step);
        tutti_tensor_t *x = tutti_tensor_to(rig.s, rows_of(rig.s, ROWS), rows_on);
        tutti_tensor_t *y = tutti_forward(rig.s, rig.model, tutti_cast(rig.s, x, dtype));
        assert_int_equal(tutti_backward(rig.s, mean_square(rig.s, y)), TUTTI_OK);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        tutti_optim_zero_grad(optim);
        assert_int_equal(tutti_scope_close(rig.s), TUTTI_OK);
    }
    assert_int_equal(tutti_module_digest(rig.module, digest), TUTTI_OK);
    tutti_optim_release(optim);
    tutti_module_release(rig.model);
    tutti_module_release(rig.module);
    tutti_context_release(rig.ctx);
}

static void open_devices(tutti_device_t **devices)
{
    for (int i = 0; i < REPLICAS; i++) {
        char name[32];
        snprintf(name, sizeof name, "strict:%d", i);
        assert_int_equal(
            tutti_device_open(name, &(tutti_device_options_t){.threads = 1}, &devices[i]),
            TUTTI_OK);
    }
}

static void close_devices(tutti_device_t **devices)
{
    for (int i = 0; i < REPLICAS; i++) {
        tutti_device_release(devices[i]);
    }
}

static void three_devices_give_the_bits_of_three_threads(void **state)
{
    (void)state;
    static const plan_t plans[] = {{0}, {.layers = 1, .dropout = 0.25F}, {.has_norm = true}};
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    tutti_device_t *devices[REPLICAS];
    char threads[TUTTI_DIGEST_BYTES], own[TUTTI_DIGEST_BYTES], from_host[TUTTI_DIGEST_BYTES];
    open_devices(devices);
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        for (int d = 0; d < 2 - (p == 2); d++) {
            train(&plans[p], NULL, NULL, dtypes[d], threads);
            train(&plans[p], devices, devices[0], dtypes[d], own);
            train(&plans[p], devices, NULL, dtypes[d], from_host);
            assert_string_equal(own, threads);
            assert_string_equal(from_host, threads);
        }
    }
    for (int i = 0; i < REPLICAS; i++) {
        assert_true(tutti_device_stats(devices[i]).launches > 20);
    }
    close_devices(devices);
}

static void a_module_that_lies_elsewhere_is_refused(void **state)
{
    (void)state;
    tutti_device_t *devices[REPLICAS];
    static const plan_t plan = {0};
    tutti_context_t *ctx;
    tutti_module_t *module, *model = NULL;
    open_devices(devices);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx),
                     TUTTI_OK);
    assert_int_equal(build(ctx, (void *)(uintptr_t)&plan, &module), TUTTI_OK);
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = build,
                                                   .user = (void *)(uintptr_t)&plan,
                                                   .devices = devices};
    assert_int_equal(tutti_data_parallel_create(module, &options, &model), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "data_parallel: 0.weight lies on the host, but the first replica's device "
                        "is strict:0: move the module there");
    tutti_module_release(module);
    tutti_context_release(ctx);
    close_devices(devices);
}

/* ---- buffers that graphs saved --------------------------------------------------------------- */

static tutti_status_t scale_init(tutti_module_t *m, const void *options)
{
    (void)options;
    tutti_tensor_t *factor;
    TUTTI_CHECK(tt_tensor_new(m->ctx->home, TUTTI_F32, TUTTI_SHAPE(OUT), true, &factor));
    tutti_status_t status = tutti_tensor_fill(factor, 3);
    if (status >= 0) {
        status = tutti_module_add_buffer(m, "factor", factor);
    }
    *(tutti_tensor_t **)tutti_module_state(m) = factor; /* the module's */
    tutti_tensor_release(factor);
    return status;
}

static tutti_tensor_t *scale_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_mul(s, x, *(tutti_tensor_t **)tutti_module_state(m));
}

static const tutti_module_ops_t scale_ops = {.name = "scale",
                                             .state_bytes = sizeof(tutti_tensor_t *),
                                             .init = scale_init,
                                             .forward = scale_forward};

static tutti_status_t build_scaled(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    TUTTI_CHECK(build(ctx, user, out));
    return tutti_sequential_add(*out, &scale_ops, NULL, NULL);
}

static void graphs_of_two_forwards_keep_their_buffers(void **state)
{
    (void)state;
    static const plan_t plan = {0};
    tutti_device_t *devices[REPLICAS];
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *module, *model;
    open_devices(devices);
    const tutti_context_options_t context = {.threads = 1, .device = devices[0]};
    assert_int_equal(tutti_context_create(&context, &ctx), TUTTI_OK);
    assert_int_equal(build_scaled(ctx, (void *)(uintptr_t)&plan, &module), TUTTI_OK);
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = build_scaled,
                                                   .user = (void *)(uintptr_t)&plan,
                                                   .devices = devices};
    assert_int_equal(tutti_data_parallel_create(module, &options, &model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *first = mean_square(s, tutti_forward(s, model, rows_of(s, ROWS)));
    tutti_tensor_t *second = mean_square(s, tutti_forward(s, model, rows_of(s, ROWS)));
    assert_true(tutti_tensor_item(first) == tutti_tensor_item(second));
    if (tutti_backward(s, first) < 0) {
        fail_msg("%s", tutti_scope_error(s));
    }
    assert_int_equal(tutti_backward(s, second), TUTTI_OK);
    tutti_tensor_t *factor = tutti_module_find(module, "2.factor");
    assert_int_equal(tutti_tensor_fill(factor, 6), TUTTI_OK);
    tutti_tensor_t *doubled = mean_square(s, tutti_forward(s, model, rows_of(s, ROWS)));
    assert_true(tutti_tensor_item(doubled) == 4 * tutti_tensor_item(first));
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(model);
    tutti_module_release(module);
    tutti_context_release(ctx);
    close_devices(devices);
}

/* ---- outputs that lie elsewhere than their replica ------------------------------------------- */

static tutti_tensor_t *bring_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    (void)m;
    return tutti_tensor_to(s, x, NULL);
}

static const tutti_module_ops_t bring_ops = {.name = "bring", .forward = bring_forward};

static tutti_status_t build_brought(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    TUTTI_CHECK(build(ctx, user, out));
    return tutti_sequential_add(*out, &bring_ops, NULL, NULL);
}

static double weight_after(tutti_status_t (*make)(tutti_context_t *, void *, tutti_module_t **),
                           tutti_device_t *const *devices)
{
    static const plan_t plan = {0};
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *module, *model;
    const tutti_context_options_t context = {.threads = 1, .device = devices[0]};
    assert_int_equal(tutti_context_create(&context, &ctx), TUTTI_OK);
    assert_int_equal(make(ctx, (void *)(uintptr_t)&plan, &module), TUTTI_OK);
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = make,
                                                   .user = (void *)(uintptr_t)&plan,
                                                   .devices = devices};
    assert_int_equal(tutti_data_parallel_create(module, &options, &model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *y = tutti_forward(s, model, rows_of(s, ROWS));
    assert_int_equal(tutti_backward(s, mean_square(s, y)), TUTTI_OK);
    tutti_tensor_t *grad = tutti_tensor_grad(tutti_module_find(module, "0.weight"));
    assert_ptr_equal(tutti_tensor_device(grad), devices[0]);
    const double value = tutti_tensor_at(grad, 3);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(model);
    tutti_module_release(module);
    tutti_context_release(ctx);
    return value;
}

static void outputs_may_lie_on_the_host(void **state)
{
    (void)state;
    tutti_device_t *devices[REPLICAS];
    open_devices(devices);
    const double value = weight_after(build, devices);
    assert_true(value != 0);
    assert_true(weight_after(build_brought, devices) == value);
    close_devices(devices);
}

/* Weights that nobody steps: copied once, unless that copy was skipped. */
static void what_a_replica_missed_behind_a_failure_is_copied_again(void **state)
{
    (void)state;
    static const plan_t plan = {0};
    tutti_device_t *devices[REPLICAS];
    rig_t rig;
    open_devices(devices);
    const tutti_context_options_t context = {.threads = 1, .seed = 42, .device = devices[0]};
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = build,
                                                   .user = (void *)(uintptr_t)&plan,
                                                   .devices = devices};
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build(rig.ctx, (void *)(uintptr_t)&plan, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
        if (step == 1) { /* other weights, that the second replica does not get */
            assert_int_equal(tutti_tensor_fill(tutti_module_find(rig.module, "0.weight"), 0.5), 0);
            tt_test_fail_on(devices[1]);
        }
        tutti_tensor_t *x = tutti_tensor_to(rig.s, rows_of(rig.s, ROWS), devices[0]);
        tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
        tutti_tensor_t *want = tutti_forward(rig.s, rig.module, x);
        for (int i = 0; i < REPLICAS; i++) {
            (void)tutti_device_synchronize(devices[i], 0);
        }
        for (int64_t i = 0; step != 1 && i < tutti_tensor_numel(y); i++) {
            assert_true(tutti_tensor_at(y, i) == tutti_tensor_at(want, i));
        }
        (void)tutti_scope_close(rig.s);
    }
    tutti_module_release(rig.model);
    tutti_module_release(rig.module);
    tutti_context_release(rig.ctx);
    close_devices(devices);
}

/* Copies of this thread would run beside the replicas' kernels. */
static void a_stream_of_the_callers_own_is_refused(void **state)
{
    (void)state;
    static const plan_t plan = {0};
    tutti_device_t *devices[REPLICAS];
    tutti_stream_t *stream;
    open_devices(devices);
    assert_int_equal(tutti_stream_create(devices[1], &stream), TUTTI_OK);
    const tutti_data_parallel_options_t options = {.replicas = REPLICAS,
                                                   .threads = 1,
                                                   .build = build,
                                                   .user = (void *)(uintptr_t)&plan,
                                                   .devices = devices};
    rig_t rig;
    const tutti_context_options_t context = {.threads = 1, .device = devices[0]};
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build(rig.ctx, (void *)(uintptr_t)&plan, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
        tutti_tensor_t *x = tutti_tensor_to(rig.s, rows_of(rig.s, ROWS), devices[0]);
        assert_int_equal(tutti_device_set_stream(devices[1], way == 0 ? stream : NULL), TUTTI_OK);
        tutti_tensor_t *y = tutti_forward(rig.s, rig.model, x);
        if (way == 0) {
            assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_UNSUPPORTED);
        } else {
            y = mean_square(rig.s, y);
            assert_int_equal(tutti_device_set_stream(devices[1], stream), TUTTI_OK);
            assert_int_equal(tutti_backward(rig.s, y), TUTTI_ERR_UNSUPPORTED);
        }
        tt_expect_error("strict:1 itself, and this thread's is another one");
        (void)tutti_scope_close(rig.s);
    }
    assert_int_equal(tutti_device_set_stream(devices[1], NULL), TUTTI_OK);
    tutti_stream_release(stream);
    tutti_module_release(rig.model);
    tutti_module_release(rig.module);
    tutti_context_release(rig.ctx);
    close_devices(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_devices_give_the_bits_of_three_threads),
        cmocka_unit_test(a_module_that_lies_elsewhere_is_refused),
        cmocka_unit_test(graphs_of_two_forwards_keep_their_buffers),
        cmocka_unit_test(outputs_may_lie_on_the_host),
        cmocka_unit_test(a_stream_of_the_callers_own_is_refused),
        cmocka_unit_test(what_a_replica_missed_behind_a_failure_is_copied_again),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
