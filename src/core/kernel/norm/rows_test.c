/* Rows: f64 against differences, narrower dtypes against f64, bits over variants and threads. */
#include "core/base/guard_testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/kernel/isa.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/norm/rows.h"

enum { ROWS = 70, N_MAX = 700, SIZE = ROWS * N_MAX, OPS = 8 };

static const char *const op_names[OPS] = {
    "softmax",       "softmax_backward",       "log_softmax", "log_softmax_backward",
    "cross_entropy", "cross_entropy_backward", "layer_norm",  "rms_norm",
};

/* Everything an operation reads and writes, in one dtype. */
typedef struct {
    tutti_dtype_t dtype;
    double a[SIZE], b[SIZE], out[SIZE]; /* room for any dtype */
    double gamma[N_MAX], beta[N_MAX], dgamma[N_MAX], dbeta[N_MAX];
    double row1[ROWS], row2[ROWS], pairs[2 * ROWS], scale[ROWS];
    int64_t targets[ROWS];
} set_t;

static set_t wide, narrow, other;

static tt_strided_t flat(void *data, tutti_dtype_t dtype, int64_t n)
{
    return (tt_strided_t){.data = data, .dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
}

static void convert(void *out, tutti_dtype_t to, void *in, tutti_dtype_t from, int64_t n)
{
    const tt_strided_t y = flat(out, to, n), x = flat(in, from, n);
    tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &y, &x);
}

static void make_wide(size_t n)
{
    const tt_rng_t rng = tt_rng_stream(n, 1, 2, 3, 4);
    wide.dtype = TUTTI_F64;
    for (size_t i = 0; i < ROWS * n; i++) {
        /* Numbers that bf16 holds exactly, so that all dtypes start with the same values. */
        wide.a[i] = (double)((int)(tt_rng_u32(rng, i) >> 25) - 64) / 32;
        wide.b[i] = (double)((int)(tt_rng_u32(rng, i + SIZE) >> 25) - 64) / 64;
    }
    for (size_t i = 0; i < n; i++) {
        wide.gamma[i] = 1 + (double)(i % 5) / 8;
        wide.beta[i] = (double)(i % 7) / 4 - 1;
    }
    for (size_t r = 0; r < ROWS; r++) {
        wide.targets[r] = r % 9 == 4 ? -100 : (int64_t)(r * 31 % n);
        wide.scale[r] = 0.5 + (double)(r % 3) / 4;
    }
}

static void narrow_to(set_t *set, tutti_dtype_t dtype, size_t n)
{
    const int64_t count = (int64_t)(ROWS * n);
    const tutti_dtype_t accum = tt_accum_dtype(dtype);
    set->dtype = dtype;
    convert(set->a, dtype, wide.a, TUTTI_F64, count);
    convert(set->b, dtype, wide.b, TUTTI_F64, count);
    convert(set->gamma, accum, wide.gamma, TUTTI_F64, (int64_t)n);
    convert(set->beta, accum, wide.beta, TUTTI_F64, (int64_t)n);
    convert(set->scale, accum, wide.scale, TUTTI_F64, ROWS);
    memcpy(set->targets, wide.targets, sizeof set->targets);
}

static void run_loss(tt_exec_t *exec, set_t *set, size_t n, bool backward)
{
    const tt_cross_entropy_t ce = {
        .shape = {set->dtype, ROWS, n},
        .logits = set->a,
        .targets = set->targets,
        .ignore_index = -100,
        .label_smoothing = 0.1,
        .loss = set->row1,
        .max_sum = set->pairs,
        .dlogits = set->out,
        .scale = set->scale,
    };
    assert_int_equal(tt_cross_entropy(exec, &ce), TUTTI_OK);
    if (backward) {
        assert_int_equal(tt_cross_entropy_backward(exec, &ce), TUTTI_OK);
    }
}

