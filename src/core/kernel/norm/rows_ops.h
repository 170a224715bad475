/* What softmax_simd.c and norm_simd.c export per variant and class: work on one row. */
#ifndef TT_ROWS_OPS_H
#define TT_ROWS_OPS_H

#include <stdbool.h>

#include "core/kernel/norm/rows.h"

/* One row of a cross entropy. The numbers are in the accumulation type's values. */
typedef struct {
    const void *x;
    void *dx;
    size_t n;
    int64_t target;     /* -1: it is not in this part of the row */
    size_t classes;     /* of the whole row */
    double max, sum;    /* largest element; sum of e^(x - max) */
    double pick, total; /* x[target] - max; sum of x - max, where there is smoothing */
    double smoothing, loss, scale;
    /* Where the target is a distribution, (1 - smoothing) probs + smoothing / classes of each
     * class, times weight: [n] of the accumulation type. probs NULL: all of it is at `target`. */
    const void *probs, *weight;
    void *dprobs; /* [n]; NULL: not wanted */
} tt_loss_row_t;

typedef struct {
    void (*softmax)(void *y, const void *x, size_t n);
    void (*softmax_backward)(void *dx, const void *dy, const void *y, size_t n);
    void (*log_softmax)(void *y, const void *x, size_t n);
    void (*log_softmax_backward)(void *dx, const void *dy, const void *y, size_t n);
    void (*loss)(tt_loss_row_t *row);        /* writes max, sum and loss */
    void (*loss_max)(tt_loss_row_t *row);    /* of a part of a row: writes max; */
    void (*loss_sums)(tt_loss_row_t *row);   /* reads it, writes sum, pick and total; */
    void (*loss_finish)(tt_loss_row_t *row); /* reads those of the whole, writes loss */
    void (*loss_backward)(const tt_loss_row_t *row);
    void (*soft_loss)(tt_loss_row_t *row); /* with weights: writes max, sum and loss */
    void (*soft_loss_backward)(const tt_loss_row_t *row);
} tt_softmax_rows_t;

struct tt_softmax_ops {
    tt_softmax_rows_t rows[TUTTI_DTYPE_COUNT];
};

/* One row of a norm. */
typedef struct {
    const void *x, *dy, *gamma, *beta;
    void *y, *dx;
    void *dgamma, *dbeta; /* [n], added to; NULL: not wanted */
    size_t n;
    double eps, mean, rstd;
} tt_norm_row_t;

typedef struct {
    void (*forward)(tt_norm_row_t *row); /* writes mean and rstd */
    void (*backward)(const tt_norm_row_t *row);
} tt_norm_rows_t;

struct tt_norm_ops {
    tt_norm_rows_t layer[TUTTI_DTYPE_COUNT], rms[TUTTI_DTYPE_COUNT];
};

#endif
