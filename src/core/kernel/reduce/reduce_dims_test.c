/* Reductions: against plain loops in double, over shapes, strides, dtypes, variants, threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/isa.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/reduce/reduce.h"

enum { NUMBERS_MAX = 300000 };

static float numbers[NUMBERS_MAX];
static double wide[NUMBERS_MAX];

static const tt_reduce_params_t params = {.correction = 1};

static tt_strided_t contiguous(void *data, tutti_dtype_t dtype, int rank, const int64_t *shape)
{
    tt_strided_t x = {.data = data, .dtype = dtype, .rank = rank};
    int64_t step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        x.shape[d] = shape[d];
        x.strides[d] = step;
        step *= shape[d];
    }
    return x;
}

static tt_strided_t output(void *data, tutti_dtype_t dtype, const tt_strided_t *x, unsigned dims)
{
    int64_t shape[TT_RANK_MAX];
    for (int d = 0; d < x->rank; d++) {
        shape[d] = dims >> d & 1 ? 1 : x->shape[d];
    }
    return contiguous(data, dtype, x->rank, shape);
}

static double reference(tt_reduce_t kind, const double *x, int64_t n)
{
    double sum = 0, squares = 0, product = 1, low = INFINITY, high = -INFINITY;
    int64_t low_at = 0, high_at = 0, nonzero = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        product *= x[i];
        nonzero += x[i] != 0;
        high_at = x[i] > high ? i : high_at;
        low_at = x[i] < low ? i : low_at;
        high = fmax(high, x[i]);
        low = fmin(low, x[i]);
    }
    double deviations = 0;
    for (int64_t i = 0; i < n; i++) {
        deviations += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    }
    const double results[TT_REDUCE_COUNT] = {
        [TT_REDUCE_SUM] = sum,
        [TT_REDUCE_MEAN] = sum / (double)n,
        [TT_REDUCE_SUM_SQUARES] = squares,
        [TT_REDUCE_PROD] = product,
        [TT_REDUCE_MAX] = high,
        [TT_REDUCE_MIN] = low,
        [TT_REDUCE_ANY] = nonzero > 0,
        [TT_REDUCE_ALL] = nonzero == n,
        [TT_REDUCE_ARGMAX] = (double)high_at,
        [TT_REDUCE_ARGMIN] = (double)low_at,
        [TT_REDUCE_VAR] = deviations / ((double)n - 1),
    };
    return results[kind];
}

/* The elements that go into output `out`, gathered by brute force. */
static int64_t gather_inputs(const tt_strided_t *x, unsigned dims, int64_t out, double *list)
{
    int64_t count = 0, total = 1;
    for (int d = 0; d < x->rank; d++) {
        total *= x->shape[d];
    }
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, kept = 0, step = 1;
        for (int d = x->rank - 1; d >= 0; d--) {
            const int64_t at = rest % x->shape[d];
            rest /= x->shape[d];
            if (!(dims >> d & 1)) {
                kept += at * step;
                step *= x->shape[d];
            }
        }
        if (kept == out) {
            list[count++] = wide[i];
        }
    }
    return count;
}

static void fill_numbers(void)
{
    const tt_rng_t rng = tt_rng_stream(3, 0, 0, 0, 0);
    for (int i = 0; i < NUMBERS_MAX; i++) {
        numbers[i] = 1 + 0.125f * tt_rng_normal(rng, (uint64_t)i);
        wide[i] = (double)numbers[i];
    }
}

static void check(const tt_strided_t *x, unsigned dims, double tolerance)
{
    static double list[NUMBERS_MAX], got[NUMBERS_MAX];
    int64_t outputs = 1;
    for (int d = 0; d < x->rank; d++) {
        outputs *= dims >> d & 1 ? 1 : x->shape[d];
    }
    const tt_strided_t out = output(got, TUTTI_F64, x, dims);
    for (int kind = 0; kind < TT_REDUCE_COUNT; kind++) {
        assert_int_equal(tt_reduce(NULL, (tt_reduce_t)kind, params, &out, x, dims), TUTTI_OK);
        for (int64_t i = 0; i < outputs; i += 1 + outputs / 7) {
            const int64_t n = gather_inputs(x, dims, i, list);
            const double want = reference((tt_reduce_t)kind, list, n);
            const bool both_nan = isnan(want) && isnan(got[i]);
            if (!both_nan && fabs(got[i] - want) > tolerance * (fabs(want) + 1e-9)) {
                fail_msg("%s over dims %x: output %d is %.9g, not %.9g",
                         tt_reduce_name((tt_reduce_t)kind), dims, (int)i, got[i], want);
            }
        }
    }
}

