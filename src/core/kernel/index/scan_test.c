/* Running sums and products, and the gradient of the latter, where f32 and f64 run out. */
#include <math.h>

#include "core/base/testing.h"
#include "core/kernel/index/scan.h"

enum { N = 6 };

static void expect(const float *got, const double *want, int n)
{
    for (int i = 0; i < n; i++) {
        const double x = (double)got[i];
        if (!(x == want[i] || fabs(x - want[i]) <= 1e-6 * fabs(want[i]))) {
            fail_msg("element %d is %.9g, not %.9g", i, x, want[i]);
        }
    }
}

static void sums_are_made_in_f64(void **state)
{
    (void)state;
    float x[N] = {1e8f, 1, 1, 1, 1, -1e8f}, y[N];
    const double up[N] = {1e8, 1e8, 1e8, 1e8, 1e8, 4}, down[N] = {4, -1e8, -1e8, -1e8, -1e8, -1e8};
    tt_scan_t scan = {.out = tt_strided_row(y, TUTTI_F32, N), .x = tt_strided_row(x, TUTTI_F32, N)};
    assert_int_equal(tt_scan(NULL, &scan), 0);
    expect(y, up, N);
    scan.is_reverse = true;
    assert_int_equal(tt_scan(NULL, &scan), 0);
    expect(y, down, N);
}

static void strides_and_threads_change_no_bit(void **state)
{
    (void)state;
    enum { ROWS = 300, COLUMNS = 77 };
    static float x[ROWS * COLUMNS], one[ROWS * COLUMNS], many[ROWS * COLUMNS];
    tt_threads_t *threads;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = (float)(i * 7919 % 1013) / 64 - 7;
    }
    tt_scan_t scan = {.out = tt_strided_rows(one, TUTTI_F32, ROWS, COLUMNS),
                      .x = tt_strided_rows(x, TUTTI_F32, ROWS, COLUMNS),
                      .dim = 1};
    assert_int_equal(tt_scan(NULL, &scan), 0);
    /* The same lines as columns of a transposed view, of which other code is responsible. */
    tt_strided_t turned = {.data = x,
                           .dtype = TUTTI_F32,
                           .rank = 2,
                           .shape = {COLUMNS, ROWS},
                           .strides = {1, COLUMNS}};
    scan.x = turned;
    turned.data = many;
    scan.out = turned;
    scan.dim = 0;
    assert_int_equal(tt_threads_create(3, &threads), 0);
    assert_int_equal(tt_scan(&(tt_exec_t){.threads = threads}, &scan), 0);
    tt_threads_release(threads);
    assert_memory_equal(one, many, sizeof one);
}

static void backward(float *dx, float *g, float *x, int n)
{
    const tt_product_backward_t call = {tt_strided_row(dx, TUTTI_F32, n),
                                        tt_strided_row(g, TUTTI_F32, n),
                                        tt_strided_row(x, TUTTI_F32, n), 0};
    assert_int_equal(tt_scan_product_backward(NULL, &call), 0);
}

/* y = 1e30, 1e60, 1e30: the middle one is no f32, and the last one is. */
static void products_may_leave_f32_and_come_back(void **state)
{
    (void)state;
    float x[3] = {1e30f, 1e30f, 1e-30f}, g[3] = {0, 0, 1}, dx[3];
    const double want[3] = {1, 1, INFINITY};
    backward(dx, g, x, 3);
    expect(dx, want, 3);
    float tiny[4] = {1e-30f, 1e-30f, 1e30f, 1e30f}, last[4] = {0, 0, 0, 1}, small[4];
    const double back[4] = {1e30, 1e30, 1e-30, 1e-30};
    backward(small, last, tiny, 4);
    expect(small, back, 4);
}

/* Twenty times 1e30, and as often 1e-30: even f64 does not hold what is between. */
static void products_may_leave_f64_and_come_back(void **state)
{
    (void)state;
    float x[40], g[40] = {0}, dx[40];
    double want[40];
    for (int i = 0; i < 40; i++) {
        x[i] = i < 20 ? 1e30f : 1e-30f;
        want[i] = i < 20 ? 1e-30 : 1e30;
    }
    g[39] = 1;
    backward(dx, g, x, 40);
    for (int i = 0; i < 40; i++) {
        assert_true(fabs((double)dx[i] / want[i] - 1) < 1e-5);
    }
}

/* Zeros: what is in front of the first, the first, and all behind it. */
static void zeros_are_exact(void **state)
{
    (void)state;
    float x[N] = {2, 3, 0, 5, 0, 7}, g[N] = {1, 10, 100, 1000, 1e4f, 1e5f}, dx[N];
    const double one_zero[N] = {1 + 3 * 10, 2 * 10, 6 * (100 + 5 * 1000), 0, 0, 0};
    backward(dx, g, x, N);
    expect(dx, one_zero, N);
    float again[3] = {0, 0, 4}, all[3] = {1, 1, 1};
    const double first[3] = {1, 0, 0};
    backward(dx, all, again, 3);
    expect(dx, first, 3);
}

/* Lines of f32 that stay in range go another way than those of f64: the same numbers. */
static void both_ways_round_alike(void **state)
{
    (void)state;
    enum { LONG = 200 };
    float x[LONG], g[LONG], dx[LONG];
    double wide_x[LONG], wide_g[LONG], wide_dx[LONG];
    for (int i = 0; i < LONG; i++) {
        wide_x[i] = (double)(x[i] = (float)(i * 7919 % 1013) / 300 - 1.5f);
        wide_g[i] = (double)(g[i] = (float)(i * 5077 % 997) / 100 - 5);
    }
    x[150] = 0;
    wide_x[150] = 0;
    backward(dx, g, x, LONG);
    const tt_product_backward_t call = {tt_strided_row(wide_dx, TUTTI_F64, LONG),
                                        tt_strided_row(wide_g, TUTTI_F64, LONG),
                                        tt_strided_row(wide_x, TUTTI_F64, LONG), 0};
    assert_int_equal(tt_scan_product_backward(NULL, &call), 0);
    for (int i = 0; i < LONG; i++) {
        assert_true(dx[i] == (float)wide_dx[i]);
    }
}

static void infinities_and_nan_pass(void **state)
{
    (void)state;
    float x[3] = {2, INFINITY, 3}, g[3] = {1, 1, 1}, dx[3];
    backward(dx, g, x, 3);
    assert_true(isinf(dx[0]) && dx[1] == 2 * (1 + 3) && isinf(dx[2]));
    x[1] = NAN;
    backward(dx, g, x, 3);
    assert_true(isnan(dx[0]) && dx[1] == 2 * (1 + 3) && isnan(dx[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_made_in_f64),
        cmocka_unit_test(strides_and_threads_change_no_bit),
        cmocka_unit_test(products_may_leave_f32_and_come_back),
        cmocka_unit_test(products_may_leave_f64_and_come_back),
        cmocka_unit_test(zeros_are_exact),
        cmocka_unit_test(both_ways_round_alike),
        cmocka_unit_test(infinities_and_nan_pass),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
