/* The table of algorithms, apart from what they are made with. */
#include <string.h>

#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan.h"

const tt_algorithm_t *const tt_algorithms[] = {
#define X(name) &tt_algorithm_##name,
#include "comm/algorithm/algorithms.def"
#undef X
    NULL,
};

const tt_algorithm_t *tt_algorithm_find(const char *name)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (strcmp(tt_algorithms[i]->name, name) == 0) {
            return tt_algorithms[i];
        }
    }
    return NULL;
}
