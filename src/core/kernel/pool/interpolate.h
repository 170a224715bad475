/* Interpolation on raw pointers: planes [planes, H, W] to planes of another size; a line is a plane
 * of height 1. In each dimension an element of y is one of x, or lies between two.
 *
 *     tt_interpolate_t t = {.planes = 8, .size = {7, 7}, .out_size = {14, 14}, .is_linear = true,
 *                           .dtype = TUTTI_F32};
 *     TT_TRY(tt_interpolate(exec, &t, x, y));
 *
 * Bits: a thread computes whole planes, in an order that the shapes fix.
 */
#ifndef TT_INTERPOLATE_H
#define TT_INTERPOLATE_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef struct {
    int64_t planes;
    int64_t size[2], out_size[2]; /* from 1 to INT32_MAX */
    bool is_linear;               /* else the nearest */
    bool align_corners;           /* of linear: the first and last elements of x and y coincide */
    double step[2];               /* in x for one in y; 0: size / out_size */
    tutti_dtype_t dtype;          /* of x, y, dy and dx: f32, bf16, f16 or f64 */
} tt_interpolate_t;

/* Errors of both: those of a launch; NOMEM, when they run. */
TT_LAUNCHES tutti_status_t tt_interpolate(tt_exec_t *exec, const tt_interpolate_t *t, const void *x,
                                          void *y);
TT_LAUNCHES tutti_status_t tt_interpolate_backward(tt_exec_t *exec, const tt_interpolate_t *t,
                                                   const void *dy, void *dx);

#endif
