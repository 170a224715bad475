/* tree: a binomial tree of ranks. Few messages for small parts, any number of ranks, any root.
 *
 *     broadcast         in round k the 2^k ranks that have it send it 2^k places further on
 *     reduce            in reverse order, by the canonical tree
 *     all_reduce        reduce to rank 0, then broadcast
 *     gather, scatter   the rank v places behind the root deals with the parts of places
 *                       [v, v + lowest bit of v)
 *
 * Cost of a broadcast: ceil(log2(size)) rounds, and as many times N sent by the root. Source:
 * Thakur, Rabenseifner, Gropp 2005 (binomial trees).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

/* ---- broadcast ---- */

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

/* ---- sums ---- */

/* Sums are canonical for any leaf map. In level k the blocks of 2^k ranks [lo, mid) and [mid, hi)
 * become one. Each block has a holder: the root, or the block's first rank if the root is
 * elsewhere. It holds the largest nodes of the canonical tree inside the block's leaves; with
 * aligned leaves that is one.
 *
 *     round 2k        one of the two holders sends its nodes to the other
 *     round 2k + 1    the other adds up what has become a larger node; in the last level, all
 *
 * Nodes travel as unfinished sums, but for the pieces themselves in level 0, which are widened in
 * round 1 if nothing is added to them.
 */
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

/* Two blocks that become one around this rank; false if the second one is empty. */
typedef struct {
    int lo, mid, hi;
    int sender, receiver;
} merge_t;

static bool find_merge(const tt_plan_t *plan, int root, int k, merge_t *merge)
{
    merge->lo = plan->rank >> (k + 1) << (k + 1);
    merge->mid = clip(merge->lo + (1 << k), plan->size);
    merge->hi = clip(merge->lo + (2 << k), plan->size);
    const int left = holder(root, merge->lo, merge->mid);
    const int right = holder(root, merge->mid, merge->hi);
    merge->receiver = holder(root, merge->lo, merge->hi);
    merge->sender = merge->receiver == left ? right : left;
    return merge->mid < merge->hi;
}

static void send_nodes(tt_plan_t *plan, int peer, const hold_t *hold)
{
    for (int i = 0; i < hold->count; i++) {
        tt_plan_send(plan, peer, hold->terms[i].source.part, plan->count);
    }
}

