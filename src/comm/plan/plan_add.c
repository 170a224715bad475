/* Adding to a plan that is being made: steps, sums, room in buffers. */
#include "comm/plan/plan.h"
#include "core/base/alloc.h"
#include "core/kernel/reduce/tree_reduce.h"

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

struct tt_plan_block {
    struct tt_plan_block *next;
    _Alignas(max_align_t) unsigned char bytes[];
};

void *tt_plan_alloc(tt_plan_t *plan, size_t count, size_t bytes)
{
    struct tt_plan_block *block =
        plan->status < 0 ? NULL : tt_alloc(sizeof *block + count * bytes, "memory of a plan");
    if (block == NULL) {
        plan->status = plan->status < 0 ? plan->status : TUTTI_ERR_NOMEM;
        return NULL;
    }
    block->next = plan->blocks;
    plan->blocks = block;
    return block->bytes;
}

void tt_plan_free_blocks(tt_plan_t *plan)
{
    while (plan->blocks != NULL) {
        struct tt_plan_block *block = plan->blocks;
        plan->blocks = block->next;
        tt_free(block);
    }
}

/* In an exchange of uneven parts a peer may mean to give what is not wanted. */
static bool keeps_empty_steps(const tt_plan_t *plan)
{
    return plan->collective == TT_BARRIER ||
           (plan->collective == TT_ALL_TO_ALL && plan->request.counts != NULL);
}

void tt_plan_add(tt_plan_t *plan, tt_step_t step)
{
    const bool is_empty = step.count == 0 && step.kind != TT_STEP_BARRIER;
    if (plan->status < 0 || (is_empty && !keeps_empty_steps(plan))) {
        return;
    }
    void *steps = plan->steps;
    if (!grow(&steps, plan->step_count, &plan->step_capacity, sizeof step, "steps of a plan")) {
        plan->status = TUTTI_ERR_NOMEM;
        return;
    }
    plan->steps = steps;
    plan->steps[plan->step_count++] = step;
}

void tt_plan_open_round(tt_plan_t *plan, int round)
{
    void *starts = plan->round_starts;
    TT_ASSERT(round >= plan->rounds);
    for (; plan->rounds <= round && plan->status >= 0; plan->rounds++) {
        if (!grow(&starts, plan->rounds, &plan->start_capacity, sizeof(int), "rounds of a plan")) {
            plan->status = TUTTI_ERR_NOMEM;
            return;
        }
        plan->round_starts = starts;
        plan->round_starts[plan->rounds] = plan->step_count;
    }
}

/* How often to merge after each term; false if they do not tile one node. */
static bool compile_sum(const tt_plan_term_t *terms, tt_plan_sum_t *sum)
{
    tt_tree_stack_t stack = {.leaves = sum->leaves};
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

/* A new sum over `sources` (NULL: with room for as many); NULL on failure. */
static tt_plan_sum_t *make_sum(tt_plan_t *plan, tt_source_t *sources, int count, bool is_partial)
{
    void *sums = plan->sums;
    tt_plan_sum_t sum = {.count = count,
                         .leaves = plan->leaves,
                         .is_partial = is_partial,
                         .sources = sources,
                         .merges = tt_plan_alloc(plan, (size_t)count, 1)};
    if (sources == NULL) {
        sum.sources = tt_plan_alloc(plan, (size_t)count, sizeof *sum.sources);
    }
    if (plan->status < 0 ||
        !grow(&sums, plan->sum_count, &plan->sum_capacity, sizeof sum, "sums of a plan")) {
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
    tt_plan_sum_t *sum = make_sum(plan, NULL, count, is_partial);
    if (sum == NULL) {
        return -1;
    }
    sum->leaves = is_partial ? plan->leaves : terms[count - 1].leaves.end;
    TT_ASSERT(compile_sum(terms, sum));
    return number_of(plan, sum);
}

/* Up to the last term the tree of the first leaves merges as the tree of all does; then all that is
 * left is merged. */
int tt_plan_add_prefix_sum(tt_plan_t *plan, int whole, int count, bool is_partial)
{
    tt_plan_sum_t *sum =
        plan->status < 0 ? NULL : make_sum(plan, plan->sums[whole].sources, count, is_partial);
    if (sum == NULL) {
        return -1;
    }
    int depth = 0;
    sum->leaves = count;
    sum->depth = plan->sums[whole].depth;
    for (int i = 0; i < count - 1; i++) {
        sum->merges[i] = plan->sums[whole].merges[i];
        depth += 1 - sum->merges[i];
    }
    sum->merges[count - 1] = (unsigned char)depth;
    return number_of(plan, sum);
}

int tt_plan_add_plain_sum(tt_plan_t *plan, const tt_source_t *sources, int count, bool is_partial)
{
    tt_plan_sum_t *sum = make_sum(plan, NULL, count, is_partial);
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

int tt_plan_piece_terms(const tt_plan_t *plan, int begin, int end, tt_plan_term_t *terms)
{
    int count = 0;
    for (int rank = begin; rank < end; rank++) {
        tt_leaves_t own[TT_TREE_DEPTH_MAX];
        const int pieces = tt_plan_nodes(&plan->request, rank, rank + 1, own);
        for (int i = 0; i < pieces; i++, count++) {
            terms[count] = (tt_plan_term_t){own[i], {rank, {TT_BUFFER_PIECE, i, 0}}};
        }
    }
    return count;
}

size_t tt_plan_reserve(tt_plan_t *plan, tt_buffer_t buffer, size_t count)
{
    plan->room[buffer] += count;
    return plan->room[buffer] - count;
}
