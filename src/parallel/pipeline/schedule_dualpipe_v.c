/* dualpipe-v: two stages a rank in a V; a forward of one stage and a backward of the other stand
 * side by side, so that the messages of one can travel while the other computes.
 *
 *     1  2 (p - r - 1) × Fa               5  (p - r - 1) × (Bb, Fb Ba)
 *     2  (r + 1) × (Fa Fb)                6  (r + 1) × (Bb Ba), the second half split, W waits
 *     3  (p - r - 1) × (Ib Wb Fb)         7  (p - r - 1) × (W Ia)
 *     4  (m - 2 p + r + 1) × (Fa Bb, Fb Ba)   8  the Ws that are left
 *
 * a, b: first and second stage of rank r of p; m micro-batches.
 *
 * Cost: bubble (p / 2 - 1)(F + B - 3 W) in time, p + 1 activations of a rank's two stages.
 */
#include "parallel/pipeline/pipeline_schedule.h"

typedef struct {
    tt_pipeline_emit_t *emit;
    int forwards[2], backwards[2]; /* per stage of the rank */
} rank_t;

static void emit_forward(rank_t *rank, int chunk)
{
    tt_pipeline_emit(rank->emit, TUTTI_PIPELINE_F, chunk, rank->forwards[chunk]++);
}

static void emit_backward(rank_t *rank, int chunk, bool is_split)
{
    tt_pipeline_emit(rank->emit, is_split ? TUTTI_PIPELINE_I : TUTTI_PIPELINE_B, chunk,
                     rank->backwards[chunk]++);
}

static void begin(rank_t *rank, int r, int behind)
{
    for (int i = 0; i < 2 * behind; i++) {
        emit_forward(rank, 0);
    }
    for (int i = 0; i < r + 1; i++) {
        emit_forward(rank, 0);
        emit_forward(rank, 1);
    }
    for (int i = 0; i < behind; i++) {
        emit_backward(rank, 1, true);
        tt_pipeline_emit_weight(rank->emit);
        emit_forward(rank, 1);
    }
}

static void go_on(rank_t *rank, int both, int behind)
{
    for (int i = 0; i < both; i++) {
        emit_forward(rank, 0);
        emit_backward(rank, 1, false);
        emit_forward(rank, 1);
        emit_backward(rank, 0, false);
    }
    for (int i = 0; i < behind; i++) {
        emit_backward(rank, 1, false);
        emit_forward(rank, 1);
        emit_backward(rank, 0, false);
    }
}

static void end(rank_t *rank, int r, int behind)
{
    const int half = (r + 1) / 2;
    for (int i = 0; i < r + 1; i++) {
        emit_backward(rank, 1, i > half || (i == half && r % 2 == 1));
        emit_backward(rank, 0, i >= half);
    }
    for (int i = 0; i < behind; i++) {
        tt_pipeline_emit_weight(rank->emit);
        emit_backward(rank, 0, true);
    }
    for (int i = 0; i < r + 1; i++) {
        tt_pipeline_emit_weight(rank->emit);
    }
}

static void plan_dualpipe_v(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int r)
{
    rank_t rank = {.emit = emit};
    const int behind = shape->ranks - 1 - r;
    begin(&rank, r, behind);
    go_on(&rank, shape->total - 2 * shape->ranks + r + 1, behind);
    end(&rank, r, behind);
}

static bool fits_dualpipe_v(const tt_pipeline_shape_t *shape)
{
    return shape->total >= 2 * shape->ranks;
}

const tt_pipeline_ops_t tt_pipeline_dualpipe_v = {
    .name = "dualpipe-v",
    .about = "two stages a rank in a V, a forward beside each backward to hide its messages",
    .source = "DeepSeek-AI, \"DualPipe\", 2025",
    .per_rank_min = 2,
    .per_rank_max = 2,
    .is_v = true,
    .is_split = true,
    .want = "at least one for each stage",
    .fits = fits_dualpipe_v,
    .plan = plan_dualpipe_v,
};
