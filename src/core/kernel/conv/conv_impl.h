/* What conv.c and conv_weight.c share: parts of one block of scratch, and the window of x. */
#ifndef TT_CONV_IMPL_H
#define TT_CONV_IMPL_H

#include "core/base/integers.h"
#include "core/kernel/conv/conv.h"
#include "core/kernel/conv/conv_window.h"

enum { TT_CONV_LINE = 64 };

/* Room for some bytes behind what *total has; returns where. */
static inline size_t tt_conv_reserve(size_t *total, int64_t bytes)
{
    const size_t at = *total;
    *total += (size_t)(tt_pieces_of(bytes, TT_CONV_LINE) * TT_CONV_LINE);
    return at;
}

/* The same as an address; of a block that is NULL, to be measured first: NULL. */
static inline void *tt_conv_part(char *block, size_t *total, int64_t bytes)
{
    const size_t at = tt_conv_reserve(total, bytes);
    return block == NULL ? NULL : block + at;
}

/* How the taps of the kernel see x. */
tt_window_t tt_conv_window(const tt_conv_t *conv);

#endif
