/* What the f32 and the bf16 product share. For *_simd.c files only. */
#ifndef TT_GEMM_LANES_H
#define TT_GEMM_LANES_H

#include "core/kernel/gemm.h"
#include "core/kernel/isa.h"
#include "core/kernel/vmath.h"

/* A tile is as large as the registers allow: 14 × 2 accumulators of 32, 6 × 2 of 16. */
#if defined(__AVX512F__)
enum { ROWS = 14, PITCH = 16 };
#else
enum { ROWS = TT_LANES == 8 ? 6 : 4, PITCH = 8 };
#endif

enum {
    COLUMNS = 2 * TT_LANES,
    STRIDE = TT_GEMM_STRIDE,
};

_Static_assert(ROWS *STRIDE <= TT_GEMM_A_PANEL && PITCH * TT_GEMM_STEPS <= TT_GEMM_A_PANEL, "");

void TT_ISA_NAME(tt_gemm_finish)(const tt_gemm_finish_t *finish);

#if defined(__AVX512F__)
/* Rows x[0..15] of 16 words become columns: to[k · pitch + row] for k < count. */
TT_INLINE void transpose_16(__m512 x[16], int64_t count, float *to, int64_t pitch)
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
    for (int i = 0; i < 16; i++) {
        if (i < count) {
            _mm512_storeu_ps(to + i * pitch, x[i]);
        }
    }
}
#endif

#endif
