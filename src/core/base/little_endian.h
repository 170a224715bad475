/* Little-endian numbers at any address: what every wire and file of ours uses. */
#ifndef TT_LITTLE_ENDIAN_H
#define TT_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void tt_put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void tt_put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint32_t tt_get_u32(const uint8_t *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        value |= (uint32_t)at[i] << (8 * i);
    }
    return value;
}

static inline uint64_t tt_get_u64(const uint8_t *at)
{
    return tt_get_u32(at) | (uint64_t)tt_get_u32(at + 4) << 32;
}

#endif
