/* exp, log, tanh, erf, sin and cos of our own on vectors of f32, and what has a precision of its
 * own. Included by vmath.h. Accuracy: at most 2 ulp over the whole range, denormal results
 * included. */
#ifndef TT_VMATH_F32_H
#define TT_VMATH_F32_H

#include <math.h>

#include "core/kernel/vector.h"

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
    return tt_vsel(x == 0.0f, x, y); /* the reduction loses the sign of zero */
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

/* log(1 + u) for u in [0, 1]: the rounding of 1 + u is put back. */
TT_INLINE tt_vf tt_vlog1p_unit(tt_vf u)
{
    const tt_vf w = 1.0f + u;
    return tt_vlog(w) + (u - (w - 1.0f)) / w;
}

/* a^b, lane by lane through double; whole powers that occur often are multiplications. */
TT_INLINE tt_vf tt_vpow(tt_vf a, tt_vf b)
{
    for (int i = 0; i < TT_LANES; i++) {
        const double x = (double)a[i];
        a[i] = b[i] == 1.0f ? a[i] : (float)(b[i] == 2.0f ? x * x : pow(x, (double)b[i]));
    }
    return a;
}

TT_INLINE tt_vf tt_vfloor(tt_vf x)
{
#if defined(__AVX512F__)
    return (tt_vf)_mm512_floor_ps((__m512)x);
#elif defined(__AVX2__)
    return (tt_vf)_mm256_floor_ps((__m256)x);
#else
    const tt_vi small = tt_vabs(x) < 0x1p23f;
    const tt_vf t = tt_vsel(small, x, tt_vsplat(0.0f));
    const tt_vf whole = __builtin_convertvector(__builtin_convertvector(t, tt_vi), tt_vf);
    const tt_vf quiet = x + 0.0f; /* a NaN becomes a quiet one, as the instruction makes it */
    return tt_vsel(small, tt_vcopysign(whole - tt_vone_if(whole > t), x), quiet);
#endif
}

/* The normal distribution: Φ(x) and the bell e^(-x²/2). Φ(-|x|) is bell × P(1 / (1 + 0.3 |x|)),
 * P the polynomial that meets it in nine Chebyshev nodes for |x| up to 14; so Φ keeps its
 * precision where it is small. */
TT_INLINE tt_vf tt_vnormal(tt_vf x, tt_vf *bell)
{
    *bell = tt_vexp(x * x * -0.5f);
    const tt_vf t = 1.0f / tt_vfma(tt_vabs(x), tt_vsplat(0.3f), tt_vsplat(1.0f));
    tt_vf p = tt_vsplat(0x1.339978p-5f);
    p = tt_vstep(p, t, -0x1.52af7ap-3f);
    p = tt_vstep(p, t, 0x1.c5535cp-3f);
    p = tt_vstep(p, t, -0x1.19b482p-4f);
    p = tt_vstep(p, t, 0x1.19e638p-3f);
    p = tt_vstep(p, t, 0x1.8b8de4p-4f);
    p = tt_vstep(p, t, 0x1.f19c9ep-4f);
    p = tt_vstep(p, t, 0x1.e9a47cp-4f);
    p = tt_vstep(p, t, 0x1.25c07ep-18f);
    const tt_vf tail = p * *bell;
    return tt_vsel(x < 0.0f, tail, 1.0f - tail);
}

#endif
