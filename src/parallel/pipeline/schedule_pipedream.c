/* pipedream: 1f1b that never stops: a stage steps behind each backward, and later forwards use what
 * it has. A backward uses the weights of its forward, which are stashed.
 *
 *     rank 0   F0 F1 .. B0 -- S1 F2 B1 -- S2 F3      S1: the weights' version 1; F2 uses it
 *     rank 1   .. F0 B0 -- S1 F1 B1 -- S2 F2         F1 uses version 1, F2 version 2
 *
 * On stage s from 1 of p, micro-batch t uses weights of version t - p + s; with vertical sync all
 * stages use version t - p + 1, that of stage 1.
 *
 * Cost: no bubble but at begin and end; stage s stashes p - s + 1 versions, all p with vertical
 * sync.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static int version_of(const tt_pipeline_shape_t *shape, int rank, int micro_batch)
{
    const int behind = shape->vertical_sync ? shape->ranks - 1 : shape->ranks - 1 - rank;
    return micro_batch > behind ? micro_batch - behind : 0;
}

static void plan_pipedream(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const int ahead = shape->ranks - rank;
    for (int b = 0; b < shape->total + ahead; b++) {
        const int done = b - ahead;
        if (done >= 0) {
            tt_pipeline_emit_at(emit, TUTTI_PIPELINE_B, 0, done, version_of(shape, rank, done));
            tt_pipeline_emit_step(emit, 0, done, done + 1);
        }
        if (b < shape->total) {
            tt_pipeline_emit_at(emit, TUTTI_PIPELINE_F, 0, b, version_of(shape, rank, b));
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_pipedream = {
    .name = "pipedream",
    .about = "a step behind every micro-batch, at stashed weights; vertical sync as an option",
    .source = "Narayanan et al., \"PipeDream\", 2019",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .is_asynchronous = true,
    .plan = plan_pipedream,
};