/* Forward, then backward over the result, so that both are compared. */
static void run_norm(tt_exec_t *exec, set_t *set, size_t n, bool is_rms)
{
    tt_norm_t norm = {
        .shape = {set->dtype, ROWS, n},
        .eps = 1e-5,
        .x = set->a,
        .gamma = set->gamma,
        .beta = set->beta,
        .y = set->out,
        .mean = is_rms ? NULL : set->row1,
        .rstd = set->row2,
        .dy = set->b,
        .dgamma = set->dgamma,
        .dbeta = is_rms ? NULL : set->dbeta,
    };
    assert_int_equal((is_rms ? tt_rms_norm : tt_layer_norm)(exec, &norm), TUTTI_OK);
    norm.dx = set->b;
    const tutti_status_t status =
        (is_rms ? tt_rms_norm_backward : tt_layer_norm_backward)(exec, &norm);
    assert_int_equal(status, TUTTI_OK);
}

static void run(tt_exec_t *exec, int op, set_t *set, size_t n)
{
    const tt_rows_t shape = {set->dtype, ROWS, n};
    memset(set->out, 0, sizeof set->out);
    memset(set->row1, 0, sizeof set->row1);
    memset(set->row2, 0, sizeof set->row2);
    memset(set->pairs, 0, sizeof set->pairs);
    memset(set->dgamma, 0, sizeof set->dgamma);
    memset(set->dbeta, 0, sizeof set->dbeta);
    switch (op) {
    case 0:
        assert_int_equal(tt_softmax(exec, shape, set->out, set->a), TUTTI_OK);
        return;
    case 1:
        assert_int_equal(tt_softmax(exec, shape, set->out, set->a), TUTTI_OK);
        assert_int_equal(tt_softmax_backward(exec, shape, set->out, set->b, set->out), TUTTI_OK);
        return;
    case 2:
        assert_int_equal(tt_log_softmax(exec, shape, set->out, set->a), TUTTI_OK);
        return;
    case 3:
        assert_int_equal(tt_log_softmax(exec, shape, set->out, set->a), TUTTI_OK);
        assert_int_equal(tt_log_softmax_backward(exec, shape, set->out, set->b, set->out),
                         TUTTI_OK);
        return;
    case 4:
    case 5:
        run_loss(exec, set, n, op == 5);
        return;
    default:
        run_norm(exec, set, n, op == 7);
    }
}

static void compare(const char *what, int op, void *got, tutti_dtype_t dtype, double *want,
                    size_t n, double tolerance)
{
    static double back[SIZE];
    convert(back, TUTTI_F64, got, dtype, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(back[i] - want[i]) <= tolerance * (1 + fabs(want[i])))) {
            fail_msg("%s in %s, %s[%zu]: %.9g, not %.9g", op_names[op], tutti_dtype_name(dtype),
                     what, i, back[i], want[i]);
        }
    }
}

static void narrow_rows_agree_with_f64(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 7, 16, 65, 384, 700};
    static const struct {
        tutti_dtype_t dtype;
        double tolerance;
    } dtypes[] = {{TUTTI_F32, 2e-6}, {TUTTI_BF16, 1e-2}, {TUTTI_F16, 2e-3}};
    for (size_t s = 0; s < 6; s++) {
        const size_t n = sizes[s];
        for (int d = 0; d < 3; d++) {
            for (int op = 0; op < OPS; op++) {
                const double tolerance = dtypes[d].tolerance * (op >= 6 ? 20 : 1);
                make_wide(n);
                narrow_to(&narrow, dtypes[d].dtype, n);
                const tutti_dtype_t dtype = narrow.dtype, accum = tt_accum_dtype(dtype);
                run(NULL, op, &wide, n);
                run(NULL, op, &narrow, n);
                compare("out", op, narrow.out, dtype, wide.out, ROWS * n, tolerance);
                compare("row1", op, narrow.row1, accum, wide.row1, ROWS, tolerance);
                compare("row2", op, narrow.row2, accum, wide.row2, ROWS, tolerance * 10);
                compare("pairs", op, narrow.pairs, accum, wide.pairs, 2 * ROWS, tolerance * 10);
                if (n > 1) {
                    compare("dx", op, narrow.b, dtype, wide.b, ROWS * n, tolerance * 10);
                    compare("dgamma", op, narrow.dgamma, accum, wide.dgamma, n, tolerance * 10);
                    compare("dbeta", op, narrow.dbeta, accum, wide.dbeta, n, tolerance * 10);
                }
            }
        }
    }
}

