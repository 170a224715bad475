/* Paths of CTC: against all of them, one by one; where f64 runs out. */
#include <float.h>
#include <math.h>

#include "core/base/testing.h"
#include "core/kernel/loss/ctc.h"

enum { T = 5, V = 3, S = 2, LONG = 600, MASKED = 40 };

static double x[T * V], grad[T * V];

static void draw(void)
{
    for (int t = 0; t < T; t++) {
        double sum = 0;
        for (int c = 0; c < V; c++) {
            x[t * V + c] = (double)((t * 7 + c * 5) % 11) / 4;
            sum += exp(x[t * V + c]);
        }
        for (int c = 0; c < V; c++) {
            x[t * V + c] -= log(sum);
        }
    }
}

/* Whether a path of classes reads as the target. */
static bool reads_as(const int *path, const int64_t *target)
{
    int found = 0, before = 0;
    for (int t = 0; t < T; t++) {
        if (path[t] != 0 && path[t] != before) {
            if (found == S || path[t] != target[found]) {
                return false;
            }
            found++;
        }
        before = path[t];
    }
    return found == S;
}

/* The probability of all paths, and of those that are at each class at each step. */
static double try_all(const int64_t *target, double there[T * V])
{
    double all = 0;
    for (int i = 0; i < T * V; i++) {
        there[i] = 0;
    }
    for (int number = 0; number < 243; number++) {
        int path[T], rest = number;
        double p = 0;
        for (int t = 0; t < T; t++, rest /= V) {
            path[t] = rest % V;
            p += x[t * V + path[t]];
        }
        if (reads_as(path, target)) {
            all += exp(p);
            for (int t = 0; t < T; t++) {
                there[t * V + path[t]] += exp(p);
            }
        }
    }
    return all;
}

static void expect_all_paths(const int64_t target[S])
{
    double loss, there[T * V];
    const double one = 2;
    tt_ctc_t ctc = {.dtype = TUTTI_F64,
                    .log_probs = x,
                    .targets = target,
                    .losses = &loss,
                    .grad_losses = &one,
                    .grad_log_probs = grad,
                    .steps = T,
                    .samples = 1,
                    .classes = V,
                    .target_count = S,
                    .target_stride = S};
    const double all = try_all(target, there);
    assert_int_equal(tt_ctc(NULL, &ctc), 0);
    assert_true(fabs(loss + log(all)) < 1e-14);
    assert_int_equal(tt_ctc_backward(NULL, &ctc), 0);
    for (int i = 0; i < T * V; i++) {
        assert_true(fabs(grad[i] - 2 * (exp(x[i]) - there[i] / all)) < 1e-14);
    }
}

static void all_paths_are_counted(void **state)
{
    (void)state;
    draw();
    expect_all_paths((int64_t[]){1, 2});
    expect_all_paths((int64_t[]){2, 2});
    expect_all_paths((int64_t[]){2, 1});
}

/* 600 steps whose blank has e^-100 and whose label has e^-700: far below what f64 holds. The path
 * is in the label at one step, or at several in a row; each but one costs e^-600 more. */
static void probabilities_far_below_f64_are_exact(void **state)
{
    (void)state;
    static float logs[LONG * 2], back[LONG * 2];
    float loss, one = 1;
    const int64_t target = 1;
    for (int t = 0; t < LONG; t++) {
        logs[2 * t] = -100;
        logs[2 * t + 1] = -700;
    }
    tt_ctc_t ctc = {.dtype = TUTTI_F32,
                    .log_probs = logs,
                    .targets = &target,
                    .losses = &loss,
                    .grad_losses = &one,
                    .grad_log_probs = back,
                    .steps = LONG,
                    .samples = 1,
                    .classes = 2,
                    .target_count = 1,
                    .target_stride = 1};
    assert_int_equal(tt_ctc(NULL, &ctc), 0);
    assert_true(fabs((double)loss - (599 * 100 + 700 - log(LONG))) < 0.01);
    assert_int_equal(tt_ctc_backward(NULL, &ctc), 0);
    for (int t = 0; t < LONG; t++) {
        assert_true(fabs((double)back[2 * t] + 599.0 / 600) < 1e-6);
        assert_true(fabs((double)back[2 * t + 1] + 1.0 / 600) < 1e-6);
    }
}

