/* Values that a conversion to another dtype would lose: it wraps integers, has 0 for NaN, and
 * infinity for what is too large. A fraction is cut off an integer, and precision is lost. */
#ifndef TT_CAST_CHECK_H
#define TT_CAST_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/dtype.h>

/* Whether some value among `count`, in a row in the host's memory, has no place in `to`: the first
 * one. */
bool tt_cast_loses(tutti_dtype_t from, const void *values, size_t count, tutti_dtype_t to,
                   size_t *at, double *value);

#endif
