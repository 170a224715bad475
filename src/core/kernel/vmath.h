/* Vectors of floats as wide as the instruction set has, and our own exp, log, tanh, erf, sin and
 * cos on them. Included by *_simd.c files only (compiled once per instruction set).
 *
 * TT_LANES floats make a tt_vf: 16 with AVX-512, 8 with AVX2, 4 otherwise. Every function works on
 * each lane alone and with the same IEEE operations everywhere (explicit fma, no contraction), so
 * the width changes no bit. What adds over lanes uses tt_v16_t, 16 fixed lanes in TT_PARTS
 * vectors, folded in one order (tt_v16_sum).
 *
 * Where there is no fma instruction it is made exactly, in double with rounding to odd (Boldo and
 * Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
 * odd", 2008). Accuracy, f32: at most 2 ulp over the whole range, denormal results included.
 */
#ifndef TT_VMATH_H
#define TT_VMATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { TT_LANES = 16 };
#define TT_VECTOR_BYTES 64
#elif defined(__AVX2__)
enum { TT_LANES = 8 };
#define TT_VECTOR_BYTES 32
#else
enum { TT_LANES = 4 };
#define TT_VECTOR_BYTES 16
#endif

enum { TT_PARTS = 16 / TT_LANES };

typedef float tt_vf __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef int32_t tt_vi __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef uint32_t tt_vu __attribute__((vector_size(TT_VECTOR_BYTES)));

#define TT_INLINE static inline __attribute__((always_inline, unused))

TT_INLINE tt_vf tt_vsplat(float x)
{
    return x - (tt_vf){0}; /* x - 0 keeps the sign of zero and needs no lane count */
}

TT_INLINE tt_vf tt_vload(const float *x)
{
    tt_vf v;
    memcpy(&v, x, sizeof v);
    return v;
}

TT_INLINE void tt_vstore(float *x, tt_vf v)
{
    memcpy(x, &v, sizeof v);
}

/* The first n lanes; the others are zero. */
TT_INLINE tt_vf tt_vload_n(const float *x, size_t n)
{
    tt_vf v = {0};
    memcpy(&v, x, n * sizeof *x);
    return v;
}

TT_INLINE void tt_vstore_n(float *x, tt_vf v, size_t n)
{
    memcpy(x, &v, n * sizeof *x);
}

/* mask lanes are all ones or all zeros, as comparisons give them. */
TT_INLINE tt_vf tt_vsel(tt_vi mask, tt_vf yes, tt_vf no)
{
    return (tt_vf)(((tt_vi)yes & mask) | ((tt_vi)no & ~mask));
}

/* 1 where the mask is set, else 0. */
TT_INLINE tt_vf tt_vone_if(tt_vi mask)
{
    return (tt_vf)((tt_vi)tt_vsplat(1.0f) & mask);
}

TT_INLINE tt_vf tt_vabs(tt_vf x)
{
    return (tt_vf)((tt_vi)x & 0x7fffffff);
}

TT_INLINE tt_vf tt_vcopysign(tt_vf size, tt_vf sign)
{
    return (tt_vf)(((tt_vi)size & 0x7fffffff) | ((tt_vi)sign & (int32_t)0x80000000));
}

/* The larger one; NaN if either is. Equal: b. */
TT_INLINE tt_vf tt_vmax(tt_vf a, tt_vf b)
{
    return tt_vsel((a > b) | (a != a), a, b);
}

TT_INLINE tt_vf tt_vmin(tt_vf a, tt_vf b)
{
    return tt_vsel((a < b) | (a != a), a, b);
}

