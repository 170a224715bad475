/* ring: everyone sends to the next rank and receives from the one before. Slice j of the sum begins
 * at rank j + 1 and goes once around, everyone adding its own piece; the order of a sum depends on
 * the slice that an element falls into, so that these sums are not canonical.
 *
 *     round 2s        send slice rank - s - 1 as far as it has come, receive slice rank - s - 2;
 *                     widen my own piece of that slice meanwhile (s > 0)
 *     round 2s + 1    add the two
 *     then            all_reduce, all_gather: in round s send slice rank - s, receive rank - s - 1
 *
 * Cost of an all_reduce: 3 (size - 1) rounds, 2 N (size - 1) / size elements sent. Source:
 * Patarasuk, Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
 */
#include "comm/coll/plan_steps.h"

static tt_slice_t slice_of(const tt_plan_request_t *request, int index)
{
    const int size = request->size, owner = (index % size + size) % size;
    return request->collective == TT_ALL_REDUCE ? tt_plan_slice(request->count, size, owner)
                                                : tt_plan_part(request, owner);
}

static int next_of(const tt_plan_t *plan)
{
    return (plan->rank + 1) % plan->size;
}

static int last_of(const tt_plan_t *plan)
{
    return (plan->rank - 1 + plan->size) % plan->size;
}

static size_t longest(const tt_plan_request_t *request)
{
    size_t most = 0;
    for (int i = 0; i < request->size; i++) {
        const size_t count = slice_of(request, i).count;
        most = count > most ? count : most;
    }
    return most;
}

/* Where sums lie: as far as mine have come, what was received, my own piece widened. */
typedef struct {
    tt_part_t mine, received, widened;
} sums_t;

static void widen(tt_plan_t *plan, int round, tt_slice_t slice, tt_part_t dst)
{
    const tt_source_t own = {plan->rank, tt_piece_at(0, slice.begin)};
    tt_plan_reduce(plan, round, tt_plan_add_plain_sum(plan, &own, 1, true), dst, slice.count);
}

static void plan_step(tt_plan_t *plan, const tt_plan_request_t *request, const sums_t *sums, int s)
{
    const tt_slice_t sent = slice_of(request, plan->rank - s - 1);
    const tt_slice_t received = slice_of(request, plan->rank - s - 2);
    const bool is_first = s == 0, is_last = s == plan->size - 2;
    const tt_part_t from = is_first ? tt_part_at(TT_BUFFER_SCRATCH, 0) : sums->received;
    const tt_part_t own = is_first ? tt_piece_at(0, received.begin) : sums->widened;
    tt_plan_send(plan, 2 * s, next_of(plan), is_first ? tt_piece_at(0, sent.begin) : sums->mine,
                 sent.count);
    tt_plan_recv(plan, 2 * s, last_of(plan), from, received.count);
    if (!is_first) {
        widen(plan, 2 * s, received, sums->widened);
    }
    const tt_source_t sources[] = {{plan->rank, from}, {plan->rank, own}};
    const size_t out = plan->collective == TT_ALL_REDUCE ? received.begin : 0;
    tt_plan_reduce(plan, 2 * s + 1, tt_plan_add_plain_sum(plan, sources, 2, !is_last),
                   is_last ? tt_part_at(TT_BUFFER_OUT, out) : sums->mine, received.count);
}

static void plan_sums(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const size_t most = longest(request);
    const tt_source_t own = {plan->rank, tt_piece_at(0, 0)};
    if (plan->size == 1) {
        tt_plan_reduce(plan, 0, tt_plan_add_plain_sum(plan, &own, 1, false),
                       tt_part_at(TT_BUFFER_OUT, 0), slice_of(request, 0).count);
        return;
    }
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, most);
    tt_plan_reserve(plan, TT_BUFFER_SUM, plan->size > 2 ? 3 * most : 0);
    const sums_t sums = {tt_part_at(TT_BUFFER_SUM, 0), tt_part_at(TT_BUFFER_SUM, most),
                         tt_part_at(TT_BUFFER_SUM, 2 * most)};
    for (int s = 0; s < plan->size - 1; s++) {
        plan_step(plan, request, &sums, s);
    }
}

/* From round `first` on; my own slice is in my piece, or already in out. */
static void pass_around(tt_plan_t *plan, const tt_plan_request_t *request, int first)
{
    const bool is_gather = plan->collective == TT_ALL_GATHER;
    for (int s = 0; s < plan->size - 1; s++) {
        const tt_slice_t sent = slice_of(request, plan->rank - s);
        const tt_slice_t received = slice_of(request, plan->rank - s - 1);
        const tt_part_t src =
            s == 0 && is_gather ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_OUT, sent.begin);
        tt_plan_send(plan, first + s, next_of(plan), src, sent.count);
        tt_plan_recv(plan, first + s, last_of(plan), tt_part_at(TT_BUFFER_OUT, received.begin),
                     received.count);
    }
}

static void plan_ring(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t own = slice_of(request, plan->rank);
    if (plan->collective == TT_ALL_GATHER) {
        tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, own.begin), own.count);
        pass_around(plan, request, 0);
        return;
    }
    plan_sums(plan, request);
    if (plan->collective == TT_ALL_REDUCE) {
        pass_around(plan, request, 2 * (plan->size - 1));
    }
}

static bool fits_ring(const tt_plan_request_t *request)
{
    if (request->is_staged) {
        return false;
    }
    return request->collective == TT_ALL_GATHER ||
           ((request->collective == TT_ALL_REDUCE || request->collective == TT_REDUCE_SCATTER) &&
            tt_plan_has_single_pieces(request));
}

static tt_plan_cost_t cost_ring(const tt_plan_request_t *request)
{
    const bool adds = tt_collective_reduces(request->collective);
    const bool passes = request->collective != TT_REDUCE_SCATTER;
    const int steps = request->size - 1;
    const size_t all = adds && passes ? request->count : tt_plan_all(request);
    tt_plan_cost_t cost = {.rounds = (adds ? 2 * steps : 0) + (passes ? steps : 0)};
    cost.rounds = steps > 0 ? cost.rounds : 1;
    for (int rank = 0; steps > 0 && rank < request->size; rank++) {
        const size_t sent = (adds ? all - slice_of(request, rank).count : 0) +
                            (passes ? all - slice_of(request, rank + 1).count : 0);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_ring = {
    .name = "ring",
    .about = "slices go around, everyone sends to the next rank",
    .source = "Patarasuk, Yuan 2009",
    .is_canonical = false,
    .fits = fits_ring,
    .plan = plan_ring,
    .cost = cost_ring,
};
