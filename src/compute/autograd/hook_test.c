/* Hooks that misbehave or do more than look: they remove themselves, fail, return what is not a
 * gradient, start a backward of their own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *w; /* a scalar leaf of value 3 */
    tutti_tensor_t *v; /* another, of value 5 */
    int calls, ends;
    tutti_status_t status;
} fixture_t;

static tutti_tensor_t *make_leaf(double value)
{
    tutti_tensor_t *x;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SCALAR, &x), 0);
    assert_int_equal(tutti_tensor_fill(x, value), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){.w = make_leaf(3), .v = make_leaf(5)};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->w);
    tutti_tensor_release(f->v);
    tutti_context_release(f->ctx);
    return 0;
}

static tutti_tensor_t *square(fixture_t *f, tutti_tensor_t *x)
{
    return tutti_mul(f->s, x, x);
}

static double grad_of(tutti_tensor_t *x)
{
    return tutti_tensor_item(tutti_tensor_grad(x));
}

/* ---- hooks that go away while they run ----------------------------------------------------- */

static tutti_tensor_t *look_once(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    f->calls++;
    tutti_tensor_remove_hooks(f->w, f);
    return NULL;
}

static void see_once(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s;
    fixture_t *f = user;
    f->calls++;
    tutti_tensor_remove_hooks(leaf, f);
}

static tutti_tensor_t *count(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    ++*(int *)user;
    return NULL;
}

static void a_hook_may_remove_itself_and_those_behind_it(void **state)
{
    fixture_t *f = *state;
    int others = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_tensor_on_grad(f->w, look_once, f), 0);
    }
    assert_int_equal(tutti_tensor_on_grad(f->w, count, &others), 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
        assert_int_equal(f->calls, 1); /* it took the two others with it */
        assert_int_equal(others, i);
    }
}

static void an_accumulate_hook_may_remove_itself(void **state)
{
    fixture_t *f = *state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_tensor_on_accumulate(f->w, see_once, f), 0);
        assert_int_equal(tutti_tensor_on_accumulate(f->w, see_once, f), 0);
        assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
        assert_int_equal(f->calls, i + 1);
    }
    assert_true(grad_of(f->w) == 12.0);
}

static tutti_tensor_t *add_another(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    f->status = tutti_tensor_on_grad(f->w, count, &f->calls);
    return NULL;
}

static void a_hook_added_by_a_hook_runs_from_the_next_gradient_on(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_on_grad(f->w, add_another, f), 0);
    assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
    assert_int_equal(f->status, 0);
    assert_int_equal(f->calls, 0);
    assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
    assert_int_equal(f->calls, 1);
}

enum { CALLS_MAX = 10 }; /* so that a walk that does not end fails */

static tutti_tensor_t *look_and_come_again(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)look_once(s, grad, user);
    fixture_t *f = user;
    f->status = f->calls < CALLS_MAX ? tutti_tensor_on_grad(f->w, look_and_come_again, f) : 0;
    return NULL;
}

static void see_and_come_again(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    see_once(s, leaf, user);
    fixture_t *f = user;
    f->status = f->calls < CALLS_MAX ? tutti_tensor_on_accumulate(leaf, see_and_come_again, f) : 0;
}

static void a_hook_that_adds_itself_again_runs_once_for_each_gradient(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_on_grad(f->w, look_and_come_again, f), 0);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
        assert_int_equal(f->status, 0);
        assert_int_equal(f->calls, i);
    }
    tutti_tensor_remove_hooks(f->w, f);
    assert_int_equal(tutti_tensor_on_accumulate(f->w, see_and_come_again, f), 0);
    for (int i = 4; i <= 6; i++) {
        assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
        assert_int_equal(f->calls, i);
    }
}

/* ---- hooks that return what is not a gradient ------------------------------------------------ */

static tutti_tensor_t *return_double(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)grad, (void)user;
    return tutti_full(s, TUTTI_F64, TUTTI_SCALAR, 7);
}

