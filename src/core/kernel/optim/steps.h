/* Optimizer steps beyond Adam and SGD (flat.h), on flat f32 buffers.
 *
 * RMSprop, Adagrad and Lion go element by element, so that a buffer may be cut anywhere. LAMB and
 * Adafactor measure norms of the whole parameter: they want all of it. Their sums are in f64 over
 * pieces that the shape fixes, so that threads change no bit.
 */
#ifndef TT_STEPS_H
#define TT_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/pool.h"

/* A parameter [n], its gradient, and what the step remembers of it. */
typedef struct {
    float *weight;
    const float *gradient;
    float *first, *second, *third;
} tt_steps_buffers_t;

/* torch.optim.RMSprop. first: mean of squares; second: momentum or NULL; third: mean of gradients
 * if centered, or NULL. */
typedef struct {
    double lr, alpha, eps, weight_decay, momentum;
    bool maximize;
} tt_rmsprop_t;

void tt_steps_rmsprop(tt_pool_t *pool, const tt_rmsprop_t *rmsprop, const tt_steps_buffers_t *at,
                      size_t n);

/* torch.optim.Adagrad. first: sum of squares, which begins at `initial`. step counts from 1. */
typedef struct {
    double lr, lr_decay, weight_decay, initial, eps;
    bool maximize;
    int64_t step;
} tt_adagrad_t;

void tt_steps_adagrad(tt_pool_t *pool, const tt_adagrad_t *adagrad, const tt_steps_buffers_t *at,
                      size_t n);

/* Chen et al. 2023, program 1. first: mean of gradients. */
typedef struct {
    double lr, beta1, beta2, weight_decay;
    bool maximize;
} tt_lion_t;

void tt_steps_lion(tt_pool_t *pool, const tt_lion_t *lion, const tt_steps_buffers_t *at, size_t n);

/* You et al. 2020, algorithm 2. first, second: Adam's moments. step counts from 1. */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
    bool maximize;
    int64_t step;
} tt_lamb_t;

void tt_steps_lamb(tt_pool_t *pool, const tt_lamb_t *lamb, const tt_steps_buffers_t *at, size_t n);

/* Shazeer and Stern 2018, algorithms 4 and 5. The parameter is [matrices, rows, columns]; first:
 * mean of updates or NULL. Factored (rows > 0): second [matrices, rows] and third [matrices,
 * columns] are means of squares along rows and columns; otherwise second [columns]. lr is the step
 * itself, already scaled. */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay, clip;
    bool maximize;
    size_t matrices, rows, columns;
} tt_adafactor_t;

void tt_steps_adafactor(tt_pool_t *pool, const tt_adafactor_t *adafactor,
                        const tt_steps_buffers_t *at);

#endif