/* The same computation, rounded once at the end: equal to the f32 result, converted. */
static void narrow_results_are_rounded_to_nearest(void **state)
{
    (void)state;
    static uint16_t want[SIZE];
    const size_t n = 45;
    for (int half = 0; half < 2; half++) {
        const tutti_dtype_t dtype = half ? TUTTI_F16 : TUTTI_BF16;
        make_wide(n);
        narrow_to(&narrow, dtype, n);
        narrow_to(&other, TUTTI_F32, n);
        run(NULL, 2, &narrow, n);
        run(NULL, 2, &other, n);
        convert(want, dtype, other.out, TUTTI_F32, (int64_t)(ROWS * n));
        assert_memory_equal(narrow.out, want, ROWS * n * sizeof *want);
    }
}

static void variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    const size_t n = 389;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int op = 0; op < OPS; op++) {
        for (int trial = 0; trial < 4; trial++) {
            tt_threads_t *threads;
            assert_int_equal(tt_threads_create(trial + 1, &threads), TUTTI_OK);
            make_wide(n);
            const tutti_dtype_t dtype = op % 2 ? TUTTI_BF16 : TUTTI_F32;
            memset(&narrow, 0, sizeof narrow);
            memset(&other, 0, sizeof other);
            narrow_to(&narrow, op >= 6 ? TUTTI_F32 : dtype, n);
            narrow_to(&other, op >= 6 ? TUTTI_F32 : dtype, n);
            run(NULL, op, &narrow, n);
            setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(trial % (best + 1))), 1);
            run(&(tt_exec_t){.threads = threads}, op, &other, n);
            unsetenv("TUTTI_ISA");
            tt_threads_release(threads);
            if (memcmp(&narrow, &other, sizeof narrow) != 0) {
                fail_msg("%s with %d threads", op_names[op], trial + 1);
            }
        }
    }
}

/* The sum of weighted outputs, whose gradient the backward calls give. */
static double objective(int op, size_t n)
{
    static double weights[SIZE];
    double sum = 0;
    memcpy(weights, wide.b, sizeof weights);
    run(NULL, op - op % 2 * (op < 6), &wide, n);
    for (size_t i = 0; i < ROWS * n && op != 5; i++) {
        sum += wide.out[i] * weights[i];
    }
    for (size_t r = 0; r < ROWS && op == 5; r++) {
        sum += wide.row1[r] * wide.scale[r];
    }
    memcpy(wide.b, weights, sizeof weights);
    return sum;
}

static void f64_gradients_are_slopes(void **state)
{
    (void)state;
    static const int ops[] = {1, 3, 5, 6, 7};
    static double gradient[SIZE];
    const size_t n = 13;
    for (size_t k = 0; k < 5; k++) {
        const int op = ops[k];
        make_wide(n);
        run(NULL, op, &wide, n);
        memcpy(gradient, op >= 6 ? wide.b : wide.out, sizeof gradient);
        make_wide(n);
        for (size_t i = 0; i < ROWS * n; i += 37) {
            const double x = wide.a[i], h = 1e-6;
            wide.a[i] = x + h;
            const double up = objective(op, n);
            wide.a[i] = x - h;
            const double slope = (up - objective(op, n)) / (2 * h);
            wide.a[i] = x;
            if (fabs(slope - gradient[i]) > 1e-6 * (1 + fabs(slope))) {
                fail_msg("%s: element %zu: %.9g, not %.9g", op_names[op], i, gradient[i], slope);
            }
        }
    }
}

static void targets_outside_are_named(void **state)
{
    (void)state;
    make_wide(5);
    wide.targets[3] = 5;
    const tt_cross_entropy_t ce = {.shape = {TUTTI_F64, ROWS, 5},
                                   .logits = wide.a,
                                   .targets = wide.targets,
                                   .ignore_index = -100,
                                   .loss = wide.row1,
                                   .max_sum = wide.pairs};
    assert_int_equal(tt_cross_entropy(NULL, &ce), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "target 3 is 5"));
}

