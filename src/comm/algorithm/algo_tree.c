/* tree: a binomial tree of ranks. Few messages for small parts, any number of ranks, any root.
 *
 *     broadcast         in round k the 2^k ranks that have it send it 2^k places further on
 *     reduce            the other way round, in the canonical order (tree_sums.c)
 *     all_reduce        reduce to rank 0, then broadcast
 *     gather, scatter   tree_parts.c
 *
 * Cost of a broadcast: ceil(log2(size)) rounds, and as many times N sent by the root. Source:
 * Thakur, Rabenseifner, Gropp 2005 (binomial trees).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/tree_plans.h"

/* Of what the root has in `from`; others get it into their out. */
static void broadcast(tt_plan_t *plan, int root, int first_round, tt_buffer_t from)
{
    const int size = plan->size, address = (plan->rank - root + size) % size;
    for (int k = 0; 1 << k < size; k++) {
        const int step = 1 << k;
        if (address < step && address + step < size) {
            tt_plan_send(plan, first_round + k, (plan->rank + step) % size,
                         tt_part_at(address == 0 ? from : TT_BUFFER_OUT, 0), plan->count);
        } else if (address >= step && address < 2 * step) {
            tt_plan_recv(plan, first_round + k, (plan->rank - step + size) % size,
                         tt_part_at(TT_BUFFER_OUT, 0), plan->count);
        }
    }
}

static void plan_tree(tt_plan_t *plan, const tt_plan_request_t *request)
{
    switch (plan->collective) {
    case TT_BROADCAST:
        if (plan->rank == plan->root) {
            tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, 0), plan->count);
        }
        broadcast(plan, plan->root, 0, TT_BUFFER_PIECE);
        return;
    case TT_REDUCE:
        tt_tree_plan_reduce(plan, request, plan->root);
        return;
    case TT_ALL_REDUCE:
        tt_tree_plan_reduce(plan, request, 0);
        broadcast(plan, 0, 2 * tt_log2_ceil(plan->size), TT_BUFFER_OUT);
        return;
    default:
        tt_tree_plan_parts(plan, request);
        return;
    }
}

static bool fits_tree(const tt_plan_request_t *request)
{
    switch (request->collective) {
    case TT_BROADCAST:
    case TT_REDUCE:
    case TT_ALL_REDUCE:
    case TT_GATHER:
    case TT_SCATTER:
        return !request->is_staged;
    default:
        return false;
    }
}

/* To how many a rank sends in a broadcast. */
static int children(int size, int address)
{
    int count = 0;
    for (int k = 0; 1 << k < size; k++) {
        count += address < 1 << k && address + (1 << k) < size;
    }
    return count;
}

static tt_plan_cost_t cost_tree(const tt_plan_request_t *request)
{
    const int size = request->size, levels = tt_log2_ceil(size);
    const bool is_all = request->collective == TT_ALL_REDUCE;
    const bool adds = is_all || request->collective == TT_REDUCE;
    if (!adds && request->collective != TT_BROADCAST) {
        return tt_tree_parts_cost(request);
    }
    tt_plan_cost_t cost = {.rounds =
                               levels * ((adds ? 2 : 0) + (request->collective != TT_REDUCE))};
    cost.rounds = levels > 0 ? cost.rounds : 1;
    const int root = is_all ? 0 : request->root;
    for (int rank = 0; rank < size; rank++) {
        const int below =
            request->collective != TT_REDUCE ? children(size, (rank - root + size) % size) : 0;
        const size_t sent =
            (adds ? tt_tree_reduce_sent(request, root, rank) : 0) + request->count * (size_t)below;
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_tree = {
    .name = "tree",
    .about = "a binomial tree of ranks: few messages, any number of ranks",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_tree,
    .plan = plan_tree,
    .cost = cost_tree,
};
