/* 16 vectors of AVX-512 transposed in registers. For *_simd.c files only. */
#ifndef TT_GEMM_TRANSPOSE_H
#define TT_GEMM_TRANSPOSE_H

#include "core/kernel/vmath.h"

#if defined(__AVX512F__)
/* Rows x[0..15] of 16 words become columns. */
TT_INLINE void transpose_words(__m512 x[16])
{
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + 2 + j]);
            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 16; i += 8) {
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_f32x4(x[i + j], x[i + 4 + j], 0x88);
            t[i + 4 + j] = _mm512_shuffle_f32x4(x[i + j], x[i + 4 + j], 0xdd);
        }
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

/* The same, written: to[k · pitch + row] for k < count. */
TT_INLINE void transpose_16(__m512 x[16], int64_t count, float *to, int64_t pitch)
{
    transpose_words(x);
    for (int i = 0; i < 16; i++) {
        if (i < count) {
            _mm512_storeu_ps(to + i * pitch, x[i]);
        }
    }
}
#endif

#endif
