/* Hooks of modules: when they are called, with what, what they may change, and how they fail. */
#include "core/tensor/device_testing.h"

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

enum { WIDE_MAX = 30 };

/* outputs: w inputs[0], then the others as they are */
typedef struct {
    tutti_tensor_t *w;
    int forwards;
} scale_t;

static tutti_status_t scale_init(tutti_module_t *m, const void *options)
{
    (void)options;
    scale_t *scale = tutti_module_state(m);
    return tutti_module_new_parameter(m, "w", TUTTI_SHAPE(2),
                                      (tutti_init_t){TUTTI_INIT_CONSTANT, 3, 0}, &scale->w);
}

static void scale_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                          int input_count, tutti_tensor_t **outputs, int output_count)
{
    scale_t *scale = tutti_module_state(m);
    scale->forwards++;
    outputs[0] = tutti_mul(s, inputs[0], scale->w);
    for (int i = 1; i < output_count; i++) {
        outputs[i] = i < input_count ? inputs[i] : outputs[0];
    }
}

static const tutti_module_ops_t scale_ops = {.name = "scale",
                                             .about = "w x",
                                             .state_bytes = sizeof(scale_t),
                                             .init = scale_init,
                                             .forward_many = scale_forward};

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *m;
    tutti_tensor_t *x; /* [2] of ones, a leaf */
    char seen[256];    /* what has been called */
    double value;      /* element 0 of the last gradient that a hook of backward saw */
    bool fails;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){0};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    assert_int_equal(tutti_module_create(f.ctx, &scale_ops, NULL, &f.m), 0);
    f.x = tutti_ones(f.s, TUTTI_F32, TUTTI_SHAPE(2));
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_module_release(f->m);
    tutti_context_release(f->ctx);
    return 0;
}

static tutti_status_t note(fixture_t *f, const char *what)
{
    const size_t used = strlen(f->seen);
    snprintf(f->seen + used, sizeof f->seen - used, "%s ", what);
    return f->fails ? TT_FAIL(TUTTI_ERR_STATE, "%s does not like it", what) : TUTTI_OK;
}

static tutti_status_t note_before(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    assert_null(call->outputs);
    return note(user, "before");
}

static tutti_status_t note_after(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    assert_non_null(call->inputs[0]);
    assert_non_null(call->outputs[0]);
    return note(user, "after");
}

static tutti_status_t note_back(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    assert_null(call->inputs);
    ((fixture_t *)user)->value = tutti_tensor_at(call->outputs[0], 0);
    return note(user, "back");
}

static tutti_status_t note_backed(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    assert_null(call->outputs);
    if (call->inputs[0] == NULL) {
        assert_int_equal(call->input_count, 1);
        return note(user, "through");
    }
    ((fixture_t *)user)->value = tutti_tensor_at(call->inputs[0], 0);
    return note(user, "backed");
}

static const tutti_module_hooks_t notes = {.before_forward = note_before,
                                           .after_forward = note_after,
                                           .before_backward = note_back,
                                           .after_backward = note_backed};

static void expect_all(tutti_tensor_t *x, double value)
{
    assert_non_null(x);
    assert_true(tutti_tensor_at(x, 0) == value && tutti_tensor_at(x, 1) == value);
}

static tutti_tensor_t *grad_of_w(fixture_t *f)
{
    return tutti_tensor_grad(tutti_module_find(f->m, "w"));
}

static void hooks_are_called_around_forward_and_backward(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    tutti_tensor_t *y = tutti_forward(f->s, f->m, f->x);
    expect_all(y, 3);
    assert_string_equal(f->seen, "before after ");
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    assert_string_equal(f->seen, "before after back backed ");
    expect_all(tutti_tensor_grad(f->x), 3);
    expect_all(grad_of_w(f), 1);
    tutti_module_remove_hooks(f->m, f);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_forward(f->s, f->m, f->x))), 0);
    assert_string_equal(f->seen, "before after back backed ");
}

