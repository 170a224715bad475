/* Optimizer steps against torch's formulas in double; cuts and threads change no bit. */
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
#include "core/kernel/optim/flat.h"
#include "core/kernel/isa.h"

enum { N = 40003 };

typedef struct {
    float weight[N], gradient[N], first[N], second[N], second_max[N];
} state_t;

static state_t one, two;

static void reset(state_t *s)
{
    const tt_rng_t rng = tt_rng_stream(5, 0, 0, 0, 0);
    memset(s, 0, sizeof *s);
    for (uint64_t i = 0; i < N; i++) {
        s->weight[i] = tt_rng_uniform(rng, i) - 0.5f;
        s->gradient[i] = (tt_rng_uniform(rng, N + i) - 0.5f) * 0.1f;
    }
}

static tt_adam_buffers_t buffers(state_t *s, size_t from, bool amsgrad)
{
    return (tt_adam_buffers_t){s->weight + from, s->gradient + from, s->first + from,
                               s->second + from, amsgrad ? s->second_max + from : NULL};
}

/* torch/optim/adam.py, single tensor, written out for one element. */
static double adam_reference(const tt_adam_t *adam, double w, double g, int steps, bool amsgrad)
{
    double m = 0, v = 0, v_max = 0;
    for (int step = 1; step <= steps; step++) {
        double gradient = adam->maximize ? -g : g;
        w *= adam->decoupled ? 1 - adam->lr * adam->weight_decay : 1;
        gradient += adam->decoupled ? 0 : adam->weight_decay * w;
        m = adam->beta1 * m + (1 - adam->beta1) * gradient;
        v = adam->beta2 * v + (1 - adam->beta2) * gradient * gradient;
        v_max = fmax(v_max, v);
        const double root = sqrt(amsgrad ? v_max : v) / sqrt(1 - pow(adam->beta2, step));
        w -= adam->lr / (1 - pow(adam->beta1, step)) * m / (root + adam->eps);
    }
    return w;
}

static void adam_follows_the_formula(void **state)
{
    (void)state;
    for (int flags = 0; flags < 8; flags++) {
        tt_adam_t adam = {.lr = 1e-2,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .decoupled = flags & 1,
                          .maximize = flags & 2};
        reset(&one);
        reset(&two);
        const tt_adam_buffers_t at = buffers(&one, 0, flags & 4);
        for (adam.step = 1; adam.step <= 10; adam.step++) {
            tt_flat_adam(NULL, &adam, &at, N);
        }
        for (int i = 0; i < N; i += 41) {
            const double want = adam_reference(&adam, (double)two.weight[i],
                                               (double)two.gradient[i], 10, flags & 4);
            assert_true(fabs((double)one.weight[i] - want) < 2e-6);
        }
    }
}

static void sgd_follows_the_formula(void **state)
{
    (void)state;
    for (int flags = 0; flags < 8; flags++) {
        tt_sgd_t sgd = {.lr = 0.1,
                        .momentum = flags & 1 ? 0.9 : 0,
                        .dampening = flags & 2 ? 0 : 0.1,
                        .weight_decay = 0.01,
                        .nesterov = flags & 2,
                        .maximize = flags & 4};
        reset(&one);
        reset(&two);
        for (int step = 0; step < 5; step++) {
            sgd.is_first_step = step == 0;
            tt_flat_sgd(NULL, &sgd, one.weight, one.gradient, flags & 1 ? one.first : NULL, N);
        }
        for (int i = 0; i < N; i += 41) {
            double w = (double)two.weight[i], buffer = 0;
            for (int step = 0; step < 5; step++) {
                double g = (double)two.gradient[i] * (flags & 4 ? -1 : 1) + 0.01 * w;
                buffer = step == 0 ? g : 0.9 * buffer + (1 - sgd.dampening) * g;
                g = !(flags & 1) ? g : flags & 2 ? g + 0.9 * buffer : buffer;
                w -= 0.1 * g;
            }
            assert_true(fabs((double)one.weight[i] - w) < 2e-6);
        }
    }
}

static void cuts_variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    const tt_adam_t adam = {
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true, .step = 3};
    const tt_sgd_t sgd = {.lr = 0.1, .momentum = 0.9, .nesterov = true};
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int threads = 1; threads <= 4; threads++) {
        tt_pool_t *pool;
        assert_int_equal(tt_pool_create(threads, &pool), TUTTI_OK);
        reset(&one);
        reset(&two);
        const tt_adam_buffers_t all = buffers(&one, 0, false);
        tt_flat_adam(NULL, &adam, &all, N);
        tt_flat_sgd(NULL, &sgd, one.weight, one.gradient, one.second_max, N);
        const double squares = tt_flat_sum_squares(NULL, one.weight, N);
        tt_flat_axpy(NULL, one.weight, one.gradient, N, 0.3f);
        tt_flat_scale(NULL, one.weight, N, 1.1f);
        tt_flat_clamp(NULL, one.weight, N, 0.4f);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(threads % (best + 1))), 1);
        const size_t cut = 1237;
        const tt_adam_buffers_t head = buffers(&two, 0, false), tail = buffers(&two, cut, false);
        tt_flat_adam(pool, &adam, &head, cut);
        tt_flat_adam(pool, &adam, &tail, N - cut);
        tt_flat_sgd(pool, &sgd, two.weight, two.gradient, two.second_max, N);
        assert_true(tt_flat_sum_squares(pool, two.weight, N) == squares);
        tt_flat_axpy(pool, two.weight, two.gradient, N, 0.3f);
        tt_flat_scale(pool, two.weight, N, 1.1f);
        tt_flat_clamp(pool, two.weight, N, 0.4f);
        unsetenv("TUTTI_ISA");
        assert_memory_equal(&one, &two, sizeof one);
        tt_pool_release(pool);
    }
}

static void squares_and_finiteness_are_right(void **state)
{
    (void)state;
    reset(&one);
    double want = 0;
    for (int i = 0; i < N; i++) {
        want += (double)one.weight[i] * (double)one.weight[i];
    }
    assert_true(fabs(tt_flat_sum_squares(NULL, one.weight, N) - want) < 1e-9 * want);
    assert_true(tt_flat_sum_squares(NULL, one.weight, 0) == 0);
    assert_true(tt_flat_is_finite(NULL, one.weight, N));
    one.weight[N - 1] = NAN;
    assert_false(tt_flat_is_finite(NULL, one.weight, N));
    assert_true(tt_flat_is_finite(NULL, one.weight, N - 1));
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(adam_follows_the_formula, nothing_is_left),
        cmocka_unit_test_teardown(sgd_follows_the_formula, nothing_is_left),
        cmocka_unit_test_teardown(cuts_variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(squares_and_finiteness_are_right, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
