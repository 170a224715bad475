/* What pooling_simd.c exports per variant (f32, bf16, f16), and the loops of pooling_windows.c.
 *
 * The rows of a plane are brought apart into lines of f32, one for each remainder of the column by
 * the stride, so that a tap of neighbouring windows lies in order. For a stride of 2 and a padding
 * of 1 (-), a row of 6 becomes two lines:
 *
 *     - 0 1 2 3 4 5 -        line 0: - 1 3 5      taps 0, 2 of windows 0 1 2: from 0, 1 in line 0
 *                            line 1: 0 2 4 -      tap 1:                      from 0 in line 1
 */
#ifndef TT_POOLING_OPS_H
#define TT_POOLING_OPS_H

#include "core/kernel/kernels.h"
#include "core/kernel/pool/pooling.h"

enum {
    TT_POOLING_SLACK = 16, /* floats that may be read and written behind a line; a row: twice */
    TT_POOLING_STRIDE_MAX = 8
};

/* Columns of a row that a line holds: position k of line i is column (k stride + i - padding). */
typedef struct {
    int64_t first, end; /* positions inside of x */
    int64_t column;     /* of the first */
} tt_pooling_part_t;

typedef enum {
    TT_POOLING_MAX,
    TT_POOLING_AVERAGE,
    TT_POOLING_AVERAGE_BACKWARD,
    TT_POOLING_WHOLE, /* averages of whole planes, without lines and scratch */
    TT_POOLING_WHOLE_BACKWARD,
} tt_pooling_step_t;

typedef struct {
    const tt_pooling_t *p;
    tt_pooling_step_t step;
    tt_pooling_part_t parts[TT_POOLING_STRIDE_MAX];
    int64_t row;            /* floats of a row, before the lines */
    int64_t line;           /* floats from a line to the next */
    int64_t reach;          /* of these windows see the first ones */
    const tt_span_t *spans; /* [out_size[0]] the rows of each window */
    const int64_t *taps;    /* [kernel[1]] where window 0 finds a tap in the lines of a row */
    /* [out_size[1] + slack] where each window begins, perhaps before the first column; the first
     * column inside of it, or -1; its part of the divisor */
    const int32_t *starts, *columns;
    const float *extents;
    const void *from; /* x, or dy; all planes */
    void *to;         /* y, or dx */
    int32_t *at;      /* or NULL */
} tt_pooling_lines_t;

struct tt_pooling_ops {
    /* Planes [first, first + count). */
    void (*run[TUTTI_DTYPE_COUNT])(const tt_pooling_lines_t *l, float *scratch, int64_t first,
                                   int64_t count);
};

/* The largest, averages or their backward of one plane in f64; at: of the largest, or NULL. */
void tt_pooling_windows(const tt_pooling_t *p, tt_pooling_step_t step, const double *from,
                        double *to, int32_t *at);

#endif
