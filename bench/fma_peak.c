/* What this core multiplies and adds at best, in GFLOP/s: the best of many short runs of nothing
 * but the instruction on registers, with enough sums under way that none waits for another. One
 * JSON line: f32 (fused multiply-adds) and bf16 (vdpbf16ps, pairs; 0 where the CPU has none).
 *
 *     taskset -c 0 build/bench/fma_peak
 */
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { RUNS = 200, LOOPS = 20000, SUMS = 24 };

#if defined(__x86_64__)
static volatile float sink;

__attribute__((target("avx512f"))) static double multiply_f32(void)
{
    __m512 sum[SUMS];
    const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 32
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm512_fmadd_ps(sum[i], x, y);
        }
    }
    __m512 all = _mm512_setzero_ps();
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; i++) {
        all = _mm512_add_ps(all, sum[i]);
    }
    sink = _mm512_reduce_add_ps(all);
    return 2.0 * 16 * SUMS * LOOPS;
}

__attribute__((target("avx2,fma"))) static double multiply_f32_avx2(void)
{
    enum { NARROW = SUMS / 2 };
    __m256 sum[NARROW];
    const __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
#pragma GCC unroll 32
    for (int i = 0; i < NARROW; i++) {
        sum[i] = _mm256_set1_ps((float)i);
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 32
        for (int i = 0; i < NARROW; i++) {
            sum[i] = _mm256_fmadd_ps(sum[i], x, y);
        }
    }
    __m256 all = _mm256_setzero_ps();
#pragma GCC unroll 32
    for (int i = 0; i < NARROW; i++) {
        all = _mm256_add_ps(all, sum[i]);
    }
    sink = _mm256_cvtss_f32(all);
    return 2.0 * 8 * NARROW * LOOPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double multiply_bf16(void)
{
    __m512 sum[SUMS];
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3e80); /* 0.25 */
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (int loop = 0; loop < LOOPS; loop++) {
#pragma GCC unroll 32
        for (int i = 0; i < SUMS; i++) {
            sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
        }
    }
    __m512 all = _mm512_setzero_ps();
#pragma GCC unroll 32
    for (int i = 0; i < SUMS; i++) {
        all = _mm512_add_ps(all, sum[i]);
    }
    sink = _mm512_reduce_add_ps(all);
    return 4.0 * 16 * SUMS * LOOPS;
}
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double gflops(double (*multiply)(void))
{
    double best = 0;
    for (int run = 0; multiply != NULL && run < RUNS; run++) {
        const double begin = now(), flops = multiply(), took = now() - begin;
        best = flops / took * 1e-9 > best ? flops / took * 1e-9 : best;
    }
    return best;
}

int main(void)
{
    double (*f32)(void) = NULL, (*bf16)(void) = NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    f32 = __builtin_cpu_supports("avx512f") ? multiply_f32
          : __builtin_cpu_supports("fma")   ? multiply_f32_avx2
                                            : NULL;
    bf16 = __builtin_cpu_supports("avx512bf16") ? multiply_bf16 : NULL;
#endif
    printf("{\"f32_gflops\":%.1f,\"bf16_gflops\":%.1f}\n", gflops(f32), gflops(bf16));
    return 0;
}
