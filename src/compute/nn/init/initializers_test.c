/* Initial values: spreads, bounds, orthogonality, the same numbers for any dtype and layout. */
#include "core/tensor/scope_testing.h"

#include <math.h>
#include <string.h>

#include <tutti/nn.h>
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { SEED = 9 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 2, .seed = SEED});
}

typedef struct {
    double mean, std, low, high;
} spread_t;

static spread_t spread_of(const tutti_tensor_t *x)
{
    const double n = (double)tutti_tensor_numel(x);
    spread_t out = {.low = INFINITY, .high = -INFINITY};
    double squares = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double v = tutti_tensor_at(x, i);
        out.mean += v / n;
        squares += v * v / n;
        out.low = fmin(out.low, v);
        out.high = fmax(out.high, v);
    }
    out.std = sqrt(squares - out.mean * out.mean);
    return out;
}

static void expect_near(double got, double want, double margin)
{
    if (!(fabs(got - want) <= margin)) {
        fail_msg("%g is not %g", got, want);
    }
}

/* Fan in 200 × 4, fan out 50 × 4. */
static tutti_tensor_t *weight(tt_fixture_t *f)
{
    return tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(50, 200, 2, 2));
}

static void expect_uniform(const tutti_tensor_t *x, double bound)
{
    const spread_t s = spread_of(x);
    assert_true(s.low >= -bound && s.high < bound);
    expect_near(s.std, bound / sqrt(3), 0.02 * bound);
    expect_near(s.mean, 0, 0.02 * bound);
}

static void expect_normal(const tutti_tensor_t *x, double std)
{
    const spread_t s = spread_of(x);
    expect_near(s.std, std, 0.02 * std);
    expect_near(s.mean, 0, 0.02 * std);
    assert_true(s.high > 3 * std);
}

static void fans_decide_the_spread(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = weight(f);
    assert_int_equal(tutti_init_xavier_uniform(f->ctx, x, 0), 0);
    expect_uniform(x, sqrt(6.0 / 1000));
    assert_int_equal(tutti_init_xavier_normal(f->ctx, x, 2), 0);
    expect_normal(x, 2 * sqrt(2.0 / 1000));
    assert_int_equal(tutti_init_kaiming_uniform(f->ctx, x, NULL), 0);
    expect_uniform(x, sqrt(2) * sqrt(3.0 / 800));
    const tutti_kaiming_options_t linear = {.slope = sqrt(5)};
    assert_int_equal(tutti_init_kaiming_uniform(f->ctx, x, &linear), 0);
    expect_uniform(x, sqrt(1.0 / 800)); /* as torch.nn.Linear begins */
    const tutti_kaiming_options_t out = {.nonlinearity = TUTTI_NONLINEARITY_TANH, .fan_out = true};
    assert_int_equal(tutti_init_kaiming_normal(f->ctx, x, &out), 0);
    expect_normal(x, 5.0 / 3 / sqrt(200));
}

static void truncated_numbers_lie_between_their_bounds(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = weight(f);
    assert_int_equal(tutti_init_trunc_normal(f->ctx, x, NULL), 0);
    spread_t s = spread_of(x);
    assert_true(s.low >= -2 && s.low < -1.99 && s.high <= 2 && s.high > 1.99);
    expect_near(s.std, 0.8796256610342398, 0.01); /* of the law, by its formula */
    expect_near(s.mean, 0, 0.015);
    const tutti_trunc_normal_options_t tail = {.low = 3, .high = 100};
    assert_int_equal(tutti_init_trunc_normal(f->ctx, x, &tail), 0);
    s = spread_of(x);
    assert_true(s.low >= 3 && s.high < 8);
    expect_near(s.mean, 3.2830986549304364, 0.01); /* φ(3) / (1 - Φ(3)) */
    const tutti_trunc_normal_options_t odd = {.mean = 1, .std = 0.5, .low = 0.5, .high = 9};
    assert_int_equal(tutti_init_trunc_normal(f->ctx, x, &odd), 0);
    s = spread_of(x);
    assert_true(s.low >= 0.5);
    expect_near(s.mean, 1 + 0.5 * 0.28759997093917833, 0.01); /* φ(-1) / (1 - Φ(-1)) */
    const tutti_trunc_normal_options_t far = {.low = 50, .high = 60};
    assert_int_equal(tutti_init_trunc_normal(f->ctx, x, &far), 0);
    s = spread_of(x);
    assert_true(s.low >= 50 && s.high <= 60);
}

/* Qᵀ Q = 1 and Qᵀ A upper triangular with a positive diagonal: A's QR decomposition, A being the
 * normal numbers that a context of the same seed draws. */
static void orthogonal_values_are_the_q_of_normal_ones(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_context_options_t options = {.threads = 1, .seed = SEED};
    tutti_context_t *again;
    assert_int_equal(tt_test_context(&options, &again), 0);
    tutti_tensor_t *a = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(30, 12));
    tutti_tensor_t *q = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(30, 12));
    assert_int_equal(tutti_init_normal(f->ctx, a, 0, 1), 0);
    assert_int_equal(tutti_init_orthogonal(again, q, 0), 0);
    tutti_context_release(again);
    tutti_tensor_t *turned = tutti_transpose(f->s, q, 0, 1);
    tutti_tensor_t *one = tutti_matmul(f->s, turned, q), *r = tutti_matmul(f->s, turned, a);
    for (int64_t i = 0; i < 144; i++) {
        expect_near(tutti_tensor_at(one, i), i / 12 == i % 12, 1e-6);
        if (i / 12 > i % 12) {
            expect_near(tutti_tensor_at(r, i), 0, 1e-5);
        }
        assert_true(i / 12 != i % 12 || tutti_tensor_at(r, i) > 0.1);
    }
}

