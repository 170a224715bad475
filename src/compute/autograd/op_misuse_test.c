/* Operations of one's own that do it wrong: an error that names the operation, and nothing is left
 * behind. */
#include <tutti/tutti.h>

#include "core/tensor/device_testing.h"

static tutti_context_t *ctx;

static int setup(void **state)
{
    (void)state;
    return tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    tutti_context_release(ctx);
    return 0;
}

/* ---- functions of tables --------------------------------------------------------------------- */

static tutti_status_t copy_forward(tutti_op_call_t *call)
{
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

static tutti_status_t pass_backward(tutti_op_backward_t *call)
{
    call->grads[0] = call->grad_outputs[0];
    return TUTTI_OK;
}

static void touch_params(const void *params)
{
    (void)params;
}

static tutti_status_t negative_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    (void)call;
    outputs[0] = (tutti_spec_t){TUTTI_F32, TUTTI_SHAPE(-1)};
    return TUTTI_OK;
}

static tutti_status_t strange_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    (void)call;
    outputs[0] = (tutti_spec_t){(tutti_dtype_t)77, {.rank = 99}};
    return TUTTI_OK;
}

static tutti_status_t refuse_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    (void)outputs;
    return tutti_op_fail(call, TUTTI_ERR_SHAPE, "want a cube");
}

static tutti_status_t half_forward(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_save(call, tutti_mul(call->scope, call->inputs[0], call->inputs[0])));
    return tutti_op_fail(call, TUTTI_ERR_ARG, "half way");
}

/* Its own failure is one of an operation that it calls, and it does not look. */
static tutti_status_t careless_forward(tutti_op_call_t *call)
{
    (void)tutti_reshape(call->scope, call->inputs[0], TUTTI_SHAPE(3));
    return TUTTI_OK;
}

static tutti_status_t careless_save_forward(tutti_op_call_t *call)
{
    return tutti_op_save(call, tutti_reshape(call->scope, call->inputs[0], TUTTI_SHAPE(3)));
}

static tutti_status_t idle_forward(tutti_op_call_t *call)
{
    (void)call;
    return TUTTI_OK;
}

static tutti_status_t input_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 0, call->inputs[0]);
}

static tutti_status_t twice_forward(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_set_output(call, 0, call->inputs[0]));
    return tutti_op_set_output(call, 0, call->inputs[0]);
}

static tutti_status_t other_shape_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 0, tutti_unsqueeze(call->scope, call->inputs[0], 0));
}

static tutti_status_t other_dtype_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 0, tutti_cast(call->scope, call->inputs[0], TUTTI_F64));
}

static tutti_status_t no_tensor_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 0, NULL);
}

static tutti_status_t outside_forward(tutti_op_call_t *call)
{
    return tutti_op_set_output(call, 1, call->inputs[0]);
}

static tutti_status_t constant_outside_forward(tutti_op_call_t *call)
{
    assert_false(tutti_op_needs_grad(call, -1) || tutti_op_needs_grad(call, 1));
    return tutti_op_mark_constant(call, -1);
}

static tutti_status_t dirty_outside_forward(tutti_op_call_t *call)
{
    return tutti_op_mark_dirty(call, 1, 0);
}

static tutti_status_t dirty_forward(tutti_op_call_t *call)
{
    return tutti_op_mark_dirty(call, 0, 0);
}

/* ---- calls that cannot be -------------------------------------------------------------------- */

typedef struct {
    tutti_op_t op;
    tutti_status_t status;
    const char *text;
} wrong_t;

#define GOOD .name = "mine", .infer = tutti_op_infer_same, .forward = copy_forward
#define MAKES .name = "mine", .infer = tutti_op_infer_same, .makes_outputs = true

