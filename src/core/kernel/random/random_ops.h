/* What random_simd.c exports per variant. */
#ifndef TT_RANDOM_OPS_H
#define TT_RANDOM_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/rng.h"

enum { TT_RANDOM_GROUP = 64 }; /* numbers made at once: 16 blocks of Philox */

struct tt_random_ops {
    /* groups × TT_RANDOM_GROUP numbers from the one with index first_group × TT_RANDOM_GROUP. */
    void (*numbers)(uint32_t *out, tt_rng_t rng, uint64_t first_group, size_t groups);
    /* Numbers as tt_rng_uniform makes them: [0, 1) with 24 bits. */
    void (*uniform)(float *out, const uint32_t *numbers, size_t n);
    /* Standard normal, from pairs: n is even. */
    void (*normal)(float *out, const uint32_t *numbers, size_t n);
    /* y = scale x where the uniform number is at least p, else 0. */
    void (*dropout)(float *y, const float *x, const uint32_t *numbers, size_t n, float p,
                    float scale);
};

#endif
