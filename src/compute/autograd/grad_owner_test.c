/* Who owns a gradient: a leaf's is its own, whatever operations and hooks hand on; what a caller
 * passes or gets is the caller's. */
#include "core/tensor/device_testing.h"

#include <tutti/autograd.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *a, *b; /* [2], leaves: ones */
} fixture_t;

static tutti_tensor_t *make(double value)
{
    tutti_tensor_t *x;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2), &x), 0);
    assert_int_equal(tutti_tensor_fill(x, value), 0);
    return x;
}

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){.a = make(1), .b = make(1)};
    assert_int_equal(tutti_tensor_set_requires_grad(f.a, true), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.b, true), 0);
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->a);
    tutti_tensor_release(f->b);
    tutti_context_release(f->ctx);
    return 0;
}

static void expect_all(const tutti_tensor_t *x, double value)
{
    assert_non_null(x);
    assert_true(tutti_tensor_at(x, 0) == value);
    assert_true(tutti_tensor_at(x, 1) == value);
}

static void leaves_that_are_added_have_gradients_of_their_own(void **state)
{
    fixture_t *f = *state;
    for (int i = 1; i <= 2; i++) {
        tutti_tensor_t *c = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2));
        tutti_tensor_t *sum = tutti_mul(f->s, tutti_add(f->s, f->a, f->b), c);
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, sum)), 0);
        expect_all(tutti_tensor_grad(f->a), i);
        expect_all(tutti_tensor_grad(f->b), i);
    }
    assert_ptr_not_equal(tutti_tensor_device_data(tutti_tensor_grad(f->a)),
                         tutti_tensor_device_data(tutti_tensor_grad(f->b)));
}

/* Views of one gradient: reshape's and add's. */
static void a_view_of_a_gradient_is_no_leafs(void **state)
{
    fixture_t *f = *state;
    for (int i = 1; i <= 2; i++) {
        tutti_tensor_t *flat = tutti_reshape(f->s, f->b, TUTTI_SHAPE(2));
        tutti_tensor_t *sum = tutti_add(f->s, f->a, flat);
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, sum, sum))), 0);
        expect_all(tutti_tensor_grad(f->a), 4 * i);
        expect_all(tutti_tensor_grad(f->b), 4 * i);
    }
}

static void write_gradient(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)user;
    assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(leaf), 100), 0);
}

static void an_accumulate_hook_may_write_what_its_leaf_got(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_on_accumulate(f->a, write_gradient, NULL), 0);
    tutti_tensor_t *c = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2));
    tutti_tensor_t *sum = tutti_add(f->s, f->a, tutti_mul(f->s, f->b, f->b));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, sum, c))), 0);
    expect_all(tutti_tensor_grad(f->a), 100);
    expect_all(tutti_tensor_grad(f->b), 2);
}

static tutti_tensor_t *give_mine(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    return user;
}

static void a_tensor_that_a_hook_returns_stays_the_hooks(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *mine = make(7);
    assert_int_equal(tutti_tensor_on_grad(f->a, give_mine, mine), 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, f->a)), 0);
        expect_all(tutti_tensor_grad(f->a), 7 * i);
    }
    expect_all(mine, 7);
    tutti_tensor_release(mine);
}

static tutti_tensor_t *give_new(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    tutti_tensor_t *made = tutti_mul_scalar(s, grad, 3);
    *(const void **)user = tutti_tensor_device_data(made);
    return made;
}

/* On a device it is copied over zeros, for it may be lost. */
static void what_a_hook_makes_becomes_the_leafs_without_a_copy(void **state)
{
    fixture_t *f = *state;
    const void *made = NULL;
    assert_int_equal(tutti_tensor_on_grad(f->a, give_new, &made), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, f->a)), 0);
    expect_all(tutti_tensor_grad(f->a), 3);
    const bool is_the_same = tutti_tensor_device_data(tutti_tensor_grad(f->a)) == made;
    assert_int_equal(is_the_same, tt_test_device() == NULL);
}

