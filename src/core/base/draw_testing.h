/* A seeded part of a long matrix of cases. TUTTI_TEST_SHARE=4 runs one case of four, TUTTI_SEED
 * names the draw; without a share all cases run. cmake/tests.cmake gives shares to quick tests,
 * whose variants labelled full have none (tutti_test_drawn). tests/multi/draws.py is the same in
 * Python.
 *
 *     for (int i = 0; i < COUNT; i++) {
 *         if (tt_test_takes((uint64_t)i)) {
 *             check(&cases[i]);
 *         }
 *     }
 *
 * For *_test.c only.
 */
#ifndef TT_DRAW_TESTING_H
#define TT_DRAW_TESTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/rng.h"

static inline uint64_t tt_test_number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* Whether a suite's case of that number is run. The first call prints seed and share; where several
 * threads ask, one has called before. */
static inline bool tt_test_takes(uint64_t number)
{
    static uint64_t share, seed;
    if (share == 0) {
        share = tt_test_number("TUTTI_TEST_SHARE", 1);
        seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
        if (share > 1) {
            printf("TUTTI_SEED=%llu: one case of %llu\n", (unsigned long long)seed,
                   (unsigned long long)share);
        }
    }
    return share == 1 || tt_rng_below(tt_rng_stream(seed, 0, 0, 0, 0), number, share) == 0;
}

#endif
