/* What channels_simd.c exports per variant and class: work on one segment, the n
 * neighbouring elements of one channel in one sample. */
#ifndef TT_CHANNELS_OPS_H
#define TT_CHANNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/dtype.h>

/* (x - mean) factor + plus, rounded to the dtype, + residual, and then 0 where it is below 0 */
typedef struct {
    double mean, factor, plus;
    const void *residual; /* [n], or NULL */
    bool relu;
} tt_segment_scale_t;

/* What comes back: dz = dy, or with y, what the relu gave, 0 where y <= 0. */
typedef struct {
    const void *dy, *y; /* y may be NULL */
    void *dz;           /* where it goes, or NULL */
} tt_segment_grad_t;

/* of_dy dy + of_x (x - mean) + plus */
typedef struct {
    double mean, of_dy, of_x, plus;
} tt_segment_slope_t;

typedef struct {
    double (*sum)(const void *x, size_t n);
    /* adds Σ (x - mean) and Σ (x - mean)² */
    void (*squares)(const void *x, size_t n, double mean, double sums[2]);
    /* adds Σ dz and Σ dz (x - mean) */
    void (*dot)(const tt_segment_grad_t *of, const void *x, size_t n, double mean, double sums[2]);
    void (*scale)(void *y, const void *x, size_t n, const tt_segment_scale_t *to);
    void (*slope)(void *dx, const void *dy, const void *x, size_t n,
                  const tt_segment_slope_t *to); /* dx may be dy */
} tt_segments_t;

struct tt_channels_ops {
    tt_segments_t of[TUTTI_DTYPE_COUNT];
};

#endif
