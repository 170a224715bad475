/* Channels: narrow dtypes against f64, bits over variants and threads, sums of long segments. */
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
#include "core/kernel/norm/channels.h"
#include "core/kernel/isa.h"
#include "core/kernel/elementwise/map.h"

enum { BATCH = 3, CHANNELS = 6, GROUPS = 3, N_MAX = 5000, SIZE = BATCH * CHANNELS * N_MAX };

/* Everything that is read and written, in one dtype. */
typedef struct {
    tutti_dtype_t dtype;
    bool has_relu;                               /* and a residual: of batch norm */
    double x[SIZE], y[SIZE], dy[SIZE], dx[SIZE]; /* room for any dtype */
    double gamma[CHANNELS], beta[CHANNELS], mean[BATCH * CHANNELS], other[BATCH * CHANNELS];
    double sum[BATCH * CHANNELS], dot[BATCH * CHANNELS];
} set_t;

static set_t wide, narrow, second;

static void convert(void *out, tutti_dtype_t to, void *in, tutti_dtype_t from, int64_t n)
{
    const tt_strided_t y = {.data = out, .dtype = to, .rank = 1, .shape = {n}, .strides = {1}};
    const tt_strided_t x = {.data = in, .dtype = from, .rank = 1, .shape = {n}, .strides = {1}};
    tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x);
}

static void make_wide(size_t n)
{
    const tt_rng_t rng = tt_rng_stream(n, 1, 2, 3, 4);
    memset(&wide, 0, sizeof wide);
    wide.dtype = TUTTI_F64;
    for (size_t i = 0; i < BATCH * CHANNELS * n; i++) {
        /* Numbers that bf16 holds exactly, so that all dtypes start with the same values. */
        wide.x[i] = (double)((int)(tt_rng_u32(rng, i) >> 25) - 48) / 32;
        wide.dy[i] = (double)((int)(tt_rng_u32(rng, i + SIZE) >> 25) - 64) / 64;
    }
    for (size_t i = 0; i < CHANNELS; i++) {
        wide.gamma[i] = 1 + (double)(i % 5) / 8;
        wide.beta[i] = (double)(i % 7) / 4 - 1;
    }
}

static void narrow_to(set_t *set, tutti_dtype_t dtype, size_t n)
{
    memset(set, 0, sizeof *set);
    set->dtype = dtype;
    convert(set->x, dtype, wide.x, TUTTI_F64, (int64_t)(BATCH * CHANNELS * n));
    convert(set->dy, dtype, wide.dy, TUTTI_F64, (int64_t)(BATCH * CHANNELS * n));
    memcpy(set->gamma, wide.gamma, sizeof set->gamma);
    memcpy(set->beta, wide.beta, sizeof set->beta);
}

static void run_batch_norm(tt_exec_t *exec, set_t *set, size_t n)
{
    const tt_channels_t c = {.dtype = set->dtype,
                             .batch = BATCH,
                             .channels = CHANNELS,
                             .n = n,
                             .eps = 1e-3,
                             .x = set->x,
                             .gamma = set->gamma,
                             .beta = set->beta,
                             .mean = set->mean,
                             .variance = set->other,
                             .residual = set->has_relu ? set->dy : NULL, /* any numbers */
                             .relu = set->has_relu,
                             .y = set->y,
                             .dy = set->dy,
                             .sum = set->sum,
                             .dot = set->dot,
                             .dz = set->has_relu ? set->dx : NULL,
                             .dx = set->dx,
                             .count = (double)(BATCH * n)};
    assert_int_equal(tt_channels_forward(exec, &c), TUTTI_OK);
    assert_int_equal(tt_channels_backward(exec, &c), TUTTI_OK);
}

static void run_group_norm(tt_exec_t *exec, set_t *set, size_t n)
{
    const tt_groups_t g = {set->dtype, BATCH,      GROUPS,    CHANNELS,  n,          1e-3,
                           set->x,     set->gamma, set->beta, set->mean, set->other, set->y,
                           set->dy,    set->sum,   set->dot,  set->dx};
    assert_int_equal(tt_groups_forward(exec, &g), TUTTI_OK);
    assert_int_equal(tt_groups_backward(exec, &g), TUTTI_OK);
}

static void (*const kinds[])(tt_exec_t *, set_t *, size_t) = {run_batch_norm, run_group_norm};
static const size_t sizes[] = {1, 3, 16, 49, 700, N_MAX};

static void expect_near(const char *what, const double *got, const double *want, size_t n,
                        double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i])))) {
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i, got[i], want[i]);
        }
    }
}

static void compare(set_t *set, size_t n, double tolerance)
{
    static double values[SIZE];
    const size_t count = BATCH * CHANNELS * n;
    convert(values, TUTTI_F64, set->y, set->dtype, (int64_t)count);
    expect_near("y", values, wide.y, count, tolerance);
    convert(values, TUTTI_F64, set->dx, set->dtype, (int64_t)count);
    expect_near("dx", values, wide.dx, count, tolerance);
    /* what is summed in f32 blocks is near, relative to the number of terms */
    expect_near("mean", set->mean, wide.mean, BATCH * CHANNELS, 1e-6);
    expect_near("variance", set->other, wide.other, BATCH * CHANNELS, 1e-5);
    expect_near("sum", set->sum, wide.sum, BATCH * CHANNELS, 1e-6 * sqrt((double)n));
    expect_near("dot", set->dot, wide.dot, BATCH * CHANNELS, 1e-5 * sqrt((double)n));
}

