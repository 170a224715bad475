/* Where the elements of a line come from: y[i] = Σ_k weight[k][i] x[index[k][i]], a sparse matrix
 * whose rows are padded to the same number of taps. A tap of weight 0 is none: what lies at its
 * index is not looked at.
 *
 *     i         0    1    2    3            linear, 2 elements to 4; here 0 and 1 are the
 *     index   [[0,   0,   0,   1],          indices of x, and the second tap of the first
 *              [-,   1,   1,   -]]          element is none
 *     weight  [[1,   .75, .25, 1],
 *              [0,   .25, .75, 0]]
 *
 * The gradient of x is another such line: dx[j] = Σ weight dy[i] over the taps whose index is j.
 */
#ifndef TT_TAPS_H
#define TT_TAPS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/base/fail.h"

/* Kernels take elements in blocks of this size; index and weight have room for whole ones. */
enum { TT_TAPS_BLOCK = 16 };

typedef struct {
    int64_t n;      /* elements of y */
    int64_t stride; /* n, rounded up to whole blocks */
    int64_t most;   /* taps of an element */
    int32_t *index; /* [most][stride] */
    void *weight;   /* [most][stride], f32 (f64 for f64) */
} tt_taps_t;

/* Which elements an element of y sees, and by what function of their distance they count. */
typedef enum {
    TT_FILTER_NEAREST,       /* one, at the place of y's lower edge */
    TT_FILTER_NEAREST_EXACT, /* one, at the place of its middle */
    TT_FILTER_LINEAR,        /* two, by a triangle */
    TT_FILTER_CUBIC,         /* four, by the cubic convolution with a = -0.75 */
    TT_FILTER_AREA,          /* those that it covers, alike */
    TT_FILTER_LANCZOS,       /* six, by sinc(x) sinc(x / 3); antialias alone */
} tt_filter_t;

/* A dimension that is interpolated. */
typedef struct {
    tt_filter_t filter;
    int64_t size, out_size; /* from 1 to INT32_MAX */
    double scale;           /* steps in x are 1 / scale; 0: size / out_size */
    bool align_corners;     /* the first and last elements of x and y coincide */
    bool antialias;         /* steps above 1 stretch the filter; cubic is of a = -0.5 */
} tt_line_t;

/* The taps of y, or those of the gradient of x (is_backward), of weights for a dtype. Errors:
 * NOMEM. tt_taps_free() frees index and weight. */
tutti_status_t tt_taps_of_line(const tt_line_t *line, bool is_backward, tutti_dtype_t dtype,
                               tt_taps_t *out);
void tt_taps_free(tt_taps_t *taps);

/* Whether each element is one of x's as it is, and whether y is the first elements of x. */
bool tt_taps_pick(const tt_taps_t *taps, tutti_dtype_t dtype);
bool tt_taps_are_identity(const tt_taps_t *taps, tutti_dtype_t dtype);

/* The elements of x from the first that some of these elements of y see to the last. */
typedef struct {
    int64_t first, end;
} tt_range_t;

tt_range_t tt_taps_range(const tt_taps_t *taps, tutti_dtype_t dtype, int64_t first, int64_t end);

#endif
