/* Vectors out of and into rows of f32, bf16 or f16 (or of f64), with the end of the row padded. The
 * dtype is a constant at every call, so each kernel is compiled once per dtype. */
#ifndef TT_VROW_H
#define TT_VROW_H

#include <tutti/dtype.h>

#include "core/kernel/half.h"
#include "core/kernel/vmath.h"

/* Vectors at `at` of a row's elements first … end - 1, whose lanes are those of part `part` of a
 * tt_v16_t. */
#define TT_EACH_VECTOR(at, part, first, end)                                                       \
    for (size_t base_ = (first); base_ < (end); base_ += 16)                                       \
        for (size_t part = 0, at = base_; part < TT_PARTS; part++, at += TT_LANES)

typedef uint16_t tt_vh __attribute__((vector_size(TT_LANES * sizeof(uint16_t))));

/* The first n lanes; the others are zero. */
TT_INLINE tt_vh tt_vhalf_load_n(const uint16_t *x, size_t n)
{
#if defined(__AVX512F__) && !defined(TT_F64)
    return (tt_vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), x);
#else
    tt_vh half = {0};
    memcpy(&half, x, n * sizeof *x);
    return half;
#endif
}

TT_INLINE void tt_vhalf_store_n(uint16_t *x, tt_vh half, size_t n)
{
#if defined(__AVX512F__) && !defined(TT_F64)
    _mm256_mask_storeu_epi16(x, (__mmask16)((1u << n) - 1), (__m256i)half);
#else
    memcpy(x, &half, n * sizeof *x);
#endif
}

TT_INLINE tt_vf tt_vfrom_half(tt_vh half, tutti_dtype_t dtype)
{
#if !defined(TT_F64)
    if (dtype == TUTTI_BF16) {
        return (tt_vf)(__builtin_convertvector(half, tt_vu) << 16);
    }
#endif
    tt_vf v;
    for (int i = 0; i < TT_LANES; i++) {
        v[i] = dtype == TUTTI_BF16 ? tt_bf16_to_f32(half[i]) : tt_f16_to_f32(half[i]);
    }
    return v;
}

TT_INLINE tt_vh tt_vto_half(tt_vf v, tutti_dtype_t dtype)
{
#if !defined(TT_F64)
    if (dtype == TUTTI_BF16) {
        const tt_vu bits = (tt_vu)v;
        const tt_vu rounded = bits + 0x7fff + (bits >> 16 & 1);
        const tt_vi is_nan = v != v;
        const tt_vu chosen = ((bits | 0x400000) & (tt_vu)is_nan) | (rounded & ~(tt_vu)is_nan);
        return __builtin_convertvector(chosen >> 16, tt_vh);
    }
#endif
    tt_vh half;
    for (int i = 0; i < TT_LANES; i++) {
        half[i] =
            dtype == TUTTI_BF16 ? tt_bf16_from_f32((float)v[i]) : tt_f16_from_f32((float)v[i]);
    }
    return half;
}

/* Of an element. */
TT_INLINE size_t tt_vbytes(tutti_dtype_t dtype)
{
    return dtype == TT_REAL ? sizeof(tt_real_t) : sizeof(uint16_t);
}

/* Elements at … at + TT_LANES - 1 of a row of n; those past the end are `pad`. */
TT_INLINE tt_vf tt_vread(const void *row, size_t at, size_t n, tt_real_t pad, tutti_dtype_t dtype)
{
    const size_t left = at + TT_LANES <= n ? TT_LANES : at < n ? n - at : 0;
    if (dtype == TT_REAL) {
        if (left == TT_LANES) {
            return tt_vload((const tt_real_t *)row + at);
        }
        return tt_vpad(tt_vload_n((const tt_real_t *)row + at, left), left, pad);
    }
    if (left == TT_LANES) {
        tt_vh half;
        memcpy(&half, (const uint16_t *)row + at, sizeof half);
        return tt_vfrom_half(half, dtype);
    }
    const tt_vh half = tt_vhalf_load_n((const uint16_t *)row + at, left);
    return tt_vpad(tt_vfrom_half(half, dtype), left, pad);
}

TT_INLINE void tt_vwrite(void *row, size_t at, size_t n, tt_vf v, tutti_dtype_t dtype)
{
    const size_t left = at + TT_LANES <= n ? TT_LANES : at < n ? n - at : 0;
    if (dtype == TT_REAL) {
        if (left == TT_LANES) {
            tt_vstore((tt_real_t *)row + at, v);
        } else {
            tt_vstore_n((tt_real_t *)row + at, v, left);
        }
        return;
    }
    const tt_vh half = tt_vto_half(v, dtype);
    if (left == TT_LANES) {
        memcpy((uint16_t *)row + at, &half, sizeof half);
    } else {
        tt_vhalf_store_n((uint16_t *)row + at, half, left);
    }
}

#endif