static tutti_tensor_t *keep(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s;
    *(tutti_tensor_t **)user = tutti_tensor_retain(grad);
    return NULL;
}

static void a_gradient_that_a_hook_keeps_does_not_change(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *kept = NULL;
    assert_int_equal(tutti_tensor_on_grad(f->a, keep, &kept), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, f->a, f->b))), 0);
    tutti_tensor_remove_hooks(f->a, &kept);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, f->a, f->b))), 0);
    expect_all(kept, 1);
    expect_all(tutti_tensor_grad(f->a), 2);
    tutti_tensor_release(kept);
}

static void a_seed_stays_the_callers(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *seed = make(5);
    const tutti_backward_options_t options = {.grad_output = seed};
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tutti_backward_with(f->s, f->a, &options), 0);
        expect_all(tutti_tensor_grad(f->a), 5 * i);
    }
    expect_all(seed, 5);
    tutti_tensor_release(seed);
}

static void a_gradient_has_the_dtype_and_shape_of_its_leaf(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *other = tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2));
    assert_int_equal(tutti_tensor_set_grad(f->a, other), TUTTI_ERR_DTYPE);
    tt_expect_error("the gradient of f32[2] cannot be f64[2]");
    other = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(3));
    assert_int_equal(tutti_tensor_set_grad(f->a, other), TUTTI_ERR_SHAPE);
}

static void a_leafs_own_gradient_may_be_the_gradient_of_a_result(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *own = make(3);
    const tutti_backward_options_t options = {.grad_output = own};
    assert_int_equal(tutti_tensor_set_grad(f->a, own), 0);
    assert_int_equal(tutti_backward_with(f->s, tutti_add(f->s, f->a, f->b), &options), 0);
    expect_all(tutti_tensor_grad(f->a), 6);
    expect_all(tutti_tensor_grad(f->b), 3);
    tutti_tensor_release(own);
}

static tutti_tensor_t *give_view(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)grad;
    return tutti_transpose(s, user, 0, 1);
}

/* What a hook gives is a view of what it is accumulated into. */
static void a_gradient_may_be_a_view_of_the_leafs(void **state)
{
    enum { N = 64 };
    fixture_t *f = *state;
    tutti_tensor_t *w = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(N, N), 1);
    tutti_tensor_t *grad = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(N, N), 0);
    float start[N * N];
    for (int i = 0; i < N * N; i++) {
        start[i] = (float)i;
    }
    assert_int_equal(tutti_tensor_copy_from(grad, start), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(w, true), 0);
    assert_int_equal(tutti_tensor_set_grad(w, grad), 0);
    assert_int_equal(tutti_tensor_on_grad(w, give_view, grad), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, w)), 0);
    const float *values = tt_test_host(grad);
    for (int i = 0; i < N * N; i++) {
        assert_true(values[i] == (float)(i + i % N * N + i / N));
    }
}

static void results_of_grad_are_the_callers_alone(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *seed = make(5), *y = tutti_add(f->s, f->a, f->b), *grads[2];
    tutti_tensor_t *const inputs[] = {f->a, f->b};
    const tutti_backward_options_t options = {.grad_output = seed};
    assert_int_equal(tutti_grad(f->s, y, &options, inputs, 2, grads), 0);
    assert_int_equal(tutti_tensor_fill(grads[0], 0), 0);
    expect_all(grads[1], 5);
    assert_int_equal(tutti_tensor_fill(grads[1], 0), 0);
    expect_all(seed, 5);
    tutti_tensor_release(seed);
    /* a broadcast gradient, whose elements are one number in memory, becomes numbers apart */
    tutti_tensor_t *total = tutti_sum(f->s, f->a);
    assert_int_equal(tutti_grad(f->s, total, NULL, inputs, 1, grads), 0);
    assert_true(tutti_tensor_is_contiguous(grads[0]));
    expect_all(grads[0], 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void a_forgotten_gradient_is_none_until_the_next_one_comes(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *own = make(4);
    assert_int_equal(tutti_tensor_set_grad(f->a, own), 0);
    tutti_tensor_zero_grad(f->a);
    assert_null(tutti_tensor_grad(f->a));
    expect_all(own, 4); /* looking wrote nothing */
    assert_null(tutti_tensor_grad(f->a));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, f->a)), 0);
    assert_ptr_equal(tutti_tensor_grad(f->a), own); /* where it was told to accumulate */
    expect_all(own, 1);
    tutti_tensor_release(own);
}

