/* Distances between rows, of any norm p ≥ 0, in f32 or f64.
 *
 *     d[i, j] = (Σ |x[i] - y[j]|^p)^(1/p); p = 0: how many differ, infinite: the largest
 *     dx[i] = Σ_j dd[i, j] slope(x[i] - y[j], d[i, j])     dy[j] the same of y[j] - x[i]
 *
 *     p     slope(t, d); 0 where d is 0
 *     0     0
 *     inf   sign(t) where |t| is d
 *     else  sign(t) (|t| / d)^(p-1); 0 where t is 0
 *
 * Of x's own pairs i < j, y is x, and d has them one behind the other: (0, 1) (0, 2) … (1, 2) ….
 */
#ifndef TT_DISTANCES_H
#define TT_DISTANCES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/exec/exec.h"
#include "core/kernel/kernels.h"

/* x, dx: [batch, rows, n]; y, dy: [batch, others, n]; d, dd: [batch, rows, others], or
 * [rows (rows - 1) / 2] of own pairs, with a batch of 1. */
typedef struct {
    bool is_wide; /* all are f64, not f32 */
    bool is_own;  /* pairs of x's own rows; others is rows */
    double p;
    size_t batch, rows, others, n;
    const void *x, *y;
    void *d; /* forward writes, backward reads */
    const void *dd;
    void *dx, *dy; /* backward writes; NULL: not wanted */
} tt_distances_t;

/* Rows [first, end) against others [from, to), of one matrix of the batch; at most so many. */
enum { TT_DISTANCE_ROWS = 64, TT_DISTANCE_OTHERS = 128 };
typedef struct {
    size_t matrix, first, end, from, to;
} tt_distance_tile_t;

/* What distances_simd.c exports per variant and class: work on one tile. */
struct tt_distances_ops {
    void (*forward)(const tt_distances_t *job, const tt_distance_tile_t *tile);

    /* Adds to dx of the rows. */
    void (*backward)(const tt_distances_t *job, const tt_distance_tile_t *tile);

    /* Adds to dy: tiles are rows of y against others of x. */
    void (*backward_others)(const tt_distances_t *job, const tt_distance_tile_t *tile);
};

TT_LAUNCHES tutti_status_t tt_distances(tt_exec_t *exec, const tt_distances_t *job);
TT_LAUNCHES tutti_status_t tt_distances_backward(tt_exec_t *exec, const tt_distances_t *job);

#endif
