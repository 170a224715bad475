/* Sampling at the places of a grid, on raw pointers: x [N, C, D, H, W] at points [N, P, 2 or 3],
 * whose coordinates (W, H, D) are from -1 to 1; D is 1 for planes. An element of y is a sum over
 * taps of x (taps.h), which are the same for all channels: in each dimension weights that are
 * polynomials of the place between two elements, or derivatives of these.
 *
 *     tt_grid_sample_t t = {.batch = 8, .channels = 3, .dims = 2, .size = {1, 32, 32},
 *                           .points = 100, .dtype = TUTTI_F32};
 *     TT_TRY(tt_grid_sample(exec, &t, x, grid, y));
 *
 * Bits: elements of y and of the gradients are sums in one order, whichever thread computes them.
 */
#ifndef TT_GRID_SAMPLE_H
#define TT_GRID_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef enum { TT_GRID_BILINEAR, TT_GRID_NEAREST, TT_GRID_BICUBIC } tt_grid_mode_t;
typedef enum { TT_GRID_ZEROS, TT_GRID_BORDER, TT_GRID_REFLECTION } tt_grid_padding_t;

typedef struct {
    int64_t batch, channels;
    int dims;        /* of the places: 2 or 3 */
    int64_t size[3]; /* D, H, W, at least 1, their product at most INT32_MAX */
    int64_t points;
    int order[3]; /* y is derived so often by the place in D, H, W */
    tt_grid_mode_t mode;
    tt_grid_padding_t padding;
    bool align_corners;  /* -1 and 1 are the middles of the first and last elements; else edges */
    tutti_dtype_t dtype; /* of all operands: f32 or f64 */
} tt_grid_sample_t;

/* y [N, C, P]. Errors of all: those of a launch; NOMEM, when they run. */
TT_LAUNCHES tutti_status_t tt_grid_sample(tt_exec_t *exec, const tt_grid_sample_t *t, const void *x,
                                          const void *grid, void *y);

/* The gradient of x: dx = Σ weight dy. */
TT_LAUNCHES tutti_status_t tt_grid_spread(tt_exec_t *exec, const tt_grid_sample_t *t,
                                          const void *dy, const void *grid, void *dx);

/* The gradient of the grid: for each coordinate Σ_c dy × y derived once more by it. */
TT_LAUNCHES tutti_status_t tt_grid_slopes(tt_exec_t *exec, const tt_grid_sample_t *t,
                                          const void *dy, const void *x, const void *grid,
                                          void *dgrid);

#endif
