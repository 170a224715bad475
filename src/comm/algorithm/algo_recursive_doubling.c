/* recursive doubling: in level k ranks whose numbers differ in bit k exchange what they have; for
 * powers of two.
 *
 *     all_reduce   rounds 2k and 2k + 1: exchange, add up. After them, both have the sum over a
 *                  block of 2^(k + 1) ranks, which is a node of the canonical tree if leaves are
 *                  aligned: other leaf maps do not fit. Sums travel unfinished.
 *     all_gather   round k: exchange the parts of blocks of 2^k ranks
 *
 * Cost of an all_reduce: log2(size) exchanges of N elements. Source: Thakur, Rabenseifner, Gropp
 * 2005 (recursive doubling).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

/* Where level k finds what I have, and where it puts what my partner sent. */
static tt_part_t mine_at(int k)
{
    return k == 0 ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_SUM, 0);
}

static tt_part_t theirs_at(const tt_plan_t *plan, int k)
{
    return k == 0 ? tt_part_at(TT_BUFFER_SCRATCH, 0) : tt_part_at(TT_BUFFER_SUM, plan->count);
}

/* ---- all_reduce ---- */

static void exchange(tt_plan_t *plan, int k)
{
    const int peer = plan->rank ^ 1 << k;
    tt_plan_send(plan, peer, mine_at(k), plan->count);
    tt_plan_recv(plan, peer, theirs_at(plan, k), plan->count);
}

static void add_up(tt_plan_t *plan, int k)
{
    const bool is_last = 2 << k == plan->size;
    tt_plan_reduce(plan, (tt_sum_at_t){.sum = k}, is_last ? tt_out_at(0) : mine_at(k + 1),
                   plan->count);
}

/* ---- all_gather ---- */

/* The parts of the block of 2^k ranks around `rank`. */
static tt_slice_t block_parts(const tt_plan_request_t *request, int rank, int k)
{
    const int begin = rank >> k << k;
    return tt_plan_parts(request, begin, begin + (1 << k));
}

static void gather(tt_plan_t *plan, int k)
{
    const int peer = plan->rank ^ 1 << k;
    const tt_slice_t mine = block_parts(&plan->request, plan->rank, k);
    const tt_slice_t theirs = block_parts(&plan->request, peer, k);
    const tt_part_t src = k == 0 ? tt_piece_at(0, 0) : tt_out_at(mine.begin);
    if (k == 0) {
        tt_plan_copy(plan, src, tt_out_at(mine.begin), mine.count);
    }
    tt_plan_send(plan, peer, src, mine.count);
    tt_plan_recv(plan, peer, tt_out_at(theirs.begin), theirs.count);
}

static void prepare_recursive_doubling(tt_plan_t *plan)
{
    const int levels = tt_log2_ceil(plan->size);
    if (plan->collective == TT_ALL_GATHER) {
        tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = levels, .phases = {gather}});
        return;
    }
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, plan->count);
    tt_plan_reserve(plan, TT_BUFFER_SUM, levels > 1 ? 2 * plan->count : 0);
    for (int k = 0; k < levels; k++) {
        tt_plan_add_pair(plan, k, mine_at(k), theirs_at(plan, k));
    }
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = levels, .stride = 2, .phases = {exchange, add_up}});
}

const tt_algorithm_t tt_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .about = "ranks 1, 2, 4, ... apart exchange all they have; powers of two",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .collectives = 1 << TT_ALL_REDUCE | 1 << TT_ALL_GATHER,
    .needs_several_ranks = true,
    .needs_power_of_two = true,
    .needs_aligned_leaves = true,
    .prepare = prepare_recursive_doubling,
};
