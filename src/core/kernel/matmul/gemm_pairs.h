/* Panels of B of pairs of bf16 along K, for AVX-512. For *_simd.c files only.
 *
 *     B stored [K,N]: rows 2p and 2p+1 are interleaved; stored [N,K]: words are transposed
 */
#ifndef TT_GEMM_PAIRS_H
#define TT_GEMM_PAIRS_H

#include "core/kernel/matmul/gemm_lanes.h"

#if defined(__AVX512F__)

/* 16 words: x[i] low, y[i] high; y NULL gives zeros. */
TT_INLINE __m512i tt_load_pairs(const uint16_t *x, const uint16_t *y, __mmask16 mask)
{
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x));
    if (y == NULL) {
        return low;
    }
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, y));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

TT_INLINE __mmask16 tt_first_lanes(int64_t count)
{
    return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* One panel of B stored [N,K]. */
TT_INLINE void tt_pack_pairs_transposed(const uint16_t *b, int64_t ld, int64_t k, int64_t columns,
                                        float *to)
{
    for (int64_t first = 0; first < COLUMNS; first += 16) {
        for (int64_t step = 0; step < k; step += 32) {
            const int64_t count = k - step < 32 ? k - step : 32;
            const __mmask32 mask = (__mmask32)((1ull << count) - 1);
            __m512 x[16];
            for (int64_t i = 0; i < 16; i++) {
                const __mmask32 some = first + i < columns ? mask : 0;
                const uint16_t *row = b + (some ? (first + i) * ld + step : 0);
                x[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, row));
            }
            transpose_16(x, (count + 1) / 2, to + step / 2 * COLUMNS + first, COLUMNS);
        }
    }
}

/* One panel of B stored [K,N]. */
TT_INLINE void tt_pack_pairs(const uint16_t *b, int64_t ld, int64_t k, int64_t columns, float *to)
{
    const __mmask16 left = tt_first_lanes(columns), right = tt_first_lanes(columns - 16);
    for (int64_t step = 0; step < k; step += 2, b += 2 * ld, to += COLUMNS) {
        const uint16_t *next = step + 1 < k ? b + ld : NULL;
        _mm512_storeu_si512(to, tt_load_pairs(b, next, left));
        _mm512_storeu_si512(to + 16, tt_load_pairs(b + 16, next ? next + 16 : NULL, right));
    }
}

#endif

#endif
