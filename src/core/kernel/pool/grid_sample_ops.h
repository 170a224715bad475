/* What grid_sample_simd.c exports per variant and class: taps of some points of a sample, and sums
 * over them. y is summed by interpolate_ops.h's blend_columns. */
#ifndef TT_GRID_SAMPLE_OPS_H
#define TT_GRID_SAMPLE_OPS_H

#include <stdint.h>

#include "core/kernel/kernels.h"
#include "core/kernel/pool/grid_sample.h"
#include "core/kernel/pool/taps.h"

enum {
    TT_GRID_POINTS = 64, /* at a time */
    TT_GRID_TAPS = 64    /* of a point at most */
};

struct tt_grid_sample_ops {
    /* Taps of n points. slopes: NULL, or room for weights as taps->weight for W, H and D, in this
     * order, derived once more by that place. */
    void (*find_taps)(const tt_grid_sample_t *t, const void *grid, int64_t n, tt_taps_t *taps,
                      void *const *slopes);
    /* x[index] += weight y, of one channel. */
    void (*spread)(void *x, const void *y, const tt_taps_t *taps);
    /* dots[k][i] += y[i] x[index[k][i]], of one channel; dots as taps->weight. */
    void (*add_dots)(void *dots, const void *y, const void *x, const tt_taps_t *taps);
    /* to[i][d] = Σ slopes[d] dots for d < dims; where a slope is 0, nothing of dots. */
    void (*sum_slopes)(void *to, int dims, const void *dots, void *const *slopes,
                       const tt_taps_t *taps);
};

#endif
