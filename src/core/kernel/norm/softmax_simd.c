/* Rows of softmax, log-softmax and cross entropy. A row is read three times (largest element, sum
 * of exponentials, result), mostly from L1; past its end it is padded with what adds nothing.
 */
#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"
#include "core/kernel/vrow.h"

#define EACH_VECTOR(at, part, n)                                                                   \
    for (size_t base_ = 0; base_ < (n); base_ += 16)                                               \
        for (size_t part = 0, at = base_; part < TT_PARTS; part++, at += TT_LANES)

/* In four independent chains: the largest does not depend on the order. */
TT_INLINE float row_max(const void *x, size_t n, tutti_dtype_t dtype)
{
    tt_vf m[4];
    for (int chain = 0; chain < 4; chain++) {
        m[chain] = tt_vsplat(-INFINITY);
    }
    for (size_t base = 0; base < n; base += 4 * TT_LANES) {
        for (size_t chain = 0, at = base; chain < 4; chain++, at += TT_LANES) {
            m[chain] = tt_vmax(m[chain], tt_vread(x, at, n, -INFINITY, dtype));
        }
    }
    tt_v16_t all = tt_v16_splat(-INFINITY);
    all.part[0] = tt_vmax(tt_vmax(m[0], m[1]), tt_vmax(m[2], m[3]));
    return tt_v16_max(all);
}

/* The sum of e^(x - m); the terms go to `keep` unless it is NULL. */
TT_INLINE float row_sum_exp(const void *x, size_t n, float m, float *keep, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    EACH_VECTOR(at, part, n)
    {
        const tt_vf e = tt_vexp(tt_vread(x, at, n, -INFINITY, dtype) - m);
        if (keep != NULL) {
            tt_vwrite(keep, at, n, e, TUTTI_F32);
        }
        sum.part[part] += e;
    }
    return tt_v16_sum(sum);
}

TT_INLINE float row_sum(const void *x, size_t n, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    EACH_VECTOR(at, part, n)
    {
        sum.part[part] += tt_vread(x, at, n, 0.0f, dtype);
    }
    return tt_v16_sum(sum);
}

static inline float log_of(float x)
{
    return tt_vlog(tt_vsplat(x))[0];
}

TT_INLINE void softmax_row(void *y, const void *x, size_t n, tutti_dtype_t dtype)
{
    const float m = row_max(x, n, dtype);
    const bool is_kept = dtype == TUTTI_F32;
    const float inverse = 1.0f / row_sum_exp(x, n, m, is_kept ? y : NULL, dtype);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf v = tt_vread(is_kept ? y : x, at, n, 0.0f, dtype);
        tt_vwrite(y, at, n, (is_kept ? v : tt_vexp(v - m)) * inverse, dtype);
    }
}

TT_INLINE void softmax_backward_row(void *dx, const void *dy, const void *y, size_t n,
                                    tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    EACH_VECTOR(at, part, n)
    {
        sum.part[part] = tt_vfma(tt_vread(dy, at, n, 0.0f, dtype), tt_vread(y, at, n, 0.0f, dtype),
                                 sum.part[part]);
    }
    const float dot = tt_v16_sum(sum);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf g = tt_vread(dy, at, n, 0.0f, dtype) - dot;
        tt_vwrite(dx, at, n, tt_vread(y, at, n, 0.0f, dtype) * g, dtype);
    }
}

TT_INLINE void log_softmax_row(void *y, const void *x, size_t n, tutti_dtype_t dtype)
{
    const float m = row_max(x, n, dtype);
    const float log_sum = log_of(row_sum_exp(x, n, m, NULL, dtype));
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vwrite(y, at, n, (tt_vread(x, at, n, 0.0f, dtype) - m) - log_sum, dtype);
    }
}

TT_INLINE void log_softmax_backward_row(void *dx, const void *dy, const void *y, size_t n,
                                        tutti_dtype_t dtype)
{
    const float sum = row_sum(dy, n, dtype);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf share = tt_vexp(tt_vread(y, at, n, 0.0f, dtype)) * sum;
        tt_vwrite(dx, at, n, tt_vread(dy, at, n, 0.0f, dtype) - share, dtype);
    }
}

TT_INLINE float element(const void *x, size_t at, tutti_dtype_t dtype)
{
    return tt_vread((const char *)x + at * (dtype == TUTTI_F32 ? 4 : 2), 0, 1, 0.0f, dtype)[0];
}

