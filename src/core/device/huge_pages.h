/* Advice on the huge pages that lie inside a range as a whole. Whether the kernel takes it changes
 * nothing but speed. */
#ifndef TT_HUGE_PAGES_H
#define TT_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { TT_HUGE_PAGE = 2 << 20 };

static inline void tt_advise_huge(void *memory, size_t bytes, int advice)
{
    const uintptr_t at = (uintptr_t)memory;
    const uintptr_t first = (at + TT_HUGE_PAGE - 1) / TT_HUGE_PAGE * TT_HUGE_PAGE;
    const uintptr_t end = (at + bytes) / TT_HUGE_PAGE * TT_HUGE_PAGE;
    if (end > first) {
        (void)madvise((char *)memory + (first - at), end - first, advice);
    }
}

#endif
