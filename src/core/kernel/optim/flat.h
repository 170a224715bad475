/* Kernels on flat f32 buffers, each in one pass: clipping, scaling, sums of squares. */
#ifndef TT_FLAT_H
#define TT_FLAT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/threads.h"

/* x *= factor. */
void tt_flat_scale(tt_threads_t *threads, float *x, size_t n, float factor);

/* In f64: squares are added in blocks of TT_FLAT_BLOCK elements, then the blocks' sums in order. */
enum { TT_FLAT_BLOCK = 4096 };

double tt_flat_sum_squares(tt_threads_t *threads, const float *x, size_t n);

/* The largest |x|; 0 of none, NaN if any is. */
double tt_flat_largest(tt_threads_t *threads, const float *x, size_t n);

/* x *= factor; whether every element was finite before. */
bool tt_flat_unscale(tt_threads_t *threads, float *x, size_t n, float factor);

/* What flat_simd.c exports per variant. */
struct tt_flat_ops {
    void (*scale)(float *x, size_t n, float factor);
    void (*axpy)(float *y, const float *x, size_t n, float factor);
    double (*squares)(const float *x, size_t n);
    double (*largest)(const float *x, size_t n);
    bool (*is_finite)(const float *x, size_t n);
};

#endif
