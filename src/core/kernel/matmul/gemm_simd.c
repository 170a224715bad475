/* The inner part of a product of f32 or f64 (gemm.h); of f32: a tile of 14 × 32 (AVX-512) or 6 × 16
 * (AVX2) sums stays in registers while a row of B's panel is multiplied by a broadcast element of
 * each row of A's.
 *
 *            k →                      columns
 *     A  r0 [a b c …]        B  k0 [ . . . . | . . . . ]      every step: 2 loads, 14 broadcasts,
 *        r1 [d e f …]           k1 [ . . . . | . . . . ]      28 fma; 99 % of a Zen 4 core's peak
 *
 * Each element is one chain of fma over k, so that tile size and vector width change no bit.
 * Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
 */
#include <string.h>

#include "core/kernel/matmul/gemm_lanes.h"

/* A panel of B comes from the L2 cache: the elements of a later step. */
TT_INLINE void fetch_b(const void *b)
{
    if (TT_VECTOR_BYTES == 64) {
        __builtin_prefetch((const char *)b + 16 * TT_GEMM_LINE);
        __builtin_prefetch((const char *)b + 17 * TT_GEMM_LINE);
    }
}

/* Two steps hide one. */
TT_INLINE void fetch_line(tt_gemm_ahead_t *ahead)
{
    __builtin_prefetch(ahead->row + ahead->at, 0, 2); /* L1 is full of A and B */
    ahead->at += TT_GEMM_LINE;
    if (ahead->at >= ahead->bytes) {
        ahead->at = 0;
        ahead->row += ahead->pitch;
    }
}

typedef struct {
    const tt_real_t *a, *b;
    tt_vf sum[ROWS][2];
} sums_t;

/* rows, row and step are constants where this is inlined; row and step: from element to element of
 * A. */
TT_INLINE void add_step(sums_t *s, const int rows, const int64_t row, const int64_t step)
{
    const tt_vf left = tt_vload(s->b), right = tt_vload(s->b + TT_LANES);
    fetch_b(s->b);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const tt_vf x = tt_vsplat(s->a[i * row]);
        s->sum[i][0] = tt_vfma(x, left, s->sum[i][0]);
        s->sum[i][1] = tt_vfma(x, right, s->sum[i][1]);
    }
    s->a += step;
    s->b += COLUMNS;
}

TT_INLINE void multiply_rows(const int rows, int64_t steps, sums_t s, const int64_t row,
                             const int64_t step, tt_real_t *tile, tt_gemm_ahead_t *ahead)
{
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        s.sum[i][0] = s.sum[i][1] = tt_vsplat(0);
    }
    for (int i = 0; rows == ROWS && ahead != NULL && i < 2; i++) {
        tt_gemm_ahead_t lines = ahead[i]; /* in registers */
        for (int64_t left = lines.lines; left > 0 && steps >= 2; left--, steps -= 2) {
            fetch_line(&lines);
            add_step(&s, rows, row, step);
            add_step(&s, rows, row, step);
        }
        ahead[i] = lines;
    }
    for (; steps > 0; steps--) {
        add_step(&s, rows, row, step);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        tt_vstore(tile + i * COLUMNS, s.sum[i][0]);
        tt_vstore(tile + i * COLUMNS + TT_LANES, s.sum[i][1]);
    }
}

/* A panel with fewer rows is done in parts of 8, 4, 2, 1. */
TT_INLINE void multiply_panel(int rows, int64_t steps, const tt_real_t *a, const int64_t row,
                              const int64_t step, const tt_real_t *b, tt_real_t *tile,
                              tt_gemm_ahead_t *ahead)
{
    if (rows == ROWS) {
        multiply_rows(ROWS, steps, (sums_t){.a = a, .b = b}, row, step, tile, ahead);
        return;
    }
    for (int done = 0; done < rows;) {
        const int left = rows - done;
        const sums_t from = {.a = a + done * row, .b = b};
        tt_real_t *to = tile + (ptrdiff_t)done * COLUMNS;
        if (left >= 8) {
            multiply_rows(ROWS > 8 ? 8 : 1, steps, from, row, step, to, ahead);
            done += ROWS > 8 ? 8 : 1;
        } else if (left >= 4) {
            multiply_rows(4, steps, from, row, step, to, ahead);
            done += 4;
        } else if (left >= 2) {
            multiply_rows(2, steps, from, row, step, to, ahead);
            done += 2;
        } else {
            multiply_rows(1, steps, from, row, step, to, ahead);
            done += 1;
        }
    }
}

