/* The bf16 product's inner part (gemm.h) on 64-bit ARM with BF16 (Armv8.6, BFDOT): a tile of 8 × 8
 * sums stays in registers while pairs along K of a row of B's panel are multiplied by a broadcast
 * pair of each row of A's. Without it, gemm.c widens to f32.
 *
 *     B stored [K,N]: rows 2p and 2p+1 are interleaved; stored [N,K]: words are transposed
 *
 * CMake compiles this file alone with the instructions; isa.c says whether the CPU has them.
 */
#include "core/kernel/matmul/gemm_lanes.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

#include <arm_neon.h>
#include <string.h>

/* DOT_ROWS is also the pitch of a panel of A stored transposed. */
enum { DOT_ROWS = 8, LANES = 4, WORD = 8 /* elements of a vector of bf16 */ };

_Static_assert((int)COLUMNS == WORD && (int)DOT_ROWS == WORD, "a vector is a step");
_Static_assert(DOT_ROWS *STRIDE <= PANEL && DOT_ROWS * TT_GEMM_DEPTH <= PANEL, "");

static inline __attribute__((always_inline)) void multiply_rows(const int rows, int64_t steps,
                                                                const float *a, const int64_t row,
                                                                const int64_t step, const float *b,
                                                                float *tile)
{
    float32x4_t sum[DOT_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = vdupq_n_f32(0);
    }
    for (int64_t k = 0; k < steps; k++, a += step, b += COLUMNS) {
        const bfloat16x8_t left = vreinterpretq_bf16_f32(vld1q_f32(b));
        const bfloat16x8_t right = vreinterpretq_bf16_f32(vld1q_f32(b + LANES));
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const bfloat16x8_t x = vreinterpretq_bf16_f32(vld1q_dup_f32(a + i * row));
            sum[i][0] = vbfdotq_f32(sum[i][0], x, left);
            sum[i][1] = vbfdotq_f32(sum[i][1], x, right);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        vst1q_f32(tile + i * COLUMNS, sum[i][0]);
        vst1q_f32(tile + i * COLUMNS + LANES, sum[i][1]);
    }
}

/* row and step are constants where this is inlined. */
static inline __attribute__((always_inline)) void multiply_panel(int rows, int64_t steps,
                                                                 const float *a, const int64_t row,
                                                                 const int64_t step, const float *b,
                                                                 float *tile)
{
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

static void multiply(int rows, int64_t steps, const float *a, bool transposed, const float *b,
                     float *tile, tt_gemm_ahead_t *ahead)
{
    (void)ahead;
    if (transposed) {
        multiply_panel(rows, steps, a, 1, DOT_ROWS, b, tile);
    } else {
        multiply_panel(rows, steps, a, STRIDE, 1, b, tile);
    }
}

static uint16x8_t load_some(const uint16_t *from, int64_t count)
{
    uint16_t some[WORD] = {0};
    memcpy(some, from, (size_t)count * sizeof *from);
    return vld1q_u16(some);
}

/* A vector of pairs: low[i], high[i]; zeros behind count, and where high is NULL. */
static void store_pairs(const uint16_t *low, const uint16_t *high, int64_t count, float *to)
{
    const bool is_whole = count >= WORD;
    const uint16x8_t none = vdupq_n_u16(0);
    const uint16x8_t x = is_whole ? vld1q_u16(low) : load_some(low, count);
    const uint16x8_t y = high == NULL ? none : is_whole ? vld1q_u16(high) : load_some(high, count);
    vst1q_f32(to, vreinterpretq_f32_u16(vzip1q_u16(x, y)));
    vst1q_f32(to + LANES, vreinterpretq_f32_u16(vzip2q_u16(x, y)));
}

/* A row of pairs, `stride` floats apart. */
static void store_row(const uint16_t *from, int64_t k, int64_t stride, float *to)
{
    for (int64_t step = 0; step < k; step += 2, to += stride) {
        *to = 0;
        memcpy(to, from + step, (step + 1 < k ? 2 : 1) * sizeof *from);
    }
}

static void pack_a(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to)
{
    const uint16_t *from = a;
    for (int64_t row = 0; row < rows; row += DOT_ROWS, to += PANEL) {
        const int64_t some = rows - row < DOT_ROWS ? rows - row : DOT_ROWS;
        for (int64_t i = 0; i < some && !transposed; i++) {
            store_row(from + (row + i) * ld, k, 1, to + i * STRIDE);
        }
        for (int64_t step = 0; step < k && transposed; step += 2) {
            const uint16_t *low = from + step * ld + row;
            store_pairs(low, step + 1 < k ? low + ld : NULL, some, to + step / 2 * DOT_ROWS);
        }
    }
}

static void pack_b(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to)
{
    const uint16_t *from = b;
    for (int64_t column = 0; column < columns; column += COLUMNS, to += (k + 1) / 2 * COLUMNS) {
        const int64_t some = columns - column < COLUMNS ? columns - column : COLUMNS;
        if (transposed && some < COLUMNS) {
            memset(to, 0, (size_t)((k + 1) / 2 * COLUMNS) * sizeof *to);
        }
        for (int64_t i = 0; i < some && transposed; i++) {
            store_row(from + (column + i) * ld, k, COLUMNS, to + i);
        }
        for (int64_t step = 0; step < k && !transposed; step += 2) {
            const uint16_t *low = from + step * ld + column;
            store_pairs(low, step + 1 < k ? low + ld : NULL, some, to + step / 2 * COLUMNS);
        }
    }
}

const tt_gemm_ops_t tt_gemm_dot_baseline = {
    .rows = DOT_ROWS,
    .columns = COLUMNS,
    .k_per_step = 2,
    .floats_per_step = 1,
    .pitch = DOT_ROWS,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = TT_ISA_NAME(tt_gemm_finish),
};

#endif
