/* Flat buffers: threads and variants change no bit; sums are right. */
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
    float weight[N], gradient[N];
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

static void variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int count = 1; count <= 4; count++) {
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
        reset(&one);
        reset(&two);
        const double squares = tt_flat_sum_squares(NULL, one.weight, N);
        const double largest = tt_flat_largest(NULL, one.weight, N);
        tt_flat_scale(NULL, one.weight, N, 1.1f);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(count % (best + 1))), 1);
        assert_true(tt_flat_sum_squares(threads, two.weight, N) == squares);
        assert_true(tt_flat_largest(threads, two.weight, N) == largest);
        tt_flat_scale(&(tt_exec_t){.threads = threads}, two.weight, N, 1.1f);
        unsetenv("TUTTI_ISA");
        assert_memory_equal(&one, &two, sizeof one);
        tt_threads_release(threads);
    }
}

static bool was_finite(size_t n)
{
    double bad = 0;
    assert_int_equal(tt_flat_unscale(NULL, one.weight, n, 1, &bad), TUTTI_OK);
    return bad == 0;
}

static void launched_norms_add_up_and_clip(void **state)
{
    (void)state;
    double total = 0, most = 0;
    for (int i = 0; i < 4; i++) {
        one.weight[i] = (float)(i + 1);
    }
    assert_int_equal(tt_flat_measure(NULL, one.weight, 2, false, &total), TUTTI_OK);
    assert_int_equal(tt_flat_measure(NULL, one.weight + 2, 2, false, &total), TUTTI_OK);
    assert_int_equal(tt_flat_measure(NULL, one.weight, 4, true, &most), TUTTI_OK);
    assert_true(total == 30 && most == 4);
    assert_true(tt_flat_clip_factor(16, false, 2) == 2 / (4 + 1e-6));
    assert_true(tt_flat_clip_factor(16, true, 2) == 2 / (16 + 1e-6));
    assert_true(tt_flat_clip_factor(16, true, (double)INFINITY) == 1);
    total = 16;
    assert_int_equal(tt_flat_clip(NULL, one.weight, 2, &total, false, 8), TUTTI_OK);
    assert_true(one.weight[0] == 1 && one.weight[1] == 2);
    assert_int_equal(tt_flat_clip(NULL, one.weight, 2, &total, false, 2), TUTTI_OK);
    assert_true(fabsf(one.weight[0] - 0.5F) < 1e-6F && fabsf(one.weight[1] - 1) < 1e-6F);
    total = (double)NAN;
    assert_int_equal(tt_flat_clip(NULL, one.weight, 2, &total, false, 2), TUTTI_OK);
    assert_true(isnan(one.weight[0]) && isnan(one.weight[1]));
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
    assert_true(was_finite(N));
    one.weight[N - 1] = NAN;
    assert_false(was_finite(N));
    assert_true(was_finite(N - 1));
}

static void the_largest_is_found_wherever_it_is(void **state)
{
    (void)state;
    const int at[] = {0, 1, 15, 16, 4095, 4096, 16384, 40000, N - 2, N - 1};
    assert_true(tt_flat_largest(NULL, one.weight, 0) == 0);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        reset(&one);
        one.weight[at[i]] = i % 2 == 0 ? -3 : 3;
        assert_true(tt_flat_largest(NULL, one.weight, N) == 3);
        assert_true(tt_flat_largest(NULL, one.weight, (size_t)at[i]) <= 0.5);
        one.weight[N / 2] = -INFINITY;
        assert_true(tt_flat_largest(NULL, one.weight, N) == (double)INFINITY);
        one.weight[at[i]] = NAN;
        assert_true(isnan(tt_flat_largest(NULL, one.weight, N)));
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
        cmocka_unit_test_teardown(variants_and_threads_change_no_bit, nothing_is_left),
        cmocka_unit_test_teardown(launched_norms_add_up_and_clip, nothing_is_left),
        cmocka_unit_test_teardown(squares_and_finiteness_are_right, nothing_is_left),
        cmocka_unit_test_teardown(the_largest_is_found_wherever_it_is, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
