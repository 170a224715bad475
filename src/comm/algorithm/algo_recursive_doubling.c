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

static void prepare_recursive_doubling(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(request->size);
    const bool adds = tt_collective_reduces(plan->collective);
    if (adds) {
        tt_plan_reserve(plan, TT_BUFFER_SCRATCH, plan->count);
        tt_plan_reserve(plan, TT_BUFFER_SUM, levels > 1 ? 2 * plan->count : 0);
        for (int k = 0; k < levels; k++) {
            tt_plan_add_pair(plan, k, mine_at(k), theirs_at(plan, k));
        }
    }
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = levels, .stride = adds ? 2 : 1, .last = adds});
}

static void add_all_reduce(tt_plan_t *plan, tt_plan_at_t at)
{
    const int k = at.chunk, peer = plan->rank ^ 1 << k;
    if (at.phase == 0) {
        tt_plan_send(plan, peer, mine_at(k), plan->count);
        tt_plan_recv(plan, peer, theirs_at(plan, k), plan->count);
    } else {
        const bool is_last = 2 << k == plan->size;
        tt_plan_reduce(plan, (tt_sum_at_t){.sum = k}, is_last ? tt_out_at(0) : mine_at(k + 1),
                       plan->count);
    }
}

/* The parts of the block of 2^k ranks around `rank`. */
static tt_slice_t block_parts(const tt_plan_request_t *request, int rank, int k)
{
    const int begin = rank >> k << k;
    return tt_plan_parts(request, begin, begin + (1 << k));
}

static void add_all_gather(tt_plan_t *plan, const tt_plan_request_t *request, int k)
{
    const int peer = plan->rank ^ 1 << k;
    const tt_slice_t mine = block_parts(request, plan->rank, k);
    const tt_slice_t theirs = block_parts(request, peer, k);
    const tt_part_t src = k == 0 ? tt_piece_at(0, 0) : tt_out_at(mine.begin);
    if (k == 0) {
        tt_plan_copy(plan, src, tt_out_at(mine.begin), mine.count);
    }
    tt_plan_send(plan, peer, src, mine.count);
    tt_plan_recv(plan, peer, tt_out_at(theirs.begin), theirs.count);
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    if (plan->collective == TT_ALL_REDUCE) {
        add_all_reduce(plan, at);
    } else {
        add_all_gather(plan, request, at.chunk);
    }
}

static bool fits_recursive_doubling(const tt_plan_request_t *request)
{
    return tt_plan_can_send(request) && tt_is_power_of_two(request->size) &&
           (request->collective == TT_ALL_GATHER ||
            (request->collective == TT_ALL_REDUCE && tt_plan_is_aligned(request)));
}

const tt_algorithm_t tt_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .about = "ranks 1, 2, 4, ... apart exchange all they have; powers of two",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_recursive_doubling,
    .prepare = prepare_recursive_doubling,
    .phase = add_phase,
};
