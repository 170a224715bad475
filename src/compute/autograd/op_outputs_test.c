/* Outputs that an operation of one's own makes: views of inputs, and inputs changed in place. */
#include "compute/autograd/op_testing.h"

/* ---- outputs that the forward makes ---------------------------------------------------------- */

static tutti_status_t flip_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 0, tutti_transpose(call->scope, call->inputs[0], 0, 1));
}

static tutti_status_t flip_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_shape_t shape = tutti_tensor_shape(call->inputs[0]);
    outputs[0] = (tutti_spec_t){tutti_tensor_dtype(call->inputs[0]),
                                TUTTI_SHAPE(shape.dims[1], shape.dims[0])};
    return TUTTI_OK;
}

static tutti_status_t flip_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_transpose(call->scope, call->grad_outputs[0], 0, 1);
    return TUTTI_OK;
}

static const tutti_op_t flip = {.name = "flip",
                                .makes_outputs = true,
                                .infer = flip_infer,
                                .forward = flip_forward,
                                .backward = flip_backward};

static void an_output_may_be_a_view(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_arange(f->s, TUTTI_F32, 0, 1, 6);
    x = tutti_reshape(f->s, x, TUTTI_SHAPE(2, 3));
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *y = tutti_op_run(f->s, &flip, &x, 1, NULL);
    assert_ptr_equal(tutti_tensor_device_data(y), tutti_tensor_device_data(x));
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_mul(f->s, y, y));
    assert_int_equal(tutti_backward(f->s, loss), 0);
    assert_true(tutti_tensor_at(tutti_tensor_grad(x), 5) == 10);
}

/* ---- changes in place ------------------------------------------------------------------------ */

static tutti_status_t triple_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    return tutti_op_infer_same(call, outputs);
}

static tutti_status_t triple_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *x = call->inputs[0];
    TT_TRY(tutti_op_mark_dirty(call, 0, 0));
    return tutti_tensor_copy(x, tutti_mul_scalar(call->scope, x, 3));
}

static tutti_status_t triple_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_mul_scalar(call->scope, call->grad_outputs[0], 3);
    return TUTTI_OK;
}

static const tutti_op_t triple = {.name = "triple_",
                                  .makes_outputs = true,
                                  .infer = triple_infer,
                                  .forward = triple_forward,
                                  .backward = triple_backward};

static tutti_tensor_t *run_triple(fixture_t *f, tutti_tensor_t *x)
{
    return tutti_op_run(f->s, &triple, &x, 1, NULL);
}

/* The scope's failure, and a new scope. */
static void expect_failure(fixture_t *f, tutti_status_t status, const char *text)
{
    assert_int_equal(tutti_scope_close(f->s), status);
    tt_expect_error(text);
    assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
}

static void a_change_in_place_has_a_place_in_the_graph(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_add(f->s, f->x, f->x);
    tutti_tensor_t *y = run_triple(f, h);
    assert_ptr_equal(y, h);
    expect_values(h, 12, 18);
    y = run_triple(f, h); /* twice, and used before and behind */
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul(f->s, h, h))), 0);
    expect_values(tutti_tensor_grad(f->x), 2 * 18 * 18 * 2, 2 * 18 * 18 * 3);
    (void)y;
}

/* A tensor that needs no gradient takes one from another input. */
static tutti_status_t put_forward(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_mark_dirty(call, 0, 0));
    return tutti_tensor_copy(call->inputs[0], call->inputs[1]);
}

static tutti_status_t put_backward(tutti_op_backward_t *call)
{
    call->grads[1] = call->grad_outputs[0];
    return TUTTI_OK;
}

static const tutti_op_t put = {.name = "put_",
                               .input_count = 2,
                               .makes_outputs = true,
                               .infer = tutti_op_infer_same,
                               .forward = put_forward,
                               .backward = put_backward};

static void a_plain_tensor_becomes_a_result_when_it_is_changed(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *buffer = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2));
    tutti_tensor_t *y = tutti_op_run(f->s, &put, (tutti_tensor_t *[]){buffer, f->x}, 2, NULL);
    assert_ptr_equal(y, buffer);
    assert_true(tutti_tensor_requires_grad(buffer));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_mul_scalar(f->s, buffer, 5))), 0);
    expect_values(tutti_tensor_grad(f->x), 5, 5);
}

