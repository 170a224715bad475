/* Loops of optimizer steps over flat f32 buffers; each reads and writes every element once, rounded
 * operation by operation. Formulas: steps.h names the source of each. */
#include "core/kernel/optim/steps_ops.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

typedef void (*lanes_fn_t)(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t i,
                           size_t n);

/* fn for whole vectors, and for what is left. */
TT_INLINE void for_lanes(const tt_steps_numbers_t *numbers, const tt_steps_buffers_t *buffers,
                         size_t n, lanes_fn_t fn)
{
    const tt_steps_numbers_t c = *numbers;
    const tt_steps_buffers_t at = *buffers;
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        fn(&c, &at, i, TT_LANES);
    }
    if (i < n) {
        fn(&c, &at, i, n - i);
    }
}

TT_INLINE tt_vf gradient_of(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, tt_vf weight,
                            size_t i, size_t n)
{
    return tt_vload_n(at->gradient + i, n) * c->sign + weight * c->decay;
}

/* Rounding may put the square of the mean above the mean of squares. */
TT_INLINE tt_vf less_mean(const tt_steps_numbers_t *c, float *mean, tt_vf square, tt_vf g, size_t n)
{
    const tt_vf moved = tt_vload_n(mean, n) * c->beta1 + g * c->gain1;
    tt_vstore_n(mean, moved, n);
    return tt_vmax(square - moved * moved, tt_vsplat(0.0f));
}

TT_INLINE void rmsprop_at(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t i,
                          size_t n)
{
    const tt_vf w = tt_vload_n(at->weight + i, n);
    const tt_vf g = gradient_of(c, at, w, i, n);
    const tt_vf square = tt_vload_n(at->first + i, n) * c->beta1 + (g * c->gain1) * g;
    tt_vstore_n(at->first + i, square, n);
    const tt_vf spread = at->third == NULL ? square : less_mean(c, at->third + i, square, g, n);
    tt_vf u = g / (tt_vsqrt(spread) + c->eps);
    if (at->second != NULL) {
        u = tt_vload_n(at->second + i, n) * c->momentum + u;
        tt_vstore_n(at->second + i, u, n);
    }
    tt_vstore_n(at->weight + i, w + u * c->minus_lr, n);
}

static void rmsprop(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n)
{
    for_lanes(c, at, n, rmsprop_at);
}

TT_INLINE void adagrad_at(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t i,
                          size_t n)
{
    const tt_vf w = tt_vload_n(at->weight + i, n);
    const tt_vf g = gradient_of(c, at, w, i, n);
    const tt_vf sum = tt_vload_n(at->first + i, n) + c->initial + g * g;
    tt_vstore_n(at->first + i, sum, n);
    tt_vstore_n(at->weight + i, w + g / (tt_vsqrt(sum) + c->eps) * c->minus_lr, n);
}

static void adagrad(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n)
{
    for_lanes(c, at, n, adagrad_at);
}

/* The sign of 0 is 0, and NaN stays. */
TT_INLINE tt_vf descriptor_of(tt_vf x)
{
    return tt_vsel(x != x, x, tt_vone_if(x > 0.0f) - tt_vone_if(x < 0.0f));
}

TT_INLINE void lion_at(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t i,
                       size_t n)
{
    const tt_vf w = tt_vload_n(at->weight + i, n);
    const tt_vf g = tt_vload_n(at->gradient + i, n) * c->sign;
    const tt_vf m = tt_vload_n(at->first + i, n);
    const tt_vf direction = descriptor_of(m * c->beta1 + g * c->gain1);
    tt_vstore_n(at->weight + i, w * c->keep + direction * c->minus_lr, n);
    tt_vstore_n(at->first + i, m * c->beta2 + g * c->gain2, n);
}

static void lion(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n)
{
    for_lanes(c, at, n, lion_at);
}

TT_INLINE void lamb_moments_at(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t i,
                               size_t n)
{
    const tt_vf g = tt_vload_n(at->gradient + i, n) * c->sign;
    const tt_vf m = tt_vload_n(at->first + i, n), v = tt_vload_n(at->second + i, n);
    tt_vstore_n(at->first + i, m * c->beta1 + g * c->gain1, n);
    tt_vstore_n(at->second + i, v * c->beta2 + (g * c->gain2) * g, n);
}

static void lamb_moments(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, size_t n)
{
    for_lanes(c, at, n, lamb_moments_at);
}

static void lamb_update(const tt_steps_numbers_t *c, const tt_steps_buffers_t *at, float *u,
                        size_t n)
{
    for (size_t i = 0; i < n; i += TT_LANES) {
        const size_t length = n - i < TT_LANES ? n - i : TT_LANES;
        const tt_vf m = tt_vload_n(at->first + i, length) * c->scale1;
        const tt_vf v = tt_vsqrt(tt_vload_n(at->second + i, length)) / c->root2 + c->eps;
        tt_vstore_n(u + i, m / v + tt_vload_n(at->weight + i, length) * c->decay, length);
    }
}

static void column_squares(double *sum, const float *x, size_t rows, size_t stride, size_t n)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < n; i++) {
            const double value = (double)x[row * stride + i];
            sum[i] += value * value;
        }
    }
}

static void square_mean(const tt_steps_numbers_t *c, float *mean, const float *gradient, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mean[i] = mean[i] * c->beta2 + (gradient[i] * gradient[i] + c->eps) * c->gain2;
    }
}

static void over_root(float *u, const float *gradient, const float *mean, float factor, size_t n)
{
    for (size_t i = 0; i < n; i += TT_LANES) {
        const size_t length = n - i < TT_LANES ? n - i : TT_LANES;
        const tt_vf g = tt_vload_n(gradient + i, length), v = tt_vload_n(mean + i, length);
        tt_vstore_n(u + i, g * (tt_vsplat(factor) / tt_vsqrt(v)), length);
    }
}

static void apply(const tt_steps_numbers_t *c, float *weight, float *first, const float *u,
                  size_t n)
{
    if (first == NULL) {
        for (size_t i = 0; i < n; i++) {
            weight[i] = weight[i] * c->keep + u[i] * c->minus_lr;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        first[i] = first[i] * c->beta1 - (u[i] * c->minus_lr) * c->gain1;
        weight[i] = weight[i] * c->keep - first[i];
    }
}

extern const tt_steps_ops_t TT_ISA_NAME(tt_steps_ops);

const tt_steps_ops_t TT_ISA_NAME(tt_steps_ops) = {
    .rmsprop = rmsprop,
    .adagrad = adagrad,
    .lion = lion,
    .lamb_moments = lamb_moments,
    .lamb_update = lamb_update,
    .column_squares = column_squares,
    .square_mean = square_mean,
    .over_root = over_root,
    .apply = apply,
};
