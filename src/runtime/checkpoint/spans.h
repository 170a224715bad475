/* Slices of a tensor that share elements, found by a sweep.
 *
 *     [0:2, 0:9] ██            the dimension in which the tensor is cut most: slices are compared
 *     [2:4, 0:9]   ██          only with those that begin there before they end
 *     [3:6, 0:9]    ███
 *
 * Cost: a sort; and for each slice those that it meets in that dimension.
 */
#ifndef TT_SPANS_H
#define TT_SPANS_H

#include "runtime/checkpoint/manifest.h"

/* Of a slice, in that dimension. */
typedef struct {
    const tt_saved_slice_t *slice;
    int64_t begin, end;
} tt_span_t;

/* Whether two share an element: which. `slice` is set in each span; the rest is filled in, and the
 * spans are sorted. */
bool tt_spans_overlap(tt_span_t *spans, size_t count, tutti_shape_t whole,
                      const tt_saved_slice_t *pair[2]);

#endif
