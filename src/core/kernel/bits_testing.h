/* What tests of random problems share: a problem for each seed, and every way of running it, with
 * each instruction set that the CPU has and with 1 to 3 threads. All ways must give one set of
 * bits.
 *
 *     static void check(tt_threads_t *const *pools, uint64_t seed)
 *     {
 *         for (int way = 0; way < count_ways(); way++) {
 *             compute(begin_way(pools, way), ...);
 *             end_way();
 *         }
 *     }
 *
 *     check_seeds(60, check);
 */
#ifndef TT_BITS_TESTING_H
#define TT_BITS_TESTING_H

#include <stdlib.h>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/base/threads.h"
#include "core/kernel/isa.h"

enum { POOLS = 3 };

/* The next number of a stream, from low to high. */
static inline int64_t draw(tt_rng_t rng, uint64_t *next, int64_t low, int64_t high)
{
    return low + (int64_t)tt_rng_below(rng, (*next)++, (uint64_t)(high - low) + 1);
}

/* The sets below the best one, alone; then the best one with each pool. */
static inline int count_ways(void)
{
    return (int)tt_isa() + POOLS;
}

static inline tt_threads_t *begin_way(tt_threads_t *const *pools, int way)
{
    const int best = (int)tt_isa();
    setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)(way < best ? way : best)), 1);
    return way < best ? NULL : pools[way - best];
}

static inline void end_way(void)
{
    unsetenv("TUTTI_ISA");
}

/* From TUTTI_SEED on, else from 0. */
static inline void check_seeds(uint64_t draws,
                               void (*check)(tt_threads_t *const *pools, uint64_t seed))
{
    const char *chosen = getenv("TUTTI_SEED");
    const uint64_t first = chosen == NULL ? 0 : strtoull(chosen, NULL, 10);
    tt_threads_t *pools[POOLS];
    for (int i = 0; i < POOLS; i++) {
        assert_int_equal(tt_threads_create(i + 1, &pools[i]), TUTTI_OK);
    }
    for (uint64_t seed = first; seed < first + draws; seed++) {
        check(pools, seed);
    }
    for (int i = 0; i < POOLS; i++) {
        tt_threads_release(pools[i]);
    }
}

#endif
