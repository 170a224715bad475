/* Softmax, cross entropy and norms in f64, against their formulas. */
#include "core/base/alloc.h"
#include "core/kernel/f64_near_test.h"
#include "core/kernel/norm/channels.h"
#include "core/kernel/norm/rows.h"

enum { ROWS = 3 };

/* ---- rows ------------------------------------------------------------------------------------ */

/* What a run of the kernel leaves: everything that is compared over variants. */
static struct {
    double y[ROWS * N_MAX], dx[ROWS * N_MAX], dgamma[N_MAX], dbeta[N_MAX];
    double row1[ROWS], row2[ROWS], loss[ROWS], pairs[2 * ROWS];
} got;

static double x[ROWS * N_MAX], dy[ROWS * N_MAX], gamma_[N_MAX], beta_[N_MAX];
static const double scale[ROWS] = {1.5, -0.5, 1};
static int op_now; /* 0: softmax, 1: log_softmax, 2: cross entropy, 3: layer norm, 4: rms norm */

enum { SOFTMAX, LOG_SOFTMAX, CROSS_ENTROPY, LAYER_NORM, RMS_NORM, ROW_OPS };

static int64_t target_of(size_t row, size_t n)
{
    return (int64_t)((row * 37 + 5) % n);
}

static void run_loss(tt_rows_t shape)
{
    int64_t targets[ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        targets[r] = target_of(r, shape.n);
    }
    const tt_cross_entropy_t ce = {.shape = shape,
                                   .logits = x,
                                   .targets = targets,
                                   .ignore_index = -100,
                                   .label_smoothing = 0.1,
                                   .loss = got.loss,
                                   .max_sum = got.pairs,
                                   .dlogits = got.dx,
                                   .scale = scale};
    assert_int_equal(tt_cross_entropy(NULL, &ce), TUTTI_OK);
    assert_int_equal(tt_cross_entropy_backward(NULL, &ce), TUTTI_OK);
}

static void run_norm(tt_rows_t shape, bool is_rms)
{
    const tt_norm_t norm = {.shape = shape,
                            .eps = 1e-5,
                            .x = x,
                            .gamma = gamma_,
                            .beta = beta_,
                            .y = got.y,
                            .mean = is_rms ? NULL : got.row1,
                            .rstd = got.row2,
                            .dy = dy,
                            .dx = got.dx,
                            .dgamma = got.dgamma,
                            .dbeta = is_rms ? NULL : got.dbeta};
    assert_int_equal((is_rms ? tt_rms_norm : tt_layer_norm)(NULL, &norm), TUTTI_OK);
    assert_int_equal((is_rms ? tt_rms_norm_backward : tt_layer_norm_backward)(NULL, &norm),
                     TUTTI_OK);
}

static void run_rows(size_t n)
{
    const tt_rows_t shape = {TUTTI_F64, ROWS, n};
    memset(&got, 0, sizeof got);
    switch (op_now) {
    case SOFTMAX:
        assert_int_equal(tt_softmax(NULL, shape, got.y, x), TUTTI_OK);
        assert_int_equal(tt_softmax_backward(NULL, shape, got.dx, dy, got.y), TUTTI_OK);
        break;
    case LOG_SOFTMAX:
        assert_int_equal(tt_log_softmax(NULL, shape, got.y, x), TUTTI_OK);
        assert_int_equal(tt_log_softmax_backward(NULL, shape, got.dx, dy, got.y), TUTTI_OK);
        break;
    case CROSS_ENTROPY:
        run_loss(shape);
        break;
    default:
        run_norm(shape, op_now == RMS_NORM);
    }
}

static wide_t log_sum_exp(const double *row, size_t n)
{
    wide_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += expl((wide_t)row[i]);
    }
    return logl(sum);
}

