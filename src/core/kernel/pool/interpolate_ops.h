/* What interpolate_simd.c exports per variant and class: sums over taps. */
#ifndef TT_INTERPOLATE_OPS_H
#define TT_INTERPOLATE_OPS_H

#include <stdint.h>

#include "core/kernel/kernels.h"
#include "core/kernel/pool/taps.h"

struct tt_interpolate_ops {
    /* y = Σ weight x[index] for element i of the taps, of rows of n elements. */
    void (*blend_rows)(void *y, const void *x, int64_t n, const tt_taps_t *taps, int64_t i);
    /* y[i] = Σ weight[i] x[index[i]] */
    void (*blend_columns)(void *y, const void *x, const tt_taps_t *taps);
};

#endif
