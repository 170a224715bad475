/* Storages whose memory goes and comes back: states, memory, and what a tensor over one says. */
#include "core/base/testing.h"

#include <math.h>
#include <tutti/safetensors.h>

#include "core/device/cpu_device.h"
#include "core/tensor/tensor_impl.h"

static const char reason[] = "w is elsewhere: fetch it";

typedef struct {
    tt_device_t *device;
    tutti_tensor_t *x;    /* [2, 3] */
    tutti_tensor_t *view; /* its last two elements */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){0};
    assert_int_equal(tt_device_open(&tt_device_cpu, NULL, &f.device), 0);
    assert_int_equal(tt_tensor_new(f.device, TUTTI_F32, TUTTI_SHAPE(2, 3), true, &f.x), 0);
    assert_int_equal(tt_tensor_over(f.x->storage, TUTTI_F32, TUTTI_SHAPE(2), NULL, 4, &f.view), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_release(f->x);
    tutti_tensor_release(f->view);
    assert_int_equal(tt_device_stats(f->device).live_bytes, 0);
    tutti_device_release(f->device);
    return 0;
}

static void fill(tt_storage_t *storage, float value)
{
    for (size_t i = 0; i < storage->bytes / sizeof value; i++) {
        ((float *)storage->data)[i] = value;
    }
}

static void memory_comes_back_for_all_views_without_a_version(void **state)
{
    fixture_t *f = *state;
    tt_storage_t *storage = f->x->storage;
    assert_int_equal(tutti_tensor_fill(f->x, 3), 0);
    const uint32_t version = storage->version;
    const size_t live = tt_device_stats(f->device).live_bytes;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(tt_storage_evict(storage, reason), 0);
        assert_int_equal(tt_device_stats(f->device).live_bytes, 0);
        assert_int_equal(tt_storage_refill(storage, i == 2 ? NULL : f->device), 0);
        assert_int_equal(tt_device_stats(f->device).live_bytes, i == 2 ? 0 : live);
        fill(storage, (float)i);
        assert_null(tutti_tensor_data(f->x)); /* not before it is published */
        assert_int_equal(tt_storage_publish(storage), 0);
        assert_true(tutti_tensor_at(f->x, 5) == i && tutti_tensor_at(f->view, 1) == i);
        assert_int_equal(storage->version, version);
    }
}

static void expect_absent(tutti_status_t status, const char *text)
{
    assert_int_equal(status, TUTTI_ERR_STATE);
    tt_expect_error(text);
}

static void what_is_away_is_named_and_neither_read_nor_written(void **state)
{
    fixture_t *f = *state;
    const float values[6] = {0};
    tutti_tensor_t *other;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2, 3), &other), 0);
    for (int is_filling = 0; is_filling < 2; is_filling++) {
        if (!is_filling) {
            assert_int_equal(tt_storage_evict(f->x->storage, reason), 0);
        } else {
            assert_int_equal(tt_storage_refill(f->x->storage, f->device), 0);
        }
        assert_null(tutti_tensor_data(f->x));
        assert_null(tutti_tensor_data(f->view)); /* though it has an offset */
        assert_true(isnan(tutti_tensor_at(f->x, 0)) && isnan(tutti_tensor_at(f->view, 1)));
        const char *text = "f32[2, 3] is not in memory: w is elsewhere: fetch it";
        expect_absent(tutti_tensor_fill(f->x, 1), text);
        expect_absent(tutti_tensor_fill(f->view, 1), "f32[2] is not in memory: w is elsewhere");
        expect_absent(tutti_tensor_copy(f->x, other), text);
        expect_absent(tutti_tensor_copy(other, f->x), text);
        expect_absent(tutti_tensor_copy_from(f->x, values), text);
        const tutti_named_tensor_t named = {"w", f->x};
        expect_absent(tutti_safetensors_save("storage_test.safetensors", &named, 1, NULL, 0),
                      "w f32[2, 3] is not in memory");
        assert_int_equal(tutti_tensor_bytes(f->x), 24);
        assert_int_equal(tutti_tensor_status(f->x), 0);
    }
    tutti_tensor_release(other);
}

