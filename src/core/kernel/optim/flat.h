/* Kernels on flat f32 buffers, each in one pass: clipping, scaling, sums of squares. */
#ifndef TT_FLAT_H
#define TT_FLAT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/exec/exec.h"

/* x *= factor. */
TT_LAUNCHES tutti_status_t tt_flat_scale(tt_exec_t *exec, float *x, size_t n, float factor);

/* In f64: squares are added in blocks of TT_FLAT_BLOCK elements, then the blocks' sums in order. */
enum { TT_FLAT_BLOCK = 4096 };

/* What each block gives, or its largest: blocks [n / TT_FLAT_BLOCK, rounded up]. */
void tt_flat_blocks(tt_threads_t *threads, const float *x, size_t n, bool is_largest,
                    double *blocks);

/* The next number joins a sum, or the largest, which a NaN is. */
static inline double tt_flat_fold(double all, double next, bool is_largest)
{
    return !is_largest ? all + next : next > all || isnan(next) ? next : all;
}

double tt_flat_sum_squares(tt_threads_t *threads, const float *x, size_t n);

/* The largest |x|; 0 of none, NaN if any is. */
double tt_flat_largest(tt_threads_t *threads, const float *x, size_t n);

/* Those two, launched: *total, which lies where x does, grows by the sum of squares, or to the
 * largest. */
TT_LAUNCHES tutti_status_t tt_flat_measure(tt_exec_t *exec, const float *x, size_t n,
                                           bool is_largest, double *total);

/* What makes a norm at most max_norm: max_norm / (norm + 1e-6), as torch has it, where norm is the
 * root of *total, or *total as the largest. */
double tt_flat_clip_factor(double total, bool is_largest, double max_norm);

/* x *= that factor, where it is below 1 or NaN. */
TT_LAUNCHES tutti_status_t tt_flat_clip(tt_exec_t *exec, float *x, size_t n, const double *total,
                                        bool is_largest, double max_norm);

/* x *= factor; *bad becomes 1 unless every element was finite before. */
TT_LAUNCHES tutti_status_t tt_flat_unscale(tt_exec_t *exec, float *x, size_t n, float factor,
                                           double *bad);

/* What flat_simd.c exports per variant. */
struct tt_flat_ops {
    void (*scale)(float *x, size_t n, float factor);
    void (*axpy)(float *y, const float *x, size_t n, float factor);
    double (*squares)(const float *x, size_t n);
    double (*largest)(const float *x, size_t n);
    bool (*is_finite)(const float *x, size_t n);
};

#endif