static void hooks_of_backward_see_sums(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    tutti_tensor_t *y[2]; /* the same tensor, twice */
    tutti_forward_many(f->s, f->m, &f->x, 1, y, 2);
    tutti_tensor_t *total = tutti_add(f->s, tutti_mul_scalar(f->s, y[0], 2), y[0]);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, total)), 0);
    assert_string_equal(f->seen, "before after back backed ");
    expect_all(tutti_tensor_grad(f->x), 9);
    assert_true(f->value == 9);
}

static tutti_status_t double_inputs(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)user;
    call->inputs[0] = tutti_mul_scalar(s, call->inputs[0], 2);
    return TUTTI_OK;
}

static tutti_status_t double_outputs(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)user;
    call->outputs[0] = tutti_mul_scalar(s, call->outputs[0], 2);
    return TUTTI_OK;
}

static void hooks_may_change_what_they_see(void **state)
{
    fixture_t *f = *state;
    const tutti_module_hooks_t doubling = {.before_forward = double_inputs,
                                           .after_forward = double_outputs,
                                           .before_backward = double_outputs,
                                           .after_backward = double_inputs};
    assert_int_equal(tutti_module_add_hooks(f->m, &doubling, NULL), 0);
    tutti_tensor_t *y = tutti_forward(f->s, f->m, f->x);
    expect_all(y, 12);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    expect_all(grad_of_w(f), 8);             /* 1, doubled twice behind, and 2 x */
    expect_all(tutti_tensor_grad(f->x), 48); /* 4 · 3, doubled in front, and 2 */
    expect_all(f->x, 1);                     /* the caller's array is as it was, too */
}

static tutti_status_t remove_all(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    tutti_module_remove_hooks(call->module, user);
    return note(user, "removed");
}

static void a_hook_may_remove_itself_and_those_behind_it(void **state)
{
    fixture_t *f = *state;
    const tutti_module_hooks_t removing = {.before_forward = remove_all};
    assert_int_equal(tutti_module_add_hooks(f->m, &removing, f), 0);
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    for (int i = 0; i < 2; i++) {
        (void)tutti_forward(f->s, f->m, f->x);
        assert_string_equal(f->seen, "removed ");
    }
}

static tutti_status_t come_again(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    fixture_t *f = user;
    const tutti_module_hooks_t again = {.before_forward = come_again};
    TT_TRY(remove_all(s, call, user));
    return strlen(f->seen) > 80 ? TUTTI_OK : tutti_module_add_hooks(call->module, &again, user);
}

static void a_hook_that_adds_itself_again_runs_once_for_each_forward(void **state)
{
    fixture_t *f = *state;
    const tutti_module_hooks_t again = {.before_forward = come_again};
    assert_int_equal(tutti_module_add_hooks(f->m, &again, f), 0);
    (void)tutti_forward(f->s, f->m, f->x);
    assert_string_equal(f->seen, "removed ");
    (void)tutti_forward(f->s, f->m, f->x);
    assert_string_equal(f->seen, "removed removed ");
}

static void a_hook_that_fails_ends_forward(void **state)
{
    fixture_t *f = *state;
    f->fails = true;
    const tutti_module_hooks_t halves[] = {{.before_forward = note_before},
                                           {.after_forward = note_after}};
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_module_add_hooks(f->m, &halves[i], f), 0);
        tutti_tensor_t *y = tutti_forward(s, f->m, f->x);
        assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_STATE);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_STATE);
        tt_expect_error(i == 0 ? "before does not like it (in scale)"
                               : "after does not like it (in scale)");
        tutti_module_remove_hooks(f->m, f);
        assert_int_equal(((scale_t *)tutti_module_state(f->m))->forwards, i);
    }
}

