/* Linux futexes. The words may lie in shared memory, so the private variants are not used. */
#include "core/base/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void tt_futex_wait(_Atomic uint32_t *word, uint32_t expected, tt_deadline_t deadline)
{
    struct timespec until = {0};
    if (deadline != TT_NEVER) {
        until.tv_sec = (time_t)(deadline / TT_NS_PER_S);
        until.tv_nsec = (long)(deadline % TT_NS_PER_S);
    }
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock. Why it woke does not
     * matter: the caller looks at the word and at its deadline again. */
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline == TT_NEVER ? NULL : &until,
            NULL, FUTEX_BITSET_MATCH_ANY);
}

void tt_futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
