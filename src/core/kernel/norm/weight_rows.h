/* Rows of a weight as their lengths and directions, in f32 or f64.
 *
 *     length = √Σ v²     w = v g / length
 *     dg = Σ dw v / length     dv = g / length (dw - v dg / length)
 */
#ifndef TT_WEIGHT_ROWS_H
#define TT_WEIGHT_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/exec/exec.h"
#include "core/kernel/kernels.h"

/* v, w, dw, dv: [rows, n]; g, length, dg: [rows]. */
typedef struct {
    bool is_wide; /* all are f64, not f32 */
    size_t rows, n;
    const void *v, *g;
    void *w;      /* forward writes */
    void *length; /* forward writes (NULL: not kept), backward reads */
    const void *dw;
    void *dv, *dg; /* backward writes; NULL: not wanted */
} tt_weight_norm_t;

/* What weight_rows_simd.c exports per variant and class: work on one row. */
struct tt_weight_rows_ops {
    void (*forward)(const tt_weight_norm_t *norm, size_t row);
    void (*backward)(const tt_weight_norm_t *norm, size_t row);
};

TT_LAUNCHES tutti_status_t tt_weight_norm(tt_exec_t *exec, const tt_weight_norm_t *norm);
TT_LAUNCHES tutti_status_t tt_weight_norm_backward(tt_exec_t *exec, const tt_weight_norm_t *norm);

#endif