static void steps_in_another_order_are_errors(void **state)
{
    fixture_t *f = *state;
    tt_storage_t *storage = f->x->storage;
    expect_absent(tt_storage_refill(storage, f->device), "refilled, but it is there");
    expect_absent(tt_storage_lend(storage, storage->data, NULL, NULL), "refilled, but it is there");
    expect_absent(tt_storage_publish(storage), "published, but nobody fills it: it is there");
    assert_int_equal(tt_storage_evict(storage, reason), 0);
    expect_absent(tt_storage_evict(storage, "never seen"), "evicted twice: w is elsewhere");
    expect_absent(tt_storage_publish(storage), "published, but nobody fills it: w is elsewhere");
    assert_int_equal(tt_storage_refill(storage, f->device), 0);
    expect_absent(tt_storage_refill(storage, f->device), "but it is being filled: w is elsewhere");
    assert_int_equal(tt_storage_evict(storage, reason), 0); /* given up */
    assert_int_equal(tt_device_stats(f->device).live_bytes, 0);
    /* and released while it is away */
}

static void memory_that_cannot_be_had_leaves_it_away(void **state)
{
    fixture_t *f = *state;
    tt_storage_t *storage = f->x->storage;
    assert_int_equal(tt_storage_evict(storage, reason), 0);
    for (int i = 0; i < 2; i++) {
        tt_alloc_fail_at(1);
        const tutti_status_t status = tt_storage_refill(storage, i == 0 ? NULL : f->device);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        if (has_failed) { /* a device may have had it in its cache */
            assert_int_equal(status, TUTTI_ERR_NOMEM);
            expect_absent(tt_storage_publish(storage), "nobody fills it");
        } else {
            assert_int_equal(status, 0);
            assert_int_equal(tt_storage_evict(storage, reason), 0);
        }
    }
    assert_int_equal(tt_storage_refill(storage, f->device), 0);
    fill(storage, 2);
    assert_int_equal(tt_storage_publish(storage), 0);
    assert_true(tutti_tensor_at(f->x, 5) == 2);
}

static void count_return(tt_storage_t *storage)
{
    ++*(int *)storage->owner;
}

static void lent_memory_goes_back_each_time(void **state)
{
    fixture_t *f = *state;
    tt_storage_t *storage = f->x->storage;
    float first[6] = {1, 2, 3, 4, 5, 6}, second[6] = {6, 5, 4, 3, 2, 1};
    int returns = 0;
    assert_int_equal(tt_storage_evict(storage, reason), 0);
    assert_int_equal(tt_storage_lend(storage, first, count_return, &returns), 0);
    assert_int_equal(tt_storage_publish(storage), 0);
    assert_true(tutti_tensor_at(f->view, 1) == 6);
    assert_int_equal(tt_storage_evict(storage, reason), 0);
    assert_int_equal(returns, 1);
    assert_int_equal(tt_storage_lend(storage, second, count_return, &returns), 0);
    assert_int_equal(tt_storage_publish(storage), 0);
    assert_true(tutti_tensor_at(f->view, 1) == 1);
    assert_int_equal(tt_storage_evict(storage, reason), 0);
    assert_int_equal(returns, 2);
}

/* A program's own memory is not freed, and need not be there any more. */
static void wrapped_memory_may_be_left(void **state)
{
    (void)state;
    float values[2] = {1, 2};
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(2), values, &x), 0);
    assert_int_equal(tt_storage_evict(x->storage, reason), 0);
    assert_int_equal(tt_storage_refill(x->storage, NULL), 0);
    fill(x->storage, 7);
    assert_int_equal(tt_storage_publish(x->storage), 0);
    assert_true(tutti_tensor_at(x, 1) == 7 && values[1] == 2);
    tutti_tensor_release(x);
}

/* Who copies from memory that is not pinned waits for it: a wrong mark is a use after free. */
static void pinned_memory_is_pinned_where_it_goes(void **state)
{
    const fixture_t *f = *state;
    tutti_tensor_t *other;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2, 3), &other), 0);
    assert_int_equal(tutti_tensor_fill(other, 5), 0);
    assert_int_equal(tutti_tensor_pin(other), 0);
    tt_storage_swap(f->x->storage, other->storage);
    assert_true(tutti_tensor_at(f->x, 0) == 5 && tutti_tensor_is_pinned(f->x));
    assert_false(tutti_tensor_is_pinned(other));
    tt_storage_swap(f->x->storage, other->storage);
    assert_true(tutti_tensor_is_pinned(other) && !tutti_tensor_is_pinned(f->x));
    tutti_tensor_release(other);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(memory_comes_back_for_all_views_without_a_version),
        T(what_is_away_is_named_and_neither_read_nor_written),
        T(steps_in_another_order_are_errors),
        T(memory_that_cannot_be_had_leaves_it_away),
        T(lent_memory_goes_back_each_time),
        T(wrapped_memory_may_be_left),
        T(pinned_memory_is_pinned_where_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