static tutti_status_t clean_up(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    assert_int_equal(call->output_count, 1);
    assert_true(tutti_scope_status(s) < 0 || tutti_tensor_status(call->outputs[0]) >= 0);
    return note(user, tutti_scope_status(s) < 0 ? "cleaned" : "done");
}

/* Where the forward fails, a hook before it, one before that, or one behind it; and where none. */
static void a_hook_that_is_always_called_sees_failures(void **state)
{
    fixture_t *f = *state;
    const tutti_module_hooks_t cleaning = {.after_forward = clean_up, .always_call = true},
                               failing[] = {{.before_forward = note_before},
                                            {.after_forward = note_after},
                                            {.before_forward = note_before},
                                            {.after_forward = note_after}};
    static const char *const want[] = {"before cleaned ", "after cleaned ", "before done ",
                                       "done after ", "cleaned "};
    for (int i = 0; i < 5; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        f->seen[0] = 0;
        f->fails = i < 2;
        tutti_tensor_t *x = i == 4 ? tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3)) : f->x;
        if (i < 2) {
            assert_int_equal(tutti_module_add_hooks(f->m, &failing[i], f), 0);
        }
        assert_int_equal(tutti_module_add_hooks(f->m, &cleaning, f), 0);
        if (i == 2 || i == 3) {
            assert_int_equal(tutti_module_add_hooks(f->m, &failing[i], f), 0);
        }
        (void)tutti_forward(s, f->m, x);
        assert_string_equal(f->seen, want[i]);
        const tutti_status_t status = i < 2 ? TUTTI_ERR_STATE : i == 4 ? TUTTI_ERR_SHAPE : TUTTI_OK;
        assert_int_equal(tutti_scope_close(s), status);
        if (i < 2) { /* the first failure is the one that is reported */
            tt_expect_error(i == 0 ? "before does not like it" : "after does not like it");
        }
        tutti_module_remove_hooks(f->m, f);
    }
}

static void a_hook_that_fails_ends_backward(void **state)
{
    fixture_t *f = *state;
    const tutti_module_hooks_t halves[] = {{.before_backward = note_back},
                                           {.after_backward = note_backed}};
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_module_add_hooks(f->m, &halves[i], f), 0);
        tutti_tensor_t *y = tutti_forward(s, f->m, f->x);
        f->fails = true;
        assert_int_equal(tutti_backward(s, tutti_sum(s, y)), TUTTI_ERR_STATE);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_STATE);
        tt_expect_error(i == 0 ? "back does not like it" : "backed does not like it");
        assert_null(tutti_tensor_grad(f->x));
        tutti_module_remove_hooks(f->m, f);
        f->fails = false;
    }
}

static void a_graph_holds_the_module_whose_hooks_it_calls(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    tutti_tensor_t *y = tutti_sum(f->s, tutti_forward(f->s, f->m, f->x));
    tutti_module_release(f->m);
    f->m = NULL;
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_string_equal(f->seen, "before after back backed ");
    expect_all(tutti_tensor_grad(f->x), 3);
}

typedef struct {
    tutti_tensor_t *loss;
    int calls;
    tutti_status_t status;
} taking_t;

static tutti_status_t take_the_graph(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    taking_t *taking = user;
    if (taking->calls++ == 0) {
        taking->status = tutti_backward(s, taking->loss);
    }
    assert_true(tt_ref_is_unique(&call->module->ref)); /* the graph's, and still there */
    return TUTTI_OK;
}

/* The node whose hook runs is one of those that the other backward has freed. */
static void a_hook_may_run_the_graph_that_it_belongs_to(void **state)
{
    fixture_t *f = *state;
    taking_t taking = {0};
    const tutti_module_hooks_t hooks = {.before_backward = take_the_graph};
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_module_add_hooks(f->m, &hooks, &taking), 0);
    tutti_tensor_t *plain = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
    taking.loss = tutti_sum(s, tutti_forward(s, f->m, plain));
    tutti_module_release(f->m);
    f->m = NULL;
    const tutti_backward_options_t retain = {.retain_graph = true};
    assert_int_equal(tutti_backward_with(s, taking.loss, &retain), TUTTI_ERR_STATE);
    assert_int_equal(taking.status, TUTTI_OK);
    assert_int_equal(taking.calls, 2);
    tt_expect_error("backward through mul a second time");
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_STATE);
}

