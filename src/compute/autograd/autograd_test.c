/* The engine: order, accumulation, hooks, retain_graph, grad, errors, memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>

#include "compute/autograd/cast.h"
#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"
#include "core/kernel/elementwise/map.h"

/* y = a * b for equal shapes, so that the engine is tested without compute/op. */
static tutti_status_t times_forward(tutti_op_call_t *call)
{
    const tt_strided_t y = tt_tensor_strided(call->outputs[0]),
                       a = tt_tensor_strided(call->inputs[0]),
                       b = tt_tensor_strided(call->inputs[1]);
    TT_TRY(
        tt_map_binary(tt_scope_exec(call->scope), TT_BINARY_MUL, (tt_map_params_t){0}, &y, &a, &b));
    TT_TRY(tutti_op_save(call, call->inputs[0]));
    return tutti_op_save(call, call->inputs[1]);
}

static tutti_tensor_t *times(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

static tutti_status_t times_backward(tutti_op_backward_t *call)
{
    for (int i = 0; i < 2; i++) {
        call->grads[i] = times(call->scope, call->grad_outputs[0], call->saved[1 - i]);
    }
    return TUTTI_OK;
}

static const tutti_op_t op_times = {.name = "times",
                                    .about = "y = a b",
                                    .infer = tutti_op_infer_broadcast,
                                    .forward = times_forward,
                                    .backward = times_backward};

static tutti_tensor_t *times(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)
{
    return tutti_op_run(s, &op_times, (tutti_tensor_t *[]){a, b}, 2, NULL);
}

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *w; /* a scalar leaf of value 3 */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SCALAR, &f.w), 0);
    assert_int_equal(tutti_tensor_fill(f.w, 3.0), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.w, true), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->w);
    tutti_context_release(f->ctx);
    char report[4096];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked: %s", report);
    }
    return 0;
}

static double grad_of(tutti_tensor_t *x)
{
    return tutti_tensor_item(tutti_tensor_grad(x));
}

static void a_leaf_used_twice_gets_the_sum(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_backward(f->s, times(f->s, f->w, times(f->s, f->w, f->w))), 0);
    assert_true(grad_of(f->w) == 27.0);
}

static void gradients_accumulate_until_they_are_zeroed(void **state)
{
    fixture_t *f = *state;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(tutti_backward(f->s, times(f->s, f->w, f->w)), 0);
        assert_true(grad_of(f->w) == 6.0 * i);
    }
    tutti_tensor_zero_grad(f->w);
    assert_int_equal(tutti_backward(f->s, times(f->s, f->w, f->w)), 0);
    assert_true(grad_of(f->w) == 6.0);
    tutti_tensor_zero_grad(f->w);
    assert_null(tutti_tensor_grad(f->w));
}

static void a_second_backward_needs_retain_graph(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = times(f->s, f->w, f->w);
    const tutti_backward_options_t retain = {.retain_graph = true};
    assert_int_equal(tutti_backward_with(f->s, y, &retain), 0);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_true(grad_of(f->w) == 12.0);
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "times a second time"));
}

static void backward_frees_what_was_saved(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = times(f->s, f->w, f->w);
    assert_int_equal(atomic_load(&f->w->storage->ref.count), 3); /* w, and saved twice */
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_int_equal(atomic_load(&f->w->storage->ref.count), 1);
}

static void grad_of_chosen_inputs_touches_no_leaf(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *square = times(f->s, f->w, f->w);
    tutti_tensor_t *y = times(f->s, square, f->w);
    tutti_tensor_t *inputs[] = {square, f->w}, *grads[2];
    assert_int_equal(tutti_grad(f->s, y, NULL, inputs, 2, grads), 0);
    assert_true(tutti_tensor_item(grads[0]) == 3.0);
    assert_true(tutti_tensor_item(grads[1]) == 27.0);
    assert_null(tutti_tensor_grad(f->w));
}

static tutti_tensor_t *double_it(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    *(int *)user += 1;
    return times(s, grad, tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 2.0));
}

static void count_accumulation(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s;
    assert_true(grad_of(leaf) == 12.0);
    *(int *)user += 1;
}

static void hooks_change_gradients_and_see_the_sum_once(void **state)
{
    fixture_t *f = *state;
    int changed = 0, accumulated = 0;
    assert_int_equal(tutti_tensor_on_grad(f->w, double_it, &changed), 0);
    assert_int_equal(tutti_tensor_on_accumulate(f->w, count_accumulation, &accumulated), 0);
    assert_int_equal(tutti_backward(f->s, times(f->s, f->w, f->w)), 0);
    assert_int_equal(changed, 1);
    assert_int_equal(accumulated, 1);
    tutti_tensor_remove_hooks(f->w, &changed);
    tutti_tensor_remove_hooks(f->w, &accumulated);
    tutti_tensor_zero_grad(f->w);
    assert_int_equal(tutti_backward(f->s, times(f->s, f->w, f->w)), 0);
    assert_true(grad_of(f->w) == 6.0);
    assert_int_equal(changed, 1);
}

static void no_grad_records_nothing(void **state)
{
    fixture_t *f = *state;
    assert_true(tutti_context_set_grad_enabled(f->ctx, false));
    tutti_tensor_t *y = times(f->s, f->w, f->w);
    assert_false(tutti_tensor_requires_grad(y));
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_STATE);
    assert_false(tutti_context_set_grad_enabled(f->ctx, true));
}

static void writing_what_was_saved_is_an_error(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = times(f->s, f->w, f->w);
    assert_int_equal(tutti_tensor_fill(f->w, 4.0), 0);
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "it was written since"));
}

