/* Where a bucket is cut into the slices of ranks: a plan, made by a pure function (decision 0028).
 *
 * Each rank gets a row of the bucket, as even as can be: a cut falls at the beginning of a
 * parameter, or at a multiple of the parameter's grain behind it, whichever is nearest to the even
 * one. So sums over sections of a parameter (optimizers) and over its blocks (norms) are each of
 * one rank.
 *
 *     bucket       | a   | b                       | c |
 *     grains         --    |------|------|------|    --
 *     3 ranks      | 0          | 1           | 2      |
 *
 * A bucket of few grains cannot be cut evenly, so what ranks have of the buckets before counts: a
 * bucket is dealt out as water is poured into vessels that are filled to different heights. Up to
 * the common level each wants what it lacks; a cut is the place that is nearest to that.
 *
 *     ranks have    0: 9    1: 4    2: 6    and 8 more come
 *     level 9       0: 0    1: 5    2: 3
 *
 * A rank that wants something gets at most a grain more or less; one above the level gets nothing.
 * So all ranks are within a grain of the highest level that there was, however many buckets there
 * are (a parameter that is not cut counts as one grain).
 */
#ifndef TT_SLICE_PLAN_H
#define TT_SLICE_PLAN_H

#include <stdint.h>

#include "parallel/reduce/bucket_plan.h"

typedef struct {
    int64_t offset, numel; /* in the bucket; in its order, none overlap */
    int64_t grain;         /* elements; 0: it is not cut */
} tt_slice_param_t;

typedef struct {
    const tt_slice_param_t *params; /* [count] */
    int count;
    int64_t numel; /* with padding */
} tt_slice_flat_t;

/* cuts [ranks + 1], ascending from 0 to numel: rank r's slice is [cuts[r], cuts[r + 1]).
 * totals [ranks]: elements that each rank has of the buckets before; then with this one. */
void tt_slice_plan(const tt_slice_flat_t *flat, int ranks, int64_t *totals, int64_t *cuts);

#endif
