/* prefix: scan and exscan. Rank r's result is the canonical tree over the pieces of ranks 0 ... r
 * (scan) or 0 ... r - 1 (exscan; rank 0 has none, and its out is not touched).
 *
 * On one host, in place: rank s owns slice s of the vector, in all memories. It stores the results
 * of the last rank first, then those of the one before it, and so on: in a call in place these
 * overwrite pieces that no later result needs. No other rank touches the slice, so that none waits.
 *
 *     round 0    slice s of pieces 0 1 2 3  ->  out of rank 3
 *     round 1    slice s of pieces 0 1 2    ->  out of rank 2
 *     round 2    slice s of pieces 0 1      ->  out of rank 1
 *     round 3    slice s of piece  0        ->  out of rank 0
 *
 * Between hosts and where memory is foreign: by messages, as pairwise does a reduce, but that an
 * owner adds up every rank's result of its slice.
 *
 * Cost: in place, every rank reads slices of N / size elements, size (size + 1) / 2 of them; by
 * messages, every rank sends 2 N (size - 1) / size elements, as in an all_reduce. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/pairwise.h"

/* The last rank's result is chunk 0. */
static void reduce_in_place(tt_plan_t *plan, int c)
{
    const tt_slice_t slice = tt_plan_slice(plan->count, plan->size, plan->rank);
    const int rank = plan->size - 1 - c;
    const tt_sum_at_t at = {
        .sum = tt_prefix_sum(plan, rank), .piece = slice.begin, .to = TT_TO_PEER, .peer = rank};
    tt_plan_reduce(plan, at, tt_out_at(slice.begin), slice.count);
}

static void prepare_prefix(tt_plan_t *plan)
{
    if (plan->request.hosts != NULL || plan->request.is_staged) {
        tt_pairwise_prepare(plan);
        return;
    }
    if (tt_plan_slice(plan->count, plan->size, plan->rank).count > 0) {
        tt_prefix_add_sums(plan, (tt_others_t){0}, false);
    }
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = tt_plan_givers(plan), .phases = {reduce_in_place}});
}

const tt_algorithm_t tt_algorithm_prefix = {
    .name = "prefix",
    .about = "scan: the owner of a slice adds up every rank's result of it by the tree",
    .source = "Tutti",
    .is_canonical = true,
    .shares_memory = true,
    .collectives = 1 << TT_SCAN | 1 << TT_EXSCAN,
    .may_be_staged = true,
    .prepare = prepare_prefix,
};
