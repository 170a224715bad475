/* Margins of labels against their formula, in f32 and f64, for every rest of a vector; labels that
 * occur again, and numbers that are not finite; and their bits over threads and instruction sets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/dtype.h>

#include "core/base/testing.h"
#include "core/kernel/loss/multilabel.h"

enum { ROWS = 300, N_MAX = 70, SIZE = ROWS * N_MAX };

typedef union {
    float f32[SIZE];
    double f64[SIZE];
} numbers_t;

typedef struct {
    numbers_t loss, slope;
} result_t;

static numbers_t x;
static int64_t targets[SIZE];
static result_t got, other;

static double get(const numbers_t *array, size_t at, bool is_wide)
{
    return is_wide ? array->f64[at] : (double)array->f32[at];
}

static void put(numbers_t *array, size_t at, bool is_wide, double value)
{
    if (is_wide) {
        array->f64[at] = value;
    } else {
        array->f32[at] = (float)value;
    }
}

/* Sixteenths, so that sums are exact and some margins are 0; up to six labels, some alike. */
static void fill(bool is_wide, size_t n)
{
    unsigned seed = 3;
    for (size_t i = 0; i < ROWS * n; i++) {
        seed = seed * 1664525u + 1013904223u;
        put(&x, i, is_wide, (double)(seed >> 26) / 16 - 2);
        seed = seed * 1664525u + 1013904223u;
        targets[i] = i % n < i / n % 7 ? (int64_t)((seed >> 16) % n) : -1;
        targets[i] = i % n < 7 ? targets[i] : (int64_t)((seed >> 16) % n); /* behind the end */
    }
    for (size_t i = 0; n <= 7 && i < ROWS; i += 5) {
        targets[i * n + n - 1] = 0; /* a list that fills the row, or a label behind its end */
    }
}

static bool is_target(size_t row, size_t n, size_t c)
{
    for (size_t k = 0; k < n && targets[row * n + k] >= 0; k++) {
        if (targets[row * n + k] == (int64_t)c) {
            return true;
        }
    }
    return false;
}

static double plain_row(bool is_wide, size_t row, size_t n, double *slope)
{
    double sum = 0;
    memset(slope, 0, n * sizeof *slope);
    for (size_t k = 0; k < n && targets[row * n + k] >= 0; k++) {
        const size_t t = (size_t)targets[row * n + k];
        for (size_t c = 0; c < n; c++) {
            const double margin = 1 - get(&x, row * n + t, is_wide) + get(&x, row * n + c, is_wide);
            if (!is_target(row, n, c) && margin > 0) {
                sum += margin;
                slope[c] += 1;
                slope[t] -= 1;
            }
        }
    }
    return sum;
}

static void run(tt_threads_t *threads, bool is_wide, size_t n)
{
    tt_exec_t exec = {.threads = threads};
    const tt_multilabel_t job = {.is_wide = is_wide,
                                 .rows = ROWS,
                                 .n = n,
                                 .x = &x,
                                 .targets = targets,
                                 .loss = &got.loss,
                                 .slope = &got.slope};
    memset(&got, 0xFF, sizeof got);
    assert_int_equal(tt_multilabel(&exec, &job), TUTTI_OK);
}

static void expect_rows(bool is_wide, size_t n)
{
    double slope[N_MAX];
    for (size_t row = 0; row < ROWS; row++) {
        const double bound = is_wide ? 1e-14 : 1e-6, size = (double)n;
        const double sum = plain_row(is_wide, row, n, slope);
        assert_true(fabs(get(&got.loss, row, is_wide) - sum / size) <= bound * (1 + sum));
        for (size_t c = 0; c < n; c++) {
            const double value = get(&got.slope, row * n + c, is_wide);
            assert_true(fabs(value - slope[c] / size) <= bound * (1 + fabs(slope[c])));
        }
    }
}

static void rows_have_the_values_of_their_formula(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 8, 16, 17, 33, N_MAX};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            fill(is_wide, sizes[k]);
            run(NULL, is_wide, sizes[k]);
            expect_rows(is_wide, sizes[k]);
        }
    }
}

/* As PyTorch: what is no number is no margin. */
static void numbers_that_are_not_finite_are_compared(void **state)
{
    (void)state;
    memset(targets, 0xFF, sizeof targets);
    memset(&x, 0, sizeof x);
    targets[0] = 0;
    x.f32[1] = NAN;
    x.f32[2] = -INFINITY;
    run(NULL, false, 3);
    assert_true(got.loss.f32[0] == 0 && got.slope.f32[0] == 0);
    x.f32[2] = INFINITY;
    run(NULL, false, 3);
    assert_true(got.loss.f32[0] == INFINITY && got.slope.f32[2] == 1.0F / 3);
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    tt_threads_t *threads;
    (void)state;
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        fill(is_wide, N_MAX);
        for (size_t i = 0; i < SIZE; i++) { /* sums that are rounded */
            put(&x, i, is_wide, get(&x, i, is_wide) * 0.7);
        }
        run(NULL, is_wide, N_MAX);
        other = got;
        run(threads, is_wide, N_MAX);
        assert_memory_equal(&other, &got, sizeof got);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            setenv("TUTTI_ISA", names[i], 1);
            if (tt_isa_check() >= 0) {
                run(NULL, is_wide, N_MAX);
                assert_memory_equal(&other, &got, sizeof got);
            }
        }
        unsetenv("TUTTI_ISA");
    }
    tt_threads_release(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_values_of_their_formula),
        cmocka_unit_test(numbers_that_are_not_finite_are_compared),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
