/* Functions, activations, losses and their slopes on vectors, of the class that is compiled for
 * (vector.h; maps.def uses them by name). */
#ifndef TT_VMATH_H
#define TT_VMATH_H

#if defined(TT_F64)
#include "core/kernel/vmath_f64.h"
#else
#include "core/kernel/vmath_f32.h"
#endif

/* 1 / (1 + e^-x). */
TT_INLINE tt_vf tt_vsigmoid(tt_vf x)
{
    return 1.0f / (1.0f + tt_vexp(-x));
}

/* log(1 + e^x), without overflow. */
TT_INLINE tt_vf tt_vsoftplus(tt_vf x)
{
    return tt_vmax(x, (tt_vf){0}) + tt_vlog1p_unit(tt_vexp(-tt_vabs(x)));
}

/* e^x - 1 for x <= 0, also for tiny x: 2t / (1 - t), t = tanh(x/2). */
TT_INLINE tt_vf tt_vexpm1_below(tt_vf x)
{
    const tt_vf t = tt_vtanh(x * 0.5f);
    return (t + t) / (1.0f - t);
}

/* log(1 + x): 1 + x is rounded, by what is added back. Source: Kahan, in the HP-15C's handbook;
 * Goldberg, "What Every Computer Scientist Should Know About Floating-Point Arithmetic" (1991). */
TT_INLINE tt_vf tt_vlog1p(tt_vf x)
{
    const tt_vf u = 1.0f + x, rounded = (x - (u - 1.0f)) / u;
    const tt_vi has_rest = (u > 0.0f) & (u < tt_vsplat(__builtin_inff()));
    const tt_vf y = tt_vlog(u) + tt_vsel(has_rest, rounded, (tt_vf){0});
    return tt_vsel(x == 0.0f, x, y);
}

/* e^x - 1, of any x: with u = e^x as it is rounded, (u - 1) (x / log u). Source: Higham, "Accuracy
 * and Stability of Numerical Algorithms" (2002), 1.14.1. */
TT_INLINE tt_vf tt_vexpm1(tt_vf x)
{
    const tt_vf u = tt_vexp(x), y = (u - 1.0f) * (x / tt_vlog(u));
    const tt_vi is_some = (u > 0x1p-20f) & (u < tt_vsplat(__builtin_inff()));
    return tt_vsel(u == 1.0f, x, tt_vsel(is_some, y, u - 1.0f));
}

/* The nearest whole number, of halves the even one: a sum's rounding with 2^23, 2^52 in f64. */
TT_INLINE tt_vf tt_vround(tt_vf x)
{
    const tt_real_t large = sizeof large == 4 ? 0x1p23f : (tt_real_t)0x1p52;
    const tt_vf size = tt_vabs(x);
    return tt_vsel(size < large, tt_vcopysign((size + large) - large, x), x + 0.0f);
}

TT_INLINE tt_vf tt_vmish_slope(tt_vf x)
{
    const tt_vf t = tt_vtanh(tt_vsoftplus(x));
    return t + x * (1.0f - t * t) * tt_vsigmoid(x);
}

TT_INLINE tt_vf tt_vbce_of_probability(tt_vf x, tt_vf target)
{
    const tt_vf least = tt_vsplat(-100.0f);
    const tt_vf yes = tt_vmax(tt_vlog(x), least), no = tt_vmax(tt_vlog(1.0f - x), least);
    return (target - 1.0f) * no - target * yes;
}

TT_INLINE tt_vf tt_vgelu(tt_vf x)
{
    tt_vf bell;
    return x * tt_vnormal(x, &bell);
}

/* Φ(x) + x φ(x). */
TT_INLINE tt_vf tt_vgelu_slope(tt_vf x)
{
    tt_vf bell;
    const tt_vf normal = tt_vnormal(x, &bell);
    return tt_vfma(x * (tt_real_t)0.39894228040143268, bell, normal);
}

/* x/2 (1 + tanh u) = x sigmoid(2u), u = √(2/π) (x + 0.044715 x³). */
TT_INLINE tt_vf tt_vgelu_gate(tt_vf x)
{
    return tt_vsigmoid(x * tt_vfma(x * x, tt_vsplat((tt_real_t)0.071354816272600248),
                                   tt_vsplat((tt_real_t)1.5957691216057308)));
}

TT_INLINE tt_vf tt_vgelu_tanh(tt_vf x)
{
    return x * tt_vgelu_gate(x);
}

TT_INLINE tt_vf tt_vgelu_tanh_slope(tt_vf x)
{
    const tt_vf s = tt_vgelu_gate(x);
    const tt_vf du = tt_vfma(x * x, tt_vsplat((tt_real_t)0.21406444881780074),
                             tt_vsplat((tt_real_t)1.5957691216057308));
    return tt_vfma(x * (s * (1.0f - s)), du, s);
}

TT_INLINE tt_vf tt_vsilu_slope(tt_vf x)
{
    const tt_vf s = tt_vsigmoid(x);
    return s * tt_vfma(x, 1.0f - s, tt_vsplat(1.0f));
}

/* max(x, 0) - x target + log(1 + e^-|x|). Of an infinite x the limit: it is certain, so the loss is
 * 0 where it is right and infinite elsewhere, in place of the difference of two infinities. */
TT_INLINE tt_vf tt_vbce(tt_vf x, tt_vf target)
{
    const tt_vf size = tt_vabs(x), wrong = tt_vsel(x > 0.0f, 1.0f - target, target);
    const tt_vf loss =
        tt_vfma(-x, target, tt_vmax(x, tt_vsplat(0.0f))) + tt_vlog1p_unit(tt_vexp(-size));
    const tt_vf limit = tt_vsel(wrong == 0.0f, tt_vsplat(0.0f), wrong * size);
    return tt_vsel(size == (tt_real_t)__builtin_inf(), limit, loss);
}

/* q d²/2p near 0, q (|d| - p/2) from |d| = p on; and its slope. NaN stays. */
TT_INLINE tt_vf tt_vsmooth_l1(tt_vf d, tt_vf p, tt_vf q)
{
    const tt_vf size = tt_vabs(d);
    return tt_vsel(size < p, q * 0.5f / p * d * d, q * (size - 0.5f * p));
}

TT_INLINE tt_vf tt_vsmooth_l1_slope(tt_vf d, tt_vf p, tt_vf q)
{
    const tt_vf sign = tt_vone_if(d > 0.0f) - tt_vone_if(d < 0.0f);
    return q * tt_vsel(tt_vabs(d) >= p, sign, d / p);
}

#endif
