/* halving: halves of what is left are exchanged with ranks 1, 2, 4, ... apart, and added up; then
 * an all_reduce gathers the slices the same way back. Powers of two with aligned leaves, so that
 * each step adds two nodes of the canonical tree. Nearest ranks first: other than farthest first,
 * that is the canonical order.
 *
 *     rounds 2k, 2k + 1     keep the slices of ranks that agree with mine in bits 0 ... k; send
 *                           those that agree with rank ^ 2^k to it, as unfinished sums; add up
 *     then (all_reduce)     in reverse order of k, send what I have to rank ^ 2^k
 *
 * In an all_reduce the slice of a rank is the one whose number has the rank's bits in reverse, so
 * that what is sent is always one piece of memory; the parts of a reduce_scatter are scattered.
 *
 * Cost of an all_reduce: 3 log2(size) rounds, 2 N (size - 1) / size elements sent. Source: Thakur,
 * Rabenseifner, Gropp 2005 (Rabenseifner's algorithm), with Gloo's order of distances.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

typedef struct {
    tt_plan_t *plan;
    const tt_plan_request_t *request;
    int levels;
    size_t all; /* elements of a piece */
} recursive_halving_t;

static int reverse_bits(int value, int bits)
{
    int reversed = 0;
    for (int i = 0; i < bits; i++) {
        reversed |= (value >> i & 1) << (bits - 1 - i);
    }
    return reversed;
}

/* What lies at position `index` of a piece, and whose it is. */
static tt_slice_t slice_at(const tt_plan_request_t *request, int index, int *owner)
{
    const bool is_scatter = request->collective == TT_REDUCE_SCATTER;
    *owner = is_scatter ? index : reverse_bits(index, tt_log2_ceil(request->size));
    return is_scatter ? tt_plan_part(request, index)
                      : tt_plan_slice(request->count, request->size, index);
}

/* The next run of slices, from position *index on, of ranks that agree with `rank` in bits
 * 0 ... k; false at the end. */
static bool next_run(const tt_plan_request_t *request, int rank, int k, int *index, tt_slice_t *run)
{
    const int mask = (2 << k) - 1;
    bool is_open = false;
    for (; *index < request->size; ++*index) {
        int owner;
        const tt_slice_t slice = slice_at(request, *index, &owner);
        if (((owner ^ rank) & mask) != 0) {
            if (is_open) {
                return true;
            }
        } else if (!is_open) {
            *run = slice;
            is_open = true;
        } else {
            run->count += slice.count;
        }
    }
    return is_open;
}

/* The node that the 2^k ranks around `rank` add up to. */
static tt_leaves_t block_leaves(const tt_plan_request_t *request, int rank, int k)
{
    const int begin = rank >> k << k;
    return (tt_leaves_t){tt_plan_first_leaf(request, begin),
                         tt_plan_first_leaf(request, begin + (1 << k))};
}

static tt_part_t sum_at(int k, size_t begin)
{
    return k == 0 ? tt_piece_at(0, begin) : tt_part_at(TT_BUFFER_SUM, begin);
}

static void add_run(const recursive_halving_t *h, int k, tt_slice_t run, tt_part_t theirs)
{
    const int rank = h->plan->rank, peer = rank ^ 1 << k;
    const bool is_last = k == h->levels - 1;
    const size_t out = h->plan->collective == TT_REDUCE_SCATTER ? 0 : run.begin;
    const tt_plan_term_t own = {block_leaves(h->request, rank, k), {rank, sum_at(k, run.begin)}};
    const tt_plan_term_t other = {block_leaves(h->request, peer, k), {rank, theirs}};
    const tt_plan_term_t terms[] = {rank < peer ? own : other, rank < peer ? other : own};
    if (run.count > 0) {
        tt_plan_reduce(h->plan, 2 * k + 1, tt_plan_add_sum(h->plan, terms, 2, !is_last),
                       is_last ? tt_part_at(TT_BUFFER_OUT, out)
                               : tt_part_at(TT_BUFFER_SUM, run.begin),
                       run.count);
    }
}

