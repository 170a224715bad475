/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy
 * as 1, 2, 3", SC 2011). The nth number of a key is a pure function of (key, n), so that it does
 * not matter which thread, rank or chunk asks for it.
 *
 * The key of a stream is mixed from what names it: (seed, step, shard, module, call).
 */
#ifndef TT_RNG_H
#define TT_RNG_H

#include <stdint.h>

typedef struct {
    uint32_t key[2];
    uint32_t salt[2]; /* upper half of the counter */
} tt_rng_t;

typedef struct {
    uint32_t v[4];
} tt_rng_block_t;

/* A stream named by up to five numbers; streams with different names are independent. */
tt_rng_t tt_rng_stream(uint64_t seed, uint64_t step, uint64_t shard, uint64_t module,
                       uint64_t call);

/* Four 32-bit numbers: those with index 4 × block … 4 × block + 3. */
tt_rng_block_t tt_rng_block(tt_rng_t rng, uint64_t block);

/* The number with this index. */
uint32_t tt_rng_u32(tt_rng_t rng, uint64_t index);

/* Below `bound` (which is not 0), without bias worth speaking of for bounds under 2^32. */
uint64_t tt_rng_below(tt_rng_t rng, uint64_t index, uint64_t bound);

/* [0, 1) with 24 bits. */
float tt_rng_uniform(tt_rng_t rng, uint64_t index);

/* Standard normal, Box-Muller over a pair of numbers. */
float tt_rng_normal(tt_rng_t rng, uint64_t index);

#endif
