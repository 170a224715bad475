/* The inner part of a matrix product, compiled once per instruction set: packing, and the product
 * of a panel of A's rows with a panel of B's columns, kept in registers.
 *
 *     A panel, rows × K block:   row after row (A as it is), or k after k (A stored transposed)
 *     B panel, K block × columns: k after k, zeros where B has no more columns
 *     tile, rows × columns:       f32, for each element one chain of fused multiply-adds over k
 *
 * An element of "bf16" tables' panels is a pair of bf16 along K, zero-padded; the chain runs over
 * pairs (AVX512_BF16's vdpbf16ps).
 */
#ifndef TT_GEMM_H
#define TT_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/kernel/matmul/matmul.h"

enum {
    TT_GEMM_STEPS = 512,      /* of a K block: 512 elements in f32, 1024 in bf16 */
    TT_GEMM_STRIDE = 528,     /* floats from row to row of an A panel: no power of two */
    TT_GEMM_ROWS_MAX = 16,    /* of a tile */
    TT_GEMM_COLUMNS_MAX = 32, /* of a tile */
    TT_GEMM_A_PANEL = 16 * TT_GEMM_STRIDE, /* floats between A panels */
};

/* What becomes of a tile: out = act(tile + add + bias), with add and pre where they are not NULL.
 * All are given at the tile's first element. */
typedef struct {
    int rows, columns; /* that count */
    const float *tile; /* rows are the table's `columns` apart */
    const float *add;
    int64_t add_ld;
    const float *bias;
    tt_epilogue_t epilogue;
    tutti_dtype_t dtype; /* of pre and out: f32, bf16, f16 */
    void *pre, *out;
    int64_t ld;
} tt_gemm_finish_t;

typedef struct {
    int rows, columns; /* of a tile */
    int k_per_step;    /* 1, or 2 for pairs */
    int pitch;         /* floats from k to k of a panel of A stored transposed */
    /* Panels of `rows` rows from a's first row and k on, TT_GEMM_A_PANEL floats apart. */
    void (*pack_a)(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to);
    /* Panels of `columns` columns, ceil(k / k_per_step) × columns floats apart. */
    void (*pack_b)(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to);
    /* tile = a · b over `steps` steps. */
    void (*multiply)(int rows, int64_t steps, const float *a, bool transposed, const float *b,
                     float *tile);
    void (*finish)(const tt_gemm_finish_t *finish);
} tt_gemm_ops_t;

/* dtype f32, or bf16: NULL where the CPU cannot multiply bf16. */
const tt_gemm_ops_t *tt_gemm_ops(tutti_dtype_t dtype);

extern const tt_gemm_ops_t tt_gemm_f32_baseline, tt_gemm_f32_avx2, tt_gemm_f32_avx512;
extern const tt_gemm_ops_t tt_gemm_bf16_avx512;

#endif
