/* Kernels on flat f32 buffers: optimizer steps and what belongs to them, each in one pass.
 *
 * Updates are torch's formulas, in torch's order of operations, element by element; so a buffer
 * may be cut anywhere (ZeRO) without changing a bit.
 */
#ifndef TT_FLAT_H
#define TT_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/pool.h"

/* torch.optim.SGD. momentum_buffer [n] is NULL without momentum; on the first step it becomes the
 * gradient. */
typedef struct {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize, is_first_step;
} tt_sgd_t;

void tt_flat_sgd(tt_pool_t *pool, const tt_sgd_t *sgd, float *weight, const float *gradient,
                 float *momentum_buffer, size_t n);

/* torch.optim.Adam, and AdamW if `decoupled`. step counts from 1. */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled, maximize;
    int64_t step;
} tt_adam_t;

/* first, second: the moments [n]. second_max [n]: AMSGrad, or NULL. */
typedef struct {
    float *weight;
    const float *gradient;
    float *first, *second, *second_max;
} tt_adam_buffers_t;

void tt_flat_adam(tt_pool_t *pool, const tt_adam_t *adam, const tt_adam_buffers_t *at, size_t n);

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
