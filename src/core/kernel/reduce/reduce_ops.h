/* What reduce_simd.c exports per variant and class; the i64 folds, and how results join. */
#ifndef TT_REDUCE_OPS_H
#define TT_REDUCE_OPS_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
#define TT_FOLD(fold, ...) TT_FOLD_##fold,
#include "core/kernel/reduce/folds.def"
#undef TT_FOLD
    TT_FOLD_COUNT
} tt_fold_t;

/* x[n] folded in 16 lanes, then the lanes; n may be 0. */
typedef double (*tt_fold_row_fn_t)(const void *x, size_t n, double mean);

/* rows × n, n at most TT_FOLD_COLUMNS: acc[j] takes x[j], x[j + row_stride], … in order. */
enum { TT_FOLD_COLUMNS = 256 };

typedef struct {
    const void *x;
    int64_t row_stride;
    size_t rows, n;
    const void *mean; /* [n], for DEVIATIONS */
} tt_fold_block_t;

typedef void (*tt_fold_column_fn_t)(void *acc, const tt_fold_block_t *block);

struct tt_reduce_ops {
    tt_fold_row_fn_t row[TT_FOLD_COUNT];
    tt_fold_column_fn_t column[TT_FOLD_COUNT];
};

/* The same for i64, from a given start; join_all: of f32 with n totals. */
typedef struct {
    double identity;
    int64_t identity_i64;
    int64_t (*row_i64)(int64_t acc, const int64_t *x, size_t n);
    double (*join)(double a, double b);
    void (*join_all)(double *total, const float *part, size_t n);
} tt_fold_wide_t;

extern const tt_fold_wide_t tt_fold_wide[TT_FOLD_COUNT];

#endif
