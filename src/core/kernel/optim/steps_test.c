/* Optimizer steps: threads and variants change no bit; cuts change none where any is allowed; the
 * big shapes, which take many pieces, agree with their formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/kernel/isa.h"
#include "core/kernel/optim/steps.h"

enum { ROWS = 307, COLUMNS = 521, N = ROWS * COLUMNS };

typedef struct {
    float weight[N], gradient[N], first[N], second[N], third[N];
} state_t;

static state_t one, two;

static void reset(state_t *s)
{
    const tt_rng_t rng = tt_rng_stream(6, 0, 0, 0, 0);
    memset(s, 0, sizeof *s);
    for (uint64_t i = 0; i < N; i++) {
        s->weight[i] = tt_rng_uniform(rng, i) - 0.5f;
        s->gradient[i] = (tt_rng_uniform(rng, N + i) - 0.5f) * 0.1f;
    }
}

static tt_steps_buffers_t buffers(state_t *s, size_t from)
{
    return (tt_steps_buffers_t){s->weight + from, s->gradient + from, s->first + from,
                                s->second + from, s->third + from};
}

static const tt_rmsprop_t rmsprop = {.lr = 0.1, .alpha = 0.9, .eps = 1e-4, .momentum = 0.5};
static const tt_adagrad_t adagrad = {.lr = 0.1, .initial = 0.1, .eps = 1e-6, .step = 1};
static const tt_lion_t lion = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};
static const tt_lamb_t lamb = {
    .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1, .step = 2};

static void step_any(tt_pool_t *pool, state_t *s, size_t from, size_t n)
{
    const tt_steps_buffers_t at = buffers(s, from);
    tt_steps_rmsprop(pool, &rmsprop, &at, n);
    tt_steps_adagrad(pool, &adagrad, &at, n);
    tt_steps_lion(pool, &lion, &at, n);
}

/* The square of what was there is a second moment that is never negative. */
static void square_moments(state_t *s)
{
    for (size_t i = 0; i < N; i++) {
        s->second[i] = s->second[i] * s->second[i];
        s->third[i] = s->third[i] * s->third[i];
    }
}

static void step_whole(tt_pool_t *pool, state_t *s)
{
    const tt_steps_buffers_t at = buffers(s, 0);
    square_moments(s);
    tt_steps_lamb(pool, &lamb, &at, N);
    tt_adafactor_t adafactor = {.lr = 0.1, .beta1 = 0.5, .beta2 = 0.3, .eps = 1e-9, .clip = 0.5};
    adafactor.columns = N;
    tt_steps_adafactor(pool, &adafactor, &at);
    adafactor = (tt_adafactor_t){.lr = 0.1,
                                 .beta2 = 0.3,
                                 .eps = 1e-9,
                                 .clip = 0.5,
                                 .matrices = 1,
                                 .rows = ROWS,
                                 .columns = COLUMNS};
    tt_steps_adafactor(pool, &adafactor, &at);
    adafactor.matrices = ROWS;
    adafactor.rows = 1;
    tt_steps_adafactor(pool, &adafactor, &at);
}

static void cuts_variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int threads = 1; threads <= 4; threads++) {
        tt_pool_t *pool;
        assert_int_equal(tt_pool_create(threads, &pool), TUTTI_OK);
        reset(&one);
        reset(&two);
        step_any(NULL, &one, 0, N);
        step_whole(NULL, &one);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(threads % (best + 1))), 1);
        const size_t cut = 1237;
        step_any(pool, &two, 0, cut);
        step_any(pool, &two, cut, N - cut);
        step_whole(pool, &two);
        unsetenv("TUTTI_ISA");
        for (size_t i = 0; i < N; i++) {
            assert_true(isfinite(one.weight[i]));
        }
        assert_memory_equal(&one, &two, sizeof one);
        tt_pool_release(pool);
    }
}

static void lamb_measures_the_whole_parameter(void **state)
{
    (void)state;
    reset(&one);
    reset(&two);
    const tt_lamb_t first = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .step = 1};
    const tt_steps_buffers_t at = buffers(&one, 0);
    tt_steps_lamb(NULL, &first, &at, N);
    double weights = 0, updates = 0;
    for (size_t i = 0; i < N; i++) {
        const double g = (double)two.gradient[i], u = g / (fabs(g) + 1e-6);
        weights += (double)two.weight[i] * (double)two.weight[i];
        updates += u * u;
    }
    for (size_t i = 0; i < N; i += 41) {
        const double g = (double)two.gradient[i], u = g / (fabs(g) + 1e-6);
        const double want = (double)two.weight[i] - 0.1 * sqrt(weights / updates) * u;
        assert_true(fabs((double)one.weight[i] - want) < 1e-6);
    }
}

static void adafactor_divides_by_rows_and_columns(void **state)
{
    (void)state;
    reset(&one);
    reset(&two);
    const tt_adafactor_t a = {
        .lr = 0.1, .clip = 1e9, .matrices = 1, .rows = ROWS, .columns = COLUMNS};
    const tt_steps_buffers_t at = {
        .weight = one.weight, .gradient = one.gradient, .second = one.second, .third = one.third};
    tt_steps_adafactor(NULL, &a, &at);
    static double rows[ROWS], columns[COLUMNS];
    double all = 0;
    for (size_t i = 0; i < N; i++) {
        const double square = (double)two.gradient[i] * (double)two.gradient[i];
        rows[i / COLUMNS] += square / COLUMNS;
        columns[i % COLUMNS] += square / ROWS;
        all += square / N;
    }
    for (size_t i = 0; i < N; i += 37) {
        const double u =
            (double)two.gradient[i] / sqrt(rows[i / COLUMNS] * columns[i % COLUMNS] / all);
        assert_true(fabs((double)one.weight[i] - ((double)two.weight[i] - 0.1 * u)) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_variants_and_threads_change_no_bit),
        cmocka_unit_test(lamb_measures_the_whole_parameter),
        cmocka_unit_test(adafactor_divides_by_rows_and_columns),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
