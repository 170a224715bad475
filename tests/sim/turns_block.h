/* Versions of a host block, of ranks that take turns. */
#ifndef TT_TURNS_BLOCK_H
#define TT_TURNS_BLOCK_H

#include <stdint.h>

/* So many seeds for each number of ranks; what main returns. */
int turns_block_main(uint64_t count);

#endif
