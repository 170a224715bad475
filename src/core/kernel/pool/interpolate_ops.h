/* What interpolate_simd.c and grid_sample_simd.c export per variant and class: sums over taps. */
#ifndef TT_INTERPOLATE_OPS_H
#define TT_INTERPOLATE_OPS_H

#include <stdint.h>

#include "core/kernel/kernels.h"
#include "core/kernel/pool/grid_sample.h"
#include "core/kernel/pool/taps.h"

enum {
    TT_GRID_POINTS = 64, /* at a time */
    TT_GRID_TAPS = 64    /* of a point at most */
};

/* Of some points of a sample. */
typedef struct {
    /* Taps of n points. slopes: NULL, or room for weights as taps->weight for W, H and D, in this
     * order, derived once more by that place. */
    void (*find_taps)(const tt_grid_sample_t *t, const void *grid, int64_t n, tt_taps_t *taps,
                      void *const *slopes);
    /* x[index] += weight y, of one channel. */
    void (*spread)(void *x, const void *y, const tt_taps_t *taps);
    /* dots[k][i] += y[i] x[index[k][i]], of one channel; dots as taps->weight. */
    void (*add_dots)(void *dots, const void *y, const void *x, const tt_taps_t *taps);
    /* to[i dims] = Σ slope dots; where a slope is 0, nothing of dots. */
    void (*sum_slopes)(void *to, int dims, const void *dots, const void *slope,
                       const tt_taps_t *taps);
} tt_grid_ops_t;

struct tt_interpolate_ops {
    /* y = Σ weight x[index] for element i of the taps, of rows of n elements. */
    void (*blend_rows)(void *y, const void *x, int64_t n, const tt_taps_t *taps, int64_t i);
    /* y[i] = Σ weight[i] x[index[i]] */
    void (*blend_columns)(void *y, const void *x, const tt_taps_t *taps);
    const tt_grid_ops_t *grid;
};

#endif