static void reductions_agree_with_loops(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},   {5, 7, 3},    {2, 3, 300}, {17, 1, 33},
                                        {3, 600, 5}, {1, 1, 9000}, {700, 1, 2}, {4, 5, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (unsigned dims = 0; dims < 8; dims++) {
            const tt_strided_t x = contiguous(numbers, TUTTI_F32, 3, shapes[s]);
            const tt_strided_t x64 = contiguous(wide, TUTTI_F64, 3, shapes[s]);
            check(&x, dims, 1e-4);
            check(&x64, dims, 1e-11);
        }
    }
}

static void strides_variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    enum { A = 130, B = 70, C = 32, TOTAL = A * B * C };
    static float swapped[TOTAL], want[TOTAL], got[TOTAL];
    const tt_strided_t x = contiguous(numbers, TUTTI_F32, 3, (int64_t[]){A, B, C});
    const tt_strided_t t = {
        .data = swapped, .rank = 3, .shape = {A, B, C}, .strides = {1, A * C, A}};
    tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &t, &x);
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (unsigned dims = 1; dims < 8; dims++) {
        for (int kind = 0; kind < TT_REDUCE_COUNT; kind++) {
            tt_strided_t out = output(want, TUTTI_F32, &x, dims);
            memset(want, 0, sizeof want);
            memset(got, 0, sizeof got);
            assert_int_equal(tt_reduce(NULL, (tt_reduce_t)kind, params, &out, &x, dims), TUTTI_OK);
            out.data = got;
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(1 + (kind + (int)dims) % 4, &threads), TUTTI_OK);
            setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(kind % (best + 1))), 1);
            assert_int_equal(tt_reduce(&(tt_exec_t){.threads = threads}, (tt_reduce_t)kind, params,
                                       &out, &t, dims),
                             TUTTI_OK);
            unsetenv("TUTTI_ISA");
            tt_threads_release(threads);
            if (memcmp(want, got, sizeof want) != 0) {
                fail_msg("%s over dims %x", tt_reduce_name((tt_reduce_t)kind), dims);
            }
        }
    }
}

static void expect_same_for_all_threads(const tt_strided_t *x)
{
    const int best = (int)tt_isa();
    for (int kind = 0; kind < TT_REDUCE_COUNT; kind++) {
        double results[5];
        for (int count = 1; count <= 4; count++) {
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
            const tt_strided_t out = output(&results[count], TUTTI_F64, x, 1);
            setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(count % (best + 1))), 1);
            assert_int_equal(
                tt_reduce(&(tt_exec_t){.threads = threads}, (tt_reduce_t)kind, params, &out, x, 1),
                TUTTI_OK);
            unsetenv("TUTTI_ISA");
            tt_threads_release(threads);
            assert_memory_equal(&results[1], &results[count], sizeof(double));
        }
    }
}

static void long_rows_are_the_same_for_all_threads(void **state)
{
    (void)state;
    const tt_strided_t x = contiguous(numbers, TUTTI_F32, 1, (int64_t[]){NUMBERS_MAX});
    const tt_strided_t x64 = contiguous(wide, TUTTI_F64, 1, (int64_t[]){NUMBERS_MAX});
    unsetenv("TUTTI_ISA");
    expect_same_for_all_threads(&x);
    expect_same_for_all_threads(&x64);
    check(&x, 1, 1e-4);
    check(&x64, 1, 1e-11);
}

static void nothing_gives_the_neutral_element(void **state)
{
    (void)state;
    const tt_strided_t x = contiguous(numbers, TUTTI_F32, 2, (int64_t[]){0, 3});
    const double want[TT_REDUCE_COUNT] = {
        [TT_REDUCE_MEAN] = NAN,     [TT_REDUCE_PROD] = 1, [TT_REDUCE_MAX] = -INFINITY,
        [TT_REDUCE_MIN] = INFINITY, [TT_REDUCE_ALL] = 1,  [TT_REDUCE_VAR] = NAN};
    for (int kind = 0; kind < TT_REDUCE_COUNT; kind++) {
        for (unsigned dims = 1; dims < 4; dims += 2) {
            double got[3] = {7, 7, 7};
            const tt_strided_t out = output(got, TUTTI_F64, &x, dims);
            assert_int_equal(tt_reduce(NULL, (tt_reduce_t)kind, params, &out, &x, dims), TUTTI_OK);
            assert_true(got[0] == want[kind] || (isnan(got[0]) && isnan(want[kind])));
        }
    }
}

