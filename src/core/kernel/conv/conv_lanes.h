/* The loop of conv_ops.h's tiles, for f32 and for bf16. For *_simd.c files only, which define
 * CONV_TARGET (of the function) and CONV_ADD(sum, x, y), sum + x · y in a vector's lanes.
 *
 *            a step                      every step: 2 loads, 14 broadcasts, 28 fma; rows are
 *     planes r0 + k [x]   b [. . | . .]  addressed one by one, so that positions and taps need
 *            r1 + k [y]                  not be neighbours and nothing is packed
 *
 * Each element is one chain of fma over the steps, so that tile size and vector width change no
 * bit. */
#ifndef TT_CONV_LANES_H
#define TT_CONV_LANES_H

#include <string.h>

#include "core/kernel/conv/conv_ops.h"
#include "core/kernel/vmath.h"

#if defined(__AVX512F__)
#define ROWS 14
#elif defined(__AVX2__)
#define ROWS 6
#else
#define ROWS 4
#endif
enum { COLUMNS = 2 * TT_LANES };

_Static_assert((int)COLUMNS <= (int)TT_CONV_COLUMNS_MAX, "");

/* rows, vectors and in_panel are constants where this is inlined: a panel's rows need no addresses
 * of their own, of which there are more than registers. */
CONV_TARGET TT_INLINE void multiply_rows(const int rows, const int vectors, const bool in_panel,
                                         const tt_conv_tile_t *t)
{
    tt_vf sum[ROWS][2];
    const char *row[ROWS];
    const float *b = t->b;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        row[i] = t->planes + (in_panel ? i * (int64_t)sizeof(float) : t->row_at[i]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = t->start != NULL ? tt_vload(t->start + i * t->start_pitch + v * TT_LANES)
                                         : tt_vsplat(0);
        }
    }
    for (int64_t k = 0; k < t->steps; k++, b += COLUMNS) {
        const int64_t at = in_panel ? k * TT_CONV_PITCH * (int64_t)sizeof(float) : t->step_at[k];
        const tt_vf left = tt_vload(b), right = vectors > 1 ? tt_vload(b + TT_LANES) : left;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float element;
            memcpy(&element, row[i] + at, sizeof element);
            const tt_vf x = tt_vsplat(element);
            sum[i][0] = CONV_ADD(sum[i][0], x, left);
            if (vectors > 1) {
                sum[i][1] = CONV_ADD(sum[i][1], x, right);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *to = t->tile + i * COLUMNS + v * TT_LANES;
            tt_vstore(to, t->is_added ? tt_vload(to) + sum[i][v] : sum[i][v]);
        }
    }
}

/* All rows, whatever of them counts. */
CONV_TARGET static void multiply_panel(const tt_conv_tile_t *t)
{
    if (t->is_narrow) {
        multiply_rows(ROWS, 1, true, t);
    } else {
        multiply_rows(ROWS, 2, true, t);
    }
}

#define CONV_CASE(n)                                                                               \
    case n:                                                                                        \
        if (t->is_narrow) {                                                                        \
            multiply_rows(n, 1, false, t);                                                         \
        } else {                                                                                   \
            multiply_rows(n, 2, false, t);                                                         \
        }                                                                                          \
        break;

CONV_TARGET static void multiply(const tt_conv_tile_t *t)
{
    if (t->row_at == NULL) {
        multiply_panel(t);
        return;
    }
    switch (t->rows) {
        CONV_CASE(1)
        CONV_CASE(2)
        CONV_CASE(3)
        CONV_CASE(4)
#if ROWS >= 6
        CONV_CASE(5)
        CONV_CASE(6)
#endif
#if ROWS >= 14
        CONV_CASE(7)
        CONV_CASE(8)
        CONV_CASE(9)
        CONV_CASE(10)
        CONV_CASE(11)
        CONV_CASE(12)
        CONV_CASE(13)
        CONV_CASE(14)
#endif
    default:
        break;
    }
}

#undef CONV_CASE

#endif