static void expect_softmax_row(size_t r, size_t n, wide_t *y, wide_t *dx, wide_t *loss)
{
    const double *row = x + r * n, *g = dy + r * n;
    const wide_t lse = log_sum_exp(row, n);
    wide_t dot = 0, sum = 0, mean = 0;
    for (size_t i = 0; i < n; i++) {
        const wide_t p = expl((wide_t)row[i] - lse);
        y[i] = op_now == SOFTMAX ? p : (wide_t)row[i] - lse;
        dot += (wide_t)g[i] * p;
        sum += (wide_t)g[i];
        mean += (wide_t)row[i] / (wide_t)n;
    }
    const size_t target = (size_t)target_of(r, n);
    const wide_t smoothing = 0.1;
    for (size_t i = 0; i < n; i++) {
        const wide_t p = expl((wide_t)row[i] - lse);
        const wide_t hit = (i == target ? 1 - smoothing : 0) + smoothing / (wide_t)n;
        dx[i] = op_now == SOFTMAX       ? p * ((wide_t)g[i] - dot)
                : op_now == LOG_SOFTMAX ? (wide_t)g[i] - p * sum
                                        : (wide_t)scale[r] * (p - hit);
    }
    *loss = (1 - smoothing) * (lse - (wide_t)row[target]) + smoothing * (lse - mean);
}

static void expect_norm_row(size_t r, size_t n, wide_t *y, wide_t *dx, wide_t *dgamma,
                            wide_t *dbeta)
{
    const double *row = x + r * n, *g = dy + r * n;
    wide_t mean = 0, squares = 0, sum = 0, dot = 0;
    for (size_t i = 0; i < n && op_now == LAYER_NORM; i++) {
        mean += (wide_t)row[i] / (wide_t)n;
    }
    for (size_t i = 0; i < n; i++) {
        squares += ((wide_t)row[i] - mean) * ((wide_t)row[i] - mean) / (wide_t)n;
    }
    const wide_t rstd = 1 / sqrtl(squares + (wide_t)1e-5);
    for (size_t i = 0; i < n; i++) {
        const wide_t hat = ((wide_t)row[i] - mean) * rstd, d = (wide_t)g[i] * (wide_t)gamma_[i];
        y[i] = hat * (wide_t)gamma_[i] + (op_now == LAYER_NORM ? (wide_t)beta_[i] : 0);
        sum += op_now == LAYER_NORM ? d / (wide_t)n : 0;
        dot += d * hat / (wide_t)n;
        dgamma[i] += (wide_t)g[i] * hat;
        dbeta[i] += op_now == LAYER_NORM ? (wide_t)g[i] : 0;
    }
    for (size_t i = 0; i < n; i++) {
        const wide_t hat = ((wide_t)row[i] - mean) * rstd, d = (wide_t)g[i] * (wide_t)gamma_[i];
        dx[i] = rstd * (d - sum - hat * dot);
    }
}

static void rows_equal_their_formulas(void **state)
{
    (void)state;
    fill(x, ROWS * N_MAX, 11);
    fill(dy, ROWS * N_MAX, 12);
    fill(gamma_, N_MAX, 13);
    fill(beta_, N_MAX, 14);
    for (op_now = 0; op_now < ROW_OPS; op_now++) {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t n = sizes[s];
            static wide_t y[ROWS * N_MAX], dx[ROWS * N_MAX], loss[ROWS];
            wide_t dgamma[N_MAX] = {0}, dbeta[N_MAX] = {0};
            on_all_variants(run_rows, n, &got, sizeof got);
            for (size_t r = 0; r < ROWS; r++) {
                if (op_now < LAYER_NORM) {
                    expect_softmax_row(r, n, y + r * n, dx + r * n, &loss[r]);
                } else {
                    expect_norm_row(r, n, y + r * n, dx + r * n, dgamma, dbeta);
                }
            }
            if (op_now == CROSS_ENTROPY) {
                assert_near("loss", got.loss, loss, ROWS);
            } else {
                assert_near("y", got.y, y, ROWS * n);
            }
            /* of one element all is in the difference of two numbers of about 1 */
            for (size_t r = 0; r < ROWS && n > 2; r++) {
                assert_near("dx", got.dx + r * n, dx + r * n, n);
            }
            if (op_now >= LAYER_NORM) {
                assert_near("dgamma", got.dgamma, dgamma, n);
                assert_near("dbeta", got.dbeta, dbeta, n);
            }
        }
    }
}

/* ---- channels -------------------------------------------------------------------------------- */

enum { BATCH = 3, CHANNELS = 4, IMAGES = BATCH * CHANNELS };

static double image[IMAGES * N_MAX], image_dy[IMAGES * N_MAX];

