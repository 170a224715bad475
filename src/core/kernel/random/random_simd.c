/* Philox4x32-10, 16 blocks side by side: the same numbers as tt_rng_block. */
#include "core/kernel/random/random_ops.h"

#include "core/kernel/kernels.h"
#include "core/kernel/vmath.h"

enum { ROUNDS = 10, BLOCKS = 16 };

typedef struct {
    uint32_t v[4][BLOCKS];
} state_t;

/* One round: multiply words 0 and 2, mix the halves into the others, with this round's key. */
TT_INLINE void round_of(state_t *c, uint32_t key0, uint32_t key1)
{
    for (int i = 0; i < BLOCKS; i++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c->v[0][i];
        const uint64_t b = (uint64_t)0xCD9E8D57u * c->v[2][i];
        c->v[0][i] = (uint32_t)(b >> 32) ^ c->v[1][i] ^ key0;
        c->v[2][i] = (uint32_t)(a >> 32) ^ c->v[3][i] ^ key1;
        c->v[1][i] = (uint32_t)b;
        c->v[3][i] = (uint32_t)a;
    }
}

static void make_group(uint32_t *out, tt_rng_t rng, uint64_t group)
{
    state_t c;
    for (int i = 0; i < BLOCKS; i++) {
        const uint64_t block = group * BLOCKS + (uint64_t)i;
        c.v[0][i] = (uint32_t)block;
        c.v[1][i] = (uint32_t)(block >> 32);
        c.v[2][i] = rng.salt[0];
        c.v[3][i] = rng.salt[1];
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        round_of(&c, rng.key[0] + round * 0x9E3779B9u, rng.key[1] + round * 0xBB67AE85u);
    }
    for (int i = 0; i < BLOCKS; i++) {
        for (int word = 0; word < 4; word++) {
            out[4 * i + word] = c.v[word][i];
        }
    }
}

static void numbers(uint32_t *out, tt_rng_t rng, uint64_t first_group, size_t groups)
{
    for (size_t g = 0; g < groups; g++) {
        make_group(out + g * TT_RANDOM_GROUP, rng, first_group + g);
    }
}

static void uniform(float *out, const uint32_t *number, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(int32_t)(number[i] >> 8) * 0x1p-24f;
    }
}

/* Box and Muller: √(-2 log u) times cosine and sine of a random angle. */
static void normal_lanes(float *out, const uint32_t *number)
{
    float u[TT_LANES], turn[TT_LANES], y[2][TT_LANES];
    for (int i = 0; i < TT_LANES; i++) {
        u[i] = ((float)(int32_t)(number[2 * i] >> 8) + 0.5f) * 0x1p-24f;
        turn[i] = (float)(int32_t)(number[2 * i + 1] >> 8) * (6.28318531f * 0x1p-24f);
    }
    const tt_vf radius = tt_vsqrt(-2.0f * tt_vlog(tt_vload(u)));
    tt_vstore(y[0], radius * tt_vcos(tt_vload(turn)));
    tt_vstore(y[1], radius * tt_vsin(tt_vload(turn)));
    for (int i = 0; i < TT_LANES; i++) {
        out[2 * i] = y[0][i];
        out[2 * i + 1] = y[1][i];
    }
}

static void normal(float *out, const uint32_t *number, size_t n)
{
    size_t i = 0;
    for (; i + 2 * TT_LANES <= n; i += 2 * TT_LANES) {
        normal_lanes(out + i, number + i);
    }
    if (i < n) {
        float last[2 * TT_LANES];
        uint32_t padded[2 * TT_LANES] = {0};
        memcpy(padded, number + i, (n - i) * sizeof *number);
        normal_lanes(last, padded);
        memcpy(out + i, last, (n - i) * sizeof *out);
    }
}

static void dropout(float *y, const float *x, const uint32_t *number, size_t n, float p,
                    float scale)
{
    for (size_t i = 0; i < n; i++) {
        const float u = (float)(int32_t)(number[i] >> 8) * 0x1p-24f;
        const float scaled = x[i] * scale;
        y[i] = u >= p ? scaled : 0.0f;
    }
}

extern const tt_random_ops_t TT_ISA_NAME(tt_random_ops);

const tt_random_ops_t TT_ISA_NAME(tt_random_ops) = {numbers, uniform, normal, dropout};
