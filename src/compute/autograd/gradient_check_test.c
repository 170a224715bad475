/* Gradients beside differences: right ones pass, wrong ones are named, nothing is touched. */
#include "core/tensor/device_testing.h"

#include <tutti/autograd.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y; /* f64 [2, 3], x needs a gradient */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    static const double values[] = {0.5, -1, 2, 3, -0.25, 1.5};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    f.x = tutti_from_data(f.s, TUTTI_F64, TUTTI_SHAPE(2, 3), values);
    f.y = tutti_full(f.s, TUTTI_F64, TUTTI_SHAPE(2, 3), 2);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    return 0;
}

static tutti_status_t check(fixture_t *f, tutti_gradient_check_fn_t fn, int outputs)
{
    tutti_tensor_t *const inputs[] = {f->x, f->y, NULL};
    return tutti_gradient_check(f->ctx, fn, f, inputs, 3, outputs, NULL);
}

static void product(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out, void *user)
{
    (void)user;
    assert_null(in[2]);
    out[0] = tutti_mul(s, in[0], tutti_mul(s, in[0], in[1]));
    out[1] = tutti_dropout(s, tutti_tanh(s, in[0]), 0.5F); /* the same ones in each forward */
    out[2] = in[1];                                        /* without a gradient */
}

static void right_gradients_pass_and_nothing_is_touched(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(check(f, product, 3), 0);
    assert_null(tutti_tensor_grad(f->x));
    assert_true(tutti_tensor_at(f->x, 5) == 1.5);
    assert_int_equal(tutti_tensor_set_requires_grad(f->y, true), 0);
    assert_int_equal(check(f, product, 3), 0);
    assert_true(f->ctx->is_grad_enabled);
}

/* Backward does not see the second factor. */
static void half_hidden(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                        void *user)
{
    (void)user;
    out[0] = tutti_mul(s, in[0], tutti_detach(s, in[0]));
}

static void constant(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out, void *user)
{
    (void)s, (void)user;
    out[0] = in[1];
}

static void failing(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out, void *user)
{
    (void)in, (void)user;
    out[0] = tutti_scope_fail(s, tutti_fail(TUTTI_ERR_FORMAT, "not today"));
}

static void wrong_ones_are_named(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(check(f, half_hidden, 1), TUTTI_ERR_MISMATCH);
    tt_expect_error("the gradient of element 0 of input 0 is 0.");
    assert_int_equal(check(f, constant, 1), TUTTI_ERR_STATE);
    tt_expect_error("no output has a gradient");
    assert_int_equal(check(f, failing, 1), TUTTI_ERR_FORMAT);
    tt_expect_error("not today");
    assert_int_equal(check(f, product, 0), TUTTI_ERR_ARG);
    f->x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    assert_int_equal(check(f, product, 3), TUTTI_ERR_STATE);
    tt_expect_error("no input needs a gradient");
    assert_int_equal(tutti_tensor_set_requires_grad(f->x, true), 0);
    assert_int_equal(check(f, product, 3), TUTTI_ERR_DTYPE);
    tt_expect_error("input 0 is f32[2, 3]: want contiguous f64");
}

static void square(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out, void *user)
{
    (void)user;
    out[0] = tutti_mul(s, in[0], in[0]);
}

static void every_allocation_may_fail(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = check(f, half_hidden, 1);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_ERR_MISMATCH);
    }
}

/* The other one gets no gradient in either order. */
static void an_input_that_is_not_used_has_a_gradient_of_zero(void **state)
{
    fixture_t *f = *state;
    const tutti_gradient_check_options_t twice = {.order = 2};
    assert_int_equal(tutti_tensor_set_requires_grad(f->y, true), 0);
    tutti_tensor_t *const inputs[] = {f->x, f->y};
    assert_int_equal(tutti_gradient_check(f->ctx, square, f, inputs, 2, 1, &twice), 0);
}

static void every_allocation_of_the_second_order_may_fail(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    const tutti_gradient_check_options_t twice = {.order = 2};
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tutti_gradient_check(f->ctx, square, f, &f->x, 1, 1, &twice);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(right_gradients_pass_and_nothing_is_touched),
        T(wrong_ones_are_named),
        T(every_allocation_may_fail),
        T(an_input_that_is_not_used_has_a_gradient_of_zero),
        T(every_allocation_of_the_second_order_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
