/* Batches of pinned memory: what is copied of them does not wait, and stays until it is. */
#include "core/base/testing.h"

#include <stdatomic.h>
#include <unistd.h>

#include <tutti/dataloader.h>
#include <tutti/devices.h>

#include "core/device/device.h"

enum { COUNT = 6, WIDTH = 100 };

static atomic_bool is_open;

static tutti_status_t run_gate(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    (void)arguments;
    while (!atomic_load(&is_open)) {
        usleep(100);
    }
    return TUTTI_OK;
}

static const tt_pointer_t no_pointers[] = {TT_NO_POINTER};
static const tt_kernel_t gate = TT_KERNEL("gate", int, run_gate, no_pointers);

static tutti_status_t count_samples(tutti_dataset_t *d, const void *options,
                                    tutti_dataset_info_t *info)
{
    (void)d;
    (void)options;
    *info = (tutti_dataset_info_t){
        .count = COUNT, .field_count = 1, .fields = {{TUTTI_I32, TUTTI_SHAPE(WIDTH)}}};
    return TUTTI_OK;
}

static tutti_status_t read_sample(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    int32_t *x = to->data[TUTTI_INPUT];
    (void)d;
    for (int i = 0; i < WIDTH; i++) {
        x[i] = (int32_t)index;
    }
    return TUTTI_OK;
}

static const tutti_dataset_ops_t numbers = {.name = "numbers",
                                            .about = "their indices",
                                            .state_bytes = 1,
                                            .init = count_samples,
                                            .read = read_sample};

typedef struct {
    tutti_dataset_t *d;
    tutti_dataloader_t *loader;
    tutti_device_t *device;
} fixture_t;

static void open_loader(fixture_t *f, int workers, bool is_pinned)
{
    const tutti_dataloader_options_t options = {.workers = workers, .pin_memory = is_pinned};
    assert_int_equal(tutti_dataset_create(&numbers, &(int){0}, &f->d), 0);
    assert_int_equal(tutti_dataloader_create(f->d, &options, &f->loader), 0);
    assert_int_equal(tutti_device_open("strict:0", NULL, &f->device), 0);
}

static void close_loader(const fixture_t *f)
{
    tutti_dataloader_release(f->loader);
    tutti_dataset_release(f->d);
    tutti_device_release(f->device);
}

/* To the context's device, or by the caller. */
static tutti_tensor_t *fetch(const fixture_t *f, tutti_context_t *ctx)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    assert_int_equal(tutti_dataloader_next(f->loader, s, &batch), 0);
    assert_int_equal(tutti_tensor_is_pinned(batch.input), tutti_context_device(ctx) == NULL);
    tutti_tensor_t *x = tutti_tensor_retain(tutti_tensor_to(s, batch.input, f->device));
    assert_int_equal(tutti_scope_close(s), 0);
    return x;
}

/* All batches are fetched while the device does nothing, and each has been let go. */
static void expect_no_wait(int workers, bool is_home)
{
    fixture_t f;
    tutti_context_t *ctx;
    tutti_tensor_t *x[COUNT];
    open_loader(&f, workers, true);
    const tutti_context_options_t options = {.device = is_home ? f.device : NULL};
    assert_int_equal(tutti_context_create(&options, &ctx), 0);
    atomic_store(&is_open, false);
    assert_int_equal(tt_launch(tt_device_exec(f.device), &gate, &(int){0}), 0);
    for (int i = 0; i < COUNT; i++) {
        x[i] = fetch(&f, ctx);
    }
    atomic_store(&is_open, true);
    for (int i = 0; i < COUNT; i++) {
        assert_true(tutti_tensor_at(x[i], WIDTH - 1) == i);
        tutti_tensor_release(x[i]);
    }
    tutti_context_release(ctx);
    close_loader(&f);
}

static void copies_of_batches_do_not_wait(void **state)
{
    (void)state;
    expect_no_wait(0, false);
    expect_no_wait(2, false);
}

static void batches_for_the_device_of_a_context_do_not_wait(void **state)
{
    (void)state;
    expect_no_wait(0, true);
    expect_no_wait(2, true);
}

static void batches_are_not_pinned_unasked(void **state)
{
    (void)state;
    fixture_t f;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_batch_t batch;
    open_loader(&f, 0, false);
    assert_int_equal(tutti_context_create(NULL, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    assert_int_equal(tutti_dataloader_next(f.loader, s, &batch), 0);
    assert_false(tutti_tensor_is_pinned(batch.input));
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_context_release(ctx);
    close_loader(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_batches_do_not_wait),
        cmocka_unit_test(batches_for_the_device_of_a_context_do_not_wait),
        cmocka_unit_test(batches_are_not_pinned_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
