/* Copying with other indices in each dimension: padding, cropping, rolling, flipping.
 *
 *     out[i, j, …] = x[source 0(i), source 1(j), …]    or a value, where a source is outside
 *
 *     dimension    source of i
 *     PLAIN        i - before, outside: the value
 *     REFLECT      i - before, turned back at the first and the last element
 *     REPLICATE    i - before, at least the first and at most the last element
 *     CIRCULAR     (i - before) mod `length`, counted from `first`
 *     FLIP         the last - i
 */
#ifndef TT_REMAP_H
#define TT_REMAP_H

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

typedef enum {
    TT_REMAP_PLAIN,
    TT_REMAP_REFLECT,
    TT_REMAP_REPLICATE,
    TT_REMAP_CIRCULAR,
    TT_REMAP_FLIP
} tt_remap_mode_t;

typedef struct {
    tt_remap_mode_t mode;
    int64_t before;        /* negative: so many are cut away */
    int64_t first, length; /* CIRCULAR: the part of x that repeats */
} tt_remap_dim_t;

typedef struct {
    tt_strided_t out, x; /* of one dtype and rank; every source but PLAIN's lies inside x */
    tt_remap_dim_t dims[TT_RANK_MAX];
    union {
        unsigned char bytes[8];
        int64_t aligned;
    } value; /* as the dtype stores it */
} tt_remap_t;

TT_LAUNCHES tutti_status_t tt_remap(tt_exec_t *exec, const tt_remap_t *remap);

/* x[sources of i, j, …] += out[i, j, …], in the order of out's elements; f32 and f64. One thread
 * for each index of x's first dimension that keeps its place, else one. */
TT_LAUNCHES tutti_status_t tt_remap_add(tt_exec_t *exec, const tt_remap_t *remap);

#endif
