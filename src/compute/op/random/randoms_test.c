/* Random tensors: distributions, and what their numbers depend on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/tensor.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { N = 20000 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
} fixture_t;

static fixture_t open_fixture(int threads, uint64_t seed)
{
    fixture_t f;
    const tutti_context_options_t options = {.threads = threads, .seed = seed};
    assert_int_equal(tt_test_context(&options, &f.ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    return f;
}

static void close_fixture(fixture_t f)
{
    assert_int_equal(tutti_scope_close(f.s), TUTTI_OK);
    tutti_context_release(f.ctx);
}

typedef struct {
    double mean, variance, low, high;
} moments_t;

static moments_t moments_of(const tutti_tensor_t *x)
{
    moments_t m = {0, 0, INFINITY, -INFINITY};
    const double n = (double)tutti_tensor_numel(x);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const double value = tutti_tensor_at(x, i);
        m.mean += value / n;
        m.variance += value * value / n;
        m.low = fmin(m.low, value);
        m.high = fmax(m.high, value);
    }
    m.variance -= m.mean * m.mean;
    return m;
}

static void check_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%g is not near %g", got, want);
    }
}

static void uniform_fills_its_interval(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5);
    const moments_t m = moments_of(tutti_uniform(f.s, TUTTI_F64, TUTTI_SHAPE(N), -1, 3));
    check_near(m.mean, 1, 0.03);
    check_near(m.variance, 16 / 12.0, 0.03);
    assert_true(m.low >= -1 && m.low < -0.99 && m.high < 3 && m.high > 2.99);
    close_fixture(f);
}

static void expect_refusal(fixture_t f, const tutti_tensor_t *x, const char *text)
{
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_ARG);
    tt_expect_error(text);
    assert_int_equal(tutti_scope_close(f.s), TUTTI_ERR_ARG);
    tutti_context_release(f.ctx);
}

static void uniform_refuses_an_interval_without_numbers(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5), g = open_fixture(1, 5);
    expect_refusal(f, tutti_uniform(f.s, TUTTI_BF16, TUTTI_SHAPE(3), 1.001, 1.002),
                   "uniform: no bf16 lies in [1.001, 1.002)");
    expect_refusal(g, tutti_uniform(g.s, TUTTI_F64, TUTTI_SHAPE(3), -1e308, 1e308),
                   "uniform: [-1e+308, 1e+308) is too wide");
}

static void numbers_that_are_no_dtype_are_refused(void **state)
{
    (void)state;
    const tutti_dtype_t none = (tutti_dtype_t)1000000;
    for (int kind = 0; kind < 4; kind++) {
        const fixture_t f = open_fixture(1, 5);
        const tutti_shape_t shape = TUTTI_SHAPE(2);
        const tutti_tensor_t *x = kind == 0   ? tutti_uniform(f.s, none, shape, 0, 1)
                                  : kind == 1 ? tutti_normal(f.s, none, shape, 0, 1)
                                  : kind == 2 ? tutti_randint(f.s, none, shape, 0, 1)
                                              : tutti_bernoulli(f.s, none, shape, 0.5);
        assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_DTYPE);
        tt_expect_error("1000000 is no dtype");
        assert_int_equal(tutti_scope_close(f.s), TUTTI_ERR_DTYPE);
        tutti_context_release(f.ctx);
    }
}

static void normal_has_mean_and_deviation(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5);
    const moments_t m = moments_of(tutti_normal(f.s, TUTTI_F32, TUTTI_SHAPE(N), 2, 0.5));
    check_near(m.mean, 2, 0.015);
    check_near(m.variance, 0.25, 0.015);
    assert_true(m.low < 0.6 && m.high > 3.4);
    close_fixture(f);
}

static void randint_takes_all_its_numbers_alike(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5);
    const tutti_tensor_t *x = tutti_randint(f.s, TUTTI_I32, TUTTI_SHAPE(N), -2, 3);
    int counts[5] = {0};
    for (int64_t i = 0; i < N; i++) {
        const int value = (int)tutti_tensor_at(x, i);
        assert_in_range(value + 2, 0, 4);
        counts[value + 2]++;
    }
    for (int k = 0; k < 5; k++) {
        check_near(counts[k], N / 5.0, 300);
    }
    close_fixture(f);
}

static void bernoulli_is_one_as_often_as_asked(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5);
    const moments_t m = moments_of(tutti_bernoulli(f.s, TUTTI_BOOL, TUTTI_SHAPE(N), 0.3));
    check_near(m.mean, 0.3, 0.015);
    close_fixture(f);
}

/* Whether two calls gave the same bits. */
static bool is_same(const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    return memcmp(tt_test_host(a), tt_test_host(b), tutti_tensor_bytes(a)) == 0;
}

static tutti_tensor_t *draw(fixture_t f)
{
    return tutti_uniform(f.s, TUTTI_F32, TUTTI_SHAPE(N), 0, 1);
}

static void numbers_depend_on_seed_step_shard_and_call(void **state)
{
    (void)state;
    const fixture_t f = open_fixture(1, 5), other = open_fixture(1, 6);
    const tutti_tensor_t *first = draw(f);
    assert_false(is_same(first, draw(f)));
    assert_false(is_same(first, draw(other)));
    tutti_context_set_step(f.ctx, 1);
    assert_false(is_same(first, draw(f)));
    tutti_context_set_step(f.ctx, 0);
    assert_true(is_same(first, draw(f)));
    tutti_context_set_shard(f.ctx, 1);
    assert_false(is_same(first, draw(f)));
    close_fixture(other);
    close_fixture(f);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    const fixture_t one = open_fixture(1, 5), three = open_fixture(3, 5);
    assert_true(is_same(draw(one), draw(three)));
    const tutti_shape_t shape = TUTTI_SHAPE(N);
    assert_true(is_same(tutti_normal(one.s, TUTTI_F32, shape, 0, 1),
                        tutti_normal(three.s, TUTTI_F32, shape, 0, 1)));
    assert_true(is_same(tutti_randint(one.s, TUTTI_I64, shape, 0, 1 << 20),
                        tutti_randint(three.s, TUTTI_I64, shape, 0, 1 << 20)));
    assert_true(is_same(tutti_bernoulli(one.s, TUTTI_BOOL, shape, 0.5),
                        tutti_bernoulli(three.s, TUTTI_BOOL, shape, 0.5)));
    close_fixture(three);
    close_fixture(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_fills_its_interval),
        cmocka_unit_test(uniform_refuses_an_interval_without_numbers),
        cmocka_unit_test(numbers_that_are_no_dtype_are_refused),
        cmocka_unit_test(normal_has_mean_and_deviation),
        cmocka_unit_test(randint_takes_all_its_numbers_alike),
        cmocka_unit_test(bernoulli_is_one_as_often_as_asked),
        cmocka_unit_test(numbers_depend_on_seed_step_shard_and_call),
        cmocka_unit_test(threads_change_no_bit),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0 || tt_alloc_stats().blocks != 0;
}