static void infinite_logits_work(void **state)
{
    (void)state;
    const float x[4] = {-INFINITY, 0, -INFINITY, 0};
    float y[4];
    assert_int_equal(tt_softmax(NULL, (tt_rows_t){TUTTI_F32, 1, 4}, y, x), TUTTI_OK);
    const float want[4] = {0, 0.5f, 0, 0.5f};
    assert_memory_equal(y, want, sizeof y);
    const float large[3] = {1000, 999, -1000};
    assert_int_equal(tt_log_softmax(NULL, (tt_rows_t){TUTTI_F32, 1, 3}, y, large), TUTTI_OK);
    assert_true(fabsf(y[0] + 0.3132617f) < 1e-6f && y[2] < -1999);
}

/* Two equal logits, so large that the logarithm of their sum has no digits behind the point. */
static void expect_halves(tutti_dtype_t dtype, double large)
{
    double logits[2] = {large, large}, x[2], y[2], dx[2], loss[1], got[2], sums[2], one[1] = {1};
    const int64_t target[1] = {0};
    const tt_rows_t shape = {dtype, 1, 2};
    convert(x, dtype, logits, TUTTI_F64, 2);
    float one_f32 = 1;
    const tt_cross_entropy_t ce = {.shape = shape,
                                   .logits = x,
                                   .targets = target,
                                   .ignore_index = -100,
                                   .loss = loss,
                                   .max_sum = sums,
                                   .dlogits = dx,
                                   .scale = dtype == TUTTI_F64 ? (void *)one : &one_f32};
    assert_int_equal(tt_cross_entropy(NULL, &ce), TUTTI_OK);
    assert_int_equal(tt_cross_entropy_backward(NULL, &ce), TUTTI_OK);
    convert(got, TUTTI_F64, dx, dtype, 2);
    if (!(fabs(got[0] + 0.5) < 1e-6 && fabs(got[1] - 0.5) < 1e-6)) {
        fail_msg("gradient of %g in %s: %g %g", large, tutti_dtype_name(dtype), got[0], got[1]);
    }
    convert(got, TUTTI_F64, loss, tt_accum_dtype(dtype), 1);
    assert_true(fabs(got[0] - 0.693147) < 1e-6);
    assert_int_equal(tt_softmax(NULL, shape, y, x), TUTTI_OK);
    convert(got, TUTTI_F64, y, dtype, 2);
    assert_true(fabs(got[0] - 0.5) < 1e-6 && fabs(got[1] - 0.5) < 1e-6);
    assert_int_equal(tt_log_softmax(NULL, shape, y, x), TUTTI_OK);
    convert(got, TUTTI_F64, y, dtype, 2);
    assert_true(fabs(got[0] + 0.693147) < 2e-3);
}

static void large_logits_keep_their_softmax(void **state)
{
    (void)state;
    static const struct {
        tutti_dtype_t dtype;
        double large;
    } cases[] = {{TUTTI_F32, 2e7},    {TUTTI_F32, -1e30}, {TUTTI_F64, 3e16},
                 {TUTTI_F64, -1e300}, {TUTTI_BF16, 3e7},  {TUTTI_F16, 6e4}};
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int isa = 0; isa <= best; isa++) {
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)isa), 1);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            expect_halves(cases[i].dtype, cases[i].large);
        }
    }
    unsetenv("TUTTI_ISA");
}

/* The mean of these lies between two numbers of f32. */
static void smoothing_keeps_the_digits_of_large_logits(void **state)
{
    (void)state;
    float x[700], loss, sums[2];
    const int64_t target = 3;
    for (int i = 0; i < 700; i++) {
        x[i] = i % 2 == 0 ? 20000000 : 20000002;
    }
    const tt_cross_entropy_t ce = {.shape = {TUTTI_F32, 1, 700},
                                   .logits = x,
                                   .targets = &target,
                                   .ignore_index = -100,
                                   .label_smoothing = 0.5,
                                   .loss = &loss,
                                   .max_sum = sums};
    assert_int_equal(tt_cross_entropy(NULL, &ce), TUTTI_OK);
    const double want = log(350 * (1 + exp(-2))) + 0.5;
    if (!(fabs((double)loss - want) < 1e-5)) {
        fail_msg("loss %g, not %g", (double)loss, want);
    }
}

/* Numbers that f32 does not hold exactly: sums of thousands of them are rounded, always to the same
 * side, and what they are wrong by is more than the numbers differ by. */
