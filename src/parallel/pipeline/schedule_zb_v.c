/* zb-v: two stages a rank in a V, so that rank 0 has the first and the last one. The backward
 * begins on the rank where the forward has begun, and no rank waits where F = I = W.
 *
 *     rank 0   stages 0 and 7      a, b: first and second stage of a rank
 *     rank 1   stages 1 and 6      warm-up of rank r: 2 (p - r) - 1 Fa, r × (Fb Fa),
 *     rank 2   stages 2 and 5                         (p - r) × (Fb Ib Wb)
 *     rank 3   stages 3 and 4      then Fa Ia Wa Fb Ib Wb; the last Ws wait for the end
 *
 * The rows are those of at least 2 p - 1 micro-batches; what there is less of is left out.
 *
 * Cost: no bubble but the slope; each rank holds what rank 0 of 1f1b holds.
 */
#include "parallel/pipeline/pipeline_schedule.h"

/* How many actions of each kind there are so far, per stage of the rank. */
typedef struct {
    tt_pipeline_emit_t *emit;
    int total; /* micro-batches; those behind are left out */
    int forwards[2], inputs[2], weights[2];
} rank_t;

static void emit_next(rank_t *rank, tutti_pipeline_kind_t kind, int chunk)
{
    int *next = kind == TUTTI_PIPELINE_F   ? rank->forwards
                : kind == TUTTI_PIPELINE_I ? rank->inputs
                                           : rank->weights;
    if (next[chunk] < rank->total) {
        tt_pipeline_emit(rank->emit, kind, chunk, next[chunk]);
    }
    next[chunk]++;
}

static void emit_backward(rank_t *rank, int chunk)
{
    emit_next(rank, TUTTI_PIPELINE_I, chunk);
    emit_next(rank, TUTTI_PIPELINE_W, chunk);
}

static void warm_up(rank_t *rank, int before, int behind)
{
    for (int i = 0; i < 2 * behind - 1; i++) {
        emit_next(rank, TUTTI_PIPELINE_F, 0);
    }
    for (int i = 0; i < before; i++) {
        emit_next(rank, TUTTI_PIPELINE_F, 1);
        emit_next(rank, TUTTI_PIPELINE_F, 0);
    }
    for (int i = 0; i < behind; i++) {
        emit_next(rank, TUTTI_PIPELINE_F, 1);
        emit_backward(rank, 1);
    }
}

static void cool_down(rank_t *rank, int before, int behind)
{
    for (int i = 0; i < before; i++) {
        emit_next(rank, TUTTI_PIPELINE_I, 0);
        emit_next(rank, TUTTI_PIPELINE_I, 1);
    }
    for (int i = 0; i < behind; i++) {
        emit_backward(rank, 0);
    }
    for (int chunk = 1; chunk >= 0; chunk--) {
        while (rank->weights[chunk] < rank->inputs[chunk]) {
            emit_next(rank, TUTTI_PIPELINE_W, chunk);
        }
    }
}

static void plan_zb_v(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int number)
{
    rank_t rank = {.emit = emit, .total = shape->total};
    const int least = 2 * shape->ranks - 1;
    const int count = shape->total > least ? shape->total : least;
    warm_up(&rank, number, shape->ranks - number);
    while (rank.forwards[1] < rank.forwards[0] || rank.forwards[0] < count) {
        if (rank.forwards[0] < count) {
            emit_next(&rank, TUTTI_PIPELINE_F, 0);
        }
        emit_backward(&rank, 0);
        emit_next(&rank, TUTTI_PIPELINE_F, 1);
        emit_backward(&rank, 1);
    }
    cool_down(&rank, number, shape->ranks - number);
}

const tt_pipeline_ops_t tt_pipeline_zb_v = {
    .name = "zb-v",
    .about = "two stages a rank in a V: no bubble where F = I = W, 1f1b's activations",
    .source = "Qi et al., \"Pipeline Parallelism with Controllable Memory\", 2024",
    .per_rank_min = 2,
    .per_rank_max = 2,
    .is_v = true,
    .is_split = true,
    .plan = plan_zb_v,
};
