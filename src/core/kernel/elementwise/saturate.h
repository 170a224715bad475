/* A float as a 64-bit integer: truncated, saturating, NaN is 0. */
#ifndef TT_SATURATE_H
#define TT_SATURATE_H

#include <stdint.h>

static inline int64_t tt_int_from_double(double value)
{
    if (!(value < 0x1p63)) {
        return value >= 0x1p63 ? INT64_MAX : 0;
    }
    return value > -0x1p63 ? (int64_t)value : INT64_MIN;
}

#endif