static void the_rounding_of_long_rows_is_no_variance(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[2][N], y[2][N];
    float mean[2], rstd[2];
    for (size_t i = 0; i < N; i++) {
        x[0][i] = 1000.3f;
        x[1][i] = i % 2 == 0 ? 1000.301f : 1000.299f;
    }
    const float step = (x[1][0] - x[1][1]) / 2;
    const tt_norm_t norm = {
        .shape = {TUTTI_F32, 2, N}, .eps = 1e-12, .x = x, .y = y, .mean = mean, .rstd = rstd};
    assert_int_equal(tt_layer_norm(NULL, &norm), TUTTI_OK);
    for (size_t i = 0; i < N; i++) {
        assert_true(y[0][i] == 0);
        assert_true(fabsf(y[1][i] - (i % 2 == 0 ? 1.0f : -1.0f)) < 0.05f);
    }
    assert_true(mean[0] == x[0][0] && fabsf(rstd[1] * step - 1) < 1e-3f);
}

static void without_classes_every_row_is_ignored(void **state)
{
    (void)state;
    float loss[2] = {7, 7}, sums[4] = {7, 7, 7, 7};
    const int64_t targets[2] = {-100, -100};
    const tt_cross_entropy_t ce = {.shape = {TUTTI_F32, 2, 0},
                                   .targets = targets,
                                   .ignore_index = -100,
                                   .loss = loss,
                                   .max_sum = sums};
    assert_int_equal(tt_cross_entropy(NULL, &ce), TUTTI_OK);
    assert_true(loss[0] == 0 && loss[1] == 0 && sums[3] == 0);
}

static void nothing_behind_the_last_row_is_touched(void **state)
{
    (void)state;
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16, TUTTI_F64};
    static const double zeros[33];
    for (int d = 0; d < 4; d++) {
        for (size_t n = 1; n <= 33; n++) {
            const size_t bytes = n * tutti_dtype_bytes(dtypes[d]);
            const tt_guarded_t x = tt_guard(zeros, bytes), y = tt_guard(zeros, bytes);
            assert_int_equal(tt_softmax(NULL, (tt_rows_t){dtypes[d], 1, n}, y.data, x.data), 0);
            tt_unguard(x);
            tt_unguard(y);
        }
    }
}

static void no_rows_and_no_memory_are_handled(void **state)
{
    (void)state;
    assert_int_equal(tt_softmax(NULL, (tt_rows_t){TUTTI_F32, 0, 4}, NULL, NULL), TUTTI_OK);
    assert_int_equal(tt_softmax(NULL, (tt_rows_t){TUTTI_F32, 4, 0}, NULL, NULL), TUTTI_OK);
    float sums[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    tt_norm_t norm = {.shape = {TUTTI_F32, 0, 8}, .dgamma = sums};
    assert_int_equal(tt_layer_norm_backward(NULL, &norm), TUTTI_OK);
    assert_true(sums[7] == 0.0f);
    tt_alloc_fail_at(1);
    assert_int_equal(tt_layer_norm_backward(NULL, &norm), TUTTI_ERR_NOMEM);
    tt_alloc_fail_at(0);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(narrow_rows_agree_with_f64, nothing_is_left),
        cmocka_unit_test_teardown(narrow_results_are_rounded_to_nearest, nothing_is_left),
        cmocka_unit_test_teardown(variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(f64_gradients_are_slopes, nothing_is_left),
        cmocka_unit_test_teardown(targets_outside_are_named, nothing_is_left),
        cmocka_unit_test_teardown(infinite_logits_work, nothing_is_left),
        cmocka_unit_test_teardown(large_logits_keep_their_softmax, nothing_is_left),
        cmocka_unit_test_teardown(smoothing_keeps_the_digits_of_large_logits, nothing_is_left),
        cmocka_unit_test_teardown(the_rounding_of_long_rows_is_no_variance, nothing_is_left),
        cmocka_unit_test_teardown(without_classes_every_row_is_ignored, nothing_is_left),
        cmocka_unit_test_teardown(nothing_behind_the_last_row_is_touched, nothing_is_left),
        cmocka_unit_test_teardown(no_rows_and_no_memory_are_handled, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
