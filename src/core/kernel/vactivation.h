/* Activations, losses and their slopes on vectors (maps.def uses them by name). */
#ifndef TT_VACTIVATION_H
#define TT_VACTIVATION_H

#include <math.h>

#include "core/kernel/vmath.h"

/* a^b, lane by lane through double; whole powers that occur often are multiplications. */
TT_INLINE tt_vf tt_vpow(tt_vf a, tt_vf b)
{
    for (int i = 0; i < TT_LANES; i++) {
        const double x = (double)a[i];
        a[i] = b[i] == 1.0f ? a[i] : (float)(b[i] == 2.0f ? x * x : pow(x, (double)b[i]));
    }
    return a;
}

TT_INLINE tt_vf tt_vfloor(tt_vf x)
{
    const tt_vi small = tt_vabs(x) < 0x1p23f;
    const tt_vf t = tt_vsel(small, x, tt_vsplat(0.0f));
    const tt_vf whole = __builtin_convertvector(__builtin_convertvector(t, tt_vi), tt_vf);
    return tt_vsel(small, tt_vcopysign(whole - tt_vone_if(whole > t), x), x);
}

/* The normal distribution: Φ(x) and the bell e^(-x²/2). Φ(-|x|) is bell × P(1 / (1 + 0.3 |x|)),
 * P the polynomial that meets it in nine Chebyshev nodes for |x| up to 14; so Φ keeps its
 * precision where it is small. */
TT_INLINE tt_vf tt_vnormal(tt_vf x, tt_vf *bell)
{
    *bell = tt_vexp(x * x * -0.5f);
    const tt_vf t = 1.0f / tt_vfma(tt_vabs(x), tt_vsplat(0.3f), tt_vsplat(1.0f));
    tt_vf p = tt_vsplat(0x1.339978p-5f);
    p = tt_vstep(p, t, -0x1.52af7ap-3f);
    p = tt_vstep(p, t, 0x1.c5535cp-3f);
    p = tt_vstep(p, t, -0x1.19b482p-4f);
    p = tt_vstep(p, t, 0x1.19e638p-3f);
    p = tt_vstep(p, t, 0x1.8b8de4p-4f);
    p = tt_vstep(p, t, 0x1.f19c9ep-4f);
    p = tt_vstep(p, t, 0x1.e9a47cp-4f);
    p = tt_vstep(p, t, 0x1.25c07ep-18f);
    const tt_vf tail = p * *bell;
    return tt_vsel(x < 0.0f, tail, 1.0f - tail);
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
    return tt_vfma(x * 0.398942280f, bell, normal);
}

/* x/2 (1 + tanh u) = x sigmoid(2u), u = √(2/π) (x + 0.044715 x³). */
TT_INLINE tt_vf tt_vgelu_gate(tt_vf x)
{
    return tt_vsigmoid(x * tt_vfma(x * x, tt_vsplat(0.0713548163f), tt_vsplat(1.59576912f)));
}

TT_INLINE tt_vf tt_vgelu_tanh(tt_vf x)
{
    return x * tt_vgelu_gate(x);
}

TT_INLINE tt_vf tt_vgelu_tanh_slope(tt_vf x)
{
    const tt_vf s = tt_vgelu_gate(x);
    const tt_vf du = tt_vfma(x * x, tt_vsplat(0.214064449f), tt_vsplat(1.59576912f));
    return tt_vfma(x * du, s * (1.0f - s), s);
}

TT_INLINE tt_vf tt_vsilu_slope(tt_vf x)
{
    const tt_vf s = tt_vsigmoid(x);
    return s * tt_vfma(x, 1.0f - s, tt_vsplat(1.0f));
}

/* max(x, 0) - x target + log(1 + e^-|x|). */
TT_INLINE tt_vf tt_vbce(tt_vf x, tt_vf target)
{
    return tt_vfma(-x, target, tt_vmax(x, tt_vsplat(0.0f))) + tt_vlog1p_unit(tt_vexp(-tt_vabs(x)));
}

/* q d²/2p near 0, q (|d| - p/2) from |d| = p on; and its slope. */
TT_INLINE tt_vf tt_vsmooth_l1(tt_vf d, tt_vf p, tt_vf q)
{
    const tt_vf size = tt_vabs(d);
    return tt_vsel(size < p, q * 0.5f / p * (d * d), q * (size - 0.5f * p));
}

TT_INLINE tt_vf tt_vsmooth_l1_slope(tt_vf d, tt_vf p, tt_vf q)
{
    const tt_vf sign = tt_vone_if(d > 0.0f) - tt_vone_if(d < 0.0f);
    return q * tt_vsel(tt_vabs(d) < p, d / p, sign);
}

#endif
