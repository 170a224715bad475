/* Loops over flat f32 buffers; each reads and writes every element once. Operations are rounded
 * one by one in torch's order. */
#include "core/kernel/optim/flat_ops.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

typedef struct {
    tt_vf weight, first, second, second_max;
} adam_lanes_t;

TT_INLINE void adam_lanes(const tt_adam_step_t *s, adam_lanes_t *v, tt_vf gradient, bool amsgrad)
{
    tt_vf g = gradient * s->sign;
    g = g + v->weight * s->decay;
    v->first = v->first + (g - v->first) * s->gain1;
    v->second = v->second * s->beta2 + (g * s->gain2) * g;
    v->second_max = amsgrad ? tt_vmax(v->second_max, v->second) : v->second;
    const tt_vf size = tt_vsqrt(v->second_max) / s->root2 + s->eps;
    v->weight = v->weight * s->keep + (v->first / size) * s->minus_step;
}

/* n is TT_LANES, or less at the end. */
TT_INLINE void adam_at(const tt_adam_step_t *s, const tt_adam_buffers_t *at, size_t i, size_t n)
{
    const bool amsgrad = at->second_max != NULL;
    adam_lanes_t v = {
        .weight = tt_vload_n(at->weight + i, n),
        .first = tt_vload_n(at->first + i, n),
        .second = tt_vload_n(at->second + i, n),
        .second_max = amsgrad ? tt_vload_n(at->second_max + i, n) : tt_vsplat(0.0f),
    };
    adam_lanes(s, &v, tt_vload_n(at->gradient + i, n), amsgrad);
    tt_vstore_n(at->weight + i, v.weight, n);
    tt_vstore_n(at->first + i, v.first, n);
    tt_vstore_n(at->second + i, v.second, n);
    if (amsgrad) {
        tt_vstore_n(at->second_max + i, v.second_max, n);
    }
}

static void adam(const tt_adam_step_t *step, const tt_adam_buffers_t *at, size_t n)
{
    const tt_adam_step_t s = *step;
    const tt_adam_buffers_t to = *at;
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        adam_at(&s, &to, i, TT_LANES);
    }
    if (i < n) {
        adam_at(&s, &to, i, n - i);
    }
}

TT_INLINE void sgd_at(const tt_sgd_step_t *s, float *weight, const float *gradient, float *buffer,
                      size_t n)
{
    const tt_vf w = tt_vload_n(weight, n);
    tt_vf g = tt_vload_n(gradient, n) * s->sign;
    g = g + w * s->decay;
    if (buffer != NULL) {
        const tt_vf old = tt_vload_n(buffer, n);
        const tt_vf b = s->is_first_step ? g : old * s->momentum + g * s->gain;
        tt_vstore_n(buffer, b, n);
        g = s->nesterov ? g + b * s->momentum : b;
    }
    tt_vstore_n(weight, w + g * s->minus_lr, n);
}

static void sgd(const tt_sgd_step_t *step, float *weight, const float *gradient, float *buffer,
                size_t n)
{
    const tt_sgd_step_t s = *step;
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        sgd_at(&s, weight + i, gradient + i, buffer == NULL ? NULL : buffer + i, TT_LANES);
    }
    if (i < n) {
        sgd_at(&s, weight + i, gradient + i, buffer == NULL ? NULL : buffer + i, n - i);
    }
}

static void scale(float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] * factor;
    }
}

/* NaN stays. */
static void clamp(float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) {
        const float low = x[i] < -limit ? -limit : x[i];
        x[i] = low > limit ? limit : low;
    }
}

static void axpy(float *y, const float *x, size_t n, float factor)
{
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        tt_vstore(y + i, tt_vfma(tt_vload(x + i), tt_vsplat(factor), tt_vload(y + i)));
    }
    if (i < n) {
        const tt_vf last = tt_vload_n(x + i, n - i);
        tt_vstore_n(y + i, tt_vfma(last, tt_vsplat(factor), tt_vload_n(y + i, n - i)), n - i);
    }
}

/* In 16 lanes of double; the square of a float is exact there. */
static double squares(const float *x, size_t n)
{
    double sum[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int lane = 0; lane < 16; lane++) {
            sum[lane] += (double)x[i + (size_t)lane] * (double)x[i + (size_t)lane];
        }
    }
    for (size_t lane = 0; i + lane < n; lane++) {
        sum[lane] += (double)x[i + lane] * (double)x[i + lane];
    }
    for (int width = 8; width > 0; width /= 2) {
        for (int lane = 0; lane < width; lane++) {
            sum[lane] += sum[lane + width];
        }
    }
    return sum[0];
}

static bool is_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

static void rotate(float *y, const float *x, const float *cosine, const float *sine, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float a = x[i], b = x[i + n];
        y[i] = a * cosine[i] - b * sine[i];
        y[i + n] = b * cosine[i] + a * sine[i];
    }
}

static void rotate_interleaved(float *y, const float *x, const float *cosine, const float *sine,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * cosine[i] - b * sine[i];
        y[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

extern const tt_flat_ops_t TT_ISA_NAME(tt_flat_ops);

const tt_flat_ops_t TT_ISA_NAME(tt_flat_ops) = {
    .adam = adam,
    .sgd = sgd,
    .scale = scale,
    .clamp = clamp,
    .axpy = axpy,
    .squares = squares,
    .is_finite = is_finite,
    .rotate = rotate,
    .rotate_interleaved = rotate_interleaved,
};
