/* interleaved-zb: interleaved, with the backward cut into I and W. Rank r keeps r Ws waiting, which
 * fill the time until the last micro-batches come back.
 *
 * Cost: forwards ahead are (p - 1 - r) fewer than interleaved's, since an I comes back sooner.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static void plan_interleaved_zb(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape,
                                int rank)
{
    const tt_pipeline_rounds_t rounds = tt_pipeline_rounds(shape);
    const int count = shape->total * shape->per_rank;
    const int ahead = (shape->per_rank - 1) * rounds.per_round + shape->ranks - 1 - rank;
    for (int i = 0; i < count + ahead + rank; i++) {
        if (i < count) {
            tt_pipeline_emit_forward(emit, &rounds, i);
        }
        if (i >= ahead && i - ahead < count) {
            tt_pipeline_emit_backward(emit, &rounds, TUTTI_PIPELINE_I, i - ahead);
        }
        if (i >= ahead + rank) {
            tt_pipeline_emit_weight(emit);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_interleaved_zb = {
    .name = "interleaved-zb",
    .about = "interleaved, with the gradients of weights put where a rank would wait",
    .source = "Qi et al., \"Zero Bubble Pipeline Parallelism\", 2023; PyTorch's "
              "ScheduleInterleavedZeroBubble",
    .per_rank_min = 2,
    .is_split = true,
    .want = "whole rounds of at least one micro-batch for each rank",
    .fits = tt_pipeline_are_rounds,
    .plan = plan_interleaved_zb,
};
