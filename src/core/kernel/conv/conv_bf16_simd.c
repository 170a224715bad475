/* The bf16 tile of a convolution (conv_lanes.h): pairs of bf16, with AVX512_BF16's vdpbf16ps, which
 * is compiled in by the function's target, so that it needs no variant of its own. */
#include "core/kernel/vmath.h"

#if defined(__AVX512F__)

#define CONV_TARGET __attribute__((target("avx512bf16")))
#define CONV_ADD(sum, x, y) (tt_vf) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(x), (__m512bh)(y))
#include "core/kernel/conv/conv_lanes.h"

CONV_TARGET void tt_conv_multiply_bf16_avx512(const tt_conv_tile_t *tile)
{
    multiply(tile);
}

#endif