static void a_gradient_of_another_dtype_is_an_error(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = square(f, f->w);
    assert_int_equal(tutti_tensor_on_grad(y, return_double, NULL), 0);
    assert_int_equal(tutti_backward(f->s, square(f, y)), TUTTI_ERR_DTYPE);
    tt_expect_error("a hook made of the gradient f32[] one of f64[]");
    assert_null(tutti_tensor_grad(f->w));
}

static tutti_tensor_t *return_failed(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    return tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(-1)); /* fails in the outer scope */
}

static void a_failed_tensor_from_a_hook_ends_backward(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = square(f, square(f, f->w));
    assert_int_equal(tutti_tensor_on_grad(f->w, return_failed, f), 0);
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_ARG);
    assert_null(tutti_tensor_grad(f->w));
}

/* ---- hooks that fail ------------------------------------------------------------------------- */

static void refuse(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    fixture_t *f = user;
    f->calls++;
    (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_STATE, "refused, call %d", f->calls));
}

static tutti_status_t note_end(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    fixture_t *f = user;
    f->ends++;
    f->status = status;
    return TUTTI_OK;
}

static void queue_end(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    assert_int_equal(tutti_backward_on_end(s, note_end, user), 0);
}

static void a_hook_that_fails_ends_backward_and_callbacks_hear_of_it(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    assert_int_equal(tutti_tensor_on_accumulate(f->w, queue_end, f), 0);
    assert_int_equal(tutti_tensor_on_accumulate(f->w, refuse, f), 0);
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_backward(s, tutti_mul(s, f->w, f->v)), TUTTI_ERR_STATE);
    assert_int_equal(f->ends, 1);
    assert_int_equal(f->status, TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_STATE);
    tt_expect_error("refused, call 1");
    tutti_tensor_remove_hooks(f->w, f);
    tutti_tensor_zero_grad(f->w);
    tutti_tensor_zero_grad(f->v);
    assert_int_equal(tutti_backward(f->s, tutti_mul(f->s, f->w, f->v)), 0);
    assert_true(grad_of(f->w) == 5.0 && grad_of(f->v) == 3.0);
}

/* ---- hooks that start a backward ------------------------------------------------------------- */

static tutti_status_t run_inside(fixture_t *f, tutti_tensor_t *leaf)
{
    tutti_scope_t *s;
    const bool was = tutti_context_set_grad_enabled(f->ctx, true);
    TUTTI_CHECK(tutti_scope_open(f->ctx, &s));
    (void)tutti_backward(s, tutti_mul(s, leaf, leaf));
    (void)tutti_context_set_grad_enabled(f->ctx, was);
    return tutti_scope_close(s);
}

static tutti_tensor_t *run_apart(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    f->status = run_inside(f, f->v);
    return NULL;
}

static void a_hook_may_run_a_graph_of_its_own(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_on_grad(f->w, run_apart, f), 0);
    assert_int_equal(tutti_tensor_on_accumulate(f->v, queue_end, f), 0);
    assert_int_equal(tutti_backward(f->s, square(f, f->w)), 0);
    assert_int_equal(f->status, 0);
    assert_int_equal(f->ends, 1); /* at the end of the inner one, which reached v */
    assert_true(grad_of(f->w) == 6.0 && grad_of(f->v) == 10.0);
}

static tutti_tensor_t *run_again(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    f->status = run_inside(f, f->w);
    tt_expect_error("comes to that hook again");
    return NULL;
}

static void a_hook_sees_the_gradient_of_its_own_output_alone(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_expand(f->s, f->w, TUTTI_SHAPE(2)), *parts[2];
    tutti_split(f->s, x, 0, 2, parts);
    assert_int_equal(tutti_tensor_on_grad(parts[1], count, &f->calls), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, parts[0])), 0);
    assert_int_equal(f->calls, 0);
    tutti_split(f->s, tutti_expand(f->s, f->w, TUTTI_SHAPE(2)), 0, 2, parts);
    assert_int_equal(tutti_tensor_on_grad(parts[1], count, &f->calls), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, parts[0], parts[1]))), 0);
    assert_int_equal(f->calls, 1);
    assert_true(grad_of(f->w) == 1 + 6);
}

