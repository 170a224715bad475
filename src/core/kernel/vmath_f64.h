/* exp, log, tanh, erf, sin, cos and their kin on vectors of f64: libm, lane by lane. Included by
 * vmath.h. Accuracy: at most 1 ulp or so, as libm has it. */
#ifndef TT_VMATH_F64_H
#define TT_VMATH_F64_H

#include <math.h>

#include "core/kernel/vector.h"

#define TT_EACH_LANE(x, value)                                                                     \
    for (int i = 0; i < TT_LANES; i++) {                                                           \
        (x)[i] = (value);                                                                          \
    }                                                                                              \
    return x

TT_INLINE tt_vf tt_vexp(tt_vf x)
{
    TT_EACH_LANE(x, exp(x[i]));
}

TT_INLINE tt_vf tt_vlog(tt_vf x)
{
    TT_EACH_LANE(x, log(x[i]));
}

/* log(1 + u) for u in [0, 1]. */
TT_INLINE tt_vf tt_vlog1p_unit(tt_vf u)
{
    TT_EACH_LANE(u, log1p(u[i]));
}

TT_INLINE tt_vf tt_vtanh(tt_vf x)
{
    TT_EACH_LANE(x, tanh(x[i]));
}

TT_INLINE tt_vf tt_verf(tt_vf x)
{
    TT_EACH_LANE(x, erf(x[i]));
}

TT_INLINE tt_vf tt_vsin(tt_vf x)
{
    TT_EACH_LANE(x, sin(x[i]));
}

TT_INLINE tt_vf tt_vcos(tt_vf x)
{
    TT_EACH_LANE(x, cos(x[i]));
}

TT_INLINE tt_vf tt_vfloor(tt_vf x)
{
#if defined(__AVX512F__)
    return (tt_vf)_mm512_floor_pd((__m512d)x);
#elif defined(__AVX2__)
    return (tt_vf)_mm256_floor_pd((__m256d)x);
#else
    TT_EACH_LANE(x, floor(x[i]));
#endif
}

TT_INLINE tt_vf tt_vpow(tt_vf a, tt_vf b)
{
    TT_EACH_LANE(a, pow(a[i], b[i]));
}

/* The normal distribution: Φ(x) and the bell e^(-x²/2). */
TT_INLINE tt_vf tt_vnormal(tt_vf x, tt_vf *bell)
{
    *bell = tt_vexp(x * x * -0.5);
    TT_EACH_LANE(x, 0.5 * erfc(-x[i] * 0.70710678118654752));
}

#endif
