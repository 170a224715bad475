/* Rows of layer norm and RMS norm. Forward reads a row three times (mean, variance, result; RMS:
 * twice), backward twice; the first read is from memory, the others from L1. Backward adds the
 * row's share of dgamma and dbeta on its way.
 */
#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"
#include "core/kernel/vrow.h"

#define EACH_VECTOR(at, part, n)                                                                   \
    for (size_t base_ = 0; base_ < (n); base_ += 16)                                               \
        for (size_t part = 0, at = base_; part < TT_PARTS; part++, at += TT_LANES)

TT_INLINE float row_mean(const void *x, size_t n, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    EACH_VECTOR(at, part, n)
    {
        sum.part[part] += tt_vread(x, at, n, 0.0f, dtype);
    }
    return tt_v16_sum(sum) / (float)n;
}

/* The mean of (x - mean)²; padding with the mean adds nothing. */
TT_INLINE float row_variance(const void *x, size_t n, float mean, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    EACH_VECTOR(at, part, n)
    {
        const tt_vf d = tt_vread(x, at, n, mean, dtype) - mean;
        sum.part[part] = tt_vfma(d, d, sum.part[part]);
    }
    return tt_v16_sum(sum) / (float)n;
}

TT_INLINE void forward_row(tt_norm_row_t *row, bool is_rms, tutti_dtype_t dtype)
{
    const size_t n = row->n;
    const float mean = is_rms ? 0.0f : row_mean(row->x, n, dtype);
    const float variance = row_variance(row->x, n, mean, dtype);
    const float rstd = 1.0f / sqrtf(variance + (float)row->eps);
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vf y = (tt_vread(row->x, at, n, 0.0f, dtype) - mean) * rstd;
        if (row->gamma != NULL) {
            y = y * tt_vread(row->gamma, at, n, 0.0f, TUTTI_F32);
        }
        if (row->beta != NULL && !is_rms) {
            y = y + tt_vread(row->beta, at, n, 0.0f, TUTTI_F32);
        }
        tt_vwrite(row->y, at, n, y, dtype);
    }
    row->mean = (double)mean;
    row->rstd = (double)rstd;
}

TT_INLINE void add_to(float *sum, size_t at, size_t n, tt_vf v)
{
    if (sum != NULL) {
        tt_vwrite(sum, at, n, tt_vread(sum, at, n, 0.0f, TUTTI_F32) + v, TUTTI_F32);
    }
}

TT_INLINE tt_vf times_gamma(const tt_norm_row_t *row, size_t at, tt_vf dy)
{
    return row->gamma == NULL ? dy : dy * tt_vread(row->gamma, at, row->n, 0.0f, TUTTI_F32);
}

TT_INLINE void backward_row(const tt_norm_row_t *row, bool is_rms, tutti_dtype_t dtype)
{
    const size_t n = row->n;
    const float mean = (float)row->mean, rstd = (float)row->rstd;
    tt_v16_t sum = tt_v16_splat(0.0f), dot = sum;
    EACH_VECTOR(at, part, n)
    {
        const tt_vf hat = (tt_vread(row->x, at, n, mean, dtype) - mean) * rstd;
        const tt_vf dy = tt_vread(row->dy, at, n, 0.0f, dtype);
        add_to(row->dgamma, at, n, dy * hat);
        add_to(row->dbeta, at, n, dy);
        const tt_vf g = times_gamma(row, at, dy);
        sum.part[part] += g;
        dot.part[part] = tt_vfma(g, hat, dot.part[part]);
    }
    const float shift = is_rms ? 0.0f : tt_v16_sum(sum) / (float)n;
    const float slope = tt_v16_sum(dot) / (float)n;
    for (size_t at = 0; at < n && row->dx != NULL; at += TT_LANES) {
        const tt_vf hat = (tt_vread(row->x, at, n, mean, dtype) - mean) * rstd;
        const tt_vf g = times_gamma(row, at, tt_vread(row->dy, at, n, 0.0f, dtype));
        tt_vwrite(row->dx, at, n, rstd * tt_vfma(-hat, tt_vsplat(slope), g - shift), dtype);
    }
}

static void layer_f32(tt_norm_row_t *row)
{
    forward_row(row, false, TUTTI_F32);
}

static void layer_bf16(tt_norm_row_t *row)
{
    forward_row(row, false, TUTTI_BF16);
}

static void layer_f16(tt_norm_row_t *row)
{
    forward_row(row, false, TUTTI_F16);
}

static void rms_f32(tt_norm_row_t *row)
{
    forward_row(row, true, TUTTI_F32);
}

static void rms_bf16(tt_norm_row_t *row)
{
    forward_row(row, true, TUTTI_BF16);
}

static void rms_f16(tt_norm_row_t *row)
{
    forward_row(row, true, TUTTI_F16);
}

static void layer_backward_f32(const tt_norm_row_t *row)
{
    backward_row(row, false, TUTTI_F32);
}

static void layer_backward_bf16(const tt_norm_row_t *row)
{
    backward_row(row, false, TUTTI_BF16);
}

static void layer_backward_f16(const tt_norm_row_t *row)
{
    backward_row(row, false, TUTTI_F16);
}

static void rms_backward_f32(const tt_norm_row_t *row)
{
    backward_row(row, true, TUTTI_F32);
}

static void rms_backward_bf16(const tt_norm_row_t *row)
{
    backward_row(row, true, TUTTI_BF16);
}

static void rms_backward_f16(const tt_norm_row_t *row)
{
    backward_row(row, true, TUTTI_F16);
}

extern const tt_norm_ops_t TT_ISA_NAME(tt_norm_ops);

const tt_norm_ops_t TT_ISA_NAME(tt_norm_ops) = {
    .layer =
        {
            [TUTTI_F32] = {layer_f32, layer_backward_f32},
            [TUTTI_BF16] = {layer_bf16, layer_backward_bf16},
            [TUTTI_F16] = {layer_f16, layer_backward_f16},
        },
    .rms =
        {
            [TUTTI_F32] = {rms_f32, rms_backward_f32},
            [TUTTI_BF16] = {rms_bf16, rms_backward_bf16},
            [TUTTI_F16] = {rms_f16, rms_backward_f16},
        },
};