static void leaves_and_their_views_are_not_changed_while_recording(void **state)
{
    fixture_t *f = *state;
    assert_true(tutti_tensor_status(run_triple(f, f->x)) < 0);
    expect_failure(f, TUTTI_ERR_STATE, "triple_: input 0 is a leaf that needs a gradient");
    tutti_tensor_t *view =
        tutti_reshape(f->s, tutti_reshape(f->s, f->x, TUTTI_SHAPE(2, 1)), TUTTI_SHAPE(1, 2));
    (void)run_triple(f, view);
    expect_failure(f, TUTTI_ERR_STATE, "triple_: input 0 is a view of a leaf that needs a grad");
    expect_values(f->x, 2, 3);
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    assert_int_equal(tutti_tensor_status(run_triple(f, f->x)), 0);
    (void)tutti_context_set_grad_enabled(f->ctx, true);
    expect_values(f->x, 6, 9);
}

static void what_was_saved_before_a_change_fails_backward(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_add(f->s, f->x, f->x);
    tutti_tensor_t *square = tutti_mul(f->s, h, h);
    (void)run_triple(f, h);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, square)), TUTTI_ERR_STATE);
    expect_failure(f, TUTTI_ERR_STATE, "mul needs f32[2] for its gradient, but it was written");
}

static void views_of_what_was_changed_have_no_place(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_add(f->s, f->x, f->x);
    tutti_tensor_t *view = tutti_reshape(f->s, h, TUTTI_SHAPE(1, 2));
    (void)run_triple(f, h);
    (void)tutti_mul_scalar(f->s, view, 2);
    expect_failure(f, TUTTI_ERR_STATE, "mul_scalar: input 0 shares memory with a tensor that");
    h = tutti_add(f->s, f->x, f->x);
    (void)run_triple(f, tutti_reshape(f->s, h, TUTTI_SHAPE(1, 2)));
    (void)tutti_mul_scalar(f->s, h, 2);
    expect_failure(f, TUTTI_ERR_STATE, "mul_scalar: input 0 shares memory with a tensor that");
}

/* Of which no operation is recorded: a constant would lose the gradients of what was put there. */
static void memory_that_was_changed_through_a_view_has_no_place(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *buffer;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2, 2), &buffer), 0);
    tutti_tensor_t *row = tutti_select(f->s, buffer, 0, 1);
    row = tutti_op_run(f->s, &put, (tutti_tensor_t *[]){row, f->x}, 2, NULL);
    assert_true(tutti_tensor_requires_grad(row));
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    assert_true(tutti_tensor_item(tutti_sum(f->s, buffer)) == 5);
    (void)tutti_context_set_grad_enabled(f->ctx, true);
    assert_true(tutti_tensor_item(tutti_sum(f->s, tutti_detach(f->s, buffer))) == 5);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, row)), 0);
    expect_values(tutti_tensor_grad(f->x), 1, 1);
    (void)tutti_mul(f->s, buffer, f->x);
    expect_failure(f, TUTTI_ERR_STATE, "mul: input 0 shares memory with a tensor that");
    (void)tutti_sum(f->s, buffer);
    expect_failure(f, TUTTI_ERR_STATE, "sum: input 0 shares memory with a tensor that");
    tutti_tensor_release(buffer);
}

static void a_change_without_gradient_is_refused(void **state)
{
    fixture_t *f = *state;
    tutti_op_t own = triple;
    own.backward = NULL;
    tutti_tensor_t *h = tutti_add(f->s, f->x, f->x);
    (void)tutti_op_run(f->s, &own, &h, 1, NULL);
    expect_failure(f, TUTTI_ERR_STATE, "input 0 needs a gradient, and the change has none");
}

static void a_copy_of_autocast_is_not_changed(void **state)
{
    fixture_t *f = *state;
    tutti_op_t own = triple;
    own.autocast = TUTTI_OP_AUTOCAST_LOW;
    tutti_tensor_t *h = tutti_add(f->s, f->x, f->x);
    (void)tutti_context_set_autocast(f->ctx, TUTTI_BF16);
    (void)tutti_op_run(f->s, &own, &h, 1, NULL);
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
    expect_failure(f, TUTTI_ERR_STATE, "input 0 is a copy that autocast made");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_output_may_be_a_view),
        T(a_change_in_place_has_a_place_in_the_graph),
        T(a_plain_tensor_becomes_a_result_when_it_is_changed),
        T(leaves_and_their_views_are_not_changed_while_recording),
        T(what_was_saved_before_a_change_fails_backward),
        T(views_of_what_was_changed_have_no_place),
        T(memory_that_was_changed_through_a_view_has_no_place),
        T(a_change_without_gradient_is_refused),
        T(a_copy_of_autocast_is_not_changed),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
