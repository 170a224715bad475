/* Operations at their edges: one element, another rank, the dtype that a tensor has already. */
#include "core/tensor/scope_testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>
#include "core/tensor/device_testing.h"

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

/* 0.1 is more in bf16, and less in f16. */
static void a_number_that_is_compared_is_rounded_as_the_tensor_is(void **state)
{
    tutti_scope_t *s = ((tt_fixture_t *)*state)->s;
    const tutti_dtype_t dtypes[] = {TUTTI_BF16, TUTTI_F16, TUTTI_F32, TUTTI_F64};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        tutti_tensor_t *x = tutti_full(s, dtypes[i], TUTTI_SHAPE(1), 0.1);
        assert_true(tutti_tensor_item(tutti_eq_scalar(s, x, 0.1)) == 1);
        assert_true(tutti_tensor_item(tutti_ne_scalar(s, x, 0.1)) == 0);
        assert_true(tutti_tensor_item(tutti_lt_scalar(s, x, 0.1)) == 0);
        assert_true(tutti_tensor_item(tutti_le_scalar(s, x, 0.1)) == 1);
        assert_true(tutti_tensor_item(tutti_gt_scalar(s, x, 0.1)) == 0);
        assert_true(tutti_tensor_item(tutti_ge_scalar(s, x, 0.1)) == 1);
    }
    tutti_tensor_t *two = tutti_full(s, TUTTI_I64, TUTTI_SHAPE(1), 2);
    assert_true(tutti_tensor_item(tutti_lt_scalar(s, two, 2.5)) == 1);
}

/* dx of a clamp to at most 0.1, or to at least 0.1. */
static double slope_at_bound(tt_fixture_t *f, tutti_dtype_t dtype, bool is_upper, bool create_graph)
{
    tutti_tensor_t *x = tutti_full(f->s, dtype, TUTTI_SHAPE(1), 0.1), *dx;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *y = tutti_clamp(f->s, x, is_upper ? -1 : 0.1, is_upper ? 0.1 : 1);
    assert_true(tutti_tensor_item(y) == tutti_tensor_item(x));
    const tutti_backward_options_t options = {.create_graph = create_graph};
    assert_int_equal(tutti_grad(f->s, tutti_sum(f->s, y), &options, &x, 1, &dx), 0);
    return tutti_tensor_item(dx);
}

static void a_bound_lets_the_gradient_of_what_is_equal_pass(void **state)
{
    const tutti_dtype_t dtypes[] = {TUTTI_BF16, TUTTI_F16, TUTTI_F32, TUTTI_F64};
    for (size_t i = 0; i < 4 * sizeof dtypes / sizeof dtypes[0]; i++) {
        assert_true(slope_at_bound(*state, dtypes[i / 4], i % 2 != 0, i % 4 >= 2) == 1);
    }
}

static tutti_tensor_t *clamp_1(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_clamp(s, x, -1, 1);
}

static tutti_tensor_t *maximum_1(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_maximum(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1)));
}

static tutti_tensor_t *minimum_1(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_minimum(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1)), x);
}

static tutti_tensor_t *smooth_l1(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_smooth_l1_loss(s, x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1)), 1, TUTTI_LOSS_SUM);
}

static tutti_tensor_t *bce_1(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_bce_with_logits(s, x, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1)), TUTTI_LOSS_SUM);
}

static tutti_tensor_t *smooth_l1_wide(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_smooth_l1_loss(s, x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(1)), 1e30,
                                TUTTI_LOSS_SUM);
}

typedef struct {
    tutti_tensor_t *(*run)(tutti_scope_t *s, tutti_tensor_t *x);
    double x, dy, slope; /* dy times f'(x) */
} slope_t;

static void expect_slope(tt_fixture_t *f, const slope_t *at, bool create_graph)
{
    tutti_tensor_t *x = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(1), at->x);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    tutti_tensor_t *y = tutti_mul_scalar(f->s, tutti_sum(f->s, at->run(f->s, x)), at->dy);
    const tutti_backward_options_t options = {.create_graph = create_graph};
    tutti_tensor_t *dx;
    assert_int_equal(tutti_grad(f->s, y, &options, &x, 1, &dx), 0);
    const double slope = tutti_tensor_item(dx);
    if (isnan(at->slope) ? !isnan(slope) : !(fabs(slope - at->slope) <= 1e-6 * fabs(at->slope))) {
        fail_msg("at %g: %g, not %g", at->x, slope, at->slope);
    }
}

/* Where a comparison decides, NaN is on neither side: as PyTorch 2.15 has it. */
static void slopes_at_nan_and_infinity_are_those_of_pytorch(void **state)
{
    const double nan = (double)NAN, inf = (double)INFINITY;
    const slope_t cases[] = {
        {tutti_relu, nan, 3, 3}, {tutti_abs, nan, 3, 0},     {clamp_1, nan, 3, 0},
        {maximum_1, nan, 3, 3},  {minimum_1, nan, 3, 3},     {smooth_l1, nan, 3, nan},
        {tutti_relu, -1, 3, 0},  {tutti_relu, 0, 3, 0},      {maximum_1, 1, 3, 1.5},
        {minimum_1, 2, 3, 0},    {smooth_l1, -0.5, 3, -1.5}, {smooth_l1, 2, 3, 3},
        {smooth_l1, 1, 3, 3},    {smooth_l1, -inf, 3, -3},   {smooth_l1, inf, 3, 3},
        {bce_1, 0, 3, -1.5},     {bce_1, -inf, 3, -3},       {bce_1, inf, 3, 0},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        expect_slope(*state, &cases[i / 2], i % 2 != 0);
    }
}

/* A power of what is kept may lie outside of f32's range where the gradient lies inside. */
static void slopes_have_the_range_of_their_result(void **state)
{
    const slope_t cases[] = {
        {tutti_rsqrt, 1e26, 1e20, -0.5e-19},
        {tutti_rsqrt, 1e-30, 1e-20, -0.5e25},
        {tutti_rsqrt, 1e-24, 500, -2.5e38}, /* twice of it is not in the range */
        {smooth_l1_wide, 1e25, 1e10, 1e5},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        expect_slope(*state, &cases[i / 2], i % 2 != 0);
    }
    tutti_scope_t *s = ((tt_fixture_t *)*state)->s;
    const double loss =
        tutti_tensor_item(smooth_l1_wide(s, tutti_full(s, TUTTI_F32, TUTTI_SHAPE(1), 1e25)));
    assert_true(fabs(loss - 5e19) < 1e14);
}

static void a_context_without_options_has_the_threads_that_are_asked_for(void **state)
{
    tutti_context_t *ctx;
    (void)state;
    setenv("TUTTI_THREADS", "3", 1);
    assert_int_equal(tt_test_context(NULL, &ctx), 0);
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
        T(a_number_that_is_compared_is_rounded_as_the_tensor_is),
        T(a_bound_lets_the_gradient_of_what_is_equal_pass),
        T(slopes_at_nan_and_infinity_are_those_of_pytorch),
        T(slopes_have_the_range_of_their_result),
        T(a_context_without_options_has_the_threads_that_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
