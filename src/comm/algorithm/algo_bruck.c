/* bruck: few messages for small parts, any number of ranks; ranks 2^k apart exchange in step k.
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

/* ---- all_gather ---- */

static void gather(tt_plan_t *plan, int k)
{
    const int held = 1 << k, missing = plan->size - held;
    const int count = held < missing ? held : missing;
    const int before = tt_plan_peer(plan, -held), after = tt_plan_peer(plan, held);
    const size_t own = tt_plan_part(&plan->request, plan->rank).begin;
    tt_slice_t parts[2];
    int runs = tt_plan_wrapped_parts(&plan->request, plan->rank, count, parts);
    for (int i = 0; i < runs; i++) {
        if (k == 0) {
            tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(own), parts[i].count);
        }
        tt_plan_send(plan, before, k == 0 ? tt_piece_at(0, 0) : tt_out_at(parts[i].begin),
                     parts[i].count);
    }
    runs = tt_plan_wrapped_parts(&plan->request, after, count, parts);
    for (int i = 0; i < runs; i++) {
        tt_plan_recv(plan, after, tt_out_at(parts[i].begin), parts[i].count);
    }
}

/* ---- all_to_all: in step k, scratch has room for what is packed and for what is received ---- */

/* How many of the numbers below `end` have bit k. */
static int count_with_bit(int end, int k)
{
    const int rest = (end & ((2 << k) - 1)) - (1 << k);
    return (end >> (k + 1) << k) + (rest > 0 ? rest : 0);
}

/* Where the room of step k begins, in blocks. */
static int room_at(int size, int k)
{
    int blocks = 0;
    for (int i = 0; i < k; i++) {
        blocks += 2 * count_with_bit(size, i);
    }
    return blocks;
}

static tt_part_t block_at(const tt_plan_t *plan, int block)
{
    return tt_part_at(TT_BUFFER_SCRATCH, plan->count * (size_t)block);
}

/* Where block i is before step k: where the step of its last bit before k has received it. */
static tt_part_t find_block(const tt_plan_t *plan, int i, int k)
{
    for (int last = k - 1; last >= 0; last--) {
        if ((i >> last & 1) != 0) {
            const int received = room_at(plan->size, last) + count_with_bit(plan->size, last);
            return block_at(plan, received + count_with_bit(i, last));
        }
    }
    return tt_piece_at(0, tt_plan_part(&plan->request, tt_plan_peer(plan, i)).begin);
}

static void pack(tt_plan_t *plan, int k)
{
    int to = room_at(plan->size, k);
    for (int i = 1; i < plan->size; i++) {
        if ((i >> k & 1) != 0) {
            tt_plan_copy(plan, find_block(plan, i, k), block_at(plan, to++), plan->count);
        }
    }
}

static void exchange(tt_plan_t *plan, int k)
{
    const int packed = room_at(plan->size, k), blocks = count_with_bit(plan->size, k);
    const size_t elements = plan->count * (size_t)blocks;
    tt_plan_send(plan, tt_plan_peer(plan, 1 << k), block_at(plan, packed), elements);
    tt_plan_recv(plan, tt_plan_peer(plan, -(1 << k)), block_at(plan, packed + blocks), elements);
}

static void put_into_place(tt_plan_t *plan, int chunk)
{
    const int levels = tt_log2_ceil(plan->size);
    (void)chunk;
    for (int i = 0; i < plan->size; i++) {
        const tt_slice_t part = tt_plan_part(&plan->request, tt_plan_peer(plan, -i));
        tt_plan_copy(plan, find_block(plan, i, levels), tt_out_at(part.begin), part.count);
    }
}

static void prepare_bruck(tt_plan_t *plan)
{
    const int levels = tt_log2_ceil(plan->size);
    if (plan->collective == TT_ALL_GATHER) {
        tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = levels, .phases = {gather}});
        return;
    }
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, block_at(plan, room_at(plan->size, levels)).offset);
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = levels, .stride = 2, .phases = {pack, exchange}});
    tt_plan_add_loop(
        plan, (tt_plan_loop_t){.begin = 2 * levels, .chunks = 1, .phases = {put_into_place}});
}

const tt_algorithm_t tt_algorithm_bruck = {
    .name = "bruck",
    .about = "few messages for small parts: ranks 1, 2, 4, ... apart exchange",
    .source = "Bruck et al. 1997",
    .is_canonical = true,
    .collectives = 1 << TT_ALL_GATHER | 1 << TT_ALL_TO_ALL,
    .needs_several_ranks = true,
    .needs_even_exchange = true,
    .prepare = prepare_bruck,
};
