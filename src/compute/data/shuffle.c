/* Order of samples. A permutation of 0 … n-1 is a Feistel network over the smallest even number of
 * bits that holds n; what lands at n or beyond goes through it again (cycle walking), which ends
 * since the network is a permutation, after less than four rounds on average.
 *
 *     (left, right) -> (right, left ^ f(round, right))      f: Philox, keyed by (seed, epoch)
 *
 * Cost: 8 Philox blocks per walk, no memory. Source: Luby and Rackoff, "How to Construct
 * Pseudorandom Permutations" (1988); Black and Rogaway, "Ciphers with Arbitrary Finite Domains"
 * (2002) for the walk.
 */
#include "compute/data/shuffle.h"

#include "core/base/rng.h"

enum { ROUNDS = 8 };

/* Names that no optimizer step has (a step is not negative). */
#define ORDER_STEP (UINT64_MAX - 1)
#define DRAW_STEP (UINT64_MAX - 2)

static int half_bits(uint64_t count)
{
    int bits = 1;
    while (bits < 32 && (UINT64_C(1) << (2 * bits)) < count) {
        bits++;
    }
    return bits;
}

static uint64_t feistel(tt_rng_t rng, int bits, uint64_t x)
{
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t left = x >> bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t mixed = left ^ (tt_rng_block(rng, round << 32 | right).v[0] & mask);
        left = right;
        right = mixed;
    }
    return left << bits | right;
}

static uint64_t walk(tt_rng_t rng, uint64_t count, uint64_t position)
{
    const int bits = half_bits(count);
    uint64_t x = position;
    do {
        x = feistel(rng, bits, x);
    } while (x >= count);
    return x;
}

uint64_t tt_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t position)
{
    return walk(tt_rng_stream(seed, ORDER_STEP, epoch, 0, 0), count, position);
}

uint64_t tt_permute_on(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t position)
{
    const uint64_t lap = position / count;
    return walk(tt_rng_stream(seed, ORDER_STEP, epoch, lap, 0), count, position % count);
}

uint64_t tt_draw_in_epoch(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t count)
{
    return tt_rng_below(tt_rng_stream(seed, DRAW_STEP, epoch, 1, 0), position, count);
}