static void multiply(int rows, int64_t steps, const float *a, bool transposed, const float *b,
                     float *tile, tt_gemm_ahead_t *ahead)
{
    const tt_real_t *x = (const void *)a, *y = (const void *)b;
    tt_real_t *sums = (void *)tile;
    if (transposed) {
        multiply_panel(rows, steps, x, 1, PITCH, y, sums, ahead);
    } else {
        multiply_panel(rows, steps, x, STRIDE, 1, y, sums, ahead);
    }
}

enum { AHEAD = 8 }; /* steps, each on a page of its own */

/* Rows of all panels are copied k by k, since they lie side by side. */
static void pack_a_transposed(const tt_real_t *a, int64_t ld, int64_t rows, int64_t k,
                              tt_real_t *to)
{
    for (int64_t step = 0; step < k; step++, a += ld) {
        tt_real_t *panel = to + step * PITCH;
        int64_t row = 0;
        for (; row + PITCH <= rows; row += ROWS, panel += PANEL) {
            __builtin_prefetch(a + AHEAD * ld + row);
            memcpy(panel, a + row, PITCH * sizeof *a); /* whole vectors, the last rows unused */
        }
        for (; row < rows; row += ROWS, panel += PANEL) {
            const int64_t left = rows - row < ROWS ? rows - row : ROWS;
            memcpy(panel, a + row, (size_t)left * sizeof *a);
        }
    }
}

static void pack_a(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to)
{
    tt_real_t *panels = (void *)to;
    if (transposed) {
        pack_a_transposed(a, ld, rows, k, panels);
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        tt_real_t *panel = panels + row / ROWS * PANEL;
        memcpy(panel + row % ROWS * STRIDE, (const tt_real_t *)a + row * ld,
               (size_t)k * sizeof *panel);
    }
}

/* One panel of a B stored as [N,K]. */
#if defined(__AVX512F__) && !defined(TT_F64)
static void pack_b_transposed(const tt_real_t *b, int64_t ld, int64_t k, int64_t columns,
                              tt_real_t *to)
{
    for (int64_t first = 0; first < COLUMNS; first += 16) {
        for (int64_t step = 0; step < k; step += 16) {
            const int64_t count = k - step < 16 ? k - step : 16;
            const __mmask16 mask = (__mmask16)((1u << count) - 1);
            __m512 x[16];
            for (int64_t i = 0; i < 16; i++) {
                const tt_real_t *row = b + (first + i) * ld + step;
                x[i] = first + i < columns ? _mm512_maskz_loadu_ps(mask, row) : _mm512_setzero_ps();
            }
            transpose_16(x, count, to + step * COLUMNS + first, COLUMNS);
        }
    }
}
#else
static void pack_b_transposed(const tt_real_t *b, int64_t ld, int64_t k, int64_t columns,
                              tt_real_t *to)
{
    for (int64_t column = 0; column < COLUMNS; column++) {
        for (int64_t step = 0; step < k; step++) {
            to[step * COLUMNS + column] = column < columns ? b[column * ld + step] : 0;
        }
    }
}
#endif

static void pack_b_rows(const tt_real_t *b, int64_t ld, int64_t k, int64_t columns, tt_real_t *to)
{
    for (int64_t step = 0; step < k; step++, b += ld, to += COLUMNS) {
        if (columns >= COLUMNS) {
            memcpy(to, b, COLUMNS * sizeof *to);
        } else {
            memset(to, 0, COLUMNS * sizeof *to);
            memcpy(to, b, (size_t)columns * sizeof *to);
        }
    }
}

static void pack_b(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to)
{
    const tt_real_t *from = b;
    tt_real_t *panel = (void *)to;
    for (int64_t column = 0; column < columns; column += COLUMNS, panel += k * COLUMNS) {
        if (transposed) {
            pack_b_transposed(from + column * ld, ld, k, columns - column, panel);
        } else {
            pack_b_rows(from + column, ld, k, columns - column, panel);
        }
    }
}

extern const tt_gemm_ops_t TT_ISA_NAME(tt_gemm_ops);

const tt_gemm_ops_t TT_ISA_NAME(tt_gemm_ops) = {
    .rows = ROWS,
    .columns = COLUMNS,
    .k_per_step = 1,
    .floats_per_step = FLOATS,
    .pitch = PITCH,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .is_fetching = true,
    .multiply = multiply,
    .finish = TT_ISA_NAME(tt_gemm_finish),
};
