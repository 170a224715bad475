/* Matrix products on raw pointers.
 *
 *     C[batch,M,N] = act(A[batch,M,K] · B[batch,K,N] (+ C) (+ bias[N]))
 *
 *     // y[tokens,out] = gelu(x[tokens,in] · w[out,in]^T + bias[out])
 *     tt_matmul(exec, &(tt_matmul_t){.batch = 1, .m = tokens, .n = out, .k = in,
 *                                 .a = {.data = x},
 *                                 .b = {.data = w, .transposed = true},
 *                                 .c = y, .bias = bias, .epilogue = TT_EPILOGUE_GELU_TANH});
 *
 * Bits: each element of C is a sum over fixed blocks of K, in order; it depends on K and on the
 * row of A and the column of B alone, not on M, N, batch, leading dimensions, transposes, or the
 * number of threads. (docs/decisions/0004-products-in-tiles-of-our-own.md)
 */
#ifndef TT_MATMUL_H
#define TT_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef enum {
    TT_EPILOGUE_NONE,
    TT_EPILOGUE_GELU_ERF,
    TT_EPILOGUE_GELU_TANH,
} tt_epilogue_t;

typedef struct {
    const void *data;
    int64_t ld;           /* elements from one stored row to the next; 0: rows are packed */
    int64_t batch_stride; /* elements from one matrix to the next; 0: all share this one */
    bool transposed;      /* stored as the transpose: A as [K,M], B as [N,K] */
} tt_matmul_in_t;

typedef struct {
    int64_t batch, m, n, k;  /* any of them may be 0; without K the product is 0 */
    tutti_dtype_t dtype;     /* of A and B: f32, f64, bf16, f16 */
    tutti_dtype_t out_dtype; /* of C and pre: dtype, or f32 where dtype is bf16 or f16 */
    tt_matmul_in_t a, b;
    const void *packed; /* NULL, or B as tt_matmul_pack() packed it, in place of b */
    void *c;            /* [batch,M,N]; must not overlap A or B */
    int64_t c_ld, c_batch_stride;
    bool accumulate;          /* add to what C holds */
    const void *bias;         /* [N] or NULL */
    tutti_dtype_t bias_dtype; /* dtype or out_dtype */
    tt_epilogue_t epilogue;
    void *pre; /* NULL, or where A·B + bias is kept from before the epilogue; laid out like C */
} tt_matmul_t;

/* Sums are made in f32 (f64 for f64) and rounded once.
 * Errors: DTYPE; NOMEM (scratch); those of a launch. */
TT_LAUNCHES tutti_status_t tt_matmul(tt_exec_t *exec, const tt_matmul_t *matmul);

/* For a B that several products share: bytes of it packed, of dtype, n and k; 0 where nothing would
 * be gained. The bits of a product do not depend on it. */
size_t tt_matmul_packed_bytes(tutti_dtype_t dtype, int64_t n, int64_t k);

/* Pack b of a product of one batch; `to` has so many bytes. Errors: those of a launch. */
TT_LAUNCHES tutti_status_t tt_matmul_pack(tt_exec_t *exec, const tt_matmul_t *matmul, void *to);

#endif
