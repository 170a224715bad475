/* Vectors of real numbers as wide as the instruction set has. Included by *_simd.c files only,
 * which are compiled once per instruction set for f32 (with bf16 and f16, which are computed in
 * f32), and once more for f64, with TT_F64 defined: one source per formula. dtypes.def lists a
 * class's dtypes. What is of the class that a file is compiled for:
 *
 *     tt_real_t    float, or double
 *     tt_vf        TT_LANES of them: 16 or 8 with AVX-512, 8 or 4 with AVX2, else 4 or 2 (NEON)
 *     tt_vi, tt_vu integers of the same size; comparisons give lanes of all ones or all zeros
 *     TT_REAL      TUTTI_F32, or TUTTI_F64
 *
 * A constant that f32 cannot hold exactly is written (tt_real_t)0.1; 0.5f is right for both.
 *
 * Every function works on each lane alone and with the same IEEE operations everywhere (explicit
 * fma, no contraction), so the width changes no bit. What adds over lanes uses tt_v16_t, 16 fixed
 * lanes in TT_PARTS vectors, folded in one order (tt_v16_sum).
 *
 * Where there is no fma instruction it is made exactly: f64 by libm, f32 in double with rounding to
 * odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
 * rounding to odd", 2008).
 */
#ifndef TT_VECTOR_H
#define TT_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tutti/dtype.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define TT_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TT_VECTOR_BYTES 32
#else
#define TT_VECTOR_BYTES 16
#endif

#if defined(TT_F64)
typedef double tt_real_t;
typedef int64_t tt_vi __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef uint64_t tt_vu __attribute__((vector_size(TT_VECTOR_BYTES)));
#define TT_REAL TUTTI_F64
#define TT_SIGN_BIT INT64_MIN
#else
typedef float tt_real_t;
typedef int32_t tt_vi __attribute__((vector_size(TT_VECTOR_BYTES)));
typedef uint32_t tt_vu __attribute__((vector_size(TT_VECTOR_BYTES)));
#define TT_REAL TUTTI_F32
#define TT_SIGN_BIT INT32_MIN
#endif

typedef tt_real_t tt_vf __attribute__((vector_size(TT_VECTOR_BYTES)));

enum { TT_LANES = TT_VECTOR_BYTES / sizeof(tt_real_t), TT_PARTS = 16 / TT_LANES };

#define TT_INLINE static inline __attribute__((always_inline, unused))

TT_INLINE tt_vf tt_vsplat(tt_real_t x)
{
    return x - (tt_vf){0}; /* x - 0 keeps the sign of zero and needs no lane count */
}

TT_INLINE tt_vf tt_vload(const tt_real_t *x)
{
    tt_vf v;
    memcpy(&v, x, sizeof v);
    return v;
}

TT_INLINE void tt_vstore(tt_real_t *x, tt_vf v)
{
    memcpy(x, &v, sizeof v);
}

/* The first n lanes; the others are zero. A memcpy of a length that is not known is a call. */
TT_INLINE tt_vf tt_vload_n(const tt_real_t *x, size_t n)
{
#if defined(__AVX512F__) && defined(TT_F64)
    return (tt_vf)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), x);
#elif defined(__AVX512F__)
    return (tt_vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
#else
    tt_vf v = {0};
    memcpy(&v, x, n * sizeof *x);
    return v;
#endif
}

