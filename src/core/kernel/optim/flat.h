/* Kernels on flat f32 buffers, each in one pass: clipping, scaling, sums of squares. */
#ifndef TT_FLAT_H
#define TT_FLAT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/pool.h"

/* x *= factor; x is clamped to [-limit, limit]; y += factor x. */
void tt_flat_scale(tt_pool_t *pool, float *x, size_t n, float factor);
void tt_flat_clamp(tt_pool_t *pool, float *x, size_t n, float limit);
void tt_flat_axpy(tt_pool_t *pool, float *y, const float *x, size_t n, float factor);

/* In f64: squares are added in blocks of TT_FLAT_BLOCK elements, then the blocks' sums in order. */
enum { TT_FLAT_BLOCK = 4096 };

double tt_flat_sum_squares(tt_pool_t *pool, const float *x, size_t n);

/* x *= factor; whether every element was finite before. */
bool tt_flat_unscale(tt_pool_t *pool, float *x, size_t n, float factor);

/* Whether every element is finite. */
bool tt_flat_is_finite(tt_pool_t *pool, const float *x, size_t n);

#endif
