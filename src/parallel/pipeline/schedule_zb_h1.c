/* zb-h1: 1f1b with the backward cut in two: I goes on to the stage before at once, W waits. Rank r
 * keeps r Ws waiting, so that no rank holds more than the first one.
 *
 *     rank 0   F0 F1 F2 .. .. I0 W0 F3 I1 W1 .. I2 W2 .. I3 W3
 *     rank 1   .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 .. I3 W2 W3 ..
 *     rank 2   .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 .. ..
 *
 * Cost: the bubble's time is (p - 1)(F + I - W), a third of 1f1b's where all are equal; stage i
 * from 1 holds (p - i + 1) M_B + (i - 1) M_W.
 */
#include "parallel/pipeline/pipeline_schedule.h"

static void plan_zb_h1(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const int ahead = shape->ranks - 1 - rank;
    for (int i = 0; i < shape->total + ahead + rank; i++) {
        if (i < shape->total) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_F, 0, i);
        }
        if (i >= ahead && i - ahead < shape->total) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_I, 0, i - ahead);
        }
        if (i >= ahead + rank) {
            tt_pipeline_emit_weight(emit);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_zb_h1 = {
    .name = "zb-h1",
    .about = "1f1b's activations, a third of its bubble",
    .source = "Qi et al., \"Zero Bubble Pipeline Parallelism\", 2023",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .is_split = true,
    .plan = plan_zb_h1,
};