/* Numbers that f32 does not hold exactly: what long sums of them are rounded by is no variance; in
 * rows, in columns, in a row that threads share. */
static void equal_numbers_have_no_variance(void **state)
{
    (void)state;
    static float x[200000];
    static const struct {
        int64_t shape[2];
        unsigned dims;
    } cases[] = {{{40, 5000}, 2}, {{5000, 40}, 1}, {{1, 200000}, 2}};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        x[i] = 1000.3f;
    }
    for (size_t i = 0; i < 3; i++) {
        double got[40];
        const tt_strided_t in = contiguous(x, TUTTI_F32, 2, cases[i].shape);
        const tt_strided_t out = output(got, TUTTI_F64, &in, cases[i].dims);
        got[0] = 7;
        assert_int_equal(tt_reduce(NULL, TT_REDUCE_VAR, params, &out, &in, cases[i].dims), 0);
        assert_true(got[0] == 0);
    }
}

static void nan_wins_and_the_first_index_counts(void **state)
{
    (void)state;
    float x[40] = {[7] = 5, [20] = 5, [30] = NAN, [35] = NAN};
    float extreme;
    int64_t index;
    const tt_strided_t in = contiguous(x, TUTTI_F32, 1, (int64_t[]){40});
    const tt_strided_t value = output(&extreme, TUTTI_F32, &in, 1);
    const tt_strided_t at = output(&index, TUTTI_I64, &in, 1);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_MAX, params, &value, &in, 1), TUTTI_OK);
    assert_true(isnan(extreme));
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_ARGMIN, params, &at, &in, 1), TUTTI_OK);
    assert_int_equal(index, 30);
    x[30] = x[35] = 0;
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_ARGMAX, params, &at, &in, 1), TUTTI_OK);
    assert_int_equal(index, 7);
}

static void whole_numbers_are_exact(void **state)
{
    (void)state;
    int64_t x[3] = {(INT64_C(1) << 60) + 1, 2, 5}, sum;
    const tt_strided_t in = contiguous(x, TUTTI_I64, 1, (int64_t[]){3});
    const tt_strided_t out = output(&sum, TUTTI_I64, &in, 1);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_SUM, params, &out, &in, 1), TUTTI_OK);
    assert_true(sum == (INT64_C(1) << 60) + 8);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_MIN, params, &out, &in, 1), TUTTI_OK);
    assert_true(sum == 2);
    bool flags[4] = {true, false, true, true}, any;
    const tt_strided_t mask = contiguous(flags, TUTTI_BOOL, 1, (int64_t[]){4});
    const tt_strided_t one = output(&any, TUTTI_BOOL, &mask, 1);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_ALL, params, &one, &mask, 1), TUTTI_OK);
    assert_false(any);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_SUM, params, &out, &mask, 1), TUTTI_OK);
    assert_true(sum == 3);
}

/* Chunks of 4096 whose sums have no room in 63 bits. */
static void whole_numbers_wrap(void **state)
{
    (void)state;
    static int32_t x[3 * 4096];
    int64_t sum;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        x[i] = 40000000;
    }
    const tt_strided_t in = contiguous(x, TUTTI_I32, 1, (int64_t[]){3 * 4096});
    const tt_strided_t out = output(&sum, TUTTI_I64, &in, 1);
    assert_int_equal(tt_reduce(NULL, TT_REDUCE_SUM_SQUARES, params, &out, &in, 1), TUTTI_OK);
    const uint64_t one = UINT64_C(40000000) * 40000000;
    assert_true((uint64_t)sum == 3 * 4096 * one);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    fill_numbers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reductions_agree_with_loops, nothing_is_left),
        cmocka_unit_test_teardown(strides_variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(long_rows_are_the_same_for_all_threads, nothing_is_left),
        cmocka_unit_test_teardown(nothing_gives_the_neutral_element, nothing_is_left),
        cmocka_unit_test_teardown(equal_numbers_have_no_variance, nothing_is_left),
        cmocka_unit_test_teardown(nan_wins_and_the_first_index_counts, nothing_is_left),
        cmocka_unit_test_teardown(whole_numbers_are_exact, nothing_is_left),
        cmocka_unit_test_teardown(whole_numbers_wrap, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
