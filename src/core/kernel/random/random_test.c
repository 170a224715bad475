/* Random kernels: the stream's own numbers, whatever the piece, the thread and the variant. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/isa.h"
#include "core/kernel/random/random.h"

enum { N = 50021 };

static float x[N], y[N];

static tt_random_t stream(uint64_t first)
{
    return (tt_random_t){.rng = tt_rng_stream(1, 2, 3, 4, 5), .first = first};
}

static void uniform_numbers_are_those_of_the_stream(void **state)
{
    (void)state;
    const uint64_t first = (UINT64_C(1) << 34) + 7; /* the block's upper word counts */
    tt_fill_uniform(NULL, stream(first), TUTTI_F32, x, N, 0, 1);
    for (uint64_t i = 0; i < N; i++) {
        assert_true(x[i] == tt_rng_uniform(stream(0).rng, first + i));
    }
    double wide[3];
    tt_fill_uniform(NULL, stream(first), TUTTI_F64, wide, 3, -2, 2);
    assert_true(wide[1] == -2 + 4 * (double)x[1]);
}

/* An interval's end is not in it, however few numbers of the dtype are; nor is what lies before its
 * beginning. */
static void uniform_numbers_are_within_their_interval(void **state)
{
    (void)state;
    static const struct {
        tutti_dtype_t dtype;
        double low, high;
    } cases[] = {
        {TUTTI_BF16, 0, 1},     {TUTTI_BF16, 0.7, 0.9},       {TUTTI_BF16, -3, -2.999},
        {TUTTI_BF16, -1, 0},    {TUTTI_BF16, 1, 1.001},       {TUTTI_F16, 0, 1},
        {TUTTI_F16, -0.7, 0.3}, {TUTTI_F16, 0, 1e-7},         {TUTTI_F32, 16777216, 16777218},
        {TUTTI_F32, -2e-45, 0}, {TUTTI_F64, 1e17, 1e17 + 32}, {TUTTI_F64, -1e17 - 16, -1e17},
    };
    static double wide[N];
    static double drawn[N]; /* room for any dtype */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const tutti_dtype_t dtype = cases[c].dtype;
        tt_fill_uniform(NULL, stream(0), dtype, drawn, N, cases[c].low, cases[c].high);
        tt_convert_to(TT_CLASS_F64, dtype)(wide, drawn, N);
        for (size_t i = 0; i < N; i++) {
            if (!(wide[i] >= cases[c].low && wide[i] < cases[c].high)) {
                fail_msg("%s in [%.17g, %.17g): %.17g", tutti_dtype_name(dtype), cases[c].low,
                         cases[c].high, wide[i]);
            }
        }
    }
    tt_fill_uniform(NULL, stream(0), TUTTI_F32, x, 3, 5, 5);
    assert_true(x[0] == 5 && x[2] == 5);
}

static void dropout_keeps_what_the_stream_says(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = (float)i + 1;
    }
    size_t kept = 0;
    tt_dropout(NULL, stream(3), TUTTI_F32, y, x, N, 0.25);
    for (uint64_t i = 0; i < N; i++) {
        const bool keep = tt_rng_uniform(stream(0).rng, 3 + i) >= 0.25f;
        assert_true(y[i] == (keep ? x[i] * (float)(1 / 0.75) : 0));
        kept += keep;
    }
    assert_true(kept > 0.74 * N && kept < 0.76 * N);
    tt_dropout(NULL, stream(3), TUTTI_F32, y, x, N, 1);
    assert_true(y[5] == 0 && y[N - 1] == 0);
    tt_dropout(NULL, stream(3), TUTTI_F32, y, x, N, 0);
    assert_memory_equal(x, y, sizeof x);
    double wide[2] = {1, 2};
    tt_dropout(NULL, stream(3), TUTTI_F64, wide, wide, 2, 0.25);
    const bool keep = tt_rng_uniform(stream(0).rng, 3) >= 0.25f;
    assert_true(wide[0] == (keep ? 1 / 0.75 : 0));
}

static void normal_numbers_have_the_moments(void **state)
{
    (void)state;
    tt_fill_normal(NULL, stream(0), TUTTI_F32, x, N, 1, 2);
    double mean = 0, variance = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        mean += (double)x[i] / N;
    }
    for (int i = 0; i < N; i++) {
        const double d = ((double)x[i] - 1) / 2;
        variance += d * d / N;
        fourth += d * d * d * d / N;
    }
    assert_true(fabs(mean - 1) < 0.04 && fabs(variance - 1) < 0.03 && fabs(fourth - 3) < 0.25);
}

static void pieces_variants_and_threads_change_no_bit(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    tt_fill_normal(NULL, stream(0), TUTTI_F32, x, N, 0, 1);
    for (int count = 1; count <= 4; count++) {
        tt_threads_t *threads;
        assert_int_equal(tt_threads_create(count, &threads), TUTTI_OK);
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(count % (best + 1))), 1);
        const size_t cut = 1233 + (size_t)count; /* also between the halves of a pair */
        tt_fill_normal(&(tt_exec_t){.threads = threads}, stream(0), TUTTI_F32, y, cut, 0, 1);
        tt_fill_normal(&(tt_exec_t){.threads = threads}, stream(cut), TUTTI_F32, y + cut, N - cut,
                       0, 1);
        assert_memory_equal(x, y, sizeof x);
        unsetenv("TUTTI_ISA");
        tt_threads_release(threads);
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
        cmocka_unit_test_teardown(uniform_numbers_are_those_of_the_stream, nothing_is_left),
        cmocka_unit_test_teardown(uniform_numbers_are_within_their_interval, nothing_is_left),
        cmocka_unit_test_teardown(dropout_keeps_what_the_stream_says, nothing_is_left),
        cmocka_unit_test_teardown(normal_numbers_have_the_moments, nothing_is_left),
        cmocka_unit_test_teardown(pieces_variants_and_threads_change_no_bit, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
