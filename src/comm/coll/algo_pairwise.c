/* pairwise: any number of ranks, any leaf map, any wire.
 *
 *     all_reduce      round 0: everyone sends slice j of each of its pieces to owner j
 *                     round 1: the owner evaluates the tree over what it got and what it has
 *                     round 2: the owner sends its slice of the result to everyone
 *     reduce_scatter  rounds 0 and 1, with the ranks' parts for slices
 *     all_gather      round 0: everyone sends its input to everyone
 *     broadcast       round 0: the root sends slice j to rank j, round 1: everyone sends its slice
 *                     to everyone but the root
 *     barrier         everyone sends an empty message to everyone
 *
 * Cost with one piece per rank: 2 N (size - 1) / size elements sent by each rank in an all_reduce,
 * as a ring's, in 3 rounds of size - 1 messages at once.
 *
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", 2005 (pairwise exchange).
 */
#include "comm/coll/plan.h"
#include "core/base/alloc.h"

/* The part of the result that a rank computes, as offsets into the pieces. */
static tt_slice_t owned(const tt_plan_t *plan, int rank)
{
    if (plan->collective == TT_REDUCE_SCATTER) {
        return (tt_slice_t){plan->count * (size_t)rank, plan->count};
    }
    return tt_plan_slice(plan->count, plan->size, rank);
}

/* Peers in an order that differs from rank to rank, so that not all send to the same one. */
static int peer_at(const tt_plan_t *plan, int i)
{
    return (plan->rank + i) % plan->size;
}

static void send_pieces(tt_plan_t *plan, int own_pieces)
{
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(plan, peer);
        for (int k = 0; k < own_pieces; k++) {
            tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_SEND,
                                          .peer = peer,
                                          .src = {TT_BUFFER_PIECE, k, slice.begin},
                                          .count = slice.count});
        }
    }
}

/* Receives, and where the tree then finds each piece. Returns the sum over all of them. */
static int recv_pieces(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t slice = owned(plan, plan->rank);
    const int count = tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, NULL);
    tt_plan_term_t *terms = tt_alloc_array((size_t)count, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
        return -1;
    }
    tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, terms);
    for (int i = 0; i < count; i++) {
        tt_source_t *source = &terms[i].source;
        if (source->rank == plan->rank) {
            source->part.offset = slice.begin;
            continue;
        }
        const size_t at = tt_plan_reserve(plan, TT_BUFFER_SCRATCH, slice.count);
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_RECV,
                                      .peer = source->rank,
                                      .dst = {TT_BUFFER_SCRATCH, 0, at},
                                      .count = slice.count});
        *source = (tt_source_t){plan->rank, {TT_BUFFER_SCRATCH, 0, at}};
    }
    const int sum = tt_plan_add_sum(plan, terms, count, false);
    tt_free(terms);
    return sum;
}

/* Everyone but `skip` gets my slice of out and gives me its own. */
static void gather_slices(tt_plan_t *plan, int round, int skip)
{
    const tt_slice_t mine = owned(plan, plan->rank);
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        if (peer != skip) {
            tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_SEND,
                                          .round = round,
                                          .peer = peer,
                                          .src = {TT_BUFFER_OUT, 0, mine.begin},
                                          .count = mine.count});
        }
    }
    for (int i = 1; i < plan->size && plan->rank != skip; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t theirs = owned(plan, peer);
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_RECV,
                                      .round = round,
                                      .peer = peer,
                                      .dst = {TT_BUFFER_OUT, 0, theirs.begin},
                                      .count = theirs.count});
    }
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    send_pieces(plan, plan->pieces_of[plan->rank]);
    const int sum = recv_pieces(plan, request);
    const tt_slice_t slice = owned(plan, plan->rank);
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .round = 1,
                                  .dst = {TT_BUFFER_OUT, 0, is_scatter ? 0 : slice.begin},
                                  .count = slice.count,
                                  .sum = sum});
    if (!is_scatter) {
        gather_slices(plan, 2, -1);
    }
}

/* Exchange whole inputs; a barrier's are empty. */
static void plan_exchange(tt_plan_t *plan)
{
    if (plan->collective == TT_ALL_GATHER) {
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_COPY,
                                      .dst = {TT_BUFFER_OUT, 0, plan->count * (size_t)plan->rank},
                                      .count = plan->count});
    }
    for (int i = 1; i < plan->size; i++) {
        tt_plan_add(
            plan,
            (tt_step_t){.kind = TT_STEP_SEND, .peer = peer_at(plan, i), .count = plan->count});
    }
    for (int i = 1; i < plan->size; i++) {
        const size_t offset = plan->count * (size_t)peer_at(plan, i);
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_RECV,
                                      .peer = peer_at(plan, i),
                                      .dst = {TT_BUFFER_OUT, 0, offset},
                                      .count = plan->count});
    }
}

/* The root's piece and out are the same values: it keeps a copy of its own. */
static void plan_broadcast(tt_plan_t *plan)
{
    if (plan->rank == plan->root) {
        tt_plan_add(
            plan,
            (tt_step_t){.kind = TT_STEP_COPY, .dst.buffer = TT_BUFFER_OUT, .count = plan->count});
        for (int i = 1; i < plan->size; i++) {
            const tt_slice_t slice = owned(plan, peer_at(plan, i));
            tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_SEND,
                                          .peer = peer_at(plan, i),
                                          .src = {TT_BUFFER_PIECE, 0, slice.begin},
                                          .count = slice.count});
        }
    } else {
        const tt_slice_t slice = owned(plan, plan->rank);
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_RECV,
                                      .peer = plan->root,
                                      .dst = {TT_BUFFER_OUT, 0, slice.begin},
                                      .count = slice.count});
    }
    gather_slices(plan, 1, plan->root);
}

static void plan_pairwise(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    } else if (plan->collective == TT_BROADCAST) {
        plan_broadcast(plan);
    } else {
        plan_exchange(plan);
    }
}

static bool fits_all(const tt_plan_request_t *request)
{
    return !request->is_staged && request->collective <= TT_BARRIER && request->counts == NULL;
}

static size_t own_pieces(const tt_plan_request_t *request, int rank)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return (size_t)tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                                  tt_plan_first_leaf(request, rank + 1), NULL);
}

/* What a rank sends, in elements. */
static size_t sent_by(const tt_plan_request_t *request, int rank)
{
    const size_t count = request->count, others = (size_t)request->size - 1;
    const size_t own = tt_plan_slice(count, request->size, rank).count;
    switch (request->collective) {
    case TT_ALL_REDUCE:
        return own_pieces(request, rank) * (count - own) + others * own;
    case TT_REDUCE_SCATTER:
        return own_pieces(request, rank) * others * count;
    case TT_ALL_GATHER:
        return others * count;
    case TT_BROADCAST:
        return rank == request->root ? count - own + others * own
                                     : (others > 0 ? others - 1 : 0) * own;
    default:
        break;
    }
    return 0;
}

static tt_plan_cost_t cost_pairwise(const tt_plan_request_t *request)
{
    static const int rounds[] = {[TT_ALL_REDUCE] = 3,
                                 [TT_REDUCE_SCATTER] = 2,
                                 [TT_ALL_GATHER] = 1,
                                 [TT_BROADCAST] = 2,
                                 [TT_BARRIER] = 1};
    tt_plan_cost_t cost = {.rounds = rounds[request->collective]};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t sent = sent_by(request, rank);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_pairwise = {
    .name = "pairwise",
    .about = "the owner of a slice receives it from all, reduces it by the tree, sends it to all",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_all,
    .plan = plan_pairwise,
    .cost = cost_pairwise,
};
