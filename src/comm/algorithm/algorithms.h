/* The list of algorithms. A new one is a file with a tt_algorithm_t and a line in algorithms.def.
 */
#ifndef TT_ALGORITHMS_H
#define TT_ALGORITHMS_H

#include "comm/plan/plan.h"

/* Every algorithm there is; the end is NULL. */
extern const tt_algorithm_t *const tt_algorithms[];

#define X(name) extern const tt_algorithm_t tt_algorithm_##name;
#include "comm/algorithm/algorithms.def"
#undef X

/* NULL if there is none of that name. */
const tt_algorithm_t *tt_algorithm_find(const char *name);

#endif