static void a_failure_passes_through_later_operations(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *a = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2)),
                   *b = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(3));
    tutti_tensor_t *y = times(f->s, times(f->s, a, b), a);
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_SHAPE);
    assert_int_equal(tutti_tensor_rank(y), 0);
    assert_null(tutti_tensor_data(y));
    assert_int_equal(tutti_scope_status(f->s), TUTTI_ERR_SHAPE);
    assert_string_equal(tutti_scope_error(f->s), "times: shapes [2] and [3] do not broadcast: "
                                                 "dimension -1 must be equal or 1");
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_SHAPE);
}

static void a_deep_graph_is_freed_without_recursion(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open_inside(f->s, &s), 0);
    tutti_tensor_t *one = tutti_ones(s, TUTTI_F32, TUTTI_SCALAR), *y = f->w;
    for (int i = 0; i < 100000; i++) {
        y = times(s, y, one);
    }
    assert_int_equal(tutti_backward(s, y), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    assert_true(grad_of(f->w) == 1.0);
}

static tutti_status_t count_end(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    *(int *)user += status == TUTTI_OK;
    return TUTTI_OK;
}

static void queue_end(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    assert_int_equal(tutti_backward_on_end(s, count_end, user), 0);
}

static void end_callbacks_run_once_after_backward(void **state)
{
    fixture_t *f = *state;
    int ends = 0;
    assert_int_equal(tutti_tensor_on_accumulate(f->w, queue_end, &ends), 0);
    assert_int_equal(tutti_backward(f->s, times(f->s, f->w, f->w)), 0);
    assert_int_equal(ends, 1);
    assert_int_equal(tutti_backward_on_end(f->s, count_end, &ends), TUTTI_ERR_STATE);
}

static void casts_carry_gradients_back(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tt_cast(f->s, times(f->s, f->w, f->w), TUTTI_F64);
    assert_int_equal(tutti_tensor_dtype(y), TUTTI_F64);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_true(grad_of(f->w) == 6.0);
    assert_int_equal(tutti_tensor_dtype(tutti_tensor_grad(f->w)), TUTTI_F32);
}

/* ---- any number of inputs -------------------------------------------------------------------- */

static tutti_status_t pile_forward(tutti_op_call_t *call)
{
    const tt_strided_t y = tt_tensor_strided(call->outputs[0]);
    tt_exec_t *exec = tt_scope_exec(call->scope);
    TT_TRY(tt_fill(exec, &y, 0));
    for (int i = 0; i < call->input_count; i++) {
        const tt_strided_t x = tt_tensor_strided(call->inputs[i]);
        TT_TRY(tt_map_binary(exec, TT_BINARY_ADD, (tt_map_params_t){0}, &y, &y, &x));
    }
    return TUTTI_OK;
}

static tutti_status_t pile_backward(tutti_op_backward_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        call->grads[i] = call->wanted[i] ? call->grad_outputs[0] : NULL;
    }
    return TUTTI_OK;
}

/* y = Σ x */
static const tutti_op_t op_pile = {.name = "pile",
                                   .about = "y = sum of all inputs",
                                   .autocast = TUTTI_OP_AUTOCAST_LOW,
                                   .infer = tutti_op_infer_broadcast,
                                   .forward = pile_forward,
                                   .backward = pile_backward};

enum { SOME = 40, MANY = 300 }; /* both need memory from the heap */

static void run_pile(fixture_t *f, tutti_dtype_t autocast)
{
    tutti_tensor_t *all[MANY];
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SCALAR, &all[i]), 0);
        assert_int_equal(tutti_tensor_fill(all[i], 1), 0);
        assert_int_equal(tutti_tensor_set_requires_grad(all[i], i % 3 > 0), 0);
    }
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    (void)tutti_context_set_autocast(f->ctx, autocast);
    for (int k = 1; k <= 2; k++) {
        tutti_tensor_t *y = tutti_op_run(s, &op_pile, all, MANY, NULL);
        assert_int_equal(tutti_backward(s, y), 0);
        assert_true(tutti_tensor_item(y) == (autocast == TUTTI_F32 ? MANY : 256));
        for (int i = 0; i < MANY; i++) {
            assert_true((tutti_tensor_grad(all[i]) != NULL) == (i % 3 > 0));
            assert_true(i % 3 == 0 || grad_of(all[i]) == k);
        }
    }
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
    assert_int_equal(tutti_scope_close(s), 0);
    for (int i = 0; i < MANY; i++) {
        tutti_tensor_release(all[i]);
    }
}

static void an_operation_takes_any_number_of_inputs(void **state)
{
    run_pile(*state, TUTTI_F32);
    run_pile(*state, TUTTI_BF16); /* 256 + 1 is 256 there */
}

static void no_memory_for_many_inputs_is_a_status(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    tutti_tensor_t *all[SOME];
    for (int i = 0; i < SOME; i++) {
        all[i] = f->w;
    }
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        (void)tutti_context_set_autocast(f->ctx, TUTTI_BF16);
        tt_alloc_fail_at(nth);
        (void)tutti_backward(s, tutti_op_run(s, &op_pile, all, SOME, NULL));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
        assert_int_equal(tutti_scope_close(s), has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_leaf_used_twice_gets_the_sum),
        T(gradients_accumulate_until_they_are_zeroed),
        T(a_second_backward_needs_retain_graph),
        T(backward_frees_what_was_saved),
        T(grad_of_chosen_inputs_touches_no_leaf),
        T(hooks_change_gradients_and_see_the_sum_once),
        T(no_grad_records_nothing),
        T(writing_what_was_saved_is_an_error),
        T(a_failure_passes_through_later_operations),
        T(a_deep_graph_is_freed_without_recursion),
        T(end_callbacks_run_once_after_backward),
        T(casts_carry_gradients_back),
        T(an_operation_takes_any_number_of_inputs),
        T(no_memory_for_many_inputs_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
