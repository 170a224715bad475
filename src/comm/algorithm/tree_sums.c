/* Adding up along a binomial tree of ranks, so that the sum is canonical for any leaf map.
 *
 * In level k the blocks of 2^k ranks [lo, mid) and [mid, hi) become one. Each block has a holder:
 * the root, or the block's first rank if the root is elsewhere. It holds the largest nodes of the
 * canonical tree inside the block's leaves; with aligned leaves that is one.
 *
 *     round 2k        one of the two holders sends its nodes to the other
 *     round 2k + 1    the other adds up what has become a larger node; in the last level, all
 *
 * Nodes travel as unfinished sums, but for the pieces themselves in level 0, which are widened in
 * round 1 if nothing is added to them.
 */
#include "comm/algorithm/tree_plans.h"

typedef struct {
    tt_plan_term_t terms[2 * TT_TREE_DEPTH_MAX];
    int count;
} hold_t;

static int clip(int rank, int size)
{
    return rank < size ? rank : size;
}

static int holder(int root, int lo, int hi)
{
    return root >= lo && root < hi ? root : lo;
}

/* Two blocks that become one around `rank`; false if the second one is empty. */
typedef struct {
    int lo, mid, hi;
    int sender, receiver;
} merge_t;

static bool find_merge(const tt_plan_request_t *request, int root, int rank, int k, merge_t *merge)
{
    merge->lo = rank >> (k + 1) << (k + 1);
    merge->mid = clip(merge->lo + (1 << k), request->size);
    merge->hi = clip(merge->lo + (2 << k), request->size);
    const int left = holder(root, merge->lo, merge->mid);
    const int right = holder(root, merge->mid, merge->hi);
    merge->receiver = holder(root, merge->lo, merge->hi);
    merge->sender = merge->receiver == left ? right : left;
    return merge->mid < merge->hi;
}

static int find_nodes(const tt_plan_request_t *request, int lo, int hi, tt_leaves_t *nodes)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return tt_tree_pieces(leaves, tt_plan_first_leaf(request, lo), tt_plan_first_leaf(request, hi),
                          nodes);
}

static void send_nodes(tt_plan_t *plan, int peer, const hold_t *hold)
{
    for (int i = 0; i < hold->count; i++) {
        tt_plan_send(plan, peer, hold->terms[i].source.part, plan->count);
    }
}

/* Puts the nodes of the sender's block in front of mine, or behind them. */
static void recv_nodes(tt_plan_t *plan, const tt_plan_request_t *request, int k,
                       const merge_t *merge, hold_t *hold)
{
    const bool is_left = merge->sender < merge->mid;
    const tt_buffer_t buffer = k == 0 ? TT_BUFFER_SCRATCH : TT_BUFFER_SUM;
    tt_leaves_t nodes[TT_TREE_DEPTH_MAX];
    const int count = find_nodes(request, is_left ? merge->lo : merge->mid,
                                 is_left ? merge->mid : merge->hi, nodes);
    for (int i = hold->count - 1; is_left && i >= 0; i--) {
        hold->terms[i + count] = hold->terms[i];
    }
    for (int i = 0; i < count; i++) {
        const tt_part_t part = tt_part_at(buffer, tt_plan_reserve(plan, buffer, plan->count));
        tt_plan_recv(plan, merge->sender, part, plan->count);
        hold->terms[is_left ? i : hold->count + i] = (tt_plan_term_t){nodes[i], {plan->rank, part}};
    }
    hold->count += count;
}

/* One term for each group of terms that adds up to a node, as a sum; those that are sums are left
 * where they are. */
static void regroup(tt_plan_t *plan, hold_t *hold)
{
    int ends[2 * TT_TREE_DEPTH_MAX];
    const int groups = tt_plan_group_terms(plan->leaves, hold->terms, hold->count, ends);
    for (int g = 0, begin = 0; g < groups; begin = ends[g++]) {
        const tt_plan_term_t *first = &hold->terms[begin];
        const tt_leaves_t node = {first->leaves.begin, hold->terms[ends[g] - 1].leaves.end};
        tt_source_t source = first->source;
        const bool is_sum = source.part.buffer == TT_BUFFER_SUM;
        if (!is_sum) {
            source.part =
                tt_part_at(TT_BUFFER_SUM, tt_plan_reserve(plan, TT_BUFFER_SUM, plan->count));
        }
        if (!is_sum || ends[g] - begin > 1) {
            const int sum = tt_plan_add_sum(plan, first, ends[g] - begin, true);
            tt_plan_reduce(plan, (tt_sum_at_t){.sum = sum}, source.part, plan->count);
        }
        hold->terms[g] = (tt_plan_term_t){node, source};
    }
    hold->count = groups;
}

void tt_tree_list_reduce(tt_plan_t *plan, const tt_plan_request_t *request, int root)
{
    const int levels = tt_log2_ceil(plan->size);
    hold_t hold;
    hold.count =
        tt_plan_piece_terms(request, plan->rank, plan->rank + 1, TT_BUFFER_PIECE, 0, hold.terms);
    for (int k = 0; k < levels; k++) {
        merge_t merge;
        const bool has_two = find_merge(request, root, plan->rank, k, &merge);
        tt_plan_open_round(plan, 2 * k);
        if (has_two && plan->rank == merge.sender) {
            send_nodes(plan, merge.receiver, &hold);
            return;
        }
        if (has_two) {
            recv_nodes(plan, request, k, &merge, &hold);
        }
        tt_plan_open_round(plan, 2 * k + 1);
        if (k < levels - 1) {
            regroup(plan, &hold);
        }
    }
    const int sum = tt_plan_add_sum(plan, hold.terms, hold.count, false);
    tt_plan_reduce(plan, (tt_sum_at_t){.sum = sum}, tt_out_at(0), plan->count);
}
