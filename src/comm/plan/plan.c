/* Making plans: checking the request, laying out the pieces of all ranks, asking the algorithm. */
#include "comm/plan/plan.h"

#include "core/base/alloc.h"

static tutti_status_t check_leaves(const tt_plan_request_t *request, int leaves)
{
    if (leaves < 1 || leaves > TT_TREE_LEAVES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d leaves; want 1 to %d",
                       tt_collective_name(request->collective), leaves, TT_TREE_LEAVES_MAX);
    }
    for (int rank = 0; rank <= request->size; rank++) {
        const int first = tt_plan_first_leaf(request, rank);
        const int before = rank > 0 ? tt_plan_first_leaf(request, rank - 1) : 0;
        if (first < before || first > leaves || (rank == 0 && first != 0) ||
            (rank == request->size && first != leaves)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: first leaf of rank %d is %d; the leaf map must rise from 0 to %d",
                           tt_collective_name(request->collective), rank, first, leaves);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_request(const tt_plan_request_t *request)
{
    const char *name = tt_collective_name(request->collective);
    if (request->size < 1 || request->rank < 0 || request->rank >= request->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d is outside a group of %d", name, request->rank,
                       request->size);
    }
    if (request->root < 0 || request->root >= request->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: root %d is outside a group of %d", name, request->root,
                       request->size);
    }
    return TUTTI_OK;
}

static tutti_status_t count_pieces(tt_plan_t *plan, const tt_plan_request_t *request)
{
    plan->pieces_of = tt_plan_alloc(plan, (size_t)plan->size, sizeof(int));
    TT_TRY_ALLOC(plan->pieces_of);
    plan->pieces_of_rank_max = 0;
    for (int rank = 0; rank < plan->size; rank++) {
        const int own = tt_plan_pieces_of(request, rank);
        plan->pieces_of[rank] = own;
        plan->pieces_of_rank_max = own > plan->pieces_of_rank_max ? own : plan->pieces_of_rank_max;
    }
    return TUTTI_OK;
}

/* Where each of some uneven parts begins; NULL if they are even, or on failure. */
static size_t *lay_out_parts(tt_plan_t *plan, const size_t *counts)
{
    size_t *begins =
        counts == NULL ? NULL : tt_plan_alloc(plan, (size_t)plan->size + 1, sizeof *begins);
    for (int rank = 0; begins != NULL && rank < plan->size; rank++) {
        begins[rank + 1] = begins[rank] + counts[rank];
    }
    return begins;
}

static tutti_status_t fill_plan(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(request->collective)) {
        TT_TRY(check_leaves(request, plan->leaves));
        TT_TRY(count_pieces(plan, request));
    }
    if (!tt_algorithm_fits(plan->algorithm, request)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: algorithm %s cannot do this call",
                       tt_collective_name(request->collective), plan->algorithm->name);
    }
    plan->request.begins = lay_out_parts(plan, request->counts);
    plan->request.recv_begins = lay_out_parts(plan, request->recv_counts);
    if (plan->status >= 0) {
        plan->algorithm->prepare(plan);
    }
    return plan->status < 0 ? plan->status : tt_plan_unroll(plan);
}

tutti_status_t tt_plan_create(const tt_plan_request_t *request, const tt_algorithm_t *algorithm,
                              tt_plan_t **out)
{
    TT_TRY(check_request(request));
    tt_plan_t *plan = tt_alloc(sizeof *plan, "plan");
    TT_TRY_ALLOC(plan);
    *plan = (tt_plan_t){.algorithm = algorithm,
                        .collective = request->collective,
                        .rank = request->rank,
                        .size = request->size,
                        .root = request->root,
                        .leaves = request->leaves > 0 ? request->leaves : request->size,
                        .count = request->count,
                        .request = *request,
                        .pieces_of_rank_max = request->collective == TT_BARRIER ? 0 : 1};
    const tutti_status_t status = fill_plan(plan, request);
    if (status < 0) {
        tt_plan_release(plan);
        return status;
    }
    *out = plan;
    return TUTTI_OK;
}

void tt_plan_release(tt_plan_t *plan)
{
    if (plan == NULL) {
        return;
    }
    tt_plan_free_blocks(plan);
    tt_free(plan->sums);
    tt_free(plan->steps);
    tt_free(plan->round_starts);
    tt_free(plan);
}
