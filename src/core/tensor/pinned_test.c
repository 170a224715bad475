/* Pinned memory of the host: copies with a device do not wait for it, and it outlives its tensor.
 */
#include "core/base/testing.h"

#include <tutti/devices.h>
#include <tutti/tensor.h>

#include "core/exec/gate_testing.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x, *host; /* [64] f32: on the device, of the host and pinned */
} fixture_t;

/* What is done on the device begins when the gate opens. */
static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), 0);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = f.device}, &f.ctx),
                     0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    f.x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(64), 3);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(64), &f.host), 0);
    assert_int_equal(tutti_tensor_pin(f.host), 0);
    assert_true(tutti_tensor_is_pinned(f.host) && !tutti_tensor_is_pinned(f.x));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tt_gate_open();
    tutti_tensor_release(f->host);
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    return 0;
}

static void a_copy_to_the_host_does_not_wait(void **state)
{
    const fixture_t *f = *state;
    tt_gate_close(tt_device_exec(f->device), TT_GATE_PASSES);
    assert_int_equal(tutti_tensor_copy(f->host, f->x), 0);
    assert_true(tutti_tensor_at(f->host, 5) == 0);
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_true(tutti_tensor_at(f->host, 5) == 3);
}

static size_t blocks_now(void)
{
    return tt_alloc_stats().blocks;
}

/* The memory alone stays; also of the copy in another dtype. */
static void a_copy_from_the_host_keeps_the_memory(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(64));
    tutti_tensor_t *z = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(64));
    assert_int_equal(tutti_tensor_fill(f->host, 7), 0);
    tt_gate_close(tt_device_exec(f->device), TT_GATE_PASSES);
    const size_t before = blocks_now();
    assert_int_equal(tutti_tensor_copy(y, f->host), 0);
    assert_int_equal(tutti_tensor_copy(z, f->host), 0);
    tutti_tensor_release(f->host);
    f->host = NULL;
    assert_int_equal(blocks_now(), before); /* two blocks went; two of the f64 copy stay */
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_int_equal(blocks_now(), before - 4);
    assert_true(tutti_tensor_at(y, 63) == 7 && tutti_tensor_at(z, 63) == 7);
}

static void memory_goes_behind_a_failure_too(void **state)
{
    fixture_t *f = *state;
    tt_gate_close(tt_device_exec(f->device), TT_GATE_FAILS);
    const size_t before = blocks_now();
    assert_int_equal(tutti_tensor_copy(f->host, f->x), 0);
    tutti_tensor_release(f->host);
    f->host = NULL;
    assert_int_equal(blocks_now(), before - 2);
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    tt_expect_error("strict:0: gate: it fails");
    assert_int_equal(blocks_now(), before - 4);
}

/* For parameters that are there only while they are used. */
static void memory_that_is_evicted_stays_for_the_copies_under_way(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(64));
    assert_int_equal(tutti_tensor_fill(f->host, 7), 0);
    tt_gate_close(tt_device_exec(f->device), TT_GATE_PASSES);
    const size_t before = blocks_now();
    assert_int_equal(tutti_tensor_copy(y, f->host), 0);
    assert_int_equal(tt_storage_evict(f->host->storage, "it is away"), 0);
    assert_false(tutti_tensor_is_pinned(f->host));
    assert_int_equal(blocks_now(), before);
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_int_equal(blocks_now(), before - 2);
    assert_true(tutti_tensor_at(y, 63) == 7);
}

static void a_copy_that_has_gaps_waits(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *even;
    const int64_t strides[] = {2};
    assert_int_equal(
        tt_tensor_over(f->host->storage, TUTTI_F32, TUTTI_SHAPE(32), strides, 0, &even), 0);
    assert_true(tutti_tensor_is_pinned(even));
    tutti_tensor_t *half = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(32), 9);
    assert_int_equal(tutti_tensor_copy(even, half), 0);
    assert_true(tutti_tensor_at(f->host, 62) == 9 && tutti_tensor_at(f->host, 63) == 0);
    tutti_tensor_release(even);
}

static void a_tensor_of_a_device_is_refused(void **state)
{
    const fixture_t *f = *state;
    assert_int_equal(tutti_tensor_pin(f->x), TUTTI_ERR_ARG);
    tt_expect_error("tensor_pin: the tensor lies on strict:0: memory of the host alone is pinned");
}

static void without_memory_nothing_is_pinned(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(64), &x), 0);
    tt_alloc_fail_at(1);
    assert_int_equal(tutti_tensor_pin(x), TUTTI_ERR_NOMEM);
    assert_false(tutti_tensor_is_pinned(x));
    tutti_status_t status = TUTTI_ERR_NOMEM;
    for (size_t nth = 1; status < 0; nth++) {
        tutti_scope_t *s;
        assert_int_equal(status, TUTTI_ERR_NOMEM);
        tt_alloc_fail_at(0);
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tt_alloc_fail_at(nth);
        (void)tutti_empty_pinned(s, TUTTI_F32, TUTTI_SHAPE(64));
        status = tutti_scope_close(s);
    }
    tt_alloc_fail_at(0);
    tutti_tensor_release(x);
}

static void a_device_without_memory_takes_it(void **state)
{
    const fixture_t *f = *state;
    tutti_device_t *meta;
    tutti_tensor_t *x;
    assert_int_equal(tutti_device_open("meta", NULL, &meta), 0);
    assert_int_equal(tt_tensor_new(meta, TUTTI_F32, TUTTI_SHAPE(64), false, &x), 0);
    assert_int_equal(tutti_tensor_copy(x, f->host), 0);
    tutti_tensor_release(x);
    tutti_device_release(meta);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_copy_to_the_host_does_not_wait),
        TEST(a_copy_from_the_host_keeps_the_memory),
        TEST(memory_that_is_evicted_stays_for_the_copies_under_way),
        TEST(memory_goes_behind_a_failure_too),
        TEST(a_copy_that_has_gaps_waits),
        TEST(a_tensor_of_a_device_is_refused),
        TEST(without_memory_nothing_is_pinned),
        TEST(a_device_without_memory_takes_it),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
