/* The f64 loops of all element-wise kinds, one libm call per element in order. */
#include <math.h>

#include "core/kernel/elementwise/map_ops.h"

#define TT_NO 0

static double tt_softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double tt_gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752);
}

static double tt_gelu_slope(double x)
{
    const double density = 0.39894228040143268 * exp(-0.5 * x * x);
    return 0.5 * erfc(-x * 0.70710678118654752) + x * density;
}

static double gelu_gate(double x)
{
    return 1 / (1 + exp(-2 * 0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double tt_gelu_tanh(double x)
{
    return x * gelu_gate(x);
}

static double tt_gelu_tanh_slope(double x)
{
    const double s = gelu_gate(x);
    return s + x * s * (1 - s) * 2 * 0.79788456080286536 * (1 + 3 * 0.044715 * x * x);
}

static double tt_silu_slope(double x)
{
    const double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

static double tt_smooth_l1(double d, double p, double q)
{
    return fabs(d) < p ? q * 0.5 / p * (d * d) : q * (fabs(d) - 0.5 * p);
}

static double tt_smooth_l1_slope(double d, double p, double q)
{
    return q * (fabs(d) < p ? d / p : (double)((d > 0) - (d < 0)));
}

static double tt_bce(double x, double target)
{
    return fmax(x, 0) - x * target + log1p(exp(-fabs(x)));
}

#define TT_UNARY(kind, name, about, f32, f64, i64)                                                 \
    static void unary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)   \
    {                                                                                              \
        const double p = params.p, q = params.q;                                                   \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const double x = ((const double *)in[0])[i];                                           \
            ((double *)out)[i] = (f64);                                                            \
        }                                                                                          \
    }

#define TT_BINARY(kind, name, about, f32, f64, i64)                                                \
    static void binary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params)  \
    {                                                                                              \
        const double p = params.p, q = params.q;                                                   \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const double a = ((const double *)in[0])[i], b = ((const double *)in[1])[i];           \
            ((double *)out)[i] = (f64);                                                            \
        }                                                                                          \
    }

#define TT_TERNARY(kind, name, about, f32, f64, i64)                                               \
    static void ternary_##kind(void *out, const void *const *in, size_t n, tt_map_params_t params) \
    {                                                                                              \
        const double p = params.p, q = params.q;                                                   \
        (void)p, (void)q;                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            const double a = ((const double *)in[0])[i], b = ((const double *)in[1])[i];           \
            const double c = ((const double *)in[2])[i];                                           \
            ((double *)out)[i] = (f64);                                                            \
        }                                                                                          \
    }

#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY

const struct tt_map_ops tt_map_ops_f64 = {
#define TT_UNARY(kind, ...) .unary[TT_UNARY_##kind] = unary_##kind,
#define TT_BINARY(kind, ...) .binary[TT_BINARY_##kind] = binary_##kind,
#define TT_TERNARY(kind, ...) .ternary[TT_TERNARY_##kind] = ternary_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
#undef TT_BINARY
#undef TT_TERNARY
};
