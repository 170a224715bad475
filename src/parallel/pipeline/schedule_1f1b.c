/* 1f1b: a rank begins with as many forwards as there are stages from it to the end, then a backward
 * and a forward take turns.
 *
 *     rank 0   F0 F1 .. .. B0 -- F2 B1 -- F3 B2 -- .. B3 --
 *     rank 1   .. F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- .. ..
 *
 * Cost: the bubble of gpipe; rank r of p holds at most p - r activations.
 */
#include "parallel/pipeline/pipeline_schedule.h"

void tt_pipeline_plan_1f1b(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const int ahead = shape->ranks - rank; /* forwards in front of the first backward */
    for (int b = 0; b < shape->total + ahead; b++) {
        if (b >= ahead) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_B, 0, b - ahead);
        }
        if (b < shape->total) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_F, 0, b);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_1f1b = {
    .name = "1f1b",
    .about = "one forward, one backward; holds the activations of at most `ranks` micro-batches",
    .source = "Narayanan et al., \"PipeDream\", 2019; \"Memory-Efficient Pipeline-Parallel DNN "
              "Training\", 2021",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .plan = tt_pipeline_plan_1f1b,
};
