/* What simulated ranks do, and what must be true of it. */
#ifndef TT_SIM_CALLS_H
#define TT_SIM_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* One seed: a world of 2 to 12 ranks (now and then 64), a fault or none, a dozen calls and messages
 * by an algorithm that fits. "" if all is as it must be, else what is not, and how to see it again.
 * `trace` (out) is a hash of who ran when. */
const char *sim_check_seed(uint64_t seed, uint64_t *trace, char *text, size_t text_bytes);

/* The same with groups that meet in a store: ranks make groups, call in them, abort them, leave,
 * and shrink to go on; faults of the store too. */
const char *sim_check_groups(uint64_t seed, uint64_t *trace, char *text, size_t text_bytes);

#endif
