/* The inner part of a matrix product, compiled once per instruction set: packing, and the product
 * of a panel of A's rows with a panel of B's columns, kept in registers.
 *
 *     A panel, rows × K block:   row after row (A as it is), or k after k (A stored transposed)
 *     B panel, K block × columns: k after k, zeros where B has no more columns
 *     tile, rows × columns:       sums, for each element one chain of fused multiply-adds over k
 *
 * Panels and sums are of f32, counted in floats; an element of f64's is two of them.
 * A float of "pairs" tables' panels is a pair of bf16 along K, zero-padded; the chain runs over
 * pairs (AVX512_BF16's vdpbf16ps, ARM's bfdot). AMX takes 16 pairs of a row at a time.
 */
#ifndef TT_GEMM_H
#define TT_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/kernel/matmul/matmul.h"

enum {
    TT_GEMM_DEPTH = 512,      /* floats of a row in a K block: 512 elements of f32, 1024 of bf16 */
    TT_GEMM_STRIDE = 528,     /* floats from row to row of an A panel: no power of two */
    TT_GEMM_ROWS_MAX = 16,    /* of a tile */
    TT_GEMM_COLUMNS_MAX = 32, /* of a tile */
    TT_GEMM_LINE = 64,        /* bytes of the caches' lines */
    TT_GEMM_A_PANEL = 16 * TT_GEMM_STRIDE, /* floats between A panels */
};

/* What becomes of a tile: out = act(tile + add + bias), with add and pre where they are not NULL.
 * All are given at the tile's first element. */
typedef struct {
    int rows, columns; /* that count */
    const void *tile;  /* f32, or f64: all that is added up; rows are the table's `columns` apart */
    const void *add;
    int64_t add_ld;
    const void *bias;
    tt_epilogue_t epilogue;
    tutti_dtype_t dtype; /* of pre and out: f32, bf16, f16; f64 for f64 */
    void *pre, *out;
    int64_t ld;
} tt_gemm_finish_t;

/* Memory that is needed soon, so that nobody waits for it then: `lines` lines of 64 bytes at each
 * call, of rows of `bytes`, `pitch` bytes apart, from `at` bytes into a row. */
typedef struct {
    const char *row;
    int64_t pitch, bytes, at, lines;
} tt_gemm_ahead_t;

typedef struct tt_gemm_ops {
    int rows, columns;   /* of a tile */
    int k_per_step;      /* elements: 1, 2 (pairs), 32 (AMX) */
    int floats_per_step; /* of a row or column of a panel: 1, 2 (f64), 16 (AMX) */
    int pitch;           /* elements from k to k of a panel of A stored transposed */
    /* Panels of `rows` rows from a's first row and k on, TT_GEMM_A_PANEL floats apart. */
    void (*pack_a)(const void *a, int64_t ld, bool transposed, int64_t rows, int64_t k, float *to);
    /* Panels of `columns` columns, tt_gemm_depth(ops, k) × columns floats apart. */
    void (*pack_b)(const void *b, int64_t ld, bool transposed, int64_t k, int64_t columns,
                   float *to);
    /* Around calls of `multiply` by a thread, which calls nobody else's code meanwhile; NULL where
     * nothing is to do. */
    void (*begin)(void);
    void (*end)(void);
    bool is_fetching; /* `ahead`, while it multiplies; else it leaves that alone */
    /* tile = a · b over `steps` steps. ahead: NULL, or two; the first's lines are fetched, then the
     * second's, as many as there is time for; both move on. */
    void (*multiply)(int rows, int64_t steps, const float *a, bool transposed, const float *b,
                     float *tile, tt_gemm_ahead_t *ahead);
    void (*finish)(const tt_gemm_finish_t *finish);
} tt_gemm_ops_t;

/* dtype f32, f64, or bf16: NULL where the CPU cannot multiply bf16. */
const tt_gemm_ops_t *tt_gemm_ops(tutti_dtype_t dtype);

static inline int64_t tt_gemm_steps(const tt_gemm_ops_t *ops, int64_t k)
{
    return (k + ops->k_per_step - 1) / ops->k_per_step;
}

/* Floats of k elements of a row or column in a panel. */
static inline int64_t tt_gemm_depth(const tt_gemm_ops_t *ops, int64_t k)
{
    return tt_gemm_steps(ops, k) * ops->floats_per_step;
}

static inline void tt_gemm_begin(const tt_gemm_ops_t *ops)
{
    if (ops->begin != NULL) {
        ops->begin();
    }
}

static inline void tt_gemm_end(const tt_gemm_ops_t *ops)
{
    if (ops->end != NULL) {
        ops->end();
    }
}

extern const tt_gemm_ops_t tt_gemm_pairs_avx512, tt_gemm_amx_avx512, tt_gemm_dot_baseline;

/* AMX's tiles until end: 0 to 3 for sums, 4 and 5 for A, of so many rows and pairs; 6 and 7 for B.
 */
void tt_gemm_amx_begin_avx512(int rows, int pairs);
void tt_gemm_amx_end_avx512(void);

#endif
