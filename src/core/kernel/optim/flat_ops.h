/* What flat_simd.c exports per variant. */
#ifndef TT_FLAT_OPS_H
#define TT_FLAT_OPS_H

#include "core/kernel/optim/flat.h"

/* Adam's numbers of one step, made in double and rounded once. */
typedef struct {
    float keep;  /* 1 - lr × weight decay, if decoupled, else 1 */
    float decay; /* weight decay added to the gradient, if not decoupled */
    float sign;  /* -1 to maximize */
    float gain1, beta2, gain2;
    float root2;           /* √(1 - beta2^step) */
    float eps, minus_step; /* -lr / (1 - beta1^step) */
} tt_adam_step_t;

typedef struct {
    float minus_lr, momentum, gain, decay, sign;
    bool nesterov, is_first_step;
} tt_sgd_step_t;

struct tt_flat_ops {
    void (*adam)(const tt_adam_step_t *step, const tt_adam_buffers_t *at, size_t n);
    void (*sgd)(const tt_sgd_step_t *step, float *weight, const float *gradient, float *buffer,
                size_t n);
    void (*scale)(float *x, size_t n, float factor);
    void (*clamp)(float *x, size_t n, float limit);
    void (*axpy)(float *y, const float *x, size_t n, float factor);
    double (*squares)(const float *x, size_t n);
    bool (*is_finite)(const float *x, size_t n);
    /* y = turned x: pairs (x[i], x[i + n]), or (x[2i], x[2i + 1]) if interleaved. */
    void (*rotate)(float *y, const float *x, const float *cosine, const float *sine, size_t n);
    void (*rotate_interleaved)(float *y, const float *x, const float *cosine, const float *sine,
                               size_t n);
};

#endif
