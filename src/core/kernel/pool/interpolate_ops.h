/* What interpolate_simd.c exports per variant and class: steps on rows. */
#ifndef TT_INTERPOLATE_OPS_H
#define TT_INTERPOLATE_OPS_H

#include <stdint.h>

#include "core/kernel/kernels.h"

/* Where the elements of y in a dimension come from: (1 - weight) x[lower] + weight x[upper]. */
typedef struct {
    const int32_t *lower, *upper;
    const double *weight_f64;
    const void *weight; /* the same in the class's type */
} tt_places_t;

struct tt_interpolate_ops {
    /* y[i] = (1 - weight) a[i] + weight b[i] */
    void (*blend_rows)(void *y, const void *a, const void *b, double weight, int64_t n);
    /* y[i] from the elements of a row */
    void (*blend_columns)(void *y, const void *x, const tt_places_t *from, int64_t n);
    /* x[place] += dy[i] where the nearest comes from; x[lower] and x[upper] += their parts */
    void (*spread_nearest)(void *x, const void *dy, const tt_places_t *to, int64_t n);
    void (*spread_columns)(void *x, const void *dy, const tt_places_t *to, int64_t n);
    /* x[i] += factor y[i] */
    void (*add_row)(void *x, const void *y, double factor, int64_t n);
};

#endif
