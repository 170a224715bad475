/* Multiply-adds on registers alone. Two may begin in each cycle and take four or five cycles, so
 * twelve sums are under way: their loops are unrolled, for sums that an index chooses would lie in
 * memory. The best of some runs of 20 us to 100 us each. */
#include "core/kernel/peak/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/clock.h"
#include "core/kernel/isa.h"

enum { RUNS = 30, LOOPS = 12000, SUMS = 12 };

typedef float four_t __attribute__((vector_size(16)));

/* Returns operations; *sink depends on all of them. */
static double run_baseline(float *sink)
{
    four_t sum[SUMS], x = {0.5f, 0.5f, 0.5f, 0.5f}, y = {0.25f, 0.25f, 0.25f, 0.25f};
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        sum[i] = x * (float)i;
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            sum[i] = sum[i] * x + y;
        }
    }
#pragma GCC unroll 12
    for (int i = 1; i < SUMS; i++) {
        sum[0] += sum[i];
    }
    *sink = sum[0][0];
    return 2.0 * 4 * SUMS * LOOPS;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double run_avx2(float *sink)
{
    __m256 sum[SUMS];
    const __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        sum[i] = _mm256_set1_ps((float)i);
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm256_fmadd_ps(sum[i], x, y);
        }
    }
#pragma GCC unroll 12
    for (int i = 1; i < SUMS; i++) {
        sum[0] = _mm256_add_ps(sum[0], sum[i]);
    }
    *sink = _mm256_cvtss_f32(sum[0]);
    return 2.0 * 8 * SUMS * LOOPS;
}

__attribute__((target("avx512f"))) static double run_avx512(float *sink)
{
    __m512 sum[SUMS];
    const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm512_fmadd_ps(sum[i], x, y);
        }
    }
#pragma GCC unroll 12
    for (int i = 1; i < SUMS; i++) {
        sum[0] = _mm512_add_ps(sum[0], sum[i]);
    }
    *sink = _mm512_cvtss_f32(sum[0]);
    return 2.0 * 16 * SUMS * LOOPS;
}
#endif

double tt_core_peak(void)
{
    double (*run)(float *sink) = run_baseline;
    double best = 0;
    volatile float sink = 0;
#if defined(__x86_64__)
    run = tt_isa() == TT_VARIANT_BASELINE ? run_baseline
          : tt_isa() == TT_VARIANT_AVX2   ? run_avx2
                                          : run_avx512;
#endif
    for (int i = 0; i < RUNS; i++) {
        float sum;
        const int64_t begin = tt_clock_ns();
        const double flops = run(&sum);
        const int64_t ns = tt_clock_ns() - begin;
        sink = sink + sum;
        best = ns > 0 && flops / (double)ns > best ? flops / (double)ns : best;
    }
    return best;
}
