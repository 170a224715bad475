/* Making plans: checking the request, laying out the pieces of all ranks, asking the algorithm. */
#include "comm/coll/plan.h"

#include "core/base/alloc.h"
#include "core/kernel/tree_reduce.h"

enum { SLICE_GRAIN = 64 };

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

bool tt_collective_has_root(tt_collective_t collective)
{
    return collective == TT_BROADCAST || collective == TT_REDUCE || collective == TT_GATHER ||
           collective == TT_SCATTER;
}

/* Parts of all ranks together, after `counts`. */
static size_t sum_parts(const size_t *counts, size_t count, int size)
{
    size_t sum = 0;
    for (int i = 0; counts != NULL && i < size; i++) {
        sum += counts[i];
    }
    return counts != NULL ? sum : count * (size_t)size;
}

size_t tt_plan_piece_elements(const tt_plan_request_t *request)
{
    const size_t part = request->counts != NULL ? request->counts[request->rank] : request->count;
    const size_t all = sum_parts(request->counts, request->count, request->size);
    if (request->collective == TT_SCATTER && request->rank != request->root) {
        return 0;
    }
    switch (request->collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return piece_elements;
#include "comm/coll/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    return 0;
}

size_t tt_plan_out_elements(const tt_plan_request_t *request)
{
    const bool is_exchange = request->collective == TT_ALL_TO_ALL && request->counts != NULL;
    const size_t *counts = is_exchange ? request->recv_counts : request->counts;
    const size_t part = counts != NULL ? counts[request->rank] : request->count;
    const size_t all = sum_parts(counts, request->count, request->size);
    if ((request->collective == TT_REDUCE || request->collective == TT_GATHER) &&
        request->rank != request->root) {
        return 0;
    }
    switch (request->collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return out_elements;
#include "comm/coll/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    return 0;
}

static tt_slice_t part_of(const size_t *counts, size_t count, int rank)
{
    if (counts == NULL) {
        return (tt_slice_t){count * (size_t)rank, count};
    }
    return (tt_slice_t){sum_parts(counts, 0, rank), counts[rank]};
}

tt_slice_t tt_plan_part(const tt_plan_request_t *request, int rank)
{
    return part_of(request->counts, request->count, rank);
}

tt_slice_t tt_plan_recv_part(const tt_plan_request_t *request, int rank)
{
    return part_of(request->counts != NULL ? request->recv_counts : NULL, request->count, rank);
}

int tt_plan_host(const tt_plan_request_t *request, int rank)
{
    return request->hosts != NULL ? request->hosts[rank] : 0;
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

/* Grows an array by one element; false without memory. */
static bool grow(void **array, int count, int *capacity, size_t bytes, const char *what)
{
    if (count < *capacity) {
        return true;
    }
    const int larger = *capacity > 0 ? *capacity * 2 : 8;
    void *grown = tt_realloc(*array, (size_t)larger * bytes, what);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *capacity = larger;
    return true;
}

void tt_plan_add(tt_plan_t *plan, tt_step_t step)
{
    const bool is_empty = step.count == 0 && step.kind != TT_STEP_MEET;
    if (plan->status < 0 || (is_empty && plan->collective != TT_BARRIER)) {
        return;
    }
    void *steps = plan->steps;
    if (!grow(&steps, plan->step_count, &plan->step_capacity, sizeof step, "steps of a plan")) {
        plan->status = TUTTI_ERR_NOMEM;
        return;
    }
    plan->steps = steps;
    plan->steps[plan->step_count++] = step;
    plan->rounds = step.round + 1 > plan->rounds ? step.round + 1 : plan->rounds;
}

/* How often to merge after each term; false if they do not tile one node. */
static bool compile_sum(int leaves, const tt_plan_term_t *terms, tt_plan_sum_t *sum)
{
    tt_tree_stack_t stack = {.leaves = leaves};
    for (int i = 0; i < sum->count; i++) {
        if (stack.depth == TT_TREE_DEPTH_MAX) {
            return false;
        }
        tt_tree_push(&stack, terms[i].leaves.begin, terms[i].leaves.end);
        sum->depth = stack.depth > sum->depth ? stack.depth : sum->depth;
        while (tt_tree_can_merge(&stack)) {
            tt_tree_merge(&stack);
            sum->merges[i]++;
        }
        sum->sources[i] = terms[i].source;
    }
    return stack.depth == 1;
}

/* A new sum with room for its sources; NULL on failure. */
static tt_plan_sum_t *make_sum(tt_plan_t *plan, int count, bool is_partial)
{
    if (plan->status < 0) {
        return NULL;
    }
    void *sums = plan->sums;
    tt_plan_sum_t sum = {.count = count, .is_partial = is_partial};
    sum.sources = tt_alloc_array((size_t)count, sizeof *sum.sources, "sum of a plan");
    sum.merges = tt_alloc((size_t)count, "sum of a plan");
    if (sum.sources == NULL || sum.merges == NULL ||
        !grow(&sums, plan->sum_count, &plan->sum_capacity, sizeof sum, "sums of a plan")) {
        tt_free(sum.sources);
        tt_free(sum.merges);
        plan->status = TUTTI_ERR_NOMEM;
        return NULL;
    }
    plan->sums = sums;
    plan->sums[plan->sum_count] = sum;
    plan->source_count_max = count > plan->source_count_max ? count : plan->source_count_max;
    return &plan->sums[plan->sum_count++];
}

static int number_of(tt_plan_t *plan, const tt_plan_sum_t *sum)
{
    plan->depth_max = sum->depth > plan->depth_max ? sum->depth : plan->depth_max;
    return (int)(sum - plan->sums);
}

int tt_plan_add_sum(tt_plan_t *plan, const tt_plan_term_t *terms, int count, bool is_partial)
{
    tt_plan_sum_t *sum = make_sum(plan, count, is_partial);
    if (sum == NULL) {
        return -1;
    }
    TT_ASSERT(compile_sum(plan->leaves, terms, sum));
    return number_of(plan, sum);
}

int tt_plan_add_plain_sum(tt_plan_t *plan, const tt_source_t *sources, int count, bool is_partial)
{
    tt_plan_sum_t *sum = make_sum(plan, count, is_partial);
    if (sum == NULL) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        sum->sources[i] = sources[i];
        sum->merges[i] = i > 0;
    }
    sum->depth = count > 1 ? 2 : 1;
    return number_of(plan, sum);
}

int tt_plan_piece_terms(const tt_plan_request_t *request, int begin, int end, tt_buffer_t buffer,
                        size_t elements, tt_plan_term_t *terms)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    int count = 0;
    for (int rank = begin; rank < end; rank++) {
        tt_leaves_t own[TT_TREE_DEPTH_MAX];
        const int pieces = tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                                          tt_plan_first_leaf(request, rank + 1), own);
        for (int i = 0; i < pieces; i++, count++) {
            const tt_part_t part = {buffer, buffer == TT_BUFFER_PIECE ? i : 0,
                                    buffer == TT_BUFFER_PIECE ? 0 : elements * (size_t)i};
            if (terms != NULL) {
                terms[count] = (tt_plan_term_t){own[i], {rank, part}};
            }
        }
    }
    return count;
}