/* a × b + c, rounded once. */
TT_INLINE tt_vf tt_vfma(tt_vf a, tt_vf b, tt_vf c)
{
#if defined(__AVX512F__)
    return (tt_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (tt_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    /* The product is exact in double; the sum's error moves an even last bit to odd, after which
     * the rounding to float is the right one. */
    for (int i = 0; i < TT_LANES; i++) {
        const double product = (double)a[i] * (double)b[i];
        const double addend = (double)c[i];
        const double sum = product + addend;
        const double part = sum - product;
        const double error = (product - (sum - part)) + (addend - part);
        int64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        const int64_t up = (error > 0) == (bits >= 0) ? 1 : -1;
        const int64_t inexact = (error > 0) | (error < 0);
        bits += inexact & ~bits & 1 ? up : 0;
        double odd;
        memcpy(&odd, &bits, sizeof odd);
        a[i] = (float)odd;
    }
    return a;
#endif
}

TT_INLINE tt_vf tt_vsqrt(tt_vf x)
{
#if defined(__AVX512F__)
    return (tt_vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (tt_vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
    return (tt_vf)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < TT_LANES; i++) {
        x[i] = __builtin_sqrtf(x[i]);
    }
    return x;
#endif
}

/* x within [low, high]; NaN stays. */
TT_INLINE tt_vf tt_vclamp(tt_vf x, float low, float high)
{
#if defined(__AVX512F__)
    const __m512 above = _mm512_max_ps(_mm512_set1_ps(low), (__m512)x);
    return (tt_vf)_mm512_min_ps(_mm512_set1_ps(high), above);
#elif defined(__AVX2__)
    const __m256 above = _mm256_max_ps(_mm256_set1_ps(low), (__m256)x);
    return (tt_vf)_mm256_min_ps(_mm256_set1_ps(high), above);
#else
    const tt_vf above = tt_vsel(x < low, tt_vsplat(low), x);
    return tt_vsel(above > high, tt_vsplat(high), above);
#endif
}

/* A polynomial's next Horner step: p × x + c. */
TT_INLINE tt_vf tt_vstep(tt_vf p, tt_vf x, float c)
{
    return tt_vfma(p, x, tt_vsplat(c));
}

/* Nearest whole number (ties to even) of |x| < 2^22. */
TT_INLINE tt_vf tt_vround_small(tt_vf x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

/* The low bits of round-to-nearest(x) + 1.5 × 2^23 are the whole number itself. */
TT_INLINE tt_vi tt_vint_small(tt_vf whole)
{
    return (tt_vi)((tt_vu)(whole + 12582912.0f) - 0x4b400000u);
}

/* 2^n for n in [-126, 127]. */
TT_INLINE tt_vf tt_vpower_of_two(tt_vi n)
{
    return (tt_vf)((tt_vu)(n + 127) << 23);
}

/* e^r - 1 for |r| <= ln(2)/2: the Taylor series to r^7, whose rest is 5e-9 of it. */
TT_INLINE tt_vf tt_vexpm1_core(tt_vf r)
{
    tt_vf p = tt_vsplat(1.0f / 5040.0f);
    p = tt_vstep(p, r, 1.0f / 720.0f);
    p = tt_vstep(p, r, 1.0f / 120.0f);
    p = tt_vstep(p, r, 1.0f / 24.0f);
    p = tt_vstep(p, r, 1.0f / 6.0f);
    p = tt_vstep(p, r, 0.5f);
    return tt_vfma(p, r * r, r);
}

/* x = n ln(2) + r: gives r, and n as a whole float. */
TT_INLINE tt_vf tt_vexp_reduce(tt_vf x, tt_vf *n)
{
    *n = tt_vround_small(x * 1.44269504f);
    const tt_vf r = tt_vfma(*n, tt_vsplat(-0x1.62e4p-1f), x);
    return tt_vfma(*n, tt_vsplat(-0x1.7f7d1cp-20f), r);
}

/* x × 2^n for x in [0.5, 2] and whole n in [-252, 252]; rounded once, if the result is denormal. */
TT_INLINE tt_vf tt_vscale(tt_vf x, tt_vf n)
{
#if defined(__AVX512F__)
    return (tt_vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    const tt_vi whole = tt_vint_small(n);
    const tt_vi half = whole >> 1;
    return x * tt_vpower_of_two(half) * tt_vpower_of_two(whole - half);
#endif
}

/* e^x. Overflows to infinity, underflows through the denormals to 0; NaN stays NaN. */
TT_INLINE tt_vf tt_vexp(tt_vf x)
{
    tt_vf n;
    const tt_vf r = tt_vexp_reduce(tt_vclamp(x, -104.0f, 89.0f), &n);
    return tt_vscale(tt_vexpm1_core(r) + 1.0f, n);
}

/* 1 / (1 + e^-x). */
TT_INLINE tt_vf tt_vsigmoid(tt_vf x)
{
    return 1.0f / (1.0f + tt_vexp(-x));
}

/* tanh x for |x| < 0.3, by Taylor's series. */
TT_INLINE tt_vf tt_vtanh_small(tt_vf x)
{
    const tt_vf z = x * x;
    tt_vf p = tt_vsplat(21844.0f / 6081075.0f);
    p = tt_vstep(p, z, -1382.0f / 155925.0f);
    p = tt_vstep(p, z, 62.0f / 2835.0f);
    p = tt_vstep(p, z, -17.0f / 315.0f);
    p = tt_vstep(p, z, 2.0f / 15.0f);
    p = tt_vstep(p, z, -1.0f / 3.0f);
    return tt_vfma(p, z * x, x);
}

/* tanh x = m / (m + 2) with m = e^2|x| - 1, made without cancellation. */
TT_INLINE tt_vf tt_vtanh(tt_vf x)
{
    tt_vf n;
    const tt_vf twice = tt_vabs(x) * 2.0f;
    const tt_vf r = tt_vexp_reduce(tt_vsel(twice > 20.0f, tt_vsplat(20.0f), twice), &n);
    const tt_vf power = tt_vpower_of_two(tt_vint_small(n));
    const tt_vf m = tt_vfma(tt_vexpm1_core(r), power, power - 1.0f);
    return tt_vcopysign(tt_vsel(twice < 0.6f, tt_vtanh_small(x), m / (m + 2.0f)), x);
}

/* log x: x = 2^k (1 + f), s = f / (2 + f), log(1 + f) = f - f²/2 + s (f²/2 + R(s²)), as R's
 * series comes from atanh. Zero gives -inf, negative NaN. */
TT_INLINE tt_vf tt_vlog(tt_vf x)
{
    const tt_vi tiny = x < 0x1p-126f;
    const tt_vf scaled = tt_vsel(tiny, x * 0x1p24f, x);
    /* The exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)). */
    const tt_vu shifted = (tt_vu)scaled - 0x3f3504f3u;
    const tt_vi exponent = (tt_vi)shifted >> 23;
    const tt_vf f = (tt_vf)((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    const tt_vf k = __builtin_convertvector(exponent - (tiny & 24), tt_vf);
    const tt_vf s = f / (2.0f + f);
    const tt_vf z = s * s;
    tt_vf p = tt_vsplat(2.0f / 11.0f);
    p = tt_vstep(p, z, 2.0f / 9.0f);
    p = tt_vstep(p, z, 2.0f / 7.0f);
    p = tt_vstep(p, z, 2.0f / 5.0f);
    p = tt_vstep(p, z, 2.0f / 3.0f);
    const tt_vf half_square = 0.5f * f * f;
    const tt_vf low = tt_vfma(s, tt_vfma(p, z, half_square), k * -0x1.05c610p-29f);
    const tt_vf finite = tt_vfma(k, tt_vsplat(0x1.62e430p-1f), f - (half_square - low));
    const tt_vf inf = tt_vsplat(__builtin_inff());
    tt_vf y = tt_vsel((x < inf) & (x > 0.0f), finite, x + inf); /* inf and NaN stay */
    y = tt_vsel(x == 0.0f, -inf, y);
    return tt_vsel(x < 0.0f, tt_vsplat(__builtin_nanf("")), y);
}

/* log(1 + u) for u in [0, 1]: the rounding of 1 + u is put back. */
TT_INLINE tt_vf tt_vlog1p_unit(tt_vf u)
{
    const tt_vf w = 1.0f + u;
    return tt_vlog(w) + (u - (w - 1.0f)) / w;
}

/* log(1 + e^x), without overflow. */
TT_INLINE tt_vf tt_vsoftplus(tt_vf x)
{
    return tt_vmax(x, (tt_vf){0}) + tt_vlog1p_unit(tt_vexp(-tt_vabs(x)));
}

/* erf x for |x| < 0.92: 2/sqrt(pi) × the sum of (-1)^k x^(2k+1) / (k! (2k+1)) to k = 10. */
TT_INLINE tt_vf tt_verf_small(tt_vf x)
{
    const tt_vf z = x * x;
    tt_vf p = tt_vsplat(1.12837917f / (3628800.0f * 21.0f));
    p = tt_vstep(p, z, -1.12837917f / (362880.0f * 19.0f));
    p = tt_vstep(p, z, 1.12837917f / (40320.0f * 17.0f));
    p = tt_vstep(p, z, -1.12837917f / (5040.0f * 15.0f));
    p = tt_vstep(p, z, 1.12837917f / (720.0f * 13.0f));
    p = tt_vstep(p, z, -1.12837917f / (120.0f * 11.0f));
    p = tt_vstep(p, z, 1.12837917f / (24.0f * 9.0f));
    p = tt_vstep(p, z, -1.12837917f / (6.0f * 7.0f));
    p = tt_vstep(p, z, 1.12837917f / (2.0f * 5.0f));
    p = tt_vstep(p, z, -1.12837917f / 3.0f);
    return tt_vfma(p, z * x, tt_vfma(x, tt_vsplat(0.12837917f), x));
}

/* erf x for x >= 0.92: 1 - e^g(x), g the polynomial that meets log(erfc x) in the nine Chebyshev
 * nodes of [0.9, 4]. */
TT_INLINE tt_vf tt_verf_large(tt_vf x)
{
    const tt_vf t = tt_vsel(x > 4.0f, tt_vsplat(4.0f), x) - 1.0f;
    tt_vf p = tt_vsplat(0x1.b90e7ap-20f);
    p = tt_vstep(p, t, -0x1.14fc84p-15f);
    p = tt_vstep(p, t, 0x1.5002aep-12f);
    p = tt_vstep(p, t, -0x1.0d4af2p-9f);
    p = tt_vstep(p, t, 0x1.4a38d2p-7f);
    p = tt_vstep(p, t, -0x1.5494dap-5f);
    p = tt_vstep(p, t, -0x1.afab86p-1f);
    p = tt_vstep(p, t, -0x1.51c9bp+1f);
    p = tt_vstep(p, t, -0x1.d97fcp+0f);
    return 1.0f - tt_vexp(p);
}

TT_INLINE tt_vf tt_verf(tt_vf x)
{
    const tt_vf size = tt_vabs(x);
    return tt_vcopysign(tt_vsel(size >= 0.92f, tt_verf_large(size), tt_verf_small(size)), x);
}

/* x = n π/2 + r for |x| < 2^15, π/2 in three pieces: gives r and n mod 4. */
TT_INLINE tt_vf tt_vturn_reduce(tt_vf x, tt_vi *quarter)
{
    const tt_vf n = tt_vround_small(x * 0.636619772f);
    tt_vf r = tt_vfma(n, tt_vsplat(-0x1.921fb6p+0f), x);
    r = tt_vfma(n, tt_vsplat(0x1.777a5cp-25f), r);
    r = tt_vfma(n, tt_vsplat(0x1.ee59dap-50f), r);
    *quarter = tt_vint_small(n) & 3;
    return r;
}

/* sin(r + quarter × π/2) for |r| <= π/4, by Taylor's series. */
TT_INLINE tt_vf tt_vsin_core(tt_vf r, tt_vi quarter)
{
    const tt_vf z = r * r;
    tt_vf s = tt_vsplat(1.0f / 362880.0f);
    s = tt_vstep(s, z, -1.0f / 5040.0f);
    s = tt_vstep(s, z, 1.0f / 120.0f);
    s = tt_vstep(s, z, -1.0f / 6.0f);
    s = tt_vfma(s, z * r, r);
    tt_vf c = tt_vsplat(-1.0f / 3628800.0f);
    c = tt_vstep(c, z, 1.0f / 40320.0f);
    c = tt_vstep(c, z, -1.0f / 720.0f);
    c = tt_vstep(c, z, 1.0f / 24.0f);
    c = tt_vstep(c, z, -0.5f);
    c = tt_vfma(c, z, tt_vsplat(1.0f));
    const tt_vf y = tt_vsel((quarter & 1) != 0, c, s);
    return tt_vsel((quarter & 2) != 0, -y, y);
}

/* Whether a lane is too large for tt_vturn_reduce (or not finite). */
TT_INLINE int tt_vany_large_angle(tt_vf x)
{
    const tt_vi large = ~(tt_vabs(x) < 32768.0f);
    int any = 0;
    for (int i = 0; i < TT_LANES; i++) {
        any |= large[i];
    }
    return any;
}

/* sin x, cos x; lanes from 2^15 on cost a call of libm each. */
TT_INLINE tt_vf tt_vsin(tt_vf x)
{
    tt_vi quarter;
    const tt_vf r = tt_vturn_reduce(x, &quarter);
    tt_vf y = tt_vsin_core(r, quarter);
    if (__builtin_expect(tt_vany_large_angle(x), 0)) {
        for (int i = 0; i < TT_LANES; i++) {
            y[i] = __builtin_fabsf(x[i]) < 32768.0f ? y[i] : (float)__builtin_sin((double)x[i]);
        }
    }
    return y;
}

TT_INLINE tt_vf tt_vcos(tt_vf x)
{
    tt_vi quarter;
    const tt_vf r = tt_vturn_reduce(x, &quarter);
    tt_vf y = tt_vsin_core(r, quarter + 1);
    if (__builtin_expect(tt_vany_large_angle(x), 0)) {
        for (int i = 0; i < TT_LANES; i++) {
            y[i] = __builtin_fabsf(x[i]) < 32768.0f ? y[i] : (float)__builtin_cos((double)x[i]);
        }
    }
    return y;
}

/* 16 fixed lanes, whatever the vector's width: lane l adds elements l, l + 16, l + 32, … */
typedef struct {
    tt_vf part[TT_PARTS];
} tt_v16_t;

TT_INLINE tt_v16_t tt_v16_splat(float x)
{
    tt_v16_t v;
    for (int p = 0; p < TT_PARTS; p++) {
        v.part[p] = tt_vsplat(x);
    }
    return v;
}

/* Folds the lanes in one order: 8 apart, then 4, 2, 1. */
TT_INLINE float tt_v16_sum(tt_v16_t v)
{
    float x[16];
    memcpy(x, &v, sizeof x);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            x[i] += x[i + width];
        }
    }
    return x[0];
}

TT_INLINE float tt_v16_max(tt_v16_t v)
{
    float x[16];
    memcpy(x, &v, sizeof x);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            x[i] = x[i] > x[i + width] || x[i] != x[i] ? x[i] : x[i + width];
        }
    }
    return x[0];
}

TT_INLINE float tt_v16_min(tt_v16_t v)
{
    for (int p = 0; p < TT_PARTS; p++) {
        v.part[p] = -v.part[p];
    }
    return -tt_v16_max(v);
}

#endif
