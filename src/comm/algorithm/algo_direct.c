/* direct: all ranks are local ranks and raise a flag that says where their memory is; each then
 * reads and writes what it needs of the others' memory, and a second flag says that it is done with
 * it. One round.
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

static tt_slice_t owned(const tt_plan_t *plan, const tt_plan_request_t *request)
{
    return plan->collective == TT_REDUCE_SCATTER
               ? tt_plan_part(request, plan->rank)
               : tt_plan_slice(plan->count, plan->size, plan->rank);
}

static void prepare_direct(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective) && owned(plan, request).count > 0) {
        tt_plan_sum_pieces(plan, request, plan->size);
    }
}

/* What the root of a broadcast puts. Two ranks that move half of 64 KiB each take 0.7 of the time
 * of one that moves it all; of 16 KiB, whose lines go to and fro, 1.1. */
static tt_slice_t put_by_root(const tt_plan_request_t *request)
{
    enum { PUT_FROM = 8192 };
    return request->count < PUT_FROM ? (tt_slice_t){0, 0}
                                     : tt_plan_slice(request->count, request->size, request->root);
}

static void get(tt_plan_t *plan, size_t begin, size_t end)
{
    tt_plan_get(plan, (tt_source_t){plan->root, tt_piece_at(0, begin)}, tt_out_at(begin),
                end - begin);
}

static void add_broadcast(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t put = put_by_root(request);
    if (plan->rank != plan->root) {
        get(plan, 0, put.begin);
        get(plan, put.begin + put.count, plan->count);
        return;
    }
    get(plan, 0, plan->count); /* out of its own piece; in place nothing moves */
    for (int i = 1; i < plan->size; i++) {
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_PUT,
                                      .peer = tt_plan_peer(plan, i),
                                      .src = tt_piece_at(0, put.begin),
                                      .dst = tt_out_at(put.begin),
                                      .count = put.count});
    }
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    (void)at;
    if (plan->collective == TT_BROADCAST) {
        add_broadcast(plan, request);
        return;
    }
    if (!tt_collective_reduces(plan->collective)) {
        tt_plan_get_all(plan, request);
        return;
    }
    const tt_slice_t slice = owned(plan, request);
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    const tt_target_t to = is_scatter                      ? TT_TO_ME
                           : plan->collective == TT_REDUCE ? TT_TO_PEER
                                                           : TT_TO_LOCAL_RANKS;
    tt_plan_reduce(plan, (tt_sum_at_t){.piece = slice.begin, .to = to, .peer = plan->root},
                   tt_out_at(is_scatter ? 0 : slice.begin), slice.count);
}

static bool fits_direct(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged &&
           !tt_collective_is_prefix(request->collective);
}

const tt_algorithm_t tt_algorithm_direct = {
    .name = "direct",
    .about = "every rank reads what it needs out of the others' memory",
    .source = "Hashmi et al., IPDPS 2018",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .fits = fits_direct,
    .prepare = prepare_direct,
    .phase = add_phase,
};