size_t tt_plan_reserve(tt_plan_t *plan, tt_buffer_t buffer, size_t count)
{
    size_t *const sizes[] = {[TT_BUFFER_SCRATCH] = &plan->scratch_count,
                             [TT_BUFFER_SUM] = &plan->sum_elements,
                             [TT_BUFFER_STAGE] = &plan->stage_count,
                             [TT_BUFFER_STAGE_OUT] = &plan->stage_out_count};
    const size_t begin = *sizes[buffer];
    *sizes[buffer] += count;
    return begin;
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

int tt_plan_pieces_of(const tt_plan_request_t *request, int rank)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                          tt_plan_first_leaf(request, rank + 1), NULL);
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

static tutti_status_t lay_out_parts(tt_plan_t *plan, const tt_plan_request_t *request)
{
    plan->parts = tt_alloc_array((size_t)plan->size + 1, sizeof(size_t), "parts of a plan");
    TT_TRY_ALLOC(plan->parts);
    for (int rank = 0; rank < plan->size; rank++) {
        plan->parts[rank + 1] = plan->parts[rank] + request->counts[rank];
    }
    return TUTTI_OK;
}

/* Steps by rounds, those of one round in the order in which they were added (a counting sort). */
static tutti_status_t sort_steps(tt_plan_t *plan)
{
    const size_t rounds = (size_t)plan->rounds;
    plan->round_starts = tt_alloc_array(rounds + 2, sizeof(int), "rounds of a plan");
    TT_TRY_ALLOC(plan->round_starts);
    if (plan->step_count == 0) {
        return TUTTI_OK;
    }
    tt_step_t *sorted = tt_alloc_array((size_t)plan->step_count, sizeof *sorted, "steps of a plan");
    TT_TRY_ALLOC(sorted);
    int *starts = plan->round_starts + 1; /* becomes each round's end, then the next one's start */
    for (int i = 0; i < plan->step_count; i++) {
        starts[plan->steps[i].round]++;
    }
    for (int round = 0, begin = 0; round < plan->rounds; round++) {
        const int count = starts[round];
        starts[round] = begin;
        begin += count;
    }
    for (int i = 0; i < plan->step_count; i++) {
        sorted[starts[plan->steps[i].round]++] = plan->steps[i];
    }
    tt_free(plan->steps);
    plan->steps = sorted;
    return TUTTI_OK;
}

static tutti_status_t fill_plan(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(request->collective)) {
        TT_TRY(check_leaves(request, plan->leaves));
        TT_TRY(count_pieces(plan, request));
    }
    if (request->collective == TT_ALL_TO_ALL && request->counts != NULL) {
        TT_TRY(lay_out_parts(plan, request));
    }
    if (!plan->algorithm->fits(request)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: algorithm %s cannot do this call",
                       tt_collective_name(request->collective), plan->algorithm->name);
    }
    plan->algorithm->plan(plan, request);
    return plan->status < 0 ? plan->status : sort_steps(plan);
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
    for (int i = 0; i < plan->sum_count; i++) {
        tt_free(plan->sums[i].sources);
        tt_free(plan->sums[i].merges);
    }
    tt_free(plan->sums);
    tt_free(plan->steps);
    tt_free(plan->round_starts);
    tt_free(plan->pieces_of);
    tt_free(plan->parts);
    tt_free(plan);
}
