/* looped-bfs: several stages a rank, breadth first: all micro-batches of a stage before those of
 * the rank's next one.
 *
 * Cost: the bubble of interleaved, the activations of gpipe; a stage's parameters are gathered
 * twice a step only, and messages leave one by one.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static void plan_looped_bfs(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    (void)rank;
    for (int chunk = 0; chunk < shape->per_rank; chunk++) {
        for (int b = 0; b < shape->total; b++) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_F, chunk, b);
        }
    }
    for (int chunk = shape->per_rank - 1; chunk >= 0; chunk--) {
        for (int b = 0; b < shape->total; b++) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_B, chunk, b);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_looped_bfs = {
    .name = "looped-bfs",
    .about = "all micro-batches of a stage before the rank's next stage; holds all activations",
    .source = "Lamy-Poirier, \"Breadth-First Pipeline Parallelism\", 2022",
    .per_rank_min = 2,
    .plan = plan_looped_bfs,
};