/* ---- tutti_grad of what is in the middle of a graph ------------------------------------------ */

static void grad_of_a_result_does_not_use_up_what_made_it(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_mul(f->s, f->a, f->a), *grad;
    tutti_tensor_t *y = tutti_sum(f->s, tutti_mul_scalar(f->s, h, 3));
    assert_int_equal(tutti_grad(f->s, y, NULL, &h, 1, &grad), 0);
    expect_all(grad, 3);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, h)), 0);
    expect_all(tutti_tensor_grad(f->a), 2);
}

static void grad_needs_nothing_that_lies_behind_its_inputs(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_mul(f->s, f->a, f->a), *grad;
    tutti_tensor_t *y = tutti_sum(f->s, tutti_mul_scalar(f->s, h, 3));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, h)), 0); /* uses up what made h */
    assert_int_equal(tutti_grad(f->s, y, NULL, &h, 1, &grad), 0);
    expect_all(grad, 3);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, h)), TUTTI_ERR_STATE);
    tt_expect_error("backward through mul a second time");
}

static void an_input_that_leads_to_another_one_runs(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_mul(f->s, f->a, f->b), *grads[2];
    tutti_tensor_t *const inputs[] = {h, f->b};
    tutti_tensor_t *y = tutti_sum(f->s, tutti_mul_scalar(f->s, h, 3));
    assert_int_equal(tutti_grad(f->s, y, NULL, inputs, 2, grads), 0);
    expect_all(grads[0], 3);
    expect_all(grads[1], 3);
    assert_null(tutti_tensor_grad(f->b));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, h)), TUTTI_ERR_STATE);
}

static void count_leaf(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s;
    (void)leaf;
    ++*(int *)user;
}

static void a_leaf_that_was_frozen_after_its_forward_gets_none(void **state)
{
    fixture_t *f = *state;
    int calls = 0;
    tutti_tensor_t *y = tutti_sum(f->s, tutti_mul(f->s, f->a, f->b));
    assert_int_equal(tutti_tensor_on_accumulate(f->a, count_leaf, &calls), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f->a, false), 0);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_null(tutti_tensor_grad(f->a));
    assert_int_equal(calls, 0);
    expect_all(tutti_tensor_grad(f->b), 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(leaves_that_are_added_have_gradients_of_their_own),
        T(a_view_of_a_gradient_is_no_leafs),
        T(an_accumulate_hook_may_write_what_its_leaf_got),
        T(a_tensor_that_a_hook_returns_stays_the_hooks),
        T(what_a_hook_makes_becomes_the_leafs_without_a_copy),
        T(a_gradient_that_a_hook_keeps_does_not_change),
        T(a_seed_stays_the_callers),
        T(a_gradient_has_the_dtype_and_shape_of_its_leaf),
        T(a_leafs_own_gradient_may_be_the_gradient_of_a_result),
        T(a_gradient_may_be_a_view_of_the_leafs),
        T(results_of_grad_are_the_callers_alone),
        T(a_forgotten_gradient_is_none_until_the_next_one_comes),
        T(grad_of_a_result_does_not_use_up_what_made_it),
        T(grad_needs_nothing_that_lies_behind_its_inputs),
        T(an_input_that_leads_to_another_one_runs),
        T(a_leaf_that_was_frozen_after_its_forward_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
