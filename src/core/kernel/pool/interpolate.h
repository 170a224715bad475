/* Interpolation on raw pointers: planes [planes, H, W] to planes of another size; a line is a plane
 * of height 1. In each dimension an element of y is a sum over taps of x (taps.h).
 *
 *     tt_interpolate_t t = {.planes = 8, .dtype = TUTTI_F32,
 *                           .lines = {{TT_FILTER_LINEAR, 7, 14}, {TT_FILTER_LINEAR, 7, 14}}};
 *     TT_TRY(tt_interpolate(exec, &t, x, y));
 *
 * Bits: an element is one sum, in the order of its taps, whichever thread computes it.
 */
#ifndef TT_INTERPOLATE_H
#define TT_INTERPOLATE_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"
#include "core/kernel/pool/taps.h"

typedef struct {
    int64_t planes;
    tt_line_t lines[2];  /* of H and W */
    tutti_dtype_t dtype; /* of x, y, dy and dx: f32, bf16, f16 or f64 */
} tt_interpolate_t;

/* Errors of both: those of a launch; NOMEM, when they run. */
TT_LAUNCHES tutti_status_t tt_interpolate(tt_exec_t *exec, const tt_interpolate_t *t, const void *x,
                                          void *y);
TT_LAUNCHES tutti_status_t tt_interpolate_backward(tt_exec_t *exec, const tt_interpolate_t *t,
                                                   const void *dy, void *dx);

#endif