static void a_hook_cannot_start_what_comes_to_it_again(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_on_grad(f->w, run_again, f), 0);
    assert_int_equal(tutti_backward(f->s, tutti_mul(f->s, square(f, f->w), f->v)), 0);
    assert_int_equal(f->status, TUTTI_ERR_STATE);
    assert_true(grad_of(f->w) == 30.0 && grad_of(f->v) == 9.0);
}

/* ---- an operation that starts a backward ----------------------------------------------------- */

typedef struct {
    tutti_tensor_t *loss;
    tt_storage_t *saved;
    int calls;
    tutti_status_t status;
} nested_t;

static tutti_status_t nested_forward(tutti_op_call_t *call)
{
    nested_t *nested = *(nested_t *const *)call->params;
    tutti_tensor_t *twice = tutti_mul_scalar(call->scope, call->inputs[0], 2);
    nested->saved = twice->storage;
    tt_storage_retain(nested->saved);
    TT_TRY(tutti_op_save(call, twice));
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

/* The backward inside frees the graph through which the one around it comes just now. */
static tutti_status_t nested_backward(tutti_op_backward_t *call)
{
    nested_t *nested = *(nested_t *const *)call->params;
    if (nested->calls++ == 0) {
        nested->status = tutti_backward(call->scope, nested->loss);
        assert_false(tt_ref_is_unique(&nested->saved->ref));
    }
    call->grads[0] = tutti_mul(call->scope, call->grad_outputs[0], call->saved[0]);
    return TUTTI_OK;
}

static void a_backward_inside_an_operation_frees_nothing_that_it_reads(void **state)
{
    static const tutti_op_t op = {.name = "nested",
                                  .params_bytes = sizeof(nested_t *),
                                  .infer = tutti_op_infer_same,
                                  .forward = nested_forward,
                                  .backward = nested_backward};
    fixture_t *f = *state;
    const tutti_backward_options_t retain = {.retain_graph = true};
    nested_t nested = {0}, *params = &nested;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    nested.loss = tutti_tensor_retain(tutti_op_run(s, &op, &f->w, 1, &params));
    assert_int_equal(tutti_scope_close(s), 0); /* what was saved is the graph's alone */
    assert_int_equal(tutti_backward_with(f->s, nested.loss, &retain), 0);
    assert_int_equal(nested.status, 0);
    assert_true(grad_of(f->w) == 2 * 6);
    assert_true(tt_ref_is_unique(&nested.saved->ref)); /* it was freed once nobody read it */
    tt_storage_release(nested.saved);
    tutti_tensor_release(nested.loss);
}

/* The gradient of a product to one operand takes the other alone. */
static void an_operand_that_no_gradient_needs_may_be_written(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_add(f->s, f->w, f->w);
    tutti_tensor_t *y = tutti_mul(f->s, h, tutti_full(f->s, TUTTI_F32, TUTTI_SCALAR, 7));
    assert_int_equal(tutti_tensor_fill(h, 0), 0);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_true(grad_of(f->w) == 14);
}

static void the_gradients_of_no_inputs_touch_no_leaf(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_grad(f->s, square(f, f->w), NULL, NULL, 0, NULL), 0);
    assert_null(tutti_tensor_grad(f->w));
    assert_int_equal(tutti_grad(f->s, square(f, f->w), NULL, NULL, -1, NULL), TUTTI_ERR_ARG);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_hook_may_remove_itself_and_those_behind_it),
        T(an_accumulate_hook_may_remove_itself),
        T(a_hook_added_by_a_hook_runs_from_the_next_gradient_on),
        T(a_hook_that_adds_itself_again_runs_once_for_each_gradient),
        T(a_gradient_of_another_dtype_is_an_error),
        T(a_failed_tensor_from_a_hook_ends_backward),
        T(a_hook_that_fails_ends_backward_and_callbacks_hear_of_it),
        T(a_hook_may_run_a_graph_of_its_own),
        T(a_hook_sees_the_gradient_of_its_own_output_alone),
        T(a_hook_cannot_start_what_comes_to_it_again),
        T(a_backward_inside_an_operation_frees_nothing_that_it_reads),
        T(an_operand_that_no_gradient_needs_may_be_written),
        T(the_gradients_of_no_inputs_touch_no_leaf),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
