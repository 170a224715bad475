/* Making plans: checking the request, laying out the pieces of all ranks, asking the algorithm. */
#include "comm/coll/plan.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/tree_reduce.h"

enum { SLICE_GRAIN = 64 };

const tt_algorithm_t *const tt_algorithms[] = {
#define X(name) &tt_algorithm_##name,
#include "comm/coll/algorithms.def"
#undef X
    NULL,
};

const char *tt_collective_name(tt_collective_t collective)
{
    static const char *const names[] = {
#define X(identifier, name, reduces, piece_elements, out_elements) name,
#include "comm/coll/collectives.def"
#undef X
    };
    return (unsigned)collective < TT_COLLECTIVE_COUNT ? names[collective] : "?";
}

bool tt_collective_reduces(tt_collective_t collective)
{
    static const bool all[] = {
#define X(identifier, name, reduces, piece_elements, out_elements) reduces,
#include "comm/coll/collectives.def"
#undef X
    };
    return all[collective];
}

size_t tt_collective_piece_elements(tt_collective_t collective, size_t count, int ranks)
{
    const size_t size = (size_t)ranks;
    switch (collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return piece_elements;
#include "comm/coll/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    (void)size;
    return 0;
}

size_t tt_collective_out_elements(tt_collective_t collective, size_t count, int ranks)
{
    const size_t size = (size_t)ranks;
    switch (collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return out_elements;
#include "comm/coll/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    (void)size;
    return 0;
}

const tt_algorithm_t *tt_algorithm_find(const char *name)
{
    for (int i = 0; tt_algorithms[i] != NULL; i++) {
        if (strcmp(tt_algorithms[i]->name, name) == 0) {
            return tt_algorithms[i];
        }
    }
    return NULL;
}

int tt_plan_first_leaf(const tt_plan_request_t *request, int rank)
{
    if (request->first != NULL) {
        return request->first[rank];
    }
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return tt_tree_first_leaf(leaves, request->size, rank);
}

tt_slice_t tt_plan_slice(size_t count, int size, int rank)
{
    const size_t even = (count + (size_t)size - 1) / (size_t)size;
    const size_t grains = (even + SLICE_GRAIN - 1) / SLICE_GRAIN * SLICE_GRAIN;
    const size_t begin = grains * (size_t)rank < count ? grains * (size_t)rank : count;
    const size_t left = count - begin;
    return (tt_slice_t){begin, grains < left ? grains : left};
}

void tt_plan_add(tt_plan_t *plan, tt_step_t step)
{
    if (plan->status < 0 || (step.count == 0 && plan->collective != TT_BARRIER)) {
        return;
    }
    if (plan->step_count == plan->step_capacity) {
        const int capacity = plan->step_capacity > 0 ? plan->step_capacity * 2 : 8;
        tt_step_t *grown =
            tt_realloc(plan->steps, (size_t)capacity * sizeof *grown, "steps of a plan");
        if (grown == NULL) {
            plan->status = TUTTI_ERR_NOMEM;
            return;
        }
        plan->steps = grown;
        plan->step_capacity = capacity;
    }
    plan->steps[plan->step_count++] = step;
    plan->rounds = step.round + 1 > plan->rounds ? step.round + 1 : plan->rounds;
}

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

/* Every rank's pieces, in the order of leaves. */
static tutti_status_t lay_out_pieces(tt_plan_t *plan, const tt_plan_request_t *request)
{
    int count = 0;
    for (int rank = 0; rank < plan->size; rank++) {
        const int own = tt_tree_pieces(plan->leaves, tt_plan_first_leaf(request, rank),
                                       tt_plan_first_leaf(request, rank + 1), NULL);
        plan->pieces_of_rank_max = own > plan->pieces_of_rank_max ? own : plan->pieces_of_rank_max;
        count += own;
    }
    tt_leaves_t *spans = tt_alloc_array((size_t)count, sizeof *spans, "pieces of a plan");
    TT_TRY_ALLOC(spans);
    plan->pieces = tt_alloc_array((size_t)count, sizeof *plan->pieces, "pieces of a plan");
    plan->merges = tt_alloc((size_t)count, "pieces of a plan");
    plan->sources = tt_alloc_array((size_t)count, sizeof *plan->sources, "pieces of a plan");
    plan->pieces_of = tt_alloc_array((size_t)plan->size, sizeof(int), "pieces of a plan");
    if (plan->pieces == NULL || plan->pieces_of == NULL || plan->merges == NULL ||
        plan->sources == NULL) {
        tt_free(spans);
        return TUTTI_ERR_NOMEM;
    }
    for (int rank = 0; rank < plan->size; rank++) {
        tt_leaves_t own[TT_TREE_DEPTH_MAX];
        const int n = tt_tree_pieces(plan->leaves, tt_plan_first_leaf(request, rank),
                                     tt_plan_first_leaf(request, rank + 1), own);
        plan->pieces_of[rank] = n;
        for (int i = 0; i < n; i++) {
            spans[plan->piece_count] = own[i];
            plan->pieces[plan->piece_count++] = (tt_piece_ref_t){rank, i};
        }
    }
    const bool tiles = tt_tree_compile(plan->leaves, spans, count, plan->merges, &plan->depth);
    tt_free(spans);
    TT_ASSERT(tiles);
    return TUTTI_OK;
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
                        .pieces_of_rank_max = request->collective == TT_BARRIER ? 0 : 1};
    if (tt_collective_reduces(request->collective)) {
        TT_TRY_GOTO(plan->status, check_leaves(request, plan->leaves), fail);
        TT_TRY_GOTO(plan->status, lay_out_pieces(plan, request), fail);
    }
    algorithm->plan(plan, request);
    if (plan->status < 0) {
        goto fail;
    }
    *out = plan;
    return TUTTI_OK;
fail:;
    const tutti_status_t status = plan->status;
    tt_plan_release(plan);
    return status;
}

void tt_plan_release(tt_plan_t *plan)
{
    if (plan != NULL) {
        tt_free(plan->steps);
        tt_free(plan->pieces);
        tt_free(plan->pieces_of);
        tt_free(plan->merges);
        tt_free(plan->sources);
        tt_free(plan);
    }
}
