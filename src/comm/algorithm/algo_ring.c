/* ring: every rank sends to the next rank and receives from the one before. Slice j of the sum
 * begins at rank j + 1 and goes once around, every rank adding its own piece; the order of a sum
 * depends on the slice that an element falls into, so that these sums are not canonical.
 *
 *     round 2s        send slice rank - s - 1 as far as it has come, receive slice rank - s - 2;
 *                     widen my own piece of that slice meanwhile (s > 0)
 *     round 2s + 1    add the two
 *     then            all_reduce, all_gather: in round s send slice rank - s, receive rank - s - 1
 *
 * Cost of an all_reduce: 3 (size - 1) rounds, 2 N (size - 1) / size elements sent. Source:
 * Patarasuk, Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static tt_slice_t slice_of(const tt_plan_t *plan, int index)
{
    const int size = plan->size, owner = (index + 2 * size) % size;
    return plan->collective == TT_ALL_REDUCE ? tt_plan_slice(plan->count, size, owner)
                                             : tt_plan_part(&plan->request, owner);
}

static size_t longest(const tt_plan_t *plan)
{
    return plan->collective == TT_ALL_REDUCE ? slice_of(plan, 0).count
                                             : tt_plan_part_max(&plan->request);
}

/* Sums, and the parts of the sum buffer: as far as mine have come, what was received, my own piece
 * widened. */
enum { SUM_WIDEN, SUM_FIRST, SUM_NEXT, SUM_LAST };
enum { MINE, RECEIVED, WIDENED };

static tt_part_t sums_at(const tt_plan_t *plan, int which)
{
    return tt_part_at(TT_BUFFER_SUM, (size_t)which * longest(plan));
}

static void make_sums(tt_plan_t *plan)
{
    const tt_source_t own = {plan->rank, tt_piece_at(0, 0)};
    const tt_source_t first[] = {{plan->rank, tt_part_at(TT_BUFFER_SCRATCH, 0)}, own};
    const tt_source_t next[] = {{plan->rank, sums_at(plan, RECEIVED)},
                                {plan->rank, sums_at(plan, WIDENED)}};
    tt_plan_add_plain_sum(plan, &own, 1, true);
    tt_plan_add_plain_sum(plan, first, 2, plan->size > 2);
    tt_plan_add_plain_sum(plan, next, 2, true);
    tt_plan_add_plain_sum(plan, next, 2, false);
}

/* Step s: a slice goes on, another one comes, and what I have of that is added. */
static void exchange(tt_plan_t *plan, int s)
{
    const tt_slice_t sent = slice_of(plan, plan->rank - s - 1);
    const tt_slice_t received = slice_of(plan, plan->rank - s - 2);
    const bool is_first = s == 0;
    tt_plan_send(plan, tt_plan_peer(plan, 1),
                 is_first ? tt_piece_at(0, sent.begin) : sums_at(plan, MINE), sent.count);
    tt_plan_recv(plan, tt_plan_peer(plan, -1),
                 is_first ? tt_part_at(TT_BUFFER_SCRATCH, 0) : sums_at(plan, RECEIVED),
                 received.count);
    if (!is_first) {
        tt_plan_reduce(plan, (tt_sum_at_t){SUM_WIDEN, .piece = received.begin},
                       sums_at(plan, WIDENED), received.count);
    }
}

static void add_up(tt_plan_t *plan, int s)
{
    const bool is_last = s == plan->size - 2;
    const tt_slice_t slice = slice_of(plan, plan->rank - s - 2);
    const size_t out = plan->collective == TT_ALL_REDUCE ? slice.begin : 0;
    const int sum = s == 0 ? SUM_FIRST : is_last ? SUM_LAST : SUM_NEXT;
    tt_plan_reduce(plan, (tt_sum_at_t){sum, .piece = slice.begin},
                   is_last ? tt_out_at(out) : sums_at(plan, MINE), slice.count);
}

/* Step s of passing results around; my own slice is in my piece, or already in out. */
static void pass_on(tt_plan_t *plan, int s)
{
    const tt_slice_t sent = slice_of(plan, plan->rank - s);
    const tt_slice_t received = slice_of(plan, plan->rank - s - 1);
    const bool is_own = s == 0 && plan->collective == TT_ALL_GATHER;
    if (is_own) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(sent.begin), sent.count);
    }
    tt_plan_send(plan, tt_plan_peer(plan, 1), is_own ? tt_piece_at(0, 0) : tt_out_at(sent.begin),
                 sent.count);
    tt_plan_recv(plan, tt_plan_peer(plan, -1), tt_out_at(received.begin), received.count);
}

static void prepare_ring(tt_plan_t *plan)
{
    const int steps = plan->size - 1;
    const bool adds = plan->collective != TT_ALL_GATHER;
    if (plan->collective != TT_REDUCE_SCATTER) {
        tt_plan_add_loop(
            plan,
            (tt_plan_loop_t){.begin = adds ? 2 * steps : 0, .chunks = steps, .phases = {pass_on}});
    }
    if (adds) {
        const size_t most = longest(plan);
        tt_plan_reserve(plan, TT_BUFFER_SCRATCH, most);
        tt_plan_reserve(plan, TT_BUFFER_SUM, plan->size > 2 ? 3 * most : 0);
        make_sums(plan);
        tt_plan_add_loop(
            plan, (tt_plan_loop_t){.chunks = steps, .stride = 2, .phases = {exchange, add_up}});
    }
}

const tt_algorithm_t tt_algorithm_ring = {
    .name = "ring",
    .about = "slices go around, every rank sends to the next rank",
    .source = "Patarasuk, Yuan 2009",
    .is_canonical = false,
    .collectives = 1 << TT_ALL_REDUCE | 1 << TT_REDUCE_SCATTER | 1 << TT_ALL_GATHER,
    .needs_several_ranks = true,
    .needs_single_pieces = true,
    .prepare = prepare_ring,
};
