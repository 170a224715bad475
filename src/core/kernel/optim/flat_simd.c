/* Loops over flat f32 buffers; each reads and writes every element once. */
#include "core/kernel/optim/flat.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

static void scale(float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] * factor;
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

static double largest(const float *x, size_t n)
{
    tt_vf most = tt_vsplat(0);
    size_t i = 0;
    for (; i + TT_LANES <= n; i += TT_LANES) {
        most = tt_vmax(most, tt_vabs(tt_vload(x + i)));
    }
    most = tt_vmax(most, tt_vabs(tt_vload_n(x + i, n - i)));
    for (int lane = 1; lane < TT_LANES; lane++) {
        most[0] = most[lane] > most[0] || isnan(most[lane]) ? most[lane] : most[0];
    }
    return (double)most[0];
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

extern const tt_flat_ops_t TT_ISA_NAME(tt_flat_ops);

const tt_flat_ops_t TT_ISA_NAME(tt_flat_ops) = {
    .scale = scale,
    .axpy = axpy,
    .squares = squares,
    .largest = largest,
    .is_finite = is_finite,
};
