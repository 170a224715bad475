/* Weight norm of rows against its formulas, in f32 and f64, and its bits over threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/dtype.h>

#include "core/base/testing.h"
#include "core/kernel/norm/weight_rows.h"

enum { ROWS = 67, N_MAX = 1000 };

/* Operands, and what a run leaves. */
static union {
    float f32[ROWS * N_MAX];
    double f64[ROWS * N_MAX];
} v, dw, w, dv, lengths, dg, g;

typedef struct {
    float w[ROWS * N_MAX], dv[ROWS * N_MAX], dg[ROWS];
} result_t;

static double get(const void *array, size_t at, tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? ((const double *)array)[at] : (double)((const float *)array)[at];
}

static void put(void *array, size_t at, tutti_dtype_t dtype, double value)
{
    if (dtype == TUTTI_F64) {
        ((double *)array)[at] = value;
    } else {
        ((float *)array)[at] = (float)value;
    }
}

static void fill(tutti_dtype_t dtype, size_t n)
{
    unsigned seed = 1;
    for (size_t i = 0; i < ROWS * n; i++) {
        seed = seed * 1664525u + 1013904223u;
        put(&v, i, dtype, (double)(seed >> 8) / 1e7 - 0.5);
        seed = seed * 1664525u + 1013904223u;
        put(&dw, i, dtype, (double)(seed >> 8) / 1e7 - 0.3);
    }
    for (size_t i = 0; i < ROWS; i++) {
        put(&g, i, dtype, 0.25 + (double)i / 7);
    }
}

static void run(tt_threads_t *threads, tutti_dtype_t dtype, size_t n)
{
    tt_exec_t exec = {.threads = threads};
    const tt_weight_norm_t norm = {.is_wide = dtype == TUTTI_F64,
                                   .rows = ROWS,
                                   .n = n,
                                   .v = &v,
                                   .g = &g,
                                   .w = &w,
                                   .length = &lengths,
                                   .dw = &dw,
                                   .dv = &dv,
                                   .dg = &dg};
    assert_int_equal(tt_weight_norm(&exec, &norm), TUTTI_OK);
    assert_int_equal(tt_weight_norm_backward(&exec, &norm), TUTTI_OK);
}

static void expect_near(double value, double wanted, double bound)
{
    if (!(fabs(value - wanted) <= bound * (1 + fabs(wanted)))) {
        fail_msg("%.17g, not %.17g", value, wanted);
    }
}

static void expect_row(tutti_dtype_t dtype, size_t n, size_t r, double bound)
{
    double squares = 0, dot = 0;
    for (size_t i = r * n; i < (r + 1) * n; i++) {
        squares += get(&v, i, dtype) * get(&v, i, dtype);
        dot += get(&v, i, dtype) * get(&dw, i, dtype);
    }
    const double length = sqrt(squares), factor = get(&g, r, dtype) / length;
    const double sums = dtype == TUTTI_F64 ? 1e-12 : 1e-5;
    expect_near(get(&lengths, r, dtype), length, sums);
    expect_near(get(&dg, r, dtype), dot / length, sums);
    for (size_t i = r * n; i < (r + 1) * n; i++) {
        const double x = get(&v, i, dtype), slope = dot / squares;
        expect_near(get(&w, i, dtype), x * factor, bound);
        /* 1 + |x| slope: what dv is a difference of */
        expect_near(get(&dv, i, dtype), factor * (get(&dw, i, dtype) - x * slope),
                    bound * (1 + fabs(factor) * (1 + fabs(x * slope))));
    }
}

static void expect_values(tutti_dtype_t dtype, double bound)
{
    static const size_t lengths_of_rows[] = {1, 5, 16, 17, 100, N_MAX};
    for (size_t k = 0; k < sizeof lengths_of_rows / sizeof *lengths_of_rows; k++) {
        const size_t n = lengths_of_rows[k];
        fill(dtype, n);
        run(NULL, dtype, n);
        for (size_t r = 0; r < ROWS; r++) {
            expect_row(dtype, n, r, bound);
        }
    }
}

static void rows_have_the_values_of_their_formulas(void **state)
{
    (void)state;
    expect_values(TUTTI_F64, 1e-12);
    expect_values(TUTTI_F32, 1e-5);
}

static void keep(result_t *result)
{
    memcpy(result->w, w.f32, sizeof result->w);
    memcpy(result->dv, dv.f32, sizeof result->dv);
    memcpy(result->dg, dg.f32, sizeof result->dg);
}

static void bits_are_the_same_with_any_number_of_threads(void **state)
{
    static result_t first, other;
    tt_threads_t *threads;
    (void)state;
    fill(TUTTI_F32, N_MAX);
    run(NULL, TUTTI_F32, N_MAX);
    keep(&first);
    assert_int_equal(tt_threads_create(3, &threads), TUTTI_OK);
    run(threads, TUTTI_F32, N_MAX);
    keep(&other);
    assert_memory_equal(&first, &other, sizeof first);
    tt_threads_release(threads);
}

static void what_is_not_wanted_is_not_written(void **state)
{
    (void)state;
    fill(TUTTI_F32, 5);
    const tt_weight_norm_t forward = {.rows = ROWS, .n = 5, .v = &v, .g = &g, .w = &w};
    assert_int_equal(tt_weight_norm(NULL, &forward), TUTTI_OK);
    run(NULL, TUTTI_F32, 5);
    const float wanted = dg.f32[ROWS - 1];
    const tt_weight_norm_t backward = {
        .rows = ROWS, .n = 5, .v = &v, .g = &g, .length = &lengths, .dw = &dw, .dg = &dg};
    memset(&dg, 0, sizeof dg);
    assert_int_equal(tt_weight_norm_backward(NULL, &backward), TUTTI_OK);
    assert_true(dg.f32[ROWS - 1] == wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_values_of_their_formulas),
        cmocka_unit_test(bits_are_the_same_with_any_number_of_threads),
        cmocka_unit_test(what_is_not_wanted_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
