/* Sleeping until a 32-bit word changes, within a process or in shared memory. */
#ifndef TT_FUTEX_H
#define TT_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/clock.h"

/* Sleep while *word == expected, at most until the deadline; may also wake early. */
void tt_futex_wait(_Atomic uint32_t *word, uint32_t expected, tt_deadline_t deadline);

/* Wake everyone who sleeps on the word, in any process that maps it. */
void tt_futex_wake_all(_Atomic uint32_t *word);

static inline void tt_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Soon this cache line will be written: fetch it away from the cores that have read it. */
static inline void tt_cpu_prefetch_to_write(void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(char *)line)); /* a no-op where it is not known */
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
