/* bruck: few messages for small parts, any number of ranks; ranks 2^k apart talk in step k.
 *
 *     all_gather   round k: send the parts of ranks [rank, rank + 2^k), as far as they are wanted,
 *                  to rank - 2^k; receive those from rank + 2^k on
 *     all_to_all   the block for rank + i travels through the bits of i: round 2k packs the blocks
 *                  that have bit k, round 2k + 1 sends them to rank + 2^k. At the end block i comes
 *                  from rank - i and is put into its place. Even parts only.
 *
 * Cost: ceil(log2(size)) messages; an all_to_all sends about N log2(size) / 2. Source: Bruck, Ho,
 * Kipnis, Upfal, Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport
 * Message-Passing Systems", 1997.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"
#include "core/base/alloc.h"

/* ---- all_gather ---- */

static int wanted(const tt_plan_request_t *request, int k)
{
    const int held = 1 << k, missing = request->size - held;
    return held < missing ? held : missing;
}

static void plan_all_gather(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const tt_slice_t own = tt_plan_part(request, plan->rank);
    const int size = plan->size;
    tt_slice_t parts[2];
    tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, own.begin), own.count);
    for (int k = 0; 1 << k < size; k++) {
        const int after = (plan->rank + (1 << k)) % size;
        const int before = (plan->rank - (1 << k) + size) % size;
        int runs = tt_plan_wrapped_parts(request, plan->rank, wanted(request, k), parts);
        for (int i = 0; i < runs; i++) {
            const tt_part_t src =
                k == 0 ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_OUT, parts[i].begin);
            tt_plan_send(plan, k, before, src, parts[i].count);
        }
        runs = tt_plan_wrapped_parts(request, after, wanted(request, k), parts);
        for (int i = 0; i < runs; i++) {
            tt_plan_recv(plan, k, after, tt_part_at(TT_BUFFER_OUT, parts[i].begin), parts[i].count);
        }
    }
}

/* ---- all_to_all ---- */

static int blocks_with_bit(int size, int k)
{
    int count = 0;
    for (int i = 1; i < size; i++) {
        count += i >> k & 1;
    }
    return count;
}

static void plan_step(tt_plan_t *plan, int k, tt_part_t *at)
{
    const int size = plan->size, blocks = blocks_with_bit(size, k);
    const size_t elements = plan->count * (size_t)blocks;
    const size_t packed = tt_plan_reserve(plan, TT_BUFFER_SCRATCH, 2 * elements);
    const size_t received = packed + elements;
    size_t done = 0;
    for (int i = 1; i < size; i++) {
        if ((i >> k & 1) != 0) {
            tt_plan_copy(plan, 2 * k, at[i], tt_part_at(TT_BUFFER_SCRATCH, packed + done),
                         plan->count);
            at[i] = tt_part_at(TT_BUFFER_SCRATCH, received + done);
            done += plan->count;
        }
    }
    tt_plan_send(plan, 2 * k + 1, (plan->rank + (1 << k)) % size,
                 tt_part_at(TT_BUFFER_SCRATCH, packed), elements);
    tt_plan_recv(plan, 2 * k + 1, (plan->rank - (1 << k) + size) % size,
                 tt_part_at(TT_BUFFER_SCRATCH, received), elements);
}

static void plan_all_to_all(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int size = plan->size, levels = tt_log2_ceil(size);
    tt_part_t *at = tt_alloc_array((size_t)size, sizeof *at, "blocks of a plan");
    if (at == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
        return;
    }
    for (int i = 0; i < size; i++) {
        at[i] = tt_piece_at(0, tt_plan_part(request, (plan->rank + i) % size).begin);
    }
    for (int k = 0; k < levels; k++) {
        plan_step(plan, k, at);
    }
    for (int i = 0; i < size; i++) {
        const size_t address = tt_plan_part(request, (plan->rank - i + size) % size).begin;
        tt_plan_copy(plan, 2 * levels, at[i], tt_part_at(TT_BUFFER_OUT, address), plan->count);
    }
    tt_free(at);
}

static void plan_bruck(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (plan->collective == TT_ALL_GATHER) {
        plan_all_gather(plan, request);
    } else {
        plan_all_to_all(plan, request);
    }
}

static bool fits_bruck(const tt_plan_request_t *request)
{
    return !request->is_staged &&
           (request->collective == TT_ALL_GATHER ||
            (request->collective == TT_ALL_TO_ALL && request->counts == NULL));
}

static size_t sent_by(const tt_plan_request_t *request, int rank)
{
    size_t sent = 0;
    for (int k = 0; 1 << k < request->size; k++) {
        for (int i = 0; i < wanted(request, k); i++) {
            sent += tt_plan_part(request, (rank + i) % request->size).count;
        }
    }
    return sent;
}

static tt_plan_cost_t cost_bruck(const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(request->size);
    tt_plan_cost_t cost = {.rounds = levels > 0 ? levels : 1};
    if (request->collective == TT_ALL_TO_ALL) {
        cost.rounds = 2 * levels + 1;
        for (int k = 0; k < levels; k++) {
            cost.sent += request->count * (size_t)blocks_with_bit(request->size, k);
        }
        return cost;
    }
    for (int rank = 0; rank < request->size; rank++) {
        const size_t sent = sent_by(request, rank);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_bruck = {
    .name = "bruck",
    .about = "few messages for small parts: ranks 1, 2, 4, ... apart talk",
    .source = "Bruck et al. 1997",
    .is_canonical = true,
    .fits = fits_bruck,
    .plan = plan_bruck,
    .cost = cost_bruck,
};
