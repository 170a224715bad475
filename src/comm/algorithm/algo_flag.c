/* flag: the pieces lie in the flag lines themselves, so that one hand-over is enough, and every
 * rank computes everything that it wants. What a rank gives in an all_to_all of uneven parts is not
 * known to the others, so that they could not find their part in its line.
 *
 * Cost: every rank reads everything; one hand-over instead of two. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"

static void prepare_flag(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective) && tt_plan_out_elements(request) > 0) {
        tt_plan_sum_pieces(plan, request, tt_plan_contributors(request, plan->rank));
    }
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    (void)at;
    if (!tt_collective_reduces(plan->collective)) {
        tt_plan_get_all(plan, request);
    } else if (plan->sum_count > 0) {
        const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
        const size_t begin = is_scatter ? tt_plan_part(request, plan->rank).begin : 0;
        tt_plan_reduce(plan, (tt_sum_at_t){.piece = begin}, tt_out_at(0),
                       tt_plan_out_elements(request));
    }
}

static bool fits_flag(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged && tt_plan_can_sum(request) &&
           (request->collective != TT_ALL_TO_ALL || request->counts == NULL);
}

const tt_algorithm_t tt_algorithm_flag = {
    .name = "flag",
    .about = "small contributions travel inside the flag lines, every rank computes everything",
    .source = "Tutti",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .travels_in_flags = true,
    .fits = fits_flag,
    .prepare = prepare_flag,
    .phase = add_phase,
};