static void halve(const recursive_halving_t *h, int k)
{
    tt_plan_t *plan = h->plan;
    const int peer = plan->rank ^ 1 << k;
    tt_slice_t run;
    size_t received = 0;
    for (int i = 0; next_run(h->request, peer, k, &i, &run);) {
        tt_plan_send(plan, 2 * k, peer, sum_at(k, run.begin), run.count);
    }
    for (int i = 0; next_run(h->request, plan->rank, k, &i, &run);) {
        const tt_part_t dst = k == 0 ? tt_part_at(TT_BUFFER_SCRATCH, received)
                                     : tt_part_at(TT_BUFFER_SUM, h->all + received);
        tt_plan_recv(plan, 2 * k, peer, dst, run.count);
        add_run(h, k, run, dst);
        received += run.count;
    }
    const size_t have = k == 0 ? plan->scratch_count : plan->sum_elements - h->all;
    if (h->levels > 1 || k == 0) {
        tt_plan_reserve(plan, k == 0 ? TT_BUFFER_SCRATCH : TT_BUFFER_SUM,
                        received > have ? received - have : 0);
    }
}

static void gather(const recursive_halving_t *h, int k)
{
    tt_plan_t *plan = h->plan;
    const int peer = plan->rank ^ 1 << k, round = 2 * h->levels + h->levels - 1 - k;
    tt_slice_t run;
    for (int i = 0; next_run(h->request, plan->rank, k, &i, &run);) {
        tt_plan_send(plan, round, peer, tt_part_at(TT_BUFFER_OUT, run.begin), run.count);
    }
    for (int i = 0; next_run(h->request, peer, k, &i, &run);) {
        tt_plan_recv(plan, round, peer, tt_part_at(TT_BUFFER_OUT, run.begin), run.count);
    }
}

static void plan_recursive_halving(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    recursive_halving_t h = {plan, request, tt_log2_ceil(plan->size),
                             is_scatter ? tt_plan_all(request) : plan->count};
    if (h.levels == 0) {
        const tt_plan_term_t all = {{0, plan->leaves}, {0, tt_piece_at(0, 0)}};
        tt_plan_reduce(plan, 0, tt_plan_add_sum(plan, &all, 1, false), tt_part_at(TT_BUFFER_OUT, 0),
                       h.all);
        return;
    }
    tt_plan_reserve(plan, TT_BUFFER_SUM, h.levels > 1 ? h.all : 0);
    for (int k = 0; k < h.levels; k++) {
        halve(&h, k);
    }
    for (int k = h.levels - 1; k >= 0 && !is_scatter; k--) {
        gather(&h, k);
    }
}

static bool fits_recursive_halving(const tt_plan_request_t *request)
{
    return !request->is_staged && tt_is_power_of_two(request->size) &&
           (request->collective == TT_ALL_REDUCE || request->collective == TT_REDUCE_SCATTER) &&
           tt_plan_is_aligned(request);
}

/* All slices of ranks that agree with `rank` in bits 0 ... k. */
static size_t agreeing(const tt_plan_request_t *request, int rank, int k)
{
    size_t sum = 0;
    for (int i = 0; i < request->size; i++) {
        int owner;
        const tt_slice_t slice = slice_at(request, i, &owner);
        sum += ((owner ^ rank) & ((2 << k) - 1)) == 0 ? slice.count : 0;
    }
    return sum;
}

static tt_plan_cost_t cost_recursive_halving(const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(request->size);
    const bool is_scatter = request->collective == TT_REDUCE_SCATTER;
    tt_plan_cost_t cost = {.rounds = levels > 0 ? (is_scatter ? 2 : 3) * levels : 1};
    for (int rank = 0; rank < request->size; rank++) {
        size_t sent = 0;
        for (int k = 0; k < levels; k++) {
            sent += agreeing(request, rank ^ 1 << k, k);
            sent += is_scatter ? 0 : agreeing(request, rank, k);
        }
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_recursive_halving = {
    .name = "recursive_halving",
    .about = "ranks 1, 2, 4, ... apart exchange halves, then gather; powers of two",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_recursive_halving,
    .plan = plan_recursive_halving,
    .cost = cost_recursive_halving,
};