static const wrong_t wrongs[] = {
    {{.infer = tutti_op_infer_same, .forward = copy_forward},
     TUTTI_ERR_ARG,
     "an operation without a name"},
    {{.name = "mine", .forward = copy_forward}, TUTTI_ERR_ARG, "mine: its table has no infer"},
    {{.name = "mine", .infer = tutti_op_infer_same},
     TUTTI_ERR_ARG,
     "mine: its table has no forward"},
    {{GOOD, .retain_params = touch_params}, TUTTI_ERR_ARG, "mine: its table has no release_params"},
    {{GOOD, .release_params = touch_params}, TUTTI_ERR_ARG, "mine: its table has no retain_params"},
    {{GOOD, .params_bytes = 8}, TUTTI_ERR_ARG, "mine: params is NULL"},
    {{GOOD, .input_count = 2}, TUTTI_ERR_ARG, "mine: 1 inputs, but it has 2"},
    {{GOOD, .output_count = 2}, TUTTI_ERR_ARG, "mine: 1 outputs, but it has 2"},
    {{.name = "mine", .infer = negative_infer, .forward = copy_forward},
     TUTTI_ERR_ARG,
     "mine: output 0: shape [-1]: dimension 0 is negative: f32[2]"},
    {{.name = "mine", .infer = strange_infer, .forward = copy_forward},
     TUTTI_ERR_DTYPE,
     "mine: output 0: "},
    {{.name = "mine", .infer = refuse_infer, .forward = copy_forward},
     TUTTI_ERR_SHAPE,
     "mine: want a cube: f32[2]"},
    {{.name = "mine",
      .infer = tutti_op_infer_same,
      .forward = half_forward,
      .backward = pass_backward},
     TUTTI_ERR_ARG,
     "mine: half way: f32[2]"},
    {{.name = "mine", .infer = tutti_op_infer_same, .forward = careless_forward},
     TUTTI_ERR_SHAPE,
     "reshape: "},
    {{.name = "mine",
      .infer = tutti_op_infer_same,
      .forward = careless_save_forward,
      .backward = pass_backward},
     TUTTI_ERR_SHAPE,
     "reshape: "},
    {{.name = "mine", .infer = tutti_op_infer_same, .forward = input_forward},
     TUTTI_ERR_STATE,
     "mine: output 0 is made for it: fill it, or set makes_outputs"},
    {{.name = "mine", .infer = tutti_op_infer_same, .forward = dirty_forward},
     TUTTI_ERR_STATE,
     "mine: output 0 is made for it"},
    {{.name = "mine", .infer = tutti_op_infer_same, .forward = constant_outside_forward},
     TUTTI_ERR_ARG,
     "mine: there is no output -1"},
    {{MAKES, .forward = idle_forward}, TUTTI_ERR_STATE, "mine: forward made no output 0"},
    {{MAKES, .forward = twice_forward}, TUTTI_ERR_ARG, "mine: output 0 is made twice"},
    {{MAKES, .forward = no_tensor_forward}, TUTTI_ERR_ARG, "mine: output 0 is NULL"},
    {{MAKES, .forward = outside_forward}, TUTTI_ERR_ARG, "mine: there is no output 1"},
    {{MAKES, .forward = dirty_outside_forward}, TUTTI_ERR_ARG, "mine: there is no input 1"},
    {{MAKES, .forward = other_shape_forward},
     TUTTI_ERR_SHAPE,
     "mine: output 0 is f32[1, 2], and infer said f32[2]"},
    {{MAKES, .forward = other_dtype_forward},
     TUTTI_ERR_DTYPE,
     "mine: output 0 is f64[2], and infer said f32[2]"},
};

static void wrong_tables_and_forwards_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        for (int needs_grad = 0; needs_grad < 2; needs_grad++) {
            tutti_scope_t *s;
            assert_int_equal(tutti_scope_open(ctx, &s), 0);
            tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
            assert_int_equal(tutti_tensor_set_requires_grad(x, needs_grad), 0);
            tutti_tensor_t *y = tutti_op_run(s, &wrongs[i].op, &x, 1, NULL);
            assert_int_equal(tutti_tensor_status(y), wrongs[i].status);
            assert_int_equal(tutti_scope_close(s), wrongs[i].status);
            tt_expect_error(wrongs[i].text);
        }
    }
}

static const tutti_op_t good = {GOOD, .backward = pass_backward};

static void expect_call(const tutti_op_t *op, tutti_tensor_t *const *inputs, int input_count,
                        int output_count, const char *text)
{
    tutti_scope_t *s;
    tutti_tensor_t *y[8] = {0};
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_op_run_many(s, op, inputs, input_count, NULL, y, output_count);
    for (int i = 0; i < output_count; i++) {
        assert_int_equal(tutti_tensor_status(y[i]), TUTTI_ERR_ARG);
    }
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tt_expect_error(text);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    tutti_tensor_t *x, *none = NULL;
    tutti_op_t any = good;
    any.output_count = TUTTI_OP_ANY;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2), &x), 0);
    expect_call(NULL, &x, 1, 1, "op_run: op is NULL");
    expect_call(&good, NULL, 1, 1, "mine: 1 inputs, and inputs is NULL");
    expect_call(&good, &x, -1, 1, "mine: -1 inputs");
    expect_call(&good, &none, 1, 1,
                "mine: input 0 is NULL; a batch has no tensors when its epoch is over");
    expect_call(&good, NULL, 0, 1, "mine: want a first input");
    expect_call(&good, &x, 1, 5, "mine: 5 outputs, but it has 1");
    expect_call(&good, &x, 1, 0, "mine: 0 outputs, but it has 1");
    expect_call(&any, &x, 1, 0, "mine: 0 outputs: want at least one");
    expect_call(&any, &x, 1, -3, "mine: -3 outputs: want at least one");
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_op_run_many(s, &good, &x, 1, NULL, NULL, 1);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tt_expect_error("mine: outputs is NULL");
    tutti_tensor_release(x);
}

/* ---- backwards that cannot be ---------------------------------------------------------------- */

static tutti_status_t long_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_ones(call->scope, TUTTI_F32, TUTTI_SHAPE(3));
    return TUTTI_OK;
}