static void recomputation_calls_them_again(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    tutti_tensor_t *y = tutti_recompute(f->s, f->m, f->x);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    assert_string_equal(f->seen, "before after before after back backed ");
    expect_all(tutti_tensor_grad(f->x), 3);
    assert_int_equal(((scale_t *)tutti_module_state(f->m))->forwards, 2);
}

static void a_gradient_has_the_dtype_of_what_was_cast_since(void **state)
{
    fixture_t *f = *state;
    for (int i = 0; i < 2; i++) { /* taken over, and added */
        tutti_tensor_t *y = tutti_sum(f->s, tutti_forward(f->s, f->m, f->x));
        assert_int_equal(tutti_module_cast(f->m, i == 0 ? TUTTI_BF16 : TUTTI_F64), 0);
        assert_int_equal(tutti_backward(f->s, y), 0);
        assert_int_equal(tutti_tensor_dtype(grad_of_w(f)), i == 0 ? TUTTI_BF16 : TUTTI_F64);
        expect_all(grad_of_w(f), 1);
    }
}

static void where_nothing_is_recorded_backward_has_no_hooks(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    assert_false(tutti_tensor_requires_grad(tutti_forward(f->s, f->m, f->x)));
    (void)tutti_context_set_grad_enabled(f->ctx, true);
    /* an input that needs no gradient: the hooks behind backward see none */
    tutti_tensor_t *plain = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_forward(f->s, f->m, plain))), 0);
    assert_string_equal(f->seen, "before after before after back through ");
    expect_all(grad_of_w(f), 1);
}

static void any_number_of_tensors_is_watched(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *in[WIDE_MAX], *out[WIDE_MAX];
    assert_int_equal(tutti_module_add_hooks(f->m, &notes, f), 0);
    for (int i = 0; i < WIDE_MAX; i++) { /* some that need gradients, and some that do not */
        in[i] = i % 3 < 2 ? f->x : tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2));
    }
    tutti_forward_many(f->s, f->m, in, WIDE_MAX, out, WIDE_MAX);
    tutti_tensor_t *sum = tutti_add(f->s, out[0], out[WIDE_MAX - 2]);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, sum)), 0);
    expect_all(tutti_tensor_grad(f->x), 4);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tt_alloc_fail_at(nth);
        if (tutti_module_add_hooks(f->m, &notes, f) < 0) {
            (void)tutti_scope_fail(s, TUTTI_ERR_NOMEM);
        }
        tutti_tensor_t *y = tutti_forward(s, f->m, f->x);
        (void)tutti_backward(s, tutti_sum(s, y));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_module_remove_hooks(f->m, f);
        f->seen[0] = 0;
        assert_int_equal(tutti_scope_close(s), has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(hooks_are_called_around_forward_and_backward),
        T(hooks_of_backward_see_sums),
        T(hooks_may_change_what_they_see),
        T(a_hook_may_remove_itself_and_those_behind_it),
        T(a_hook_that_adds_itself_again_runs_once_for_each_forward),
        T(a_hook_that_fails_ends_forward),
        T(a_hook_that_is_always_called_sees_failures),
        T(a_hook_that_fails_ends_backward),
        T(a_graph_holds_the_module_whose_hooks_it_calls),
        T(a_hook_may_run_the_graph_that_it_belongs_to),
        T(recomputation_calls_them_again),
        T(a_gradient_has_the_dtype_of_what_was_cast_since),
        T(where_nothing_is_recorded_backward_has_no_hooks),
        T(any_number_of_tensors_is_watched),
        T(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
