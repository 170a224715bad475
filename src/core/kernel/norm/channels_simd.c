/* Segments of channels. Sums are made in 16 fixed lanes over blocks of 4096 elements; the blocks
 * are added in double, so that a segment loses no more than a block does. Every pass reads its
 * operands once.
 */
#include "core/kernel/norm/channels_ops.h"
#include "core/kernel/kernels.h"
#include "core/kernel/vrow.h"

enum { BLOCK = 4096 };

TT_INLINE size_t block_end(size_t first, size_t n)
{
    return n - first < BLOCK ? n : first + BLOCK;
}

TT_INLINE double sum_of(const void *x, size_t n, tutti_dtype_t dtype)
{
    double total = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t v = tt_v16_splat(0.0f);
        TT_EACH_VECTOR(at, part, first, block_end(first, n))
        {
            v.part[part] += tt_vread(x, at, n, 0.0f, dtype);
        }
        total += (double)tt_v16_sum(v);
    }
    return total;
}

/* Padding with the mean adds nothing. */
TT_INLINE void squares_of(const void *x, size_t n, double mean, double sums[2], tutti_dtype_t dtype)
{
    const tt_real_t m = (tt_real_t)mean;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t plain = tt_v16_splat(0.0f), square = plain;
        TT_EACH_VECTOR(at, part, first, block_end(first, n))
        {
            const tt_vf d = tt_vread(x, at, n, m, dtype) - m;
            plain.part[part] += d;
            square.part[part] = tt_vfma(d, d, square.part[part]);
        }
        sums[0] += (double)tt_v16_sum(plain);
        sums[1] += (double)tt_v16_sum(square);
    }
}

TT_INLINE void dot_of(const tt_segment_grad_t *of, const void *x, size_t n, double mean,
                      double sums[2], tutti_dtype_t dtype)
{
    const tt_real_t m = (tt_real_t)mean;
    const void *dy = of->dy, *y = of->y;
    void *dz = of->dz;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t plain = tt_v16_splat(0.0f), product = plain;
        TT_EACH_VECTOR(at, part, first, block_end(first, n))
        {
            tt_vf g = tt_vread(dy, at, n, 0.0f, dtype);
            if (y != NULL) {
                g = tt_vsel(tt_vread(y, at, n, 0.0f, dtype) <= 0.0f, tt_vsplat(0.0f), g);
            }
            if (dz != NULL) {
                tt_vwrite(dz, at, n, g, dtype);
            }
            plain.part[part] += g;
            product.part[part] = tt_vfma(g, tt_vread(x, at, n, m, dtype) - m, product.part[part]);
        }
        sums[0] += (double)tt_v16_sum(plain);
        sums[1] += (double)tt_v16_sum(product);
    }
}

/* As if it had been written and read again. */
TT_INLINE tt_vf rounded(tt_vf v, tutti_dtype_t dtype)
{
    return dtype == TT_REAL ? v : tt_vfrom_half(tt_vto_half(v, dtype), dtype);
}

TT_INLINE void scale_of(void *y, const void *x, size_t n, const tt_segment_scale_t *to,
                        tutti_dtype_t dtype)
{
    const tt_vf f = tt_vsplat((tt_real_t)to->factor), s = tt_vsplat((tt_real_t)to->plus);
    const tt_vf least = tt_vsplat(to->relu ? 0.0f : -INFINITY);
    const tt_real_t m = (tt_real_t)to->mean;
    const void *residual = to->residual;
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vf v = tt_vfma(tt_vread(x, at, n, 0.0f, dtype) - m, f, s);
        if (residual != NULL) {
            v = rounded(v, dtype) + tt_vread(residual, at, n, 0.0f, dtype);
        }
        tt_vwrite(y, at, n, tt_vmax(v, least), dtype);
    }
}

TT_INLINE void slope_of(void *dx, const void *dy, const void *x, size_t n,
                        const tt_segment_slope_t *to, tutti_dtype_t dtype)
{
    const tt_vf a = tt_vsplat((tt_real_t)to->of_dy), b = tt_vsplat((tt_real_t)to->of_x);
    const tt_vf c = tt_vsplat((tt_real_t)to->plus);
    const tt_real_t m = (tt_real_t)to->mean;
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf rest = tt_vfma(tt_vread(x, at, n, 0.0f, dtype) - m, b, c);
        tt_vwrite(dx, at, n, tt_vfma(tt_vread(dy, at, n, 0.0f, dtype), a, rest), dtype);
    }
}

/* One function for each dtype. */
#define TT_DTYPE(suffix, dtype)                                                                    \
    static double sum_##suffix(const void *x, size_t n)                                            \
    {                                                                                              \
        return sum_of(x, n, dtype);                                                                \
    }                                                                                              \
                                                                                                   \
    static void squares_##suffix(const void *x, size_t n, double mean, double sums[2])             \
    {                                                                                              \
        squares_of(x, n, mean, sums, dtype);                                                       \
    }                                                                                              \
                                                                                                   \
    static void dot_##suffix(const tt_segment_grad_t *of, const void *x, size_t n, double mean,    \
                             double sums[2])                                                       \
    {                                                                                              \
        dot_of(of, x, n, mean, sums, dtype);                                                       \
    }                                                                                              \
                                                                                                   \
    static void scale_##suffix(void *y, const void *x, size_t n, const tt_segment_scale_t *to)     \
    {                                                                                              \
        scale_of(y, x, n, to, dtype);                                                              \
    }                                                                                              \
                                                                                                   \
    static void slope_##suffix(void *dx, const void *dy, const void *x, size_t n,                  \
                               const tt_segment_slope_t *to)                                       \
    {                                                                                              \
        slope_of(dx, dy, x, n, to, dtype);                                                         \
    }
#include "core/kernel/dtypes.def"
#undef TT_DTYPE

extern const tt_channels_ops_t TT_ISA_NAME(tt_channels_ops);

const tt_channels_ops_t TT_ISA_NAME(tt_channels_ops) = {.of = {
#define TT_DTYPE(suffix, dtype)                                                                    \
    [dtype] = {sum_##suffix, squares_##suffix, dot_##suffix, scale_##suffix, slope_##suffix},
#include "core/kernel/dtypes.def"
#undef TT_DTYPE
                                                        }};
