/* rrelu and gumbel_softmax: what they draw, the gradient of what was drawn, and what it depends on.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_activation.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { ROWS = 5000, CLASSES = 4, N = ROWS * CLASSES };

typedef tutti_tensor_t *(*call_t)(tutti_scope_t *s, tutti_tensor_t *x);

typedef struct {
    call_t call;
    int threads;
    int64_t step, shard;
    bool evaluates;
    tutti_dtype_t dtype;
} draw_t;

typedef struct {
    float x[N], y[N], dx[N];
} drawn_t;

static drawn_t one, other;

/* Weights of the outputs, so that the gradient of a softmax is not 0. */
static float weight_of(int64_t i)
{
    return (float)(1 + i % 3);
}

static void read(tutti_scope_t *s, float *to, tutti_tensor_t *x)
{
    assert_int_equal(tutti_tensor_status(x), TUTTI_OK);
    x = tutti_contiguous(s, tutti_cast(s, x, TUTTI_F32));
    memcpy(to, tt_test_host(x), N * sizeof *to);
}

static void differentiate(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y, drawn_t *out)
{
    static float weights[N];
    for (int64_t i = 0; i < N; i++) {
        weights[i] = weight_of(i);
    }
    const tutti_shape_t shape = TUTTI_SHAPE(ROWS, CLASSES);
    tutti_tensor_t *g = tutti_cast(s, tutti_from_data(s, TUTTI_F32, shape, weights), y->dtype), *dx;
    const tutti_backward_options_t backward = {.grad_output = g};
    assert_int_equal(tutti_grad(s, y, &backward, &x, 1, &dx), TUTTI_OK);
    read(s, out->dx, dx);
}

/* Rows of the numbers -1, -0.5, 0.5, 1. */
static void draw(const draw_t *d, drawn_t *out)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    const tutti_context_options_t options = {.threads = d->threads, .seed = 5};
    assert_int_equal(tt_test_context(&options, &ctx), TUTTI_OK);
    tutti_context_set_step(ctx, d->step);
    tutti_context_set_shard(ctx, d->shard);
    tutti_context_set_training(ctx, !d->evaluates);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    for (int64_t i = 0; i < N; i++) {
        out->x[i] = (float[]){-1, -0.5F, 0.5F, 1}[i % CLASSES];
    }
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(ROWS, CLASSES), out->x);
    x = tutti_cast(s, x, d->dtype);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *y = d->call(s, x);
    read(s, out->y, y);
    assert_int_equal(tutti_tensor_dtype(y), d->dtype);
    differentiate(s, x, y, out);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_context_release(ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *slanted(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_rrelu(s, x, 0.25, 0.75);
}

static tutti_tensor_t *soft(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_gumbel_softmax(s, x, 0.5, false, -1);
}

static tutti_tensor_t *hard(tutti_scope_t *s, tutti_tensor_t *x)
{
    return tutti_gumbel_softmax(s, x, 0.5, true, -1);
}

static void expect_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) {
        fail_msg("%.9g is not near %.9g", got, want);
    }
}

/* ---- rrelu ----------------------------------------------------------------------------------- */

static void slopes_are_uniform_below_0_and_are_the_gradient(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    draw(&(draw_t){.call = slanted, .threads = 1}, &one);
    for (int64_t i = 0; i < N; i++) {
        const float slope = one.y[i] / one.x[i];
        assert_true(one.x[i] > 0 ? slope == 1 : slope >= 0.25F && slope < 0.75F);
        assert_true(one.dx[i] == slope * weight_of(i));
        sum += one.x[i] < 0 ? (double)slope : 0;
        squares += one.x[i] < 0 ? (double)slope * (double)slope : 0;
    }
    const double mean = sum / (N / 2.0);
    expect_near(mean, 0.5, 0.01);
    expect_near(squares / (N / 2.0) - mean * mean, 0.25 / 12, 0.001);
}

static void evaluation_takes_the_mean_slope(void **state)
{
    (void)state;
    draw(&(draw_t){.call = slanted, .threads = 1, .evaluates = true}, &one);
    for (int64_t i = 0; i < N; i++) {
        const float slope = one.x[i] > 0 ? 1 : 0.5F;
        assert_true(one.y[i] == slope * one.x[i] && one.dx[i] == slope * weight_of(i));
    }
}

/* ---- gumbel_softmax -------------------------------------------------------------------------- */

/* softmax of -1, -0.5, 0.5, 1: how often each is the largest of x + G. */
static void classes_are_drawn_as_often_as_their_softmax_says(void **state)
{
    (void)state;
    int counts[CLASSES] = {0};
    double total = 0;
    draw(&(draw_t){.call = hard, .threads = 1}, &one);
    for (int64_t i = 0; i < N; i++) {
        assert_true(one.y[i] == 0 || one.y[i] == 1);
        counts[i % CLASSES] += one.y[i] == 1;
        total += i < CLASSES ? exp((double)one.x[i]) : 0;
    }
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], ROWS);
    for (int c = 0; c < CLASSES; c++) {
        expect_near(counts[c] / (double)ROWS, exp((double)one.x[c]) / total, 0.025);
    }
}

