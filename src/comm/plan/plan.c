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
    plan->pieces_of = tt_alloc_array((size_t)plan->size, sizeof(int), "pieces of a plan");
    TT_TRY_ALLOC(plan->pieces_of);
    plan->pieces_of_rank_max = 0;
    for (int rank = 0; rank < plan->size; rank++) {
        const int own = tt_plan_pieces_of(request, rank);
        plan->pieces_of[rank] = own;
        plan->pieces_of_rank_max = own > plan->pieces_of_rank_max ? own : plan->pieces_of_rank_max;
    }
    return TUTTI_OK;
}

static void add_up(const size_t *counts, int size, size_t *begins)
{
    for (int rank = 0; rank < size; rank++) {
        begins[rank + 1] = begins[rank] + counts[rank];
    }
}

/* Uneven parts: where each begins. */
static tutti_status_t lay_out_parts(tt_plan_t *plan)
{
    tt_plan_request_t *request = &plan->request;
    const size_t entries = (size_t)plan->size + 1;
    plan->parts = tt_alloc_array(2 * entries, sizeof(size_t), "parts of a plan");
    TT_TRY_ALLOC(plan->parts);
    add_up(request->counts, plan->size, plan->parts);
    request->begins = plan->parts;
    if (request->recv_counts != NULL) {
        add_up(request->recv_counts, plan->size, plan->parts + entries);
        request->recv_begins = plan->parts + entries;
    }
    return TUTTI_OK;
}

static tutti_status_t make_steps(tt_plan_t *plan)
{
    if (plan->algorithm->state_bytes > 0) {
        plan->state = tt_alloc(plan->algorithm->state_bytes, "state of a plan");
        TT_TRY_ALLOC(plan->state);
    }
    if (plan->algorithm->prepare != NULL) {
        plan->algorithm->prepare(plan, &plan->request);
    }
    return plan->status < 0 ? plan->status : tt_plan_unroll(plan);
}

static tutti_status_t fill_plan(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(request->collective)) {
        TT_TRY(check_leaves(request, plan->leaves));
        TT_TRY(count_pieces(plan, request));
    }
    if (!plan->algorithm->fits(request)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: algorithm %s cannot do this call",
                       tt_collective_name(request->collective), plan->algorithm->name);
    }
    if (request->counts != NULL) {
        TT_TRY(lay_out_parts(plan));
    }
    return make_steps(plan);
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
                        .is_staged = request->is_staged,
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
    if (plan->state != NULL && plan->algorithm->close != NULL) {
        plan->algorithm->close(plan->state);
    }
    tt_free(plan->state);
    for (int i = 0; i < plan->sum_count; i++) {
        tt_free(plan->sums[i].is_prefix ? NULL : plan->sums[i].sources);
        tt_free(plan->sums[i].merges);
    }
    tt_free(plan->sums);
    tt_free(plan->steps);
    tt_free(plan->round_starts);
    tt_free(plan->pieces_of);
    tt_free(plan->parts);
    tt_free(plan);
}
