/* What a failure of the device has spoiled counts as nothing when that has been told: gradients
 * that were to be accumulated, and parameters that were made meanwhile, hold no memory of somebody
 * else. */
#include "core/base/testing.h"

#include <tutti/tutti.h>

#include "core/tensor/device_testing.h"

enum { COUNT = 64 };

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x; /* [COUNT] of 3: a leaf */
} fixture_t;

/* What is allocated next was somebody else's, and is full of large numbers. */
static void leave_large_numbers(const fixture_t *f)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    for (int i = 0; i < 200; i++) {
        (void)tutti_full(s, TUTTI_F32, TUTTI_SHAPE(COUNT), 1000);
    }
    assert_int_equal(tutti_scope_close(s), 0);
}

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), 0);
    const tutti_context_options_t options = {.threads = 1, .device = f.device};
    assert_int_equal(tutti_context_create(&options, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    f.x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(COUNT), 3);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    leave_large_numbers(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    return 0;
}

/* Of the sum of squares: 6 each. is_shared: a leaf's gradient that others see, too. */
static void backward(const fixture_t *f, bool is_shared)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *y = is_shared ? tutti_reshape(s, f->x, TUTTI_SHAPE(2, COUNT / 2)) : f->x;
    assert_int_equal(tutti_backward(s, tutti_sum(s, tutti_mul(s, y, y))), 0);
    assert_int_equal(tutti_scope_close(s), 0);
}

static void lose(const fixture_t *f, bool is_shared)
{
    tt_test_fail_on(f->device);
    backward(f, is_shared);
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
}

static void expect_grad(const fixture_t *f, double want)
{
    for (int i = 0; i < COUNT; i += 7) {
        assert_true(tutti_tensor_at(tutti_tensor_grad(f->x), i) == want);
    }
}

static void a_first_gradient(void **state)
{
    const fixture_t *f = *state;
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        lose(f, is_shared);
        expect_grad(f, 0);
        backward(f, is_shared);
        expect_grad(f, 6);
        assert_int_equal(tutti_tensor_set_grad(f->x, NULL), 0);
    }
}

static void one_that_follows_a_forgotten_one(void **state)
{
    const fixture_t *f = *state;
    backward(f, false);
    tutti_tensor_zero_grad(f->x);
    lose(f, false);
    backward(f, false);
    expect_grad(f, 6);
}

static void one_that_is_added_to_another(void **state)
{
    const fixture_t *f = *state;
    backward(f, false);
    lose(f, false);
    expect_grad(f, 6);
    backward(f, false);
    expect_grad(f, 12);
}

static void make_layer(const fixture_t *f, tutti_init_kind_t kind, bool fails, char *digest)
{
    static const tutti_module_ops_t plain = {.name = "plain"};
    tutti_module_t *m;
    tutti_context_t *ctx;
    const tutti_context_options_t options = {.threads = 1, .device = f->device, .seed = 5};
    assert_int_equal(tutti_context_create(&options, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &plain, NULL, &m), 0);
    leave_large_numbers(f);
    if (fails) {
        tt_test_fail_on(f->device);
    }
    assert_int_equal(
        tutti_module_new_parameter(m, "w", TUTTI_SHAPE(COUNT), (tutti_init_t){kind, 0.5, 1}, NULL),
        0);
    assert_int_equal(tutti_device_synchronize(f->device, 0), fails ? TUTTI_ERR_ARG : 0);
    assert_int_equal(tutti_module_digest(m, digest), 0);
    tutti_module_release(m);
    tutti_context_release(ctx);
}

static void a_parameter_has_its_initial_values(void **state)
{
    static const tutti_init_kind_t kinds[] = {TUTTI_INIT_CONSTANT, TUTTI_INIT_UNIFORM,
                                              TUTTI_INIT_NORMAL};
    for (int i = 0; i < 3; i++) {
        char want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
        make_layer(*state, kinds[i], false, want);
        make_layer(*state, kinds[i], true, got);
        assert_string_equal(got, want);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_first_gradient),
        TEST(one_that_follows_a_forgotten_one),
        TEST(one_that_is_added_to_another),
        TEST(a_parameter_has_its_initial_values),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
