/* tree: a binomial tree of ranks. Few messages for small parts, any number of ranks, any root.
 *
 *     broadcast         in round k the 2^k ranks that have it send it 2^k places further on
 *     reduce            in reverse order, by the canonical tree (tree_sums.c)
 *     all_reduce        reduce to rank 0, then broadcast
 *     gather, scatter   tree_parts.c
 *
 * Cost of a broadcast: ceil(log2(size)) rounds, and as many times N sent by the root. Source:
 * Thakur, Rabenseifner, Gropp 2005 (binomial trees).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/tree_plans.h"

/* Of what the root has in `from`; the others get it into their out. */
static void broadcast(tt_plan_t *plan, int root, int first_round, tt_buffer_t from)
{
    const int place = tt_plan_peer(plan, -root);
    for (int k = 0; 1 << k < plan->size; k++) {
        const int step = 1 << k;
        tt_plan_open_round(plan, first_round + k);
        if (place == 0 && k == 0 && from == TT_BUFFER_PIECE) {
            tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
        }
        if (place < step && place + step < plan->size) {
            tt_plan_send(plan, tt_plan_peer(plan, step),
                         tt_part_at(place == 0 ? from : TT_BUFFER_OUT, 0), plan->count);
        } else if (place >= step && place < 2 * step) {
            tt_plan_recv(plan, tt_plan_peer(plan, -step), tt_out_at(0), plan->count);
        }
    }
}

static void list_tree(tt_plan_t *plan, const tt_plan_request_t *request)
{
    switch (plan->collective) {
    case TT_BROADCAST:
        broadcast(plan, plan->root, 0, TT_BUFFER_PIECE);
        return;
    case TT_REDUCE:
        tt_tree_list_reduce(plan, request, plan->root);
        return;
    case TT_ALL_REDUCE:
        tt_tree_list_reduce(plan, request, 0);
        broadcast(plan, 0, 2 * tt_log2_ceil(plan->size), TT_BUFFER_OUT);
        return;
    default:
        tt_tree_list_parts(plan, request);
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
        return tt_plan_can_send(request);
    default:
        return false;
    }
}

const tt_algorithm_t tt_algorithm_tree = {
    .name = "tree",
    .about = "a binomial tree of ranks: few messages, any number of ranks",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_tree,
    .prepare = list_tree,
};
