/* bf16 and f16 as bits, to f32 and back (rounding to nearest even), one element at a time.
 * Loops over these are vectorised by the compiler; NaN stays NaN. */
#ifndef TT_HALF_H
#define TT_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tt_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tt_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tt_bf16_to_f32(uint16_t half)
{
    return tt_f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t tt_bf16_from_f32(float value)
{
    const uint32_t bits = tt_f32_bits(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}

/* Subnormal halves are scaled by a float product, which is exact. */
static inline float tt_f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    const float small = (float)rest * 0x1p-24f;
    const uint32_t normal =
        rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : (rest << 13) + ((127u - 15u) << 23);
    return tt_f32_from_bits(sign | (rest < 0x400 ? tt_f32_bits(small) : normal));
}

/* Below the smallest normal half, adding 0.5 leaves the rounded bits at the mantissa's end. */
static inline uint16_t tt_f16_from_f32(float value)
{
    const uint32_t bits = tt_f32_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (rest >= 0x477ff000) { /* 65520 and above */
        return (uint16_t)(sign | 0x7c00);
    }
    if (rest < 0x38800000) {
        return (uint16_t)(sign | (tt_f32_bits(tt_f32_from_bits(rest) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
}

#endif
