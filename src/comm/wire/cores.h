/* Which cores ranks may use: affinity masks, bit i for core i. */
#ifndef TT_CORES_H
#define TT_CORES_H

#include <stddef.h>
#include <stdint.h>

static inline void tt_cores_add(uint8_t *all, const uint8_t *more, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        all[i] |= more[i];
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