/* Rows sum to 1, and dx = y (g - Σ g y) / tau. */
static void a_soft_sample_has_the_gradient_of_its_softmax(void **state)
{
    (void)state;
    draw(&(draw_t){.call = soft, .threads = 1}, &one);
    for (int64_t r = 0; r < N; r += CLASSES) {
        double sum = 0, mean = 0;
        for (int64_t i = r; i < r + CLASSES; i++) {
            sum += (double)one.y[i];
            mean += (double)one.y[i] * (double)weight_of(i);
        }
        expect_near(sum, 1, 1e-6);
        for (int64_t i = r; i < r + CLASSES; i++) {
            expect_near((double)one.dx[i], (double)one.y[i] * ((double)weight_of(i) - mean) / 0.5,
                        2e-6);
        }
    }
}

static void a_hard_sample_is_the_soft_one_made_straight(void **state)
{
    (void)state;
    draw(&(draw_t){.call = soft, .threads = 1}, &one);
    draw(&(draw_t){.call = hard, .threads = 1}, &other);
    assert_memory_equal(one.dx, other.dx, sizeof one.dx);
    for (int64_t i = 0; i < N; i++) {
        float largest = 0;
        for (int64_t k = i - i % CLASSES; k < i - i % CLASSES + CLASSES; k++) {
            largest = fmaxf(largest, one.y[k]);
        }
        assert_true(other.y[i] == (one.y[i] == largest ? 1 : 0));
    }
}

/* A mean of Gumbel's distribution is Euler's constant, its variance π²/6: with two classes alike,
 * log(y0 / y1) is a difference of two, logistic with variance π²/3. */
static void the_noise_is_gumbels(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    draw(&(draw_t){.call = soft, .threads = 1}, &one);
    for (int64_t r = 0; r < N; r += CLASSES) {
        const double t = 0.5 * log((double)one.y[r + 1] / (double)one.y[r]) - 0.5;
        sum += isfinite(t) ? t : 0;
        squares += isfinite(t) ? t * t : 0;
    }
    expect_near(sum / ROWS, 0, 0.1);
    expect_near(squares / ROWS, 3.2898681, 0.25);
}

static void a_sample_is_drawn_in_evaluation_too(void **state)
{
    (void)state;
    draw(&(draw_t){.call = hard, .threads = 1}, &one);
    draw(&(draw_t){.call = hard, .threads = 1, .evaluates = true}, &other);
    assert_memory_equal(one.y, other.y, sizeof one.y);
}

/* ---- both ------------------------------------------------------------------------------------ */

static const call_t calls[] = {slanted, soft, hard};

static void draws_depend_on_step_and_shard_not_on_threads(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        draw(&(draw_t){.call = calls[k], .threads = 1}, &one);
        draw(&(draw_t){.call = calls[k], .threads = 3}, &other);
        assert_memory_equal(&one, &other, sizeof one);
        draw(&(draw_t){.call = calls[k], .threads = 1, .step = 1}, &other);
        assert_memory_not_equal(one.y, other.y, sizeof one.y);
        draw(&(draw_t){.call = calls[k], .threads = 1, .shard = 1}, &other);
        assert_memory_not_equal(one.y, other.y, sizeof one.y);
    }
}

/* The numbers of f32, rounded: 8 bits of a fraction. */
static void other_dtypes_have_the_same_draws(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        draw(&(draw_t){.call = calls[k], .threads = 1}, &one);
        draw(&(draw_t){.call = calls[k], .threads = 1, .dtype = TUTTI_BF16}, &other);
        for (int64_t i = 0; i < N; i++) {
            expect_near((double)other.y[i], (double)one.y[i], 1.0 / 256);
        }
        draw(&(draw_t){.call = calls[k], .threads = 1, .dtype = TUTTI_F64}, &other);
        for (int64_t i = 0; i < N; i++) {
            expect_near((double)other.y[i], (double)one.y[i], 1e-5);
        }
    }
}

static void expect_refusal(int which, const char *text)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    tutti_tensor_t *whole = tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(2));
    (void)(which == 0   ? tutti_rrelu(s, x, 0.5, 0.25)
           : which == 1 ? tutti_rrelu(s, x, 0, (double)INFINITY)
           : which == 2 ? tutti_rrelu(s, whole, 0, 1)
           : which == 3 ? tutti_gumbel_softmax(s, x, 0, false, -1)
                        : tutti_gumbel_softmax(s, whole, 1, false, -1));
    assert_string_equal(tutti_scope_error(s), text);
    assert_true(tutti_scope_close(s) < 0);
    tutti_context_release(ctx);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    expect_refusal(0, "rrelu: no slopes lie between 0.5 and 0.25");
    expect_refusal(1, "rrelu: no slopes lie between 0 and inf");
    expect_refusal(2, "rrelu: x must be of a floating dtype, not i64");
    expect_refusal(3, "gumbel_softmax: tau must be above 0, not 0");
    expect_refusal(4, "gumbel_softmax: x must be of a floating dtype, not i64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_are_uniform_below_0_and_are_the_gradient),
        cmocka_unit_test(evaluation_takes_the_mean_slope),
        cmocka_unit_test(classes_are_drawn_as_often_as_their_softmax_says),
        cmocka_unit_test(a_soft_sample_has_the_gradient_of_its_softmax),
        cmocka_unit_test(a_hard_sample_is_the_soft_one_made_straight),
        cmocka_unit_test(the_noise_is_gumbels),
        cmocka_unit_test(a_sample_is_drawn_in_evaluation_too),
        cmocka_unit_test(draws_depend_on_step_and_shard_not_on_threads),
        cmocka_unit_test(other_dtypes_have_the_same_draws),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
