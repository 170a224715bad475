/* flag: the pieces lie in the flag lines themselves, so that one hand-over is enough, and every
 * rank computes everything that it wants. What a rank gives in an all_to_all of uneven parts is not
 * known to the others, who would not know where its line has their part.
 *
 * Cost: every rank reads everything; one hand-over instead of two. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"

static bool gets_result(const tt_plan_request_t *request, int rank)
{
    return (request->collective != TT_REDUCE || rank == request->root) &&
           tt_plan_contributors(request, rank) > 0;
}

static void plan_flag(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (!tt_collective_reduces(plan->collective)) {
        tt_plan_get_all(plan, request);
        return;
    }
    if (!gets_result(request, plan->rank)) {
        return;
    }
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    const tt_slice_t slice =
        is_scatter ? tt_plan_part(request, plan->rank) : (tt_slice_t){0, plan->count};
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .src.offset = slice.begin,
                                  .dst.buffer = TT_BUFFER_OUT,
                                  .count = slice.count,
                                  .sum = tt_plan_sum_pieces(plan, request)});
}

static bool fits_flag(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged && tt_plan_can_sum(request) &&
           (request->collective != TT_ALL_TO_ALL || request->counts == NULL);
}

static tt_plan_cost_t cost_flag(const tt_plan_request_t *request)
{
    if (!tt_collective_reduces(request->collective)) {
        return tt_plan_get_cost(request);
    }
    tt_plan_cost_t cost = {.rounds = 1};
    for (int rank = 0; rank < request->size; rank++) {
        const int contributors = tt_plan_contributors(request, rank);
        const int pieces = tt_plan_piece_terms(request, 0, contributors, TT_BUFFER_PIECE, 0, NULL);
        const int own = rank < contributors ? tt_plan_pieces_of(request, rank) : 0;
        const size_t elements = request->collective == TT_REDUCE_SCATTER
                                    ? tt_plan_part(request, rank).count
                                    : request->count;
        const size_t read = gets_result(request, rank) ? elements * (size_t)(pieces - own) : 0;
        cost.read = read > cost.read ? read : cost.read;
    }
    return cost;
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
    .plan = plan_flag,
    .cost = cost_flag,
};
