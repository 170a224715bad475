/* Random calls of ranks of one host that take turns. */
#ifndef TT_TURNS_CALLS_H
#define TT_TURNS_CALLS_H

#include <stdint.h>

/* The main of a test: the worlds of so many seeds, or of the one that TUTTI_SEED names; it fails
 * with the first thing that is not as it must be. */
int turns_main(uint64_t seeds);

#endif
