/* What steps_simd.c exports per variant. */
#ifndef TT_STEPS_OPS_H
#define TT_STEPS_OPS_H

#include "core/kernel/optim/steps.h"

/* The numbers of one step, made in double and rounded once; each kind uses some. */
typedef struct {
    float sign;         /* -1 to maximize */
    float keep, decay;  /* factor of the weight; weight decay added to the gradient */
    float minus_lr;     /* of what the update is multiplied with */
    float beta1, gain1; /* of the first moving mean, and 1 - it */
    float beta2, gain2;
    float eps, momentum, initial;
    float scale1, root2; /* LAMB: 1 / (1 - beta1^step), √(1 - beta2^step) */
} tt_steps_numbers_t;

struct tt_steps_ops {
    void (*rmsprop)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n);
    void (*adagrad)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n);
    void (*lion)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n);
    /* LAMB: move the moments; then u, what they make of the step. */
    void (*lamb_moments)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n);
    void (*lamb_update)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, float *u,
                        size_t n);
    /* Adafactor: sums of squares of n columns; mean = mean beta2 + (g² + eps) gain2;
     * u = g factor / √mean; w = w keep - m, where m moves to gain1 u, or is it. */
    void (*column_squares)(double *sum, const float *x, size_t rows, size_t stride, size_t n);
    void (*square_mean)(const tt_steps_numbers_t *c, float *mean, const float *gradient, size_t n);
    void (*over_root)(float *u, const float *gradient, const float *mean, float factor, size_t n);
    void (*apply)(const tt_steps_numbers_t *c, float *weight, float *first, const float *u,
                  size_t n);
};

#endif
