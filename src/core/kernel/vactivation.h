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

TT_INLINE tt_vf tt_vgelu(tt_vf x)
{
    return x * (0.5f + 0.5f * tt_verf(x * 0.707106781f));
}

/* Φ(x) + x φ(x). */
TT_INLINE tt_vf tt_vgelu_slope(tt_vf x)
{
    const tt_vf density = 0.398942280f * tt_vexp(x * x * -0.5f);
    return tt_vfma(x, density, 0.5f + 0.5f * tt_verf(x * 0.707106781f));
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

#endif
