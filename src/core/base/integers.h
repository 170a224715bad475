/* Least, largest and rounding up of integers. int64_t: counts and indices; size_t: bytes. */
#ifndef TT_INTEGERS_H
#define TT_INTEGERS_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t tt_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tt_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Pieces of `per` that hold `count`; 0 from 1 - per to 0. */
static inline int64_t tt_pieces_of(int64_t count, int64_t per)
{
    return (count + per - 1) / per;
}

static inline size_t tt_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t tt_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Pieces of `per` bytes that hold so many. */
static inline size_t tt_divide_up(size_t bytes, size_t per)
{
    return (bytes + per - 1) / per;
}

static inline size_t tt_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

#endif