static void few_rows_are_orthogonal_too(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *q = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(6, 4, 5));
    assert_int_equal(tutti_init_orthogonal(f->ctx, q, 3), 0);
    tutti_tensor_t *rows = tutti_reshape(f->s, q, TUTTI_SHAPE(6, 20));
    tutti_tensor_t *nine = tutti_matmul(f->s, rows, tutti_transpose(f->s, rows, 0, 1));
    for (int64_t i = 0; i < 36; i++) {
        expect_near(tutti_tensor_at(nine, i), i / 6 == i % 6 ? 9 : 0, 1e-5);
    }
}

static void dtype_and_layout_change_no_number(void **state)
{
    tt_fixture_t *f = *state;
    tutti_status_t (*const calls[])(tutti_context_t *, tutti_tensor_t *, double) = {
        tutti_init_xavier_uniform, tutti_init_xavier_normal, tutti_init_orthogonal};
    for (int i = 0; i < 3; i++) {
        tutti_tensor_t *plain = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(5, 7));
        tutti_tensor_t *wide = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(7, 5));
        tutti_tensor_t *turned = tutti_transpose(f->s, wide, 0, 1);
        tutti_context_t *contexts[2];
        for (int k = 0; k < 2; k++) {
            const tutti_context_options_t options = {.threads = k + 1, .seed = SEED};
            assert_int_equal(tt_test_context(&options, &contexts[k]), 0);
            assert_int_equal(calls[i](contexts[k], k == 0 ? plain : turned, 1), 0);
            tutti_context_release(contexts[k]);
        }
        for (int64_t k = 0; k < 35; k++) {
            assert_true(tutti_tensor_at(plain, k) == tutti_tensor_at(turned, k));
        }
    }
}

/* Values are drawn in f32; rounding them to x's dtype crosses no bound. */
static void bounds_hold_in_every_dtype(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_dtype_t dtypes[] = {TUTTI_BF16, TUTTI_F16, TUTTI_F32, TUTTI_F64};
    const tutti_trunc_normal_options_t normal = {.low = -0.7, .high = 0.3};
    for (int i = 0; i < 4; i++) {
        tutti_tensor_t *x = tutti_zeros(f->s, dtypes[i], TUTTI_SHAPE(20000));
        assert_int_equal(tutti_init_uniform(f->ctx, x, -0.7, 1), 0);
        for (int64_t k = 0; k < 20000; k++) {
            assert_true(tutti_tensor_at(x, k) >= -0.7 && tutti_tensor_at(x, k) < 1);
        }
        assert_int_equal(tutti_init_trunc_normal(f->ctx, x, &normal), 0);
        for (int64_t k = 0; k < 20000; k++) {
            assert_true(tutti_tensor_at(x, k) >= -0.7 && tutti_tensor_at(x, k) <= 0.3);
        }
    }
}

static void constants_and_eyes_are_exact(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_BF16, TUTTI_SHAPE(2, 3));
    assert_int_equal(tutti_init_constant(x, 1.5), 0);
    assert_true(tutti_tensor_at(x, 5) == 1.5);
    assert_int_equal(tutti_init_eye(x), 0);
    for (int64_t i = 0; i < 6; i++) {
        assert_true(tutti_tensor_at(x, i) == (i == 0 || i == 4));
    }
}

static void expect_error(tutti_status_t got, tutti_status_t want, const char *text)
{
    assert_int_equal(got, want);
    if (strstr(tutti_last_error(), text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, tutti_last_error());
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *row = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(3));
    tutti_tensor_t *whole = tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(3, 3));
    expect_error(tutti_init_xavier_normal(f->ctx, row, 1), TUTTI_ERR_SHAPE,
                 "init_xavier_normal: want at least 2 dimensions, not f32[3]");
    expect_error(tutti_init_orthogonal(f->ctx, whole, 1), TUTTI_ERR_DTYPE,
                 "init_orthogonal: want a floating dtype, not i64[3, 3]");
    expect_error(tutti_init_uniform(f->ctx, row, 2, 1), TUTTI_ERR_ARG,
                 "nothing lies between 2 and 1");
    const tutti_trunc_normal_options_t options = {.low = 2, .high = 1};
    expect_error(tutti_init_trunc_normal(f->ctx, row, &options), TUTTI_ERR_ARG,
                 "nothing lies between 2 and 1");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(fans_decide_the_spread),
        TEST(truncated_numbers_lie_between_their_bounds),
        TEST(orthogonal_values_are_the_q_of_normal_ones),
        TEST(few_rows_are_orthogonal_too),
        TEST(dtype_and_layout_change_no_number),
        TEST(bounds_hold_in_every_dtype),
        TEST(constants_and_eyes_are_exact),
        TEST(what_does_not_fit_is_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
