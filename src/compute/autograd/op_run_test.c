/* Operations of one's own, by the public contract alone: what goes well. */
#include <tutti/tutti.h>

#include "core/base/testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x; /* a leaf [2]: 2, 3 */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2), &f.x), 0);
    assert_int_equal(tutti_tensor_copy_from(f.x, (float[]){2, 3}), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->x);
    tutti_context_release(f->ctx);
    return 0;
}

static void expect_values(tutti_tensor_t *x, double first, double second)
{
    assert_non_null(x);
    assert_true(tutti_tensor_at(x, 0) == first && tutti_tensor_at(x, 1) == second);
}

/* ---- any number of outputs and of saved tensors ---------------------------------------------- */

enum { MANY = 70 };

/* y[k] = (k + 1) x */
static tutti_status_t fan_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    for (int k = 0; k < call->output_count; k++) {
        (void)tutti_op_infer_same(call, &outputs[k]);
    }
    return TUTTI_OK;
}

static tutti_status_t fan_forward(tutti_op_call_t *call)
{
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(tutti_tensor_copy(call->outputs[k],
                                 tutti_mul_scalar(call->scope, call->inputs[0], k + 1)));
        TT_TRY(tutti_op_save(call, tutti_full(call->scope, TUTTI_F32, TUTTI_SCALAR, k + 1)));
    }
    return TUTTI_OK;
}

static tutti_status_t fan_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *sum = tutti_zeros(call->scope, TUTTI_F32, call->inputs[0].shape);
    for (int k = 0; k < call->output_count; k++) {
        if (call->grad_outputs[k] != NULL) {
            sum = tutti_add(call->scope, sum,
                            tutti_mul(call->scope, call->grad_outputs[k], call->saved[k]));
        }
    }
    call->grads[0] = sum;
    return TUTTI_OK;
}

static const tutti_op_t fan = {
    .name = "fan", .infer = fan_infer, .forward = fan_forward, .backward = fan_backward};

static void an_operation_has_any_number_of_outputs_and_saved_tensors(void **state)
{
    fixture_t *f = *state;
    const int counts[] = {1, 4, 5, 8, 9, 33, MANY};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int count = counts[i];
        tutti_tensor_t *y[MANY];
        tutti_tensor_zero_grad(f->x);
        tutti_op_run_many(f->s, &fan, &f->x, 1, NULL, y, count);
        expect_values(y[count - 1], 2 * count, 3 * count);
        tutti_tensor_t *loss = tutti_sum(f->s, tutti_add(f->s, y[0], y[count - 1]));
        assert_int_equal(tutti_backward(f->s, loss), 0);
        expect_values(tutti_tensor_grad(f->x), 1 + count, 1 + count);
    }
}

static void no_memory_for_many_outputs_is_a_status(void **state)
{
    fixture_t *f = *state;
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_tensor_t *y[MANY];
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tt_alloc_fail_at(nth);
        tutti_op_run_many(s, &fan, &f->x, 1, NULL, y, 20);
        (void)tutti_backward(s, tutti_sum(s, y[19]));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(tutti_scope_close(s), has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_operation_has_any_number_of_outputs_and_saved_tensors),
        T(no_memory_for_many_outputs_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
