/* Which cores ranks may use: affinity masks. Core i is bit i modulo the bits that a mask has. So on
 * a machine with more cores some share a bit: ranks that are bound to them may be taken to
 * outnumber the cores, which costs time and nothing else. */
#ifndef TT_CORES_H
#define TT_CORES_H

#include <stdint.h>

#include "core/base/core_set.h"

/* Another mask, which may be longer. */
static inline void tt_cores_add(uint8_t *mask, size_t bytes, const uint8_t *more, size_t more_bytes)
{
    for (size_t i = 0; i < more_bytes; i++) {
        mask[i % bytes] |= more[i];
    }
}

/* Those of this process, in a mask of zeros. */
static inline void tt_cores_find(uint8_t *mask, size_t bytes)
{
    tt_core_set_t cores;
    if (tt_core_set_of(0, &cores) > 0) {
        tt_cores_add(mask, bytes, (const uint8_t *)cores.words, sizeof cores.words);
    }
}

static inline int tt_cores_count(const uint8_t *all, size_t bytes)
{
    int cores = 0;
    for (size_t i = 0; i < bytes; i++) {
        cores += __builtin_popcount(all[i]);
    }
    return cores;
}

#endif
