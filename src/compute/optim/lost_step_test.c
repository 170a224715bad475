/* What an optimizer makes on a device behind a failure is what it makes else: the batch is lost,
 * its state is not. */
#include "core/base/testing.h"

#include <tutti/tutti.h>

#include "core/tensor/device_testing.h"

enum { COUNT = 64, STEPS = 3 };

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), TUTTI_OK);
    const tutti_context_options_t options = {.threads = 1, .device = f.device};
    assert_int_equal(tutti_context_create(&options, &f.ctx), TUTTI_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    return 0;
}

static tutti_scope_t *open_scope(const fixture_t *f)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), TUTTI_OK);
    return s;
}

/* What is allocated next was somebody else's, and is full of large numbers. */
static void leave_large_numbers(const fixture_t *f)
{
    tutti_scope_t *s = open_scope(f);
    for (int i = 0; i < 200; i++) {
        (void)tutti_full(s, TUTTI_F32, TUTTI_SHAPE(COUNT), 1000);
    }
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
}

typedef struct {
    tutti_dtype_t dtype;
    bool clips; /* which asks for the gradient before the step does */
    bool again; /* the step that was lost is made again, from the same gradient */
} way_t;

static void step(const fixture_t *f, tutti_optim_t *optim, tutti_tensor_t *x, way_t way, bool fails)
{
    tutti_scope_t *s = open_scope(f);
    tutti_tensor_t *loss = tutti_sum(s, tutti_mul(s, x, x));
    if (fails && !way.again) {
        tt_test_fail_on(f->device);
    }
    assert_int_equal(tutti_backward(s, loss), TUTTI_OK);
    for (int turn = 0; turn < 1 + (fails && way.again); turn++) {
        const bool is_lost = fails && turn == 0;
        if (is_lost && way.again) {
            tt_test_fail_on(f->device);
        }
        if (way.clips) {
            assert_int_equal(tutti_clip_grad_norm(optim, 1, 2, NULL), TUTTI_OK);
        }
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        assert_int_equal(tutti_device_synchronize(f->device, 0),
                         is_lost ? TUTTI_ERR_ARG : TUTTI_OK);
    }
    tutti_optim_zero_grad(optim);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
}

/* An element of a weight after some steps, with a lost one in front of them. */
static double train(const fixture_t *f, way_t way, bool fails)
{
    const tutti_sgd_options_t options = {.lr = 0.125, .momentum = 0.5};
    tutti_optim_t *optim;
    leave_large_numbers(f);
    tutti_scope_t *s = open_scope(f);
    tutti_tensor_t *x = tutti_tensor_retain(tutti_full(s, way.dtype, TUTTI_SHAPE(COUNT), 1));
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_sgd, &options, &optim), TUTTI_OK);
    assert_int_equal(tutti_optim_add_parameter(optim, 0, "x", x), TUTTI_OK);
    if (fails && !way.again) {
        step(f, optim, x, way, true);
    }
    for (int i = 0; i < STEPS; i++) {
        step(f, optim, x, way, fails && way.again && i == 0);
    }
    const double value = tutti_tensor_at(x, 7);
    tutti_optim_release(optim);
    tutti_tensor_release(x);
    return value;
}

static void a_lost_first_step_leaves_no_trace(void **state)
{
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    for (int i = 0; i < 12; i++) {
        const way_t way = {dtypes[i / 4], i % 2 == 1, i / 2 % 2 == 1};
        const double want = train(*state, way, false), got = train(*state, way, true);
        if (got != want || !(want > 0 && want < 1)) {
            fail_msg("%s%s%s: %.9g, and behind a lost step %.9g", tutti_dtype_name(way.dtype),
                     way.clips ? ", clipped" : "", way.again ? ", again" : "", want, got);
        }
    }
}

static void a_fill_is_done_behind_a_failure(void **state)
{
    const fixture_t *f = *state;
    tutti_scope_t *s = open_scope(f);
    tt_test_fail_on(f->device);
    tutti_tensor_t *x = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(COUNT), 3);
    tutti_tensor_t *y = tutti_exp(s, x), *z = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(COUNT));
    assert_int_equal(tutti_tensor_fill(z, 5), TUTTI_OK);
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
    assert_true(tutti_tensor_at(x, 9) == 3 && tutti_tensor_at(z, 9) == 5);
    (void)y;
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lost_first_step_leaves_no_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fill_is_done_behind_a_failure, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
