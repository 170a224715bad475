/* direct: all ranks are local ranks and raise a flag that says where their memory is; each then
 * reads and writes what it needs of the others' memory, and a second flag says that it is done with
 * it.
 * One round.
 *
 *     all_reduce      rank r owns slice r: reads it out of every piece, evaluates the tree, stores
 *                     the result into every rank's out. Reads N per piece / size, writes N.
 *     reduce          the same, but the root's out alone is written
 *     reduce_scatter  the same, but the slice is rank r's part and only its own out is written
 *     all_gather      gets every rank's piece; gather: the root alone does
 *     broadcast       the root puts its slice of the piece into every rank's out, the others get
 *                     the rest, so that all ranks move as much; a short piece they get whole
 *     scatter         gets a part of the root's piece
 *     all_to_all      gets a part of every rank's piece; where it begins stands in the peer's
 *                     table of counts, unless all counts are equal
 *     barrier         nothing is left to do
 *
 * Source: Hashmi et al., "Designing Efficient Shared Address Space Reduction Collectives for
 * Multi-/Many-cores", IPDPS 2018.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t slice = plan->collective == TT_REDUCE_SCATTER
                                 ? tt_plan_part(request, plan->rank)
                                 : tt_plan_slice(plan->count, plan->size, plan->rank);
    tt_step_t step = {.kind = TT_STEP_REDUCE,
                      .src.offset = slice.begin,
                      .dst = {TT_BUFFER_OUT, 0, slice.begin},
                      .count = slice.count,
                      .sum = tt_plan_sum_pieces(plan, request)};
    if (plan->collective == TT_REDUCE_SCATTER) {
        step.dst.offset = 0;
    } else if (plan->collective == TT_REDUCE) {
        step.peer = plan->root;
        step.to = TT_TO_PEER;
    } else {
        step.to = TT_TO_LOCAL_RANKS;
    }
    tt_plan_add(plan, step);
}

/* What the root of a broadcast puts. Two ranks that move half of 64 KiB each take 0.7 of the time
 * of one that moves it all; of 16 KiB, whose lines go to and fro, 1.1. */
static tt_slice_t put_by_root(const tt_plan_request_t *request)
{
    enum { PUT_FROM = 8192 };
    return request->count < PUT_FROM ? (tt_slice_t){0, 0}
                                     : tt_plan_slice(request->count, request->size, request->root);
}

static void get(tt_plan_t *plan, int peer, size_t begin, size_t end)
{
    tt_plan_get(plan, 0, (tt_source_t){peer, tt_piece_at(0, begin)},
                tt_part_at(TT_BUFFER_OUT, begin), end - begin);
}

static void plan_broadcast(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t put = put_by_root(request);
    if (plan->rank != plan->root) {
        get(plan, plan->root, 0, put.begin);
        get(plan, plan->root, put.begin + put.count, plan->count);
        return;
    }
    get(plan, plan->root, 0, plan->count); /* out of its own piece; in place nothing moves */
    for (int i = 1; i < plan->size; i++) {
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_PUT,
                                      .peer = (plan->root + i) % plan->size,
                                      .src = tt_piece_at(0, put.begin),
                                      .dst = tt_part_at(TT_BUFFER_OUT, put.begin),
                                      .count = put.count});
    }
}

static void plan_direct(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    } else if (plan->collective == TT_BROADCAST) {
        plan_broadcast(plan, request);
    } else {
        tt_plan_get_all(plan, request);
    }
}

static bool fits_direct(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged &&
           !tt_collective_is_prefix(request->collective);
}

static tt_plan_cost_t cost_of_broadcast(const tt_plan_request_t *request)
{
    const size_t slice = put_by_root(request).count;
    const size_t got = request->size > 1 ? request->count - slice : 0;
    const size_t put = slice * (size_t)(request->size - 1);
    return (tt_plan_cost_t){.rounds = 1, .read = put > got ? put : got};
}

static tt_plan_cost_t cost_direct(const tt_plan_request_t *request)
{
    if (request->collective == TT_BROADCAST) {
        return cost_of_broadcast(request);
    }
    if (!tt_collective_reduces(request->collective)) {
        return tt_plan_get_cost(request);
    }
    const int pieces = tt_plan_piece_terms(request, 0, request->size, TT_BUFFER_PIECE, 0, NULL);
    tt_plan_cost_t cost = {.rounds = 1};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t elements = request->collective == TT_REDUCE_SCATTER
                                    ? tt_plan_part(request, rank).count
                                    : tt_plan_slice(request->count, request->size, rank).count;
        const size_t read = elements * (size_t)(pieces - tt_plan_pieces_of(request, rank));
        cost.read = read > cost.read ? read : cost.read;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_direct = {
    .name = "direct",
    .about = "every rank reads what it needs out of the others' memory",
    .source = "Hashmi et al., IPDPS 2018",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .fits = fits_direct,
    .plan = plan_direct,
    .cost = cost_direct,
};
