/* Pooling on raw pointers: the maximum or the average of windows over planes [planes, H, W]; a line
 * is a plane of height 1.
 *
 *     tt_pooling_t p = {.planes = 8, .size = {28, 28}, .out_size = {14, 14}, .kernel = {2, 2},
 *                       .stride = {2, 2}, .dilation = {1, 1}, .dtype = TUTTI_F32};
 *     TT_TRY(tt_pooling_max(exec, &p, x, y, at));
 *     TT_TRY(tt_pooling_max_backward(exec, &p, dy, at, dx));
 *
 * Bits: a thread computes whole planes, in an order that the shapes fix. Errors: those of a launch;
 * NOMEM, when they run.
 */
#ifndef TT_POOLING_H
#define TT_POOLING_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef struct {
    int64_t planes;
    int64_t size[2], out_size[2]; /* at least 1; a plane of x has at most INT32_MAX elements */
    bool is_adaptive; /* window i of n is [i size / n, (i + 1) size / n), rounded outwards; nothing
                         of the next line counts */
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool excludes_padding; /* from what an average is divided by */
    int64_t divisor;       /* of averages; 0: the elements of the window */
    tutti_dtype_t dtype;   /* of x, y and dy: f32, bf16, f16 or f64 */
} tt_pooling_t;

/* The positions of a window in one dimension, inside of x. */
typedef struct {
    int64_t first, count, step;
    int64_t extent; /* its share of the divisor */
} tt_span_t;

tt_span_t tt_pooling_span(const tt_pooling_t *p, int dim, int64_t i);

/* Whether no element of x is in two windows. */
bool tt_pooling_is_disjoint(const tt_pooling_t *p);

/* y = the largest of each window, NaN if there is one; at: where in its plane, the first of equal
 * ones, the last NaN; -1 and -infinity where a window has no element. at may be NULL. */
TT_LAUNCHES tutti_status_t tt_pooling_max(tt_exec_t *exec, const tt_pooling_t *p, const void *x,
                                          void *y, int32_t *at);

/* dx = Σ dy of the windows whose largest it was. The dtype of dx: p's where windows are disjoint;
 * elsewhere f64 for f64 and f32 for the others. */
TT_LAUNCHES tutti_status_t tt_pooling_max_backward(tt_exec_t *exec, const tt_pooling_t *p,
                                                   const void *dy, const int32_t *at, void *dx);

/* y = Σ x of each window / its divisor; sums are f32, those of whole planes of blocks in f64. */
TT_LAUNCHES tutti_status_t tt_pooling_average(tt_exec_t *exec, const tt_pooling_t *p, const void *x,
                                              void *y);

/* dx = Σ dy / divisor of the windows that it was in, of p's dtype. */
TT_LAUNCHES tutti_status_t tt_pooling_average_backward(tt_exec_t *exec, const tt_pooling_t *p,
                                                       const void *dy, void *dx);

#endif
