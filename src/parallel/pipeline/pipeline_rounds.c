/* Rounds: a rank with v stages takes k micro-batches through its first stage, the same k through
 * its second, …, then the next k. Backwards go through the stages from the last to the first.
 *
 *     v = 2, k = 2    forward    a0 a1 b0 b1 a2 a3 b2 b3    a, b: the rank's first, second stage
 *                     backward   b0 b1 a0 a1 b2 b3 a2 a3
 *
 * Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021;
 * rounds of more micro-batches than ranks: torch.distributed.pipelining.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static int count_rounds(const tt_pipeline_shape_t *shape)
{
    return shape->total < shape->ranks ? 1 : shape->total / shape->ranks;
}

bool tt_pipeline_are_rounds(const tt_pipeline_shape_t *shape)
{
    return shape->total % count_rounds(shape) == 0;
}

tt_pipeline_rounds_t tt_pipeline_rounds(const tt_pipeline_shape_t *shape)
{
    return (tt_pipeline_rounds_t){shape->total / count_rounds(shape), shape->per_rank};
}

/* The micro-batch of the index-th forward or backward. */
static int micro_batch_of(const tt_pipeline_rounds_t *rounds, int index)
{
    return index / (rounds->per_round * rounds->per_rank) * rounds->per_round +
           index % rounds->per_round;
}

static int chunk_of(const tt_pipeline_rounds_t *rounds, int index)
{
    return index / rounds->per_round % rounds->per_rank;
}

void tt_pipeline_emit_forward(tt_pipeline_emit_t *emit, const tt_pipeline_rounds_t *rounds,
                              int index)
{
    tt_pipeline_emit(emit, TUTTI_PIPELINE_F, chunk_of(rounds, index),
                     micro_batch_of(rounds, index));
}

void tt_pipeline_emit_backward(tt_pipeline_emit_t *emit, const tt_pipeline_rounds_t *rounds,
                               tutti_pipeline_kind_t kind, int index)
{
    tt_pipeline_emit(emit, kind, rounds->per_rank - 1 - chunk_of(rounds, index),
                     micro_batch_of(rounds, index));
}
