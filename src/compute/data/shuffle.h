/* Which sample stands at a position: a pure function, without an array of the order. */
#ifndef TT_SHUFFLE_H
#define TT_SHUFFLE_H

#include <stdint.h>

/* Where `position` of 0 … count - 1 goes in the permutation that (seed, epoch) names. */
uint64_t tt_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t position);

/* The same without end: one permutation of 0 … count - 1 behind another, the first as above. */
uint64_t tt_permute_on(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t position);

/* A number below count for a position of an epoch, the same for equal arguments. */
uint64_t tt_draw_in_epoch(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t count);

#endif
