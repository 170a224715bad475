/* interleaved: 1f1b with several stages a rank, which are taken in rounds (pipeline_rounds.c).
 *
 * Cost: with v stages a rank the bubble's time is (p - 1) / v of a whole rank's work; a rank holds
 * (v - 1) k + 2 (p - 1 - r) + 1 activations of stages, of 1 / v of its layers each.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static void plan_interleaved(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const tt_pipeline_rounds_t rounds = tt_pipeline_rounds(shape);
    const int count = shape->total * shape->per_rank;
    const int ahead = (shape->per_rank - 1) * rounds.per_round + 2 * (shape->ranks - 1 - rank);
    for (int i = 0; i < count + ahead; i++) {
        if (i < count) {
            tt_pipeline_emit_forward(emit, &rounds, i);
        }
        if (i >= ahead) {
            tt_pipeline_emit_backward(emit, &rounds, TUTTI_PIPELINE_B, i - ahead);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_interleaved = {
    .name = "interleaved",
    .about = "1f1b with several stages a rank: a smaller bubble, more messages",
    .source = "Narayanan et al., \"Efficient Large-Scale Language Model Training on GPU "
              "Clusters\", 2021",
    .per_rank_min = 2,
    .want = "whole rounds of at least one micro-batch for each rank",
    .fits = tt_pipeline_are_rounds,
    .plan = plan_interleaved,
};
