/* The lines of a tensor along one dimension, one after the other. */
#ifndef TT_LINES_H
#define TT_LINES_H

#include <stddef.h>

#include "core/kernel/elementwise/strided.h"

/* How many lines along dim a shape has. */
static inline int64_t tt_line_count(const tt_strided_t *x, int dim)
{
    int64_t count = 1;
    for (int d = 0; d < x->rank; d++) {
        count *= d == dim ? 1 : x->shape[d];
    }
    return count;
}

/* Where line `line` begins, in row-major order of the other dimensions: an offset in elements. */
static inline int64_t tt_line_offset(const tt_strided_t *x, int dim, int64_t line)
{
    int64_t offset = 0;
    for (int d = x->rank; d-- > 0;) {
        if (d != dim) {
            offset += line % x->shape[d] * x->strides[d];
            line /= x->shape[d];
        }
    }
    return offset;
}

/* Its first element. */
static inline void *tt_line_data(const tt_strided_t *x, int dim, int64_t line)
{
    return (char *)x->data + tt_line_offset(x, dim, line) * (int64_t)tutti_dtype_bytes(x->dtype);
}

/* Lines in pieces of about `elements` of them: how many lines a piece has. */
static inline int64_t tt_lines_per_piece(int64_t length, int64_t elements)
{
    return length >= elements ? 1 : elements / (length + 1) + 1;
}

#endif
