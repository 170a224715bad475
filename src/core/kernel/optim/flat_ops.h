/* What flat_simd.c exports per variant. */
#ifndef TT_FLAT_OPS_H
#define TT_FLAT_OPS_H

#include "core/kernel/optim/flat.h"

struct tt_flat_ops {
    void (*scale)(float *x, size_t n, float factor);
    void (*clamp)(float *x, size_t n, float limit);
    void (*axpy)(float *y, const float *x, size_t n, float factor);
    double (*squares)(const float *x, size_t n);
    bool (*is_finite)(const float *x, size_t n);
    /* y = turned x: pairs (x[i], x[i + n]), or (x[2i], x[2i + 1]) if interleaved. */
    void (*rotate)(float *y, const float *x, const float *cosine, const float *sine, size_t n);
    void (*rotate_interleaved)(float *y, const float *x, const float *cosine, const float *sine,
                               size_t n);
};

#endif
