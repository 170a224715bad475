/* Operations at their edges: one element, another rank, the dtype that a tensor has already. */
#include "core/tensor/scope_testing.h"

#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

static void the_mean_of_one_element_is_that_element(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(1), 7);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *mean = tutti_mean(f->s, x);
    assert_float_equal(tutti_tensor_item(mean), 7, 0);
    assert_int_equal(tutti_backward(f->s, mean), 0);
    assert_float_equal(tutti_tensor_item(tutti_tensor_grad(x)), 1, 0);
}

static void tensors_of_different_ranks_are_not_put_together(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *const parts[] = {tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3)),
                                     tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3, 4))};
    assert_int_equal(tutti_tensor_status(tutti_cat(f->s, parts, 2, 0)), TUTTI_ERR_SHAPE);
    tt_expect_error("cat");
}

static void a_cast_to_the_same_dtype_is_the_tensor_itself(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_BF16, TUTTI_SHAPE(3));
    assert_ptr_equal(tutti_cast(f->s, x, TUTTI_BF16), x);
    assert_ptr_not_equal(tutti_cast(f->s, x, TUTTI_F32), x);
}

static void operands_of_two_dtypes_have_the_wider_one(void **state)
{
    tt_fixture_t *f = *state;
    static const struct {
        tutti_dtype_t a, b, sum;
    } cases[] = {{TUTTI_I64, TUTTI_U8, TUTTI_I64}, {TUTTI_I8, TUTTI_U8, TUTTI_I32},
                 {TUTTI_BOOL, TUTTI_U8, TUTTI_U8}, {TUTTI_I64, TUTTI_I8, TUTTI_I64},
                 {TUTTI_F16, TUTTI_U8, TUTTI_F16}, {TUTTI_F16, TUTTI_BF16, TUTTI_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_tensor_t *a = tutti_ones(f->s, cases[i].a, TUTTI_SHAPE(2));
        tutti_tensor_t *b = tutti_ones(f->s, cases[i].b, TUTTI_SHAPE(2));
        assert_int_equal(tutti_tensor_dtype(tutti_add(f->s, a, b)), cases[i].sum);
        assert_int_equal(tutti_tensor_dtype(tutti_add(f->s, b, a)), cases[i].sum);
    }
}

static void a_context_without_options_has_the_threads_that_are_asked_for(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    setenv("TUTTI_THREADS", "3", 1);
    assert_int_equal(tutti_context_create(NULL, &ctx), 0);
    unsetenv("TUTTI_THREADS");
    assert_int_equal(tutti_context_threads(ctx), 3);
    tutti_context_release(ctx);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        T(the_mean_of_one_element_is_that_element),
        T(tensors_of_different_ranks_are_not_put_together),
        T(a_cast_to_the_same_dtype_is_the_tensor_itself),
        T(operands_of_two_dtypes_have_the_wider_one),
        T(a_context_without_options_has_the_threads_that_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
