/* Spinning that pays. A wait looks at its word for a few µs before it sleeps, since what it waits
 * for is usually near; but where cores are fewer than those that want them, by threads of other
 * programs too, a spin only keeps the core from the one that it waits for. So waits of one kind
 * remember:
 *
 *     spins that saw the word move            all spin
 *     TT_SPIN_IN_VAIN_MAX in a row did not    one in TT_SPIN_TRIES spins, the others sleep at once
 *     one of those did                        all spin
 *
 * Whoever waits long goes to sleep anyway: it loses nothing. Cost: a load, and a store that others
 * of the kind share, where the word has not moved yet. Why: docs/decisions/0054.
 */
#ifndef TT_SPIN_H
#define TT_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/futex.h"

enum { TT_SPIN_IN_VAIN_MAX = 8, TT_SPIN_TRIES = 16 };

/* Of waits of one kind, by any threads; 0 at first. */
typedef struct {
    _Atomic uint32_t in_vain; /* waits in a row that did not see the word move */
} tt_spin_t;

/* How often the next wait may look, of `most`. */
static inline int tt_spin_looks(const tt_spin_t *spin, int most)
{
    const uint32_t in_vain = atomic_load_explicit(&spin->in_vain, memory_order_relaxed);
    return in_vain < TT_SPIN_IN_VAIN_MAX || in_vain % TT_SPIN_TRIES == 0 ? most : 0;
}

/* Whether *word moves from `old` while this looks at it, `most` times at most. */
static inline bool tt_spin_sees_move(tt_spin_t *spin, int most, _Atomic uint32_t *word,
                                     uint32_t old)
{
    if (atomic_load_explicit(word, memory_order_acquire) != old) {
        return true;
    }
    for (int looks = tt_spin_looks(spin, most); looks > 0; looks--) {
        tt_cpu_pause();
        if (atomic_load_explicit(word, memory_order_acquire) != old) {
            atomic_store_explicit(&spin->in_vain, 0, memory_order_relaxed);
            return true;
        }
    }
    if (most > 0) {
        atomic_fetch_add_explicit(&spin->in_vain, 1, memory_order_relaxed);
    }
    return false;
}

#endif
