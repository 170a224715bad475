/* The bf16 product's inner part (gemm.h), where the CPU multiplies pairs of bf16 into f32
 * (AVX512_BF16, vdpbf16ps): the f32 form with a pair along K in place of an element, so that a
 * panel has the same bytes and a step does twice the work. Without it, gemm.c widens to f32.
 *
 *     B stored [K,N]: rows 2p and 2p+1 are interleaved; stored [N,K]: words are transposed
 */
#include "core/kernel/matmul/gemm_lanes.h"
#include "core/kernel/matmul/gemm_pairs.h"

#if defined(__AVX512F__)

#include <string.h>

#define TARGET __attribute__((target("avx512bf16")))

TARGET static inline __attribute__((always_inline)) void
multiply_rows(const int rows, int64_t steps, const float *a, const int64_t row, const int64_t step,
              const float *b, float *tile)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < steps; k++, a += step, b += COLUMNS) {
        const __m512bh left = (__m512bh)_mm512_loadu_ps(b);
        const __m512bh right = (__m512bh)_mm512_loadu_ps(b + TT_LANES);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const __m512bh x = (__m512bh)_mm512_set1_ps(a[i * row]);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, left);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, right);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        _mm512_storeu_ps(tile + i * COLUMNS, sum[i][0]);
        _mm512_storeu_ps(tile + i * COLUMNS + TT_LANES, sum[i][1]);
    }
}

TARGET static inline __attribute__((always_inline)) void
multiply_panel(int rows, int64_t steps, const float *a, const int64_t row, const int64_t step,
               const float *b, float *tile)
{
    if (rows == ROWS) {
        multiply_rows(ROWS, steps, a, row, step, b, tile);
        return;
    }
    for (int done = 0; done < rows;) {
        const int left = rows - done;
        const float *from = a + done * row;
        float *to = tile + (ptrdiff_t)done * COLUMNS;
        if (left >= 8) {
            multiply_rows(8, steps, from, row, step, b, to);
            done += 8;
        } else if (left >= 4) {
            multiply_rows(4, steps, from, row, step, b, to);
            done += 4;
        } else if (left >= 2) {
            multiply_rows(2, steps, from, row, step, b, to);
            done += 2;
        } else {
            multiply_rows(1, steps, from, row, step, b, to);
            done += 1;
        }
    }
}

TARGET static void multiply(int rows, int64_t steps, const float *a, bool transposed,
                            const float *b, float *tile, tt_gemm_ahead_t *ahead)
{
    (void)ahead;
    if (transposed) {
        multiply_panel(rows, steps, a, 1, PITCH, b, tile);
    } else {
        multiply_panel(rows, steps, a, STRIDE, 1, b, tile);
    }
}

static void pack_a_transposed(const uint16_t *a, int64_t ld, int64_t rows, int64_t k, float *to)
{
    for (int64_t step = 0; step < k; step += 2, a += 2 * ld) {
        float *panel = to + step / 2 * PITCH;
        for (int64_t row = 0; row < rows; row += ROWS, panel += TT_GEMM_A_PANEL) {
            const __mmask16 mask = tt_first_lanes(rows - row < ROWS ? rows - row : ROWS);
            const uint16_t *next = step + 1 < k ? a + ld + row : NULL;
            _mm512_storeu_si512(panel, tt_load_pairs(a + row, next, mask));
        }
    }
}

static void pack_a(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to)
{
    if (transposed) {
        pack_a_transposed(a, ld, rows, k, to);
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        float *panel = to + row / ROWS * TT_GEMM_A_PANEL + row % ROWS * STRIDE;
        const uint16_t *from = (const uint16_t *)a + row * ld;
        if (k % 2 != 0) {
            panel[k / 2] = 0;
        }
        memcpy(panel, from, (size_t)k * sizeof *from);
    }
}

static void pack_b(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to)
{
    const uint16_t *from = b;
    for (int64_t column = 0; column < columns; column += COLUMNS, to += (k + 1) / 2 * COLUMNS) {
        if (transposed) {
            tt_pack_pairs_transposed(from + column * ld, ld, k, columns - column, to);
        } else {
            tt_pack_pairs(from + column, ld, k, columns - column, to);
        }
    }
}

const tt_gemm_ops_t TT_ISA_NAME(tt_gemm_pairs) = {
    .rows = ROWS,
    .columns = COLUMNS,
    .k_per_step = 2,
    .floats_per_step = 1,
    .pitch = PITCH,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = TT_ISA_NAME(tt_gemm_finish),
};

#endif