TT_INLINE void loss_row(tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const float m = row_max(row->x, row->n, dtype);
    const float sum = row_sum_exp(row->x, row->n, m, NULL, dtype), log_sum = log_of(sum);
    const float smoothing = (float)row->smoothing;
    float loss = log_sum - (element(row->x, (size_t)row->target, dtype) - m);
    if (smoothing > 0) {
        const float mean = row_sum(row->x, row->n, dtype) / (float)row->n - m;
        loss = (1.0f - smoothing) * loss + smoothing * (log_sum - mean);
    }
    row->max = (double)m;
    row->sum = (double)sum;
    row->loss = (double)loss;
}

TT_INLINE void loss_backward_row(const tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const float max = (float)row->max, inverse = 1.0f / (float)row->sum;
    const float scale = (float)row->scale, factor = scale * inverse;
    const float smoothing = (float)row->smoothing, floor = smoothing / (float)row->n;
    const size_t target = (size_t)row->target, bytes = dtype == TUTTI_F32 ? 4 : 2;
    const float hit = tt_vexp(tt_vsplat(element(row->x, target, dtype) - max))[0] * inverse;
    const tt_vf at_target = tt_vsplat(scale * (hit - floor - (1.0f - smoothing)));
    for (size_t at = 0; at < row->n; at += TT_LANES) {
        const tt_vf e = tt_vexp(tt_vread(row->x, at, row->n, 0.0f, dtype) - max);
        tt_vwrite(row->dx, at, row->n, e * factor - scale * floor, dtype);
    }
    tt_vwrite((char *)row->dx + target * bytes, 0, 1, at_target, dtype);
}

static void softmax_f32(void *y, const void *x, size_t n)
{
    softmax_row(y, x, n, TUTTI_F32);
}

static void softmax_bf16(void *y, const void *x, size_t n)
{
    softmax_row(y, x, n, TUTTI_BF16);
}

static void softmax_f16(void *y, const void *x, size_t n)
{
    softmax_row(y, x, n, TUTTI_F16);
}

static void softmax_backward_f32(void *dx, const void *dy, const void *y, size_t n)
{
    softmax_backward_row(dx, dy, y, n, TUTTI_F32);
}

static void softmax_backward_bf16(void *dx, const void *dy, const void *y, size_t n)
{
    softmax_backward_row(dx, dy, y, n, TUTTI_BF16);
}

static void softmax_backward_f16(void *dx, const void *dy, const void *y, size_t n)
{
    softmax_backward_row(dx, dy, y, n, TUTTI_F16);
}

static void log_softmax_f32(void *y, const void *x, size_t n)
{
    log_softmax_row(y, x, n, TUTTI_F32);
}

static void log_softmax_bf16(void *y, const void *x, size_t n)
{
    log_softmax_row(y, x, n, TUTTI_BF16);
}

static void log_softmax_f16(void *y, const void *x, size_t n)
{
    log_softmax_row(y, x, n, TUTTI_F16);
}

static void log_softmax_backward_f32(void *dx, const void *dy, const void *y, size_t n)
{
    log_softmax_backward_row(dx, dy, y, n, TUTTI_F32);
}

static void log_softmax_backward_bf16(void *dx, const void *dy, const void *y, size_t n)
{
    log_softmax_backward_row(dx, dy, y, n, TUTTI_BF16);
}

static void log_softmax_backward_f16(void *dx, const void *dy, const void *y, size_t n)
{
    log_softmax_backward_row(dx, dy, y, n, TUTTI_F16);
}

static void loss_f32(tt_loss_row_t *row)
{
    loss_row(row, TUTTI_F32);
}

static void loss_bf16(tt_loss_row_t *row)
{
    loss_row(row, TUTTI_BF16);
}

static void loss_f16(tt_loss_row_t *row)
{
    loss_row(row, TUTTI_F16);
}

static void loss_backward_f32(const tt_loss_row_t *row)
{
    loss_backward_row(row, TUTTI_F32);
}

static void loss_backward_bf16(const tt_loss_row_t *row)
{
    loss_backward_row(row, TUTTI_BF16);
}

static void loss_backward_f16(const tt_loss_row_t *row)
{
    loss_backward_row(row, TUTTI_F16);
}

extern const tt_softmax_ops_t TT_ISA_NAME(tt_softmax_ops);

const tt_softmax_ops_t TT_ISA_NAME(tt_softmax_ops) = {
    .rows = {
        [TUTTI_F32] = {softmax_f32, softmax_backward_f32, log_softmax_f32, log_softmax_backward_f32,
                       loss_f32, loss_backward_f32},
        [TUTTI_BF16] = {softmax_bf16, softmax_backward_bf16, log_softmax_bf16,
                        log_softmax_backward_bf16, loss_bf16, loss_backward_bf16},
        [TUTTI_F16] = {softmax_f16, softmax_backward_f16, log_softmax_f16, log_softmax_backward_f16,
                       loss_f16, loss_backward_f16},
    }};
