/* Floating options whose 0 means a default: TUTTI_ZERO (dtype.h), a zero with a minus sign, is the
 * number 0. */
#ifndef TT_DEFAULT_H
#define TT_DEFAULT_H

#include <math.h>
#include <stdbool.h>

static inline bool tt_is_given(double option)
{
    return option != 0 || signbit(option);
}

/* The number that an option means; `usual` where it was left out. Its zero has no sign, so that one
 * may divide by it: an option that goes on to others must be handed on as it is. */
static inline double tt_or_default(double option, double usual)
{
    return tt_is_given(option) ? option + 0.0 : usual;
}

#endif
