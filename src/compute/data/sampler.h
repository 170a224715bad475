/* Which sample stands at a position: a pure function, without an array of the order. */
#ifndef TT_SAMPLER_H
#define TT_SAMPLER_H

#include <stdint.h>

/* Where `position` of 0 … count - 1 goes in the permutation that (seed, epoch) names. */
uint64_t tt_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t position);

/* A number below count for a position, the same for equal (seed, position). */
uint64_t tt_draw(uint64_t seed, uint64_t position, uint64_t count);

#endif
