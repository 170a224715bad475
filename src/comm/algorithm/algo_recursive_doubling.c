/* recursive doubling: in round k ranks whose numbers differ in bit k exchange what they have; for
 * powers of two.
 *
 *     all_reduce   rounds 2k and 2k + 1: exchange, add up. After it, both have the sum over a block
 *                  of 2^(k + 1) ranks, which is a node of the canonical tree if leaves are aligned:
 *                  other leaf maps do not fit. Sums travel unfinished.
 *     all_gather   round k: exchange the parts of blocks of 2^k ranks
 *
 * Cost of an all_reduce: log2(size) exchanges of N elements. Source: Thakur, Rabenseifner, Gropp
 * 2005 (recursive doubling).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

/* The node that the block of 2^k ranks around `rank` adds up to. */
static tt_leaves_t block_leaves(const tt_plan_request_t *request, int rank, int k)
{
    const int begin = rank >> k << k;
    return (tt_leaves_t){tt_plan_first_leaf(request, begin),
                         tt_plan_first_leaf(request, begin + (1 << k))};
}

/* Adds what I have and what my partner of bit k sent. */
static void add_up(tt_plan_t *plan, const tt_plan_request_t *request, int k, bool is_last)
{
    const int rank = plan->rank, peer = rank ^ 1 << k;
    const tt_part_t mine = k == 0 ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_SUM, 0);
    const tt_part_t theirs =
        k == 0 ? tt_part_at(TT_BUFFER_SCRATCH, 0) : tt_part_at(TT_BUFFER_SUM, plan->count);
    const tt_plan_term_t own = {block_leaves(request, rank, k), {rank, mine}};
    const tt_plan_term_t other = {block_leaves(request, peer, k), {rank, theirs}};
    const tt_plan_term_t terms[] = {rank < peer ? own : other, rank < peer ? other : own};
    tt_plan_reduce(plan, 2 * k + 1, tt_plan_add_sum(plan, terms, 2, !is_last),
                   tt_part_at(is_last ? TT_BUFFER_OUT : TT_BUFFER_SUM, 0), plan->count);
}

static void plan_all_reduce(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(plan->size);
    if (levels == 0) {
        const tt_plan_term_t all = {{0, plan->leaves}, {0, tt_piece_at(0, 0)}};
        tt_plan_reduce(plan, 0, tt_plan_add_sum(plan, &all, 1, false), tt_part_at(TT_BUFFER_OUT, 0),
                       plan->count);
        return;
    }
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, plan->count);
    tt_plan_reserve(plan, TT_BUFFER_SUM, levels > 1 ? 2 * plan->count : 0);
    for (int k = 0; k < levels; k++) {
        const int peer = plan->rank ^ 1 << k;
        tt_plan_send(plan, 2 * k, peer, k == 0 ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_SUM, 0),
                     plan->count);
        tt_plan_recv(plan, 2 * k, peer,
                     k == 0 ? tt_part_at(TT_BUFFER_SCRATCH, 0)
                            : tt_part_at(TT_BUFFER_SUM, plan->count),
                     plan->count);
        add_up(plan, request, k, k == levels - 1);
    }
}

/* The parts of the block of 2^k ranks around `rank`. */
static tt_slice_t block_parts(const tt_plan_request_t *request, int rank, int k)
{
    const int begin = rank >> k << k;
    const tt_slice_t first = tt_plan_part(request, begin);
    const tt_slice_t last = tt_plan_part(request, begin + (1 << k) - 1);
    return (tt_slice_t){first.begin, last.begin + last.count - first.begin};
}

static void plan_all_gather(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t part = tt_plan_part(request, plan->rank);
    tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, part.begin), part.count);
    for (int k = 0; 1 << k < plan->size; k++) {
        const int peer = plan->rank ^ 1 << k;
        const tt_slice_t mine = block_parts(request, plan->rank, k);
        const tt_slice_t theirs = block_parts(request, peer, k);
        tt_plan_send(plan, k, peer,
                     k == 0 ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_OUT, mine.begin),
                     mine.count);
        tt_plan_recv(plan, k, peer, tt_part_at(TT_BUFFER_OUT, theirs.begin), theirs.count);
    }
}

static void plan_recursive_doubling(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (plan->collective == TT_ALL_REDUCE) {
        plan_all_reduce(plan, request);
    } else {
        plan_all_gather(plan, request);
    }
}

static bool fits_recursive_doubling(const tt_plan_request_t *request)
{
    if (!tt_is_power_of_two(request->size) || request->is_staged) {
        return false;
    }
    return request->collective == TT_ALL_GATHER ||
           (request->collective == TT_ALL_REDUCE && tt_plan_is_aligned(request));
}

static tt_plan_cost_t cost_recursive_doubling(const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(request->size);
    if (request->collective == TT_ALL_REDUCE) {
        return (tt_plan_cost_t){.rounds = levels > 0 ? 2 * levels : 1,
                                .sent = request->count * (size_t)levels};
    }
    tt_plan_cost_t cost = {.rounds = levels > 0 ? levels : 1};
    for (int rank = 0; rank < request->size; rank++) {
        size_t sent = 0;
        for (int k = 0; k < levels; k++) {
            sent += block_parts(request, rank, k).count;
        }
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .about = "ranks 1, 2, 4, ... apart exchange all they have; powers of two",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_recursive_doubling,
    .plan = plan_recursive_doubling,
    .cost = cost_recursive_doubling,
};
