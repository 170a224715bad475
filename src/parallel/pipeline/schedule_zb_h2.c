/* zb-h2: as many forwards in front of the first I as fit until it comes back, and as many Ws kept
 * waiting as fill the end: the rows become a parallelogram without a hole.
 *
 *     rank 0   F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
 *     rank 1   .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
 *
 * The first I comes back to rank r of p behind p - 1 - r hops there and back, of F + I and two
 * messages; rank r ends behind rank 0 as much as it begins, and the last I leaves it r hops sooner.
 *
 * Cost: no bubble but the slope where F = I = W; stage i from 1 holds
 * (2 p - 2 i + 1) M_B + (2 i - 2) M_W.
 */
#include "parallel/pipeline/pipeline_schedule.h"

/* Actions of a length that fit into the way of `hops` there and back; at most `most`. */
static int count_fitting(const tutti_pipeline_costs_t *costs, int hops, double length, int most)
{
    const double way = hops * (costs->forward + costs->input + 2 * costs->message);
    const double rounding = 1e-9;
    return way >= length * most ? most : (int)(way / length + rounding);
}

static void plan_zb_h2(tt_pipeline_emit_t *emit, const tt_pipeline_shape_t *shape, int rank)
{
    const tutti_pipeline_costs_t *costs = &shape->costs;
    const int total = shape->total;
    const int ahead = count_fitting(costs, shape->ranks - 1 - rank, costs->forward, total - 1);
    const int kept = count_fitting(costs, rank, costs->weight, total);
    for (int i = 0; i < total + ahead + kept; i++) {
        if (i < total) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_F, 0, i);
        }
        if (i >= ahead && i - ahead < total) {
            tt_pipeline_emit(emit, TUTTI_PIPELINE_I, 0, i - ahead);
        }
        if (i >= ahead + kept) {
            tt_pipeline_emit_weight(emit);
        }
    }
}

const tt_pipeline_ops_t tt_pipeline_zb_h2 = {
    .name = "zb-h2",
    .about = "no bubble, for twice the activations of 1f1b",
    .source = "Qi et al., \"Zero Bubble Pipeline Parallelism\", 2023",
    .per_rank_min = 1,
    .per_rank_max = 1,
    .is_split = true,
    .plan = plan_zb_h2,
};
