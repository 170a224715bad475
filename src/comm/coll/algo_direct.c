/* Algorithms of one host: direct and flag.
 *
 * direct: all ranks raise a flag that says where their memory is; each then reads what it needs
 * out of the others' memory, and a second flag says that it is done with it.
 *
 *     all_reduce      rank r owns slice r: reads it out of every piece, evaluates the tree, stores
 *                     the result into every rank's out. Reads N per piece / size, writes N.
 *     reduce_scatter  the same, but the slice is rank r's part and only its own out is written
 *     all_gather      pulls every rank's input
 *     broadcast       pulls the root's
 *
 * flag: the pieces lie in the flag lines themselves, so that one hand-over is enough and every rank
 * computes everything.
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

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request, bool is_sliced)
{
    tt_step_t step = {.kind = TT_STEP_REDUCE,
                      .dst.buffer = TT_BUFFER_OUT,
                      .count = plan->count,
                      .sum = add_pieces(plan, request)};
    if (plan->collective == TT_REDUCE_SCATTER) {
        const tt_slice_t part = tt_plan_part(request, plan->rank);
        step.src.offset = part.begin;
        step.count = part.count;
    } else if (is_sliced) {
        const tt_slice_t slice = tt_plan_slice(plan->count, plan->size, plan->rank);
        step.src.offset = step.dst.offset = slice.begin;
        step.count = slice.count;
        step.to_all = true;
    }
    tt_plan_add(plan, step);
}

static void plan_pulls(tt_plan_t *plan, const tt_plan_request_t *request)
{
    for (int i = 0; i < plan->size; i++) {
        /* start at the neighbour, so that not all ranks read the same memory at once */
        const int peer = (plan->rank + i) % plan->size;
        if (plan->collective == TT_BROADCAST && peer != plan->root) {
            continue;
        }
        const tt_slice_t part = plan->collective == TT_ALL_GATHER ? tt_plan_part(request, peer)
                                                                  : (tt_slice_t){0, plan->count};
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_PULL,
                                      .peer = peer,
                                      .dst = {TT_BUFFER_OUT, 0, part.begin},
                                      .count = part.count});
    }
}

static void plan_steps(tt_plan_t *plan, const tt_plan_request_t *request, bool is_sliced)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request, is_sliced);
    } else if (plan->collective != TT_BARRIER) {
        plan_pulls(plan, request);
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

static bool fits_one_host(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged && request->collective <= TT_BARRIER;
}

static size_t piece_count(const tt_plan_request_t *request)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    size_t count = 0;
    for (int rank = 0; rank < request->size; rank++) {
        count += (size_t)tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                                        tt_plan_first_leaf(request, rank + 1), NULL);
    }
    return count;
}

static tt_plan_cost_t cost_of(const tt_plan_request_t *request, size_t reduced)
{
    tt_plan_cost_t cost = {.rounds = request->count > 0};
    switch (request->collective) {
    case TT_ALL_REDUCE:
    case TT_REDUCE_SCATTER:
        cost.read = reduced * piece_count(request);
        break;
    case TT_ALL_GATHER:
        cost.read = request->count * (size_t)request->size;
        break;
    case TT_BROADCAST:
        cost.read = request->count;
        break;
    default:
        cost.rounds = 0;
        break;
    }
    return cost;
}

static tt_plan_cost_t cost_direct(const tt_plan_request_t *request)
{
    const bool is_sliced = request->collective == TT_ALL_REDUCE;
    return cost_of(request, is_sliced ? tt_plan_slice(request->count, request->size, 0).count
                                      : request->count);
}

static tt_plan_cost_t cost_flag(const tt_plan_request_t *request)
{
    return cost_of(request, request->count);
}

const tt_algorithm_t tt_algorithm_direct = {
    .name = "direct",
    .about = "every rank reads what it needs out of the others' memory",
    .source = "Hashmi et al., IPDPS 2018",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .fits = fits_one_host,
    .plan = plan_direct,
    .cost = cost_direct,
};

const tt_algorithm_t tt_algorithm_flag = {
    .name = "flag",
    .about = "small contributions travel inside the flag lines, every rank computes everything",
    .source = "Tutti",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .travels_in_flags = true,
    .fits = fits_one_host,
    .plan = plan_flag,
    .cost = cost_flag,
};