static void narrow_channels_agree_with_f64(void **state)
{
    (void)state;
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    static const double tolerances[] = {2e-5, 1e-2, 2e-3};
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            make_wide(sizes[i]);
            kinds[kind](NULL, &wide, sizes[i]);
            for (size_t d = 0; d < 3; d++) {
                narrow_to(&narrow, dtypes[d], sizes[i]);
                kinds[kind](NULL, &narrow, sizes[i]);
                compare(&narrow, sizes[i], tolerances[d]);
            }
        }
    }
}

static void variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    const tt_variant_t best = tt_isa();
    for (int trial = 0; trial < 48; trial++) {
        const size_t n = sizes[trial % 6];
        const int kind = trial / 6 % 2;
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(trial % 4 + 1, &threads), TUTTI_OK);
        make_wide(n);
        narrow_to(&narrow, trial % 24 < 12 ? TUTTI_F32 : TUTTI_BF16, n);
        narrow.has_relu = trial >= 24;
        second = narrow;
        kinds[kind](NULL, &narrow, n);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(trial % ((int)best + 1))), 1);
        kinds[kind](&(tt_exec_t){.threads = threads}, &second, n);
        unsetenv("TUTTI_ISA");
        tt_threads_release(threads);
        if (memcmp(&narrow, &second, sizeof narrow) != 0) {
            fail_msg("kind %d, n %zu, trial %d", kind, n, trial);
        }
    }
}

/* A mean far from zero: the variance is that of the differences, not of large squares. */
static void a_large_mean_does_not_hide_the_variance(void **state)
{
    (void)state;
    static float x[N_MAX], y[N_MAX];
    double mean, variance;
    for (size_t i = 0; i < N_MAX; i++) {
        x[i] = 1000.0f + (i % 2 == 0 ? 0.125f : -0.125f);
    }
    const tt_channels_t c = {.dtype = TUTTI_F32,
                             .batch = 1,
                             .channels = 1,
                             .n = N_MAX,
                             .eps = 1e-12,
                             .x = x,
                             .mean = &mean,
                             .variance = &variance,
                             .y = y};
    assert_int_equal(tt_channels_forward(NULL, &c), TUTTI_OK);
    assert_true(fabs(mean - 1000) < 1e-3);
    assert_true(fabs(variance - 1.0 / 64) < 1e-5);
    assert_true(fabsf(y[0] - 1) < 0.01f && fabsf(y[1] + 1) < 0.01f);
}

/* Numbers that f32 does not hold exactly: sums of thousands of them are rounded, always to the same
 * side, and what they are wrong by is more than the numbers differ by. */
static void the_rounding_of_long_sums_is_no_variance(void **state)
{
    (void)state;
    static float x[2][N_MAX], y[2][N_MAX];
    double mean[2], variance[2], rstd[2];
    for (size_t i = 0; i < N_MAX; i++) {
        x[0][i] = 1000.3f;
        x[1][i] = i % 2 == 0 ? 1000.301f : 1000.299f;
    }
    const double want = 1000.3, step = ((double)x[1][0] - (double)x[1][1]) / 2;
    tt_channels_t c = {.dtype = TUTTI_F32, .batch = 1, .channels = 2, .n = N_MAX, .eps = 1e-12};
    c.x = x;
    c.y = y;
    c.mean = mean;
    c.variance = variance;
    tt_groups_t g = {.dtype = TUTTI_F32, .batch = 1, .groups = 2, .channels = 2, .n = N_MAX};
    g.eps = 1e-12;
    g.x = x;
    g.y = y;
    g.mean = mean;
    g.rstd = rstd;
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(kind == 0 ? tt_channels_forward(NULL, &c) : tt_groups_forward(NULL, &g),
                         TUTTI_OK);
        assert_true(mean[0] == (double)x[0][0] && y[0][0] == 0 && y[0][N_MAX - 1] == 0);
        assert_true(fabs(mean[1] - want) < 1e-4);
        assert_true(fabs((double)y[1][0] - 1) < 0.05 && fabs((double)y[1][1] + 1) < 0.05);
    }
    assert_true(variance[0] < 1e-9 && fabs(variance[1] / (step * step) - 1) < 1e-3);
    assert_true(fabs(rstd[1] * step - 1) < 1e-3);
}

/* Differences from it are no numbers, and correct nothing. */
static void an_infinite_mean_stays_infinite(void **state)
{
    (void)state;
    float x[20] = {[3] = INFINITY}, y[20];
    double mean, variance;
    const tt_channels_t c = {.dtype = TUTTI_F32,
                             .batch = 1,
                             .channels = 1,
                             .n = 20,
                             .eps = 1e-5,
                             .x = x,
                             .mean = &mean,
                             .variance = &variance,
                             .y = y};
    assert_int_equal(tt_channels_forward(NULL, &c), TUTTI_OK);
    assert_true(isinf(mean) && isnan(variance) && isnan(y[3]));
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(narrow_channels_agree_with_f64, nothing_is_left),
        cmocka_unit_test_teardown(variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(a_large_mean_does_not_hide_the_variance, nothing_is_left),
        cmocka_unit_test_teardown(an_infinite_mean_stays_infinite, nothing_is_left),
        cmocka_unit_test_teardown(the_rounding_of_long_sums_is_no_variance, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