/* Three labels do not fit into two steps: no class has a gradient, but the step behind has 0. */
static void infinite_losses_have_no_gradient(void **state)
{
    (void)state;
    static const int64_t target[] = {1, 1, 1}, steps = 2;
    static const double one = 1;
    double loss, back[3 * V];
    draw();
    tt_ctc_t ctc = {.dtype = TUTTI_F64,
                    .log_probs = x,
                    .targets = target,
                    .input_lengths = &steps,
                    .losses = &loss,
                    .grad_losses = &one,
                    .grad_log_probs = back,
                    .steps = 3,
                    .samples = 1,
                    .classes = V,
                    .target_count = 3,
                    .target_stride = 3};
    assert_int_equal(tt_ctc(NULL, &ctc), 0);
    assert_int_equal(tt_ctc_backward(NULL, &ctc), 0);
    assert_true(isinf(loss));
    for (int i = 0; i < 3 * V; i++) {
        assert_true(i < steps * V ? isnan(back[i]) : back[i] == 0);
    }
    ctc.zero_infinity = true;
    assert_int_equal(tt_ctc_backward(NULL, &ctc), 0);
    for (int i = 0; i < 3 * V; i++) {
        assert_true(back[i] == 0);
    }
}

/* The loss of one sample of V classes, and its gradients. */
static double run_one(const double *logs, size_t steps, const int64_t *target, size_t count,
                      double *back)
{
    double loss;
    const double one = 1;
    const tt_ctc_t ctc = {.dtype = TUTTI_F64,
                          .log_probs = logs,
                          .targets = target,
                          .losses = &loss,
                          .grad_losses = &one,
                          .grad_log_probs = back,
                          .steps = steps,
                          .samples = 1,
                          .classes = V,
                          .target_count = count,
                          .target_stride = count};
    assert_int_equal(tt_ctc(NULL, &ctc), 0);
    assert_int_equal(tt_ctc_backward(NULL, &ctc), 0);
    return loss;
}

/* In 40 steps classes that cannot be have -inf, or as little as masks are filled with: paths that
 * avoid them count. Of two labels there is one in each step, at step 20 both, and no blank. */
static void classes_that_cannot_be_leave_the_others(double least)
{
    static const int64_t target[] = {1, 2};
    static double logs[MASKED * V], back[MASKED * V];
    for (int t = 0; t < MASKED; t++) {
        logs[t * V] = least;
        logs[t * V + 1] = t <= 20 ? log(0.5) : least;
        logs[t * V + 2] = t >= 20 ? log(0.25) : least;
    }
    const double loss = run_one(logs, MASKED, target, 2, back);
    assert_true(fabs(loss - (20 * log(2) + 19 * log(4) - log(0.75))) < 1e-12);
    for (int t = 0; t < MASKED; t++) {
        const double first = t < 20 ? 1 : t > 20 ? 0 : 0.5 / 0.75;
        const double value = t <= 20 ? 0.5 : 0, other = t >= 20 ? 0.25 : 0;
        assert_true(back[t * V] == 0);
        assert_true(fabs(back[t * V + 1] - (value - first)) < 1e-12);
        assert_true(fabs(back[t * V + 2] - (other - (1 - first))) < 1e-12);
    }
}

static void masked_classes_leave_the_others(void **state)
{
    (void)state;
    classes_that_cannot_be_leave_the_others(-(double)INFINITY);
    classes_that_cannot_be_leave_the_others(-(double)FLT_MAX);
    classes_that_cannot_be_leave_the_others(-DBL_MAX);
    classes_that_cannot_be_leave_the_others(-1e9);
}

/* All paths are in class 2 at least once, at one of three steps: alike, and each with e^-2^48. */
static void what_must_be_counts_however_improbable(void **state)
{
    (void)state;
    static const int64_t target[] = {2};
    double logs[3 * V], back[3 * V];
    for (int t = 0; t < 3; t++) {
        logs[t * V] = log(0.5);
        logs[t * V + 1] = log(0.5);
        logs[t * V + 2] = -(double)FLT_MAX;
    }
    const double loss = run_one(logs, 3, target, 1, back);
    assert_true(fabs(loss - 0x1p48) < 1);
    for (int t = 0; t < 3; t++) {
        assert_true(fabs(back[t * V] - (0.5 - 2.0 / 3)) < 1e-12);
        assert_true(fabs(back[t * V + 1] - 0.5) < 1e-12);
        assert_true(fabs(back[t * V + 2] + 1.0 / 3) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_paths_are_counted),
        cmocka_unit_test(probabilities_far_below_f64_are_exact),
        cmocka_unit_test(infinite_losses_have_no_gradient),
        cmocka_unit_test(masked_classes_leave_the_others),
        cmocka_unit_test(what_must_be_counts_however_improbable),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
