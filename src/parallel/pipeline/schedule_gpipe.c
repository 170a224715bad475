/* gpipe: all forwards, then all backwards.
 *
 *     rank 0   F0 F1 F2 F3 .. .. B0 -- B1 -- B2 -- B3 --
 *     rank 1   .. F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 -- ..
 *
 * Cost: bubble (p - 1) / (m + p - 1) for m micro-batches on p ranks; every rank holds all m
 * activations. Backwards ascend, as in PyTorch; the paper's descend, with the same bubble.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static void plan_gpipe(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    (void)rank;
    for (int b = 0; b < shape->total; b++) {
        tt_pipeline_emit(emit, TUTTI_PIPELINE_F, 0, b);
    }
    for (int b = 0; b < shape->total; b++) {
        tt_pipeline_emit(emit, TUTTI_PIPELINE_B, 0, b);
    }
}

const tt_pipeline_ops_t tt_pipeline_gpipe = {
    .name = "gpipe",
    .about = "all forwards, then all backwards; holds all activations",
    .source = "Huang et al., \"GPipe\", 2019",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .plan = plan_gpipe,
};