static struct {
    double y[IMAGES * N_MAX], dx[IMAGES * N_MAX], mean[IMAGES], other[IMAGES], sum[IMAGES],
        dot[IMAGES];
} norm_got;

static bool is_group;

static void run_channels(size_t n)
{
    memset(&norm_got, 0, sizeof norm_got);
    if (is_group) {
        const tt_groups_t g = {TUTTI_F64,      BATCH,      2,        CHANNELS,     n,
                               1e-5,           image,      gamma_,   beta_,        norm_got.mean,
                               norm_got.other, norm_got.y, image_dy, norm_got.sum, norm_got.dot,
                               norm_got.dx};
        assert_int_equal(tt_groups_forward(NULL, &g), TUTTI_OK);
        assert_int_equal(tt_groups_backward(NULL, &g), TUTTI_OK);
        return;
    }
    const tt_channels_t c = {.dtype = TUTTI_F64,
                             .batch = BATCH,
                             .channels = CHANNELS,
                             .n = n,
                             .eps = 1e-5,
                             .x = image,
                             .gamma = gamma_,
                             .beta = beta_,
                             .mean = norm_got.mean,
                             .variance = norm_got.other,
                             .y = norm_got.y,
                             .dy = image_dy,
                             .sum = norm_got.sum,
                             .dot = norm_got.dot,
                             .dx = norm_got.dx,
                             .count = (double)(BATCH * n)};
    assert_int_equal(tt_channels_forward(NULL, &c), TUTTI_OK);
    assert_int_equal(tt_channels_backward(NULL, &c), TUTTI_OK);
}

/* Whether segment `at` (sample by sample, channel by channel) is of set `set`: a channel over the
 * samples, or half of the channels of a sample. */
static bool is_of(size_t at, size_t set)
{
    return is_group ? at / 2 == set : at % CHANNELS == set;
}

static void expect_set(size_t set, size_t n, wide_t *y, wide_t *dx)
{
    wide_t count = 0, mean = 0, variance = 0, sum = 0, dot = 0;
    for (size_t at = 0; at < IMAGES * n; at++) {
        count += is_of(at / n, set);
        mean += is_of(at / n, set) ? (wide_t)image[at] : 0;
    }
    mean /= count;
    for (size_t at = 0; at < IMAGES * n; at++) {
        const wide_t d = (wide_t)image[at] - mean;
        variance += is_of(at / n, set) ? d * d / count : 0;
    }
    const wide_t r = 1 / sqrtl(variance + (wide_t)1e-5);
    for (size_t at = 0; at < IMAGES * n; at++) {
        if (is_of(at / n, set)) {
            const wide_t d = (wide_t)image_dy[at] * (wide_t)gamma_[at / n % CHANNELS];
            sum += d / count;
            dot += d * ((wide_t)image[at] - mean) * r / count;
        }
    }
    for (size_t at = 0; at < IMAGES * n; at++) {
        if (is_of(at / n, set)) {
            const size_t channel = at / n % CHANNELS;
            const wide_t hat = ((wide_t)image[at] - mean) * r;
            y[at] = hat * (wide_t)gamma_[channel] + (wide_t)beta_[channel];
            dx[at] = r * ((wide_t)image_dy[at] * (wide_t)gamma_[channel] - sum - hat * dot);
        }
    }
}

static void channels_equal_their_formulas(void **state)
{
    (void)state;
    fill(image, IMAGES * N_MAX, 21);
    fill(image_dy, IMAGES * N_MAX, 22);
    fill(gamma_, CHANNELS, 23);
    fill(beta_, CHANNELS, 24);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t s = 2; s < SIZES; s++) {
            static wide_t y[IMAGES * N_MAX], dx[IMAGES * N_MAX];
            const size_t n = sizes[s];
            is_group = kind == 1;
            on_all_variants(run_channels, n, &norm_got, sizeof norm_got);
            for (size_t set = 0; set < (is_group ? 2 * (size_t)BATCH : (size_t)CHANNELS); set++) {
                expect_set(set, n, y, dx);
            }
            assert_near("y", norm_got.y, y, IMAGES * n);
            assert_near("dx", norm_got.dx, dx, IMAGES * n);
        }
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rows_equal_their_formulas, nothing_is_left),
        cmocka_unit_test_teardown(channels_equal_their_formulas, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
