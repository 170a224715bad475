/* The budget of TUTTI_MEMORY_LIMIT: bytes that this process takes for blocks of tt_alloc() and for
 * pages of the shared heaps that it owns. Without a limit nothing is counted, and nothing costs.
 */
#ifndef TT_MEMORY_LIMIT_H
#define TT_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* In bytes; 0: there is none. */
uint64_t tt_memory_limit(void);

/* What is taken of it. */
uint64_t tt_memory_taken(void);

/* False: it would be above the limit; nothing is taken. */
bool tt_memory_take(uint64_t bytes);
void tt_memory_give(uint64_t bytes);

/* For tests: another limit, of which so much is taken already. 0: none. */
void tt_memory_set_limit(uint64_t bytes, uint64_t taken);

#endif
