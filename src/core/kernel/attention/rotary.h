/* Rotary position embeddings (Su et al., "RoFormer", 2021).
 *
 * x[.., T, D]: pairs of its last dim are turned by the angle of their position. Pair i is
 * (i, i + D/2), or (2i, 2i + 1) if interleaved. The inverse turn is the gradient.
 */
#ifndef TT_ROTARY_H
#define TT_ROTARY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* Of angles position × base^(-2i/D). */
typedef struct {
    float *cosine, *sine;     /* [T, D/2]; written */
    int64_t positions, pairs; /* T, D/2 */
    int64_t first;            /* positions are first, first + 1, … */
    double base;
} tt_rotary_table_t;

TT_LAUNCHES tutti_status_t tt_rotary_table(tt_exec_t *exec, const tt_rotary_table_t *table);

typedef struct {
    const float *cosine, *sine; /* [T, D/2] */
    bool interleaved, inverse;
} tt_rotary_t;

/* out and x: same shape, rank at least 2, D even, same dtype (a float); out may be x. */
TT_LAUNCHES tutti_status_t tt_rotary(tt_exec_t *exec, const tt_rotary_t *rotary,
                                     const tt_strided_t *out, const tt_strided_t *x);

/* Of n pairs. minus: -sine. */
typedef struct {
    const float *cosine, *sine, *minus;
} tt_turn_t;

/* y = turned x, of the class's type: pairs (x[i], x[i + n]), or (x[2i], x[2i + 1]) if interleaved.
 */
typedef void (*tt_rotate_fn_t)(void *y, const void *x, size_t n, const tt_turn_t *by);

/* What rotary_simd.c exports per variant and class. */
struct tt_rotary_ops {
    tt_rotate_fn_t rotate, rotate_interleaved;
};

#endif
