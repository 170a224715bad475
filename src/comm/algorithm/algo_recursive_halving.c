/* halving: halves of what is left are exchanged with ranks 1, 2, 4, ... apart, and added up; then
 * an all_reduce gathers the slices the same way back. For powers of two with aligned leaves, so
 * that each step adds two nodes of the canonical tree. Nearest ranks first: other than farthest
 * first, that is the canonical order.
 *
 *     rounds 2k, 2k + 1     keep the slices of ranks that agree with mine in bits 0 ... k; send
 *                           those that agree with rank ^ 2^k to it, as unfinished sums; add up
 *     then (all_reduce)     in reverse order of k, send what I have to rank ^ 2^k
 *
 * In an all_reduce the slice of a rank is the one whose number has the rank's bits in reverse, so
 * that the slices of a level are one run of memory. The parts of a reduce_scatter are runs of their
 * own.
 *
 * Cost of an all_reduce: 3 log2(size) rounds, 2 N (size - 1) / size elements sent. Source: Thakur,
 * Rabenseifner, Gropp 2005 (Rabenseifner's algorithm), with Gloo's order of distances.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static int reverse_bits(int value, int bits)
{
    int reversed = 0;
    for (int i = 0; i < bits; i++) {
        reversed |= (value >> i & 1) << (bits - 1 - i);
    }
    return reversed;
}

/* The slices of the ranks that agree with one rank in bits 0 ... k: how many runs of memory they
 * are, and run i. */
static int count_runs(const tt_plan_t *plan, int k)
{
    return plan->collective == TT_REDUCE_SCATTER ? plan->size >> (k + 1) : 1;
}

static tt_slice_t run_at(const tt_plan_t *plan, int rank, int k, int i)
{
    const int low = rank & ((2 << k) - 1);
    if (plan->collective == TT_REDUCE_SCATTER) {
        return tt_plan_part(&plan->request, low + (i << (k + 1)));
    }
    const int first = reverse_bits(low, tt_log2_ceil(plan->size));
    return tt_plan_slices(&plan->request, first, first + (plan->size >> (k + 1)));
}

/* From the first of these runs to the end of the last one. */
static tt_slice_t span_of(const tt_plan_t *plan, int rank, int k)
{
    const tt_slice_t first = run_at(plan, rank, k, 0);
    const tt_slice_t last = run_at(plan, rank, k, count_runs(plan, k) - 1);
    return (tt_slice_t){first.begin, last.begin + last.count - first.begin};
}

/* Where a rank has what it has added up before level k, and what it receives in it. */
static tt_part_t mine_at(int k, size_t begin)
{
    return k == 0 ? tt_piece_at(0, begin) : tt_part_at(TT_BUFFER_SUM, begin);
}

static tt_part_t theirs_at(const tt_plan_t *plan, int k, size_t skip)
{
    const size_t all =
        plan->collective == TT_REDUCE_SCATTER ? tt_plan_all(&plan->request) : plan->count;
    return k == 0 ? tt_part_at(TT_BUFFER_SCRATCH, skip) : tt_part_at(TT_BUFFER_SUM, all + skip);
}

static void exchange(tt_plan_t *plan, int k)
{
    const int peer = plan->rank ^ 1 << k;
    const size_t begin = span_of(plan, plan->rank, k).begin;
    for (int i = 0; i < count_runs(plan, k); i++) {
        const tt_slice_t run = run_at(plan, peer, k, i);
        tt_plan_send(plan, peer, mine_at(k, run.begin), run.count);
    }
    for (int i = 0; i < count_runs(plan, k); i++) {
        const tt_slice_t run = run_at(plan, plan->rank, k, i);
        tt_plan_recv(plan, peer, theirs_at(plan, k, run.begin - begin), run.count);
    }
}

static void add_up(tt_plan_t *plan, int k)
{
    const bool is_last = 2 << k == plan->size;
    const size_t begin = span_of(plan, plan->rank, k).begin;
    for (int i = 0; i < count_runs(plan, k); i++) {
        const tt_slice_t run = run_at(plan, plan->rank, k, i);
        const size_t out = plan->collective == TT_REDUCE_SCATTER ? 0 : run.begin;
        tt_plan_reduce(plan,
                       (tt_sum_at_t){.sum = k, .piece = run.begin, .shift = run.begin - begin},
                       is_last ? tt_out_at(out) : mine_at(k + 1, run.begin), run.count);
    }
}

static void gather(tt_plan_t *plan, int step)
{
    const int k = tt_log2_ceil(plan->size) - 1 - step, peer = plan->rank ^ 1 << k;
    const tt_slice_t mine = run_at(plan, plan->rank, k, 0);
    const tt_slice_t theirs = run_at(plan, peer, k, 0);
    tt_plan_send(plan, peer, tt_out_at(mine.begin), mine.count);
    tt_plan_recv(plan, peer, tt_out_at(theirs.begin), theirs.count);
}

static void prepare_recursive_halving(tt_plan_t *plan)
{
    const int levels = tt_log2_ceil(plan->size);
    for (int k = 0; k < levels; k++) {
        const tt_slice_t span = span_of(plan, plan->rank, k);
        tt_plan_add_pair(plan, k, mine_at(k, k == 0 ? 0 : span.begin), theirs_at(plan, k, 0));
        if (k < 2) { /* later spans are inside */
            const tt_part_t end = theirs_at(plan, k, span.count);
            tt_plan_reserve(plan, end.buffer, end.offset);
        }
    }
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = levels, .stride = 2, .phases = {exchange, add_up}});
    if (plan->collective == TT_ALL_REDUCE) {
        tt_plan_add_loop(
            plan, (tt_plan_loop_t){.begin = 2 * levels, .chunks = levels, .phases = {gather}});
    }
}

const tt_algorithm_t tt_algorithm_recursive_halving = {
    .name = "recursive_halving",
    .about = "ranks 1, 2, 4, ... apart exchange halves, then gather; powers of two",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .collectives = 1 << TT_ALL_REDUCE | 1 << TT_REDUCE_SCATTER,
    .needs_several_ranks = true,
    .needs_power_of_two = true,
    .needs_aligned_leaves = true,
    .prepare = prepare_recursive_halving,
};
