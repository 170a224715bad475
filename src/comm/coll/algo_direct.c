/* Algorithms of one host: direct and flag.
 *
 * direct: all ranks raise a flag that says where their memory is; each then reads what it needs
 * out of the others' memory, and a second flag says that it is done with it.
 *
 *     all_reduce      rank r owns slice r: reads it out of every piece, evaluates the tree, stores
 *                     the result into every rank's out. Reads N per piece / size, writes N.
 *     reduce          the same, but stored into the root's out alone
 *     reduce_scatter  the same, but the slice is rank r's part and only its own out is written
 *     all_gather      pulls every rank's input
 *     gather          the root does
 *     broadcast       pulls the root's
 *     scatter         pulls its part of the root's
 *     all_to_all      pulls its part of everyone's
 *
 * flag: the pieces lie in the flag lines themselves, so that one hand-over is enough and every rank
 * computes what it needs alone.
 *
 * Source: Tutti; the slices are Hashmi et al., "Designing Efficient Shared Address Space Reduction
 * Collectives for Multi-/Many-cores", IPDPS 2018.
 */
#include "comm/coll/plan.h"
#include "core/base/alloc.h"

static int add_pieces(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int count = tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, NULL);
    tt_plan_term_t *terms = tt_alloc_array((size_t)count, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
        return -1;
    }
    tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, terms);
    const int sum = tt_plan_add_sum(plan, terms, count, false);
    tt_free(terms);
    return sum;
}

/* What rank computes, as offsets into the pieces. */
static tt_slice_t share_of(const tt_plan_request_t *request, int rank, bool is_sliced)
{
    const tt_slice_t all = {0, request->count}, none = {0, 0};
    if (request->collective == TT_REDUCE_SCATTER) {
        return tt_plan_part(request, rank);
    }
    if (is_sliced) {
        return tt_plan_slice(request->count, request->size, rank);
    }
    return request->collective == TT_REDUCE && rank != request->root ? none : all;
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request, bool is_sliced)
{
    const tt_slice_t share = share_of(request, plan->rank, is_sliced);
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    const tt_target_t to = plan->collective == TT_ALL_REDUCE ? TT_TO_MATES
                           : plan->collective == TT_REDUCE   ? TT_TO_PEER
                                                             : TT_TO_ME;
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .peer = plan->root,
                                  .src.offset = share.begin,
                                  .dst = {TT_BUFFER_OUT, 0, is_scatter ? 0 : share.begin},
                                  .count = share.count,
                                  .sum = add_pieces(plan, request),
                                  .to = is_sliced ? to : TT_TO_ME});
}

/* Whether a rank takes something from a peer. */
static bool takes_from(const tt_plan_request_t *request, int rank, int peer)
{
    switch (request->collective) {
    case TT_BROADCAST:
    case TT_SCATTER:
        return peer == request->root;
    case TT_GATHER:
        return rank == request->root;
    default:
        return true;
    }
}

static void plan_pull(tt_plan_t *plan, const tt_plan_request_t *request, int peer)
{
    tt_step_t step = {.kind = TT_STEP_PULL, .peer = peer, .dst.buffer = TT_BUFFER_OUT};
    tt_slice_t whole = {0, request->count};
    if (plan->collective == TT_ALL_GATHER || plan->collective == TT_GATHER) {
        whole = tt_plan_part(request, peer);
        step.dst.offset = whole.begin;
    } else if (plan->collective == TT_SCATTER) {
        whole = tt_plan_part(request, plan->rank);
        step.src.offset = whole.begin;
    } else if (plan->collective == TT_ALL_TO_ALL) {
        whole = tt_plan_recv_part(request, peer);
        step.dst.offset = whole.begin;
        step.src.offset = request->count * (size_t)plan->rank;
        step.src.index = request->counts != NULL ? TT_FROM_TABLE : 0;
    }
    step.count = whole.count;
    tt_plan_add(plan, step);
}

static void plan_steps(tt_plan_t *plan, const tt_plan_request_t *request, bool is_sliced)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request, is_sliced);
        return;
    }
    for (int i = 0; i < plan->size && plan->collective != TT_BARRIER; i++) {
        /* start at the neighbour, so that not all ranks read the same memory at once */
        const int peer = (plan->rank + 1 + i) % plan->size;
        if (takes_from(request, plan->rank, peer)) {
            plan_pull(plan, request, peer);
        }
    }
}

static void plan_direct(tt_plan_t *plan, const tt_plan_request_t *request)
{
    plan_steps(plan, request, true);
}

static void plan_flag(tt_plan_t *plan, const tt_plan_request_t *request)
{
    plan_steps(plan, request, false);
}

static bool fits_direct(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged;
}

/* The others could not find their parts in a flag line. */
static bool fits_flag(const tt_plan_request_t *request)
{
    return fits_direct(request) &&
           !(request->collective == TT_ALL_TO_ALL && request->counts != NULL);
}

/* Elements that a rank reads from others. */
static size_t read_by(const tt_plan_request_t *request, int rank, bool is_sliced)
{
    size_t read = 0;
    for (int peer = 0; peer < request->size; peer++) {
        if (peer == rank || !takes_from(request, rank, peer)) {
            continue;
        }
        if (tt_collective_reduces(request->collective)) {
            read +=
                (size_t)tt_plan_pieces_of(request, peer) * share_of(request, rank, is_sliced).count;
        } else if (request->collective == TT_ALL_TO_ALL) {
            read += tt_plan_recv_part(request, peer).count;
        } else if (request->collective == TT_SCATTER) {
            read += tt_plan_part(request, rank).count;
        } else {
            read += request->collective == TT_BROADCAST ? request->count
                                                        : tt_plan_part(request, peer).count;
        }
    }
    return read;
}

static tt_plan_cost_t cost_of(const tt_plan_request_t *request, bool is_sliced)
{
    tt_plan_cost_t cost = {.rounds = request->collective != TT_BARRIER};
    for (int rank = 0; rank < request->size && request->collective != TT_BARRIER; rank++) {
        const size_t read = read_by(request, rank, is_sliced);
        cost.read = read > cost.read ? read : cost.read;
    }
    return cost;
}

static tt_plan_cost_t cost_direct(const tt_plan_request_t *request)
{
    return cost_of(request, true);
}

static tt_plan_cost_t cost_flag(const tt_plan_request_t *request)
{
    return cost_of(request, false);
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

const tt_algorithm_t tt_algorithm_flag = {
    .name = "flag",
    .about = "small contributions travel inside the flag lines, every rank computes alone",
    .source = "Tutti",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .travels_in_flags = true,
    .fits = fits_flag,
    .plan = plan_flag,
    .cost = cost_flag,
};