/* Puts the nodes of the sender's block in front of mine, or behind them. */
static void recv_nodes(tt_plan_t *plan, int k, const merge_t *merge, hold_t *hold)
{
    const bool is_left = merge->sender < merge->mid;
    const tt_buffer_t buffer = k == 0 ? TT_BUFFER_SCRATCH : TT_BUFFER_SUM;
    tt_leaves_t nodes[TT_TREE_DEPTH_MAX];
    const int count = tt_plan_nodes(&plan->request, is_left ? merge->lo : merge->mid,
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

/* The sum at `root`, in its out; 2 ceil(log2(size)) rounds. */
static void reduce(tt_plan_t *plan, int root)
{
    const int levels = tt_log2_ceil(plan->size);
    hold_t hold;
    hold.count = tt_plan_piece_terms(plan, plan->rank, plan->rank + 1, hold.terms);
    for (int k = 0; k < levels; k++) {
        merge_t merge;
        const bool has_two = find_merge(plan, root, k, &merge);
        tt_plan_open_round(plan, 2 * k);
        if (has_two && plan->rank == merge.sender) {
            send_nodes(plan, merge.receiver, &hold);
            return;
        }
        if (has_two) {
            recv_nodes(plan, k, &merge, &hold);
        }
        tt_plan_open_round(plan, 2 * k + 1);
        if (k < levels - 1) {
            regroup(plan, &hold);
        }
    }
    const int sum = tt_plan_add_sum(plan, hold.terms, hold.count, false);
    tt_plan_reduce(plan, (tt_sum_at_t){.sum = sum}, tt_out_at(0), plan->count);
}

/* ---- gather and scatter ---- */

/* A rank that has parts of others keeps them in its scratch, in the order of places; the parts of
 * ranks that end and begin the group again are two messages.
 *
 *     gather    round k: v, whose lowest bit is 2^k, sends what it has to v - 2^k
 *     scatter   in reverse order: round i is for k = L - 1 - i
 */
typedef struct {
    tt_plan_t *plan;
    bool is_gather;
    int place, end; /* it deals with places [place, end) */
} place_t;

static int end_of(int size, int place)
{
    const int lowest = place & -place;
    return place == 0 || place + lowest > size ? size : place + lowest;
}

static int rank_at(const place_t *p, int place)
{
    return (place + p->plan->root) % p->plan->size;
}

static bool is_leaf(const place_t *p)
{
    return p->end - p->place == 1;
}

/* The parts of places [begin, end), together. */
static size_t total(const place_t *p, int begin, int end)
{
    tt_slice_t parts[2] = {{0}};
    const int runs = begin < end ? tt_plan_wrapped_parts(&p->plan->request, rank_at(p, begin),
                                                         end - begin, parts)
                                 : 0;
    return runs > 0 ? parts[0].count + parts[1].count : 0;
}

/* Messages between me and `peer` for the parts of places [begin, end), which lie in the whole
 * buffer if I am the root, else in scratch; a leaf has nothing but its own. */
static void move(const place_t *p, tt_step_kind_t kind, int peer, int begin, int end)
{
    size_t at = total(p, p->place, begin);
    tt_slice_t parts[2];
    const int runs =
        tt_plan_wrapped_parts(&p->plan->request, rank_at(p, begin), end - begin, parts);
    for (int i = 0; i < runs; i++) {
        const tt_buffer_t buffer = p->place != 0 && !is_leaf(p)      ? TT_BUFFER_SCRATCH
                                   : (p->place == 0) == p->is_gather ? TT_BUFFER_OUT
                                                                     : TT_BUFFER_PIECE;
        const tt_part_t mine = tt_part_at(buffer, p->place == 0 ? parts[i].begin
                                                  : is_leaf(p)  ? 0
                                                                : at);
        (kind == TT_STEP_SEND ? tt_plan_send : tt_plan_recv)(p->plan, rank_at(p, peer), mine,
                                                             parts[i].count);
        at += parts[i].count;
    }
}

static void keep_own(const place_t *p)
{
    const tt_slice_t own = tt_plan_part(&p->plan->request, p->plan->rank);
    const tt_part_t piece = tt_piece_at(0, p->place == 0 && !p->is_gather ? own.begin : 0);
    const tt_part_t out = tt_out_at(p->place == 0 && p->is_gather ? own.begin : 0);
    const tt_part_t scratch = tt_part_at(TT_BUFFER_SCRATCH, 0);
    if (p->place == 0) {
        tt_plan_copy(p->plan, piece, out, own.count);
    } else if (!is_leaf(p)) {
        tt_plan_reserve(p->plan, TT_BUFFER_SCRATCH, total(p, p->place, p->end));
        tt_plan_copy(p->plan, p->is_gather ? piece : scratch, p->is_gather ? scratch : out,
                     own.count);
    }
}

static void move_parts(tt_plan_t *plan)
{
    const bool is_gather = plan->collective == TT_GATHER;
    const int levels = tt_log2_ceil(plan->size), place = tt_plan_place(plan);
    const place_t p = {plan, is_gather, place, end_of(plan->size, place)};
    for (int round = 0; round < levels; round++) {
        const int step = 1 << (is_gather ? round : levels - 1 - round), child = place + step;
        tt_plan_open_round(plan, round);
        if (step == 1) {
            keep_own(&p);
        }
        if ((place & (2 * step - 1)) == step) {
            move(&p, is_gather ? TT_STEP_SEND : TT_STEP_RECV, place - step, place, p.end);
        } else if ((place & (2 * step - 1)) == 0 && child < plan->size) {
            move(&p, is_gather ? TT_STEP_RECV : TT_STEP_SEND, child, child,
                 end_of(plan->size, child));
        }
    }
}

static void list_tree(tt_plan_t *plan)
{
    switch (plan->collective) {
    case TT_BROADCAST:
        broadcast(plan, plan->root, 0, TT_BUFFER_PIECE);
        return;
    case TT_REDUCE:
        reduce(plan, plan->root);
        return;
    case TT_ALL_REDUCE:
        reduce(plan, 0);
        broadcast(plan, 0, 2 * tt_log2_ceil(plan->size), TT_BUFFER_OUT);
        return;
    default:
        move_parts(plan);
        return;
    }
}

const tt_algorithm_t tt_algorithm_tree = {
    .name = "tree",
    .about = "a binomial tree of ranks: few messages, any number of ranks",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .collectives =
        1 << TT_BROADCAST | 1 << TT_REDUCE | 1 << TT_ALL_REDUCE | 1 << TT_GATHER | 1 << TT_SCATTER,
    .needs_several_ranks = true,
    .prepare = list_tree,
};
