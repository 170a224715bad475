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
 */
#ifndef TT_SLICE_PLAN_H
#define TT_SLICE_PLAN_H

#include <stdint.h>

#include "parallel/reduce/bucket_plan.h"

typedef struct {
    int64_t offset, numel; /* in the bucket; in its order, none overlap */
    int64_t grain;         /* elements; 0: it is not cut */
} tt_slice_param_t;

/* cuts [ranks + 1], ascending from 0 to numel: rank r's slice is [cuts[r], cuts[r + 1]). */
void tt_slice_plan(const tt_slice_param_t *params, int count, int64_t numel, int ranks,
                   int64_t *cuts);

#endif