TT_INLINE void tt_vstore_n(tt_real_t *x, tt_vf v, size_t n)
{
#if defined(__AVX512F__) && defined(TT_F64)
    _mm512_mask_storeu_pd(x, (__mmask8)((1u << n) - 1), (__m512d)v);
#elif defined(__AVX512F__)
    _mm512_mask_storeu_ps(x, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    memcpy(x, &v, n * sizeof *x);
#endif
}

/* x[index[lane]] in each lane. */
TT_INLINE tt_vf tt_vgather(const tt_real_t *x, const int32_t *index)
{
#if defined(__AVX512F__) && defined(TT_F64)
    return (tt_vf)_mm512_i32gather_pd(_mm256_loadu_si256((const void *)index), x, 8);
#elif defined(__AVX512F__)
    return (tt_vf)_mm512_i32gather_ps(_mm512_loadu_si512(index), x, 4);
#elif defined(__AVX2__) && defined(TT_F64)
    return (tt_vf)_mm256_i32gather_pd(x, _mm_loadu_si128((const void *)index), 8);
#elif defined(__AVX2__)
    return (tt_vf)_mm256_i32gather_ps(x, _mm256_loadu_si256((const void *)index), 4);
#else
    tt_vf v;
    for (int i = 0; i < TT_LANES; i++) {
        v[i] = x[index[i]];
    }
    return v;
#endif
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
    return (tt_vf)((tt_vi)x & ~TT_SIGN_BIT);
}

TT_INLINE tt_vf tt_vcopysign(tt_vf size, tt_vf sign)
{
    return (tt_vf)(((tt_vi)size & ~TT_SIGN_BIT) | ((tt_vi)sign & TT_SIGN_BIT));
}

/* The first n lanes of x, and `pad` in the others. */
TT_INLINE tt_vf tt_vpad(tt_vf x, size_t n, tt_real_t pad)
{
    tt_vi lane;
    for (int i = 0; i < TT_LANES; i++) {
        lane[i] = i;
    }
    return tt_vsel(lane < (tt_vi){0} + (int)n, x, tt_vsplat(pad));
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
#if defined(TT_F64) && defined(__AVX512F__)
    return (tt_vf)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(TT_F64) && defined(__FMA__)
    return (tt_vf)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(TT_F64) && defined(__aarch64__)
    return vfmaq_f64(c, a, b);
#elif defined(TT_F64)
    for (int i = 0; i < TT_LANES; i++) {
        a[i] = __builtin_fma(a[i], b[i], c[i]);
    }
    return a;
#elif defined(__AVX512F__)
    return (tt_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (tt_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return vfmaq_f32(c, a, b);
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

TT_INLINE tt_real_t tt_root(tt_real_t x)
{
#if defined(TT_F64)
    return __builtin_sqrt(x);
#else
    return __builtin_sqrtf(x);
#endif
}

TT_INLINE tt_vf tt_vsqrt(tt_vf x)
{
#if defined(__aarch64__) && defined(TT_F64)
    return vsqrtq_f64(x);
#elif defined(__aarch64__)
    return vsqrtq_f32(x);
#elif defined(TT_F64) || !defined(__x86_64__)
    for (int i = 0; i < TT_LANES; i++) {
        x[i] = tt_root(x[i]);
    }
    return x;
#elif defined(__AVX512F__)
    return (tt_vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (tt_vf)_mm256_sqrt_ps((__m256)x);
#else
    return (tt_vf)_mm_sqrt_ps((__m128)x);
#endif
}

/* 16 fixed lanes, whatever the vector's width: lane l adds elements l, l + 16, l + 32, … */
typedef struct {
    tt_vf part[TT_PARTS];
} tt_v16_t;

TT_INLINE tt_v16_t tt_v16_splat(tt_real_t x)
{
    tt_v16_t v;
    for (int p = 0; p < TT_PARTS; p++) {
        v.part[p] = tt_vsplat(x);
    }
    return v;
}

/* Folds the lanes in one order: 8 apart, then 4, 2, 1. */
TT_INLINE tt_real_t tt_v16_sum(tt_v16_t v)
{
    tt_real_t x[16];
    memcpy(x, &v, sizeof x);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            x[i] += x[i + width];
        }
    }
    return x[0];
}

TT_INLINE tt_real_t tt_v16_max(tt_v16_t v)
{
    tt_real_t x[16];
    memcpy(x, &v, sizeof x);
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            x[i] = x[i] > x[i + width] || x[i] != x[i] ? x[i] : x[i + width];
        }
    }
    return x[0];
}

TT_INLINE tt_real_t tt_v16_min(tt_v16_t v)
{
    for (int p = 0; p < TT_PARTS; p++) {
        v.part[p] = -v.part[p];
    }
    return -tt_v16_max(v);
}

#endif
