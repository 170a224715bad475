/* Segments of channels. Sums are made in 16 fixed lanes over blocks of 4096 elements; the blocks
 * are added in double, so that long segments lose nothing. Every pass reads its operands once.
 */
#include "core/kernel/norm/channels_ops.h"
#include "core/kernel/kernels.h"
#include "core/kernel/vrow.h"

enum { BLOCK = 4096 };

#define EACH_VECTOR(at, part, first, end)                                                          \
    for (size_t base_ = (first); base_ < (end); base_ += 16)                                       \
        for (size_t part = 0, at = base_; part < TT_PARTS; part++, at += TT_LANES)

TT_INLINE size_t block_end(size_t first, size_t n)
{
    return n - first < BLOCK ? n : first + BLOCK;
}

TT_INLINE double sum_of(const void *x, size_t n, tutti_dtype_t dtype)
{
    double total = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t v = tt_v16_splat(0.0f);
        EACH_VECTOR(at, part, first, block_end(first, n))
        {
            v.part[part] += tt_vread(x, at, n, 0.0f, dtype);
        }
        total += (double)tt_v16_sum(v);
    }
    return total;
}

/* Padding with the mean adds nothing. */
TT_INLINE double squares_of(const void *x, size_t n, double mean, tutti_dtype_t dtype)
{
    const float m = (float)mean;
    double total = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t v = tt_v16_splat(0.0f);
        EACH_VECTOR(at, part, first, block_end(first, n))
        {
            const tt_vf d = tt_vread(x, at, n, m, dtype) - m;
            v.part[part] = tt_vfma(d, d, v.part[part]);
        }
        total += (double)tt_v16_sum(v);
    }
    return total;
}

TT_INLINE void dot_of(const void *dy, const void *x, size_t n, double mean, double sums[2],
                      tutti_dtype_t dtype)
{
    const float m = (float)mean;
    for (size_t first = 0; first < n; first += BLOCK) {
        tt_v16_t plain = tt_v16_splat(0.0f), product = plain;
        EACH_VECTOR(at, part, first, block_end(first, n))
        {
            const tt_vf g = tt_vread(dy, at, n, 0.0f, dtype);
            plain.part[part] += g;
            product.part[part] = tt_vfma(g, tt_vread(x, at, n, m, dtype) - m, product.part[part]);
        }
        sums[0] += (double)tt_v16_sum(plain);
        sums[1] += (double)tt_v16_sum(product);
    }
}

TT_INLINE void scale_of(void *y, const void *x, size_t n, const tt_segment_scale_t *to,
                        tutti_dtype_t dtype)
{
    const tt_vf f = tt_vsplat((float)to->factor), s = tt_vsplat((float)to->plus);
    const float m = (float)to->mean;
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vwrite(y, at, n, tt_vfma(tt_vread(x, at, n, 0.0f, dtype) - m, f, s), dtype);
    }
}

TT_INLINE void slope_of(void *dx, const void *dy, const void *x, size_t n,
                        const tt_segment_slope_t *to, tutti_dtype_t dtype)
{
    const tt_vf a = tt_vsplat((float)to->of_dy), b = tt_vsplat((float)to->of_x);
    const tt_vf c = tt_vsplat((float)to->plus);
    const float m = (float)to->mean;
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf rest = tt_vfma(tt_vread(x, at, n, 0.0f, dtype) - m, b, c);
        tt_vwrite(dx, at, n, tt_vfma(tt_vread(dy, at, n, 0.0f, dtype), a, rest), dtype);
    }
}

/* ---- by dtype -------------------------------------------------------------------------------- */

static double sum(const void *x, size_t n, tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BF16:
        return sum_of(x, n, TUTTI_BF16);
    case TUTTI_F16:
        return sum_of(x, n, TUTTI_F16);
    default:
        return sum_of(x, n, TUTTI_F32);
    }
}

static double squares(const void *x, size_t n, double mean, tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BF16:
        return squares_of(x, n, mean, TUTTI_BF16);
    case TUTTI_F16:
        return squares_of(x, n, mean, TUTTI_F16);
    default:
        return squares_of(x, n, mean, TUTTI_F32);
    }
}

static void dot(const void *dy, const void *x, size_t n, double mean, double sums[2],
                tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BF16:
        dot_of(dy, x, n, mean, sums, TUTTI_BF16);
        break;
    case TUTTI_F16:
        dot_of(dy, x, n, mean, sums, TUTTI_F16);
        break;
    default:
        dot_of(dy, x, n, mean, sums, TUTTI_F32);
        break;
    }
}

static void scale(void *y, const void *x, size_t n, const tt_segment_scale_t *to,
                  tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BF16:
        scale_of(y, x, n, to, TUTTI_BF16);
        break;
    case TUTTI_F16:
        scale_of(y, x, n, to, TUTTI_F16);
        break;
    default:
        scale_of(y, x, n, to, TUTTI_F32);
        break;
    }
}

static void slope(void *dx, const void *dy, const void *x, size_t n, const tt_segment_slope_t *to,
                  tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_BF16:
        slope_of(dx, dy, x, n, to, TUTTI_BF16);
        break;
    case TUTTI_F16:
        slope_of(dx, dy, x, n, to, TUTTI_F16);
        break;
    default:
        slope_of(dx, dy, x, n, to, TUTTI_F32);
        break;
    }
}

extern const tt_channels_ops_t TT_ISA_NAME(tt_channels_ops);

const tt_channels_ops_t TT_ISA_NAME(tt_channels_ops) = {sum, squares, dot, scale, slope};
