/* Optimizer steps on flat f32 buffers: the update rules of updates.def, and the loops of LAMB and
 * Adafactor, whose norms of the whole parameter are taken above (compute/optim). Compiled once per
 * instruction set, optim_steps_simd.c:
 *
 *     tt_kernels()->optim_steps->update[TT_UPDATE_ADAM](&numbers, &at, n);
 *
 * Operations are rounded one by one, in the order of the sources. Cost: memory bandwidth.
 */
#ifndef TT_OPTIM_STEPS_H
#define TT_OPTIM_STEPS_H

#include <stddef.h>

typedef enum {
#define TT_UPDATE(kind, ...) TT_UPDATE_##kind,
#include "core/kernel/optim/updates.def"
#undef TT_UPDATE
    TT_UPDATE_COUNT
} tt_update_t;

/* The numbers of one step; a rule uses some. */
typedef struct {
#define TT_NUMBER(name, about) double name;
#include "core/kernel/optim/updates.def"
#undef TT_NUMBER
} tt_update_numbers_t;

/* A part of a parameter, its gradient and its moments; NULL where there is no such moment. */
typedef struct {
    float *weight;
    const float *gradient;
    float *a, *b, *c;
} tt_update_buffers_t;

typedef void (*tt_update_fn_t)(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at,
                               size_t n);

struct tt_optim_steps_ops {
    tt_update_fn_t update[TT_UPDATE_COUNT];
    /* LAMB: move the moments a and b; then u, what they make of the step. */
    tt_update_fn_t lamb_moments;
    void (*lamb_update)(const tt_update_numbers_t *numbers, const tt_update_buffers_t *at, float *u,
                        size_t n);
    /* Adafactor: sums of squares of n columns; mean = mean beta2 + (g² + eps) gain2;
     * u = g factor / √mean; w = w keep - m, where m moves to gain1 u, or is it. */
    void (*column_squares)(double *sum, const float *x, size_t rows, size_t stride, size_t n);
    void (*square_mean)(const tt_update_numbers_t *numbers, float *mean, const float *gradient,
                        size_t n);
    void (*over_root)(float *u, const float *gradient, const float *mean, float factor, size_t n);
    void (*apply)(const tt_update_numbers_t *numbers, float *weight, float *first, const float *u,
                  size_t n);
};

#endif
