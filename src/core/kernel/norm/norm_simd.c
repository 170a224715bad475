/* Rows of layer norm and RMS norm. Forward reads a row three times (mean, variance, result; RMS:
 * twice), backward twice; the first read is from memory, the others from L1. Backward adds the
 * row's share of dgamma and dbeta on its way.
 */
#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"
#include "core/kernel/vrow.h"

TT_INLINE tt_real_t row_mean(const void *x, size_t n, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    TT_EACH_VECTOR(at, part, 0, n)
    {
        sum.part[part] += tt_vread(x, at, n, 0.0f, dtype);
    }
    return tt_v16_sum(sum) / (tt_real_t)n;
}

/* The mean of (x - mean)²; padding with the mean adds nothing. The mean of x - mean corrects both
 * (channels.c); NULL: the mean is not to be corrected. */
TT_INLINE tt_real_t row_variance(const void *x, size_t n, tt_real_t mean, tt_real_t *corrected,
                                 tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f), plain = sum;
    TT_EACH_VECTOR(at, part, 0, n)
    {
        const tt_vf d = tt_vread(x, at, n, mean, dtype) - mean;
        sum.part[part] = tt_vfma(d, d, sum.part[part]);
        plain.part[part] += d;
    }
    tt_real_t variance = tt_v16_sum(sum) / (tt_real_t)n;
    if (corrected != NULL) {
        const tt_real_t own = tt_v16_sum(plain) / (tt_real_t)n, shift = isfinite(own) ? own : 0;
        *corrected = mean + shift;
        variance = variance - shift * shift < 0 ? 0 : variance - shift * shift;
    }
    return variance;
}

TT_INLINE void forward_row(tt_norm_row_t *row, bool is_rms, tutti_dtype_t dtype)
{
    const size_t n = row->n;
    tt_real_t mean = is_rms ? 0.0f : row_mean(row->x, n, dtype);
    const tt_real_t variance = row_variance(row->x, n, mean, is_rms ? NULL : &mean, dtype);
    const tt_real_t rstd = 1.0f / tt_root(variance + (tt_real_t)row->eps);
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vf y = (tt_vread(row->x, at, n, 0.0f, dtype) - mean) * rstd;
        if (row->gamma != NULL) {
            y = y * tt_vread(row->gamma, at, n, 0.0f, TT_REAL);
        }
        if (row->beta != NULL && !is_rms) {
            y = y + tt_vread(row->beta, at, n, 0.0f, TT_REAL);
        }
        tt_vwrite(row->y, at, n, y, dtype);
    }
    row->mean = (double)mean;
    row->rstd = (double)rstd;
}

TT_INLINE void add_to(tt_real_t *sum, size_t at, size_t n, tt_vf v)
{
    if (sum != NULL) {
        tt_vwrite(sum, at, n, tt_vread(sum, at, n, 0.0f, TT_REAL) + v, TT_REAL);
    }
}

TT_INLINE tt_vf times_gamma(const tt_norm_row_t *row, size_t at, tt_vf dy)
{
    return row->gamma == NULL ? dy : dy * tt_vread(row->gamma, at, row->n, 0.0f, TT_REAL);
}

TT_INLINE void backward_row(const tt_norm_row_t *row, bool is_rms, tutti_dtype_t dtype)
{
    const size_t n = row->n;
    const tt_real_t mean = (tt_real_t)row->mean, rstd = (tt_real_t)row->rstd;
    tt_v16_t sum = tt_v16_splat(0.0f), dot = sum;
    TT_EACH_VECTOR(at, part, 0, n)
    {
        const tt_vf hat = (tt_vread(row->x, at, n, mean, dtype) - mean) * rstd;
        const tt_vf dy = tt_vread(row->dy, at, n, 0.0f, dtype);
        add_to(row->dgamma, at, n, dy * hat);
        add_to(row->dbeta, at, n, dy);
        const tt_vf g = times_gamma(row, at, dy);
        sum.part[part] += g;
        dot.part[part] = tt_vfma(g, hat, dot.part[part]);
    }
    const tt_real_t shift = is_rms ? 0.0f : tt_v16_sum(sum) / (tt_real_t)n;
    const tt_real_t slope = tt_v16_sum(dot) / (tt_real_t)n;
    for (size_t at = 0; at < n && row->dx != NULL; at += TT_LANES) {
        const tt_vf hat = (tt_vread(row->x, at, n, mean, dtype) - mean) * rstd;
        const tt_vf g = times_gamma(row, at, tt_vread(row->dy, at, n, 0.0f, dtype));
        tt_vwrite(row->dx, at, n, rstd * tt_vfma(-hat, tt_vsplat(slope), g - shift), dtype);
    }
}

/* One function for each dtype. */
#define TT_DTYPE(suffix, dtype)                                                                    \
    static void layer_##suffix(tt_norm_row_t *row)                                                 \
    {                                                                                              \
        forward_row(row, false, dtype);                                                            \
    }                                                                                              \
                                                                                                   \
    static void layer_backward_##suffix(const tt_norm_row_t *row)                                  \
    {                                                                                              \
        backward_row(row, false, dtype);                                                           \
    }                                                                                              \
                                                                                                   \
    static void rms_##suffix(tt_norm_row_t *row)                                                   \
    {                                                                                              \
        forward_row(row, true, dtype);                                                             \
    }                                                                                              \
                                                                                                   \
    static void rms_backward_##suffix(const tt_norm_row_t *row)                                    \
    {                                                                                              \
        backward_row(row, true, dtype);                                                            \
    }
#include "core/kernel/dtypes.def"
#undef TT_DTYPE

extern const tt_norm_ops_t TT_ISA_NAME(tt_norm_ops);

const tt_norm_ops_t TT_ISA_NAME(tt_norm_ops) = {
#define TT_DTYPE(suffix, dtype)                                                                    \
    .layer[dtype] = {layer_##suffix, layer_backward_##suffix},                                     \
    .rms[dtype] = {rms_##suffix, rms_backward_##suffix},
#include "core/kernel/dtypes.def"
#undef TT_DTYPE
};
