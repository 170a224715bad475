/* 2bw: 1f1b that never stops, with an update for each group of micro-batches, which uses the
 * weights of one update before: w(t + 1) = w(t) - gradient at w(t - 1). Two versions are enough.
 *
 * Micro-batch b of group t = b / a uses version t - 1 (0 in the first group). A group has at least
 * as many micro-batches as there are ranks, so that this version is there when a stage begins it.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static int version_of(const tt_pipeline_shape_t *shape, int micro_batch)
{
    const int update = micro_batch / shape->accumulate;
    return update > 0 ? update - 1 : 0;
}

static void plan_2bw(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const int ahead = shape->ranks - rank;
    for (int b = 0; b < shape->total + ahead; b++) {
        const int done = b - ahead;
        if (done >= 0) {
            tt_pipeline_emit_at(emit, TUTTI_PIPELINE_B, 0, done, version_of(shape, done));
        }
        if (done >= 0 && (done + 1) % shape->accumulate == 0) {
            tt_pipeline_emit_step(emit, 0, done, done / shape->accumulate + 1);
        }
        if (b < shape->total) {
            tt_pipeline_emit_at(emit, TUTTI_PIPELINE_F, 0, b, version_of(shape, b));
        }
    }
}

static bool fits_2bw(const tt_pipeline_shape_t *shape)
{
    return shape->total % shape->accumulate == 0;
}

const tt_pipeline_ops_t tt_pipeline_2bw = {
    .name = "2bw",
    .about = "updates that are one behind, from groups of micro-batches; two versions of weights",
    .source = "Narayanan et al., \"Memory-Efficient Pipeline-Parallel DNN Training\", 2021",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .is_asynchronous = true,
    .want = "whole groups of `accumulate` (by default one micro-batch for each rank)",
    .fits = fits_2bw,
    .plan = plan_2bw,
};
