/* Philox4x32-10. */
#include "core/base/rng.h"

#include <math.h>

enum { ROUNDS = 10 };

static const uint32_t multipliers[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t weyl[2] = {0x9E3779B9u, 0xBB67AE85u};

/* SplitMix64's finisher: spreads every input bit over the output. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

tt_rng_t tt_rng_stream(uint64_t seed, uint64_t step, uint64_t shard, uint64_t module, uint64_t call)
{
    uint64_t key = mix(seed);
    key = mix(key ^ step);
    key = mix(key ^ shard);
    uint64_t salt = mix(key ^ module);
    salt = mix(salt ^ call);
    return (tt_rng_t){.key = {(uint32_t)key, (uint32_t)(key >> 32)},
                      .salt = {(uint32_t)salt, (uint32_t)(salt >> 32)}};
}

tt_rng_block_t tt_rng_block(tt_rng_t rng, uint64_t block)
{
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), rng.salt[0], rng.salt[1]};
    uint32_t k[2] = {rng.key[0], rng.key[1]};
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)multipliers[0] * c[0];
        const uint64_t b = (uint64_t)multipliers[1] * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        for (int i = 0; i < 4; i++) {
            c[i] = next[i];
        }
        k[0] += weyl[0];
        k[1] += weyl[1];
    }
    return (tt_rng_block_t){{c[0], c[1], c[2], c[3]}};
}

uint32_t tt_rng_u32(tt_rng_t rng, uint64_t index)
{
    return tt_rng_block(rng, index / 4).v[index % 4];
}

uint64_t tt_rng_below(tt_rng_t rng, uint64_t index, uint64_t bound)
{
    const tt_rng_block_t block = tt_rng_block(rng, index);
    /* The upper 64 bits of (v0 · 2^32 + v1) × bound, for bounds that fit 63 bits. */
    const uint64_t low = (uint64_t)block.v[1] * (bound & UINT32_MAX);
    const uint64_t mid1 = (uint64_t)block.v[0] * (bound & UINT32_MAX) + (low >> 32);
    const uint64_t mid2 = (uint64_t)block.v[1] * (bound >> 32) + (mid1 & UINT32_MAX);
    return (uint64_t)block.v[0] * (bound >> 32) + (mid1 >> 32) + (mid2 >> 32);
}

float tt_rng_uniform(tt_rng_t rng, uint64_t index)
{
    return (float)(tt_rng_u32(rng, index) >> 8) * 0x1p-24f;
}

float tt_rng_normal(tt_rng_t rng, uint64_t index)
{
    const tt_rng_block_t block = tt_rng_block(rng, index / 2);
    const double u = ((double)block.v[0] + 1.0) * 0x1p-32;
    const double turn = 6.283185307179586 * ((double)block.v[1] * 0x1p-32);
    const double radius = sqrt(-2.0 * log(u));
    return (float)(radius * (index % 2 ? sin(turn) : cos(turn)));
}
