/* What the f32 (and f64) and the bf16 product share. For *_simd.c files only. */
#ifndef TT_GEMM_LANES_H
#define TT_GEMM_LANES_H

#include "core/kernel/matmul/gemm.h"
#include "core/kernel/matmul/gemm_transpose.h"
#include "core/kernel/isa.h"
#include "core/kernel/vmath.h"

/* A tile is as large as the registers allow: 14 × 2 accumulators of 32, 6 × 2 of 16. */
#if defined(__AVX512F__)
enum { ROWS = 14, PITCH = 16 };
#else
enum { ROWS = TT_VECTOR_BYTES == 32 ? 6 : 4, PITCH = 8 };
#endif

/* In elements of the class. */
enum {
    FLOATS = sizeof(tt_real_t) / sizeof(float),
    COLUMNS = 2 * TT_LANES,
    STRIDE = TT_GEMM_STRIDE / FLOATS,
    PANEL = TT_GEMM_A_PANEL / FLOATS,
};

_Static_assert(ROWS *STRIDE <= PANEL && PITCH * (TT_GEMM_DEPTH / FLOATS) <= PANEL, "");

void TT_ISA_NAME(tt_gemm_finish)(const tt_gemm_finish_t *finish);

#endif