static tutti_status_t integer_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_ones(call->scope, TUTTI_I64, TUTTI_SHAPE(2));
    return TUTTI_OK;
}

static tutti_status_t failing_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_ones(call->scope, TUTTI_F32, TUTTI_SHAPE(2));
    return tutti_fail(TUTTI_ERR_ARG, "no way back");
}

static tutti_status_t careless_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_reshape(call->scope, call->grad_outputs[0], TUTTI_SHAPE(3));
    return TUTTI_OK;
}

static tutti_status_t sum_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_sum_to(call->scope, call->grad_outputs[0], TUTTI_SHAPE(5, 7, 3));
    return TUTTI_OK;
}

static tutti_status_t no_sum_backward(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_sum_to(call->scope, NULL, TUTTI_SHAPE(2));
    return TUTTI_OK;
}

static void wrong_gradients_are_named(void **state)
{
    (void)state;
    static const struct {
        tutti_status_t (*backward)(tutti_op_backward_t *call);
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {long_backward, TUTTI_ERR_SHAPE, "mine gave input 0 of shape [2] a gradient of shape [3]"},
        {integer_backward, TUTTI_ERR_DTYPE, "mine gave input 0 a gradient of dtype i64"},
        {failing_backward, TUTTI_ERR_ARG, "no way back"},
        {careless_backward, TUTTI_ERR_SHAPE, "reshape: "},
        {sum_backward, TUTTI_ERR_SHAPE,
         "sum_to: the shape [5, 7, 3] does not broadcast to it: f32[2]"},
        {no_sum_backward, TUTTI_ERR_ARG, "sum_to: input 0 is NULL; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_scope_t *s;
        tutti_op_t own = good;
        own.backward = cases[i].backward;
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        tutti_tensor_t *y = tutti_op_run(s, &own, &x, 1, NULL);
        assert_int_equal(tutti_backward(s, tutti_sum(s, y)), cases[i].status);
        assert_null(tutti_tensor_grad(x));
        assert_int_equal(tutti_scope_close(s), cases[i].status);
        tt_expect_error(cases[i].text);
    }
}

/* What was saved may be given as the gradient: the leaf gets a copy. */
static tutti_status_t keep_forward(tutti_op_call_t *call)
{
    TT_TRY(copy_forward(call));
    return tutti_op_save(call, call->inputs[0]);
}

static tutti_status_t saved_backward(tutti_op_backward_t *call)
{
    call->grads[0] = call->saved[0];
    return TUTTI_OK;
}

static void a_leaf_does_not_become_its_own_gradient(void **state)
{
    (void)state;
    const tutti_op_t own = {.name = "mine",
                            .infer = tutti_op_infer_same,
                            .forward = keep_forward,
                            .backward = saved_backward};
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(2), 3);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    for (int k = 1; k <= 2; k++) {
        tutti_tensor_t *y = tutti_op_run(s, &own, &x, 1, NULL);
        assert_int_equal(tutti_backward(s, tutti_sum(s, y)), 0);
        assert_true(tutti_tensor_at(tutti_tensor_grad(x), 1) == 3 * k);
        assert_true(tutti_tensor_at(x, 1) == 3);
    }
    assert_int_equal(tutti_scope_close(s), 0);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static tutti_status_t change_forward(tutti_op_call_t *call)
{
    TT_TRY(tutti_op_save(call, tutti_mul(call->scope, call->inputs[0], call->inputs[0])));
    TT_TRY(tutti_op_mark_dirty(call, 0, 1));
    TT_TRY(
        tutti_op_set_output(call, 0, tutti_reshape(call->scope, call->inputs[1], TUTTI_SHAPE(2))));
    return tutti_tensor_fill(call->inputs[0], 1);
}

static tutti_status_t change_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, &outputs[0]));
    return tutti_op_infer_same(call, &outputs[1]);
}

static tutti_status_t change_backward(tutti_op_backward_t *call)
{
    call->grads[1] = tutti_add(call->scope, call->grad_outputs[0], call->grad_outputs[1]);
    return TUTTI_OK;
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    tt_test_host_only();
    const tutti_op_t own = {.name = "mine",
                            .input_count = 2,
                            .output_count = 2,
                            .makes_outputs = true,
                            .zero_grad_outputs = true,
                            .infer = change_infer,
                            .forward = change_forward,
                            .backward = change_backward};
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_scope_t *s;
        tutti_tensor_t *y[2];
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2));
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        tt_alloc_fail_at(nth);
        tutti_tensor_t *h = tutti_mul_scalar(s, x, 2);
        tutti_op_run_many(s, &own, (tutti_tensor_t *[]){h, x}, 2, NULL, y, 2);
        (void)tutti_backward(s, tutti_sum(s, y[1]));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(tutti_scope_close(s), has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(wrong_tables_and_forwards_are_named), T(wrong_calls_are_named),
        T(wrong_gradients_are_named),           T(a_leaf_does_not_become_its_own_gradient),
        T(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
