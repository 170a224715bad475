/* Random calls of ranks of one host that take turns. */
#ifndef TT_TURNS_CALLS_H
#define TT_TURNS_CALLS_H

#include <stdint.h>

/* Runs the worlds of so many seeds; a test fails with the first thing that is not as it must be. */
void turns_check(uint64_t first, uint64_t count);

#endif
