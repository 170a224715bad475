/* scatter_gather: a broadcast of long vectors. The root's slices go down a binomial tree, v being
 * the place behind the root; then every rank passes slices on to the next place, until all ranks
 * have all slices.
 *
 *     round i             v, a multiple of 2^(k + 1), sends slices [v + 2^k, ...) to v + 2^k, where
 *                         k = L - 1 - i and L = ceil(log2(size))
 *     round L + s         v sends slice v - s to v + 1 and receives slice v - s - 1; the root,
 *                         which has all slices, receives nothing
 *
 * Cost: L + size - 1 rounds; the root sends about 2 N. Source: van de Geijn's broadcast, after
 * Thakur, Rabenseifner, Gropp 2005.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

static tt_buffer_t source_of(const tt_plan_t *plan)
{
    return plan->rank == plan->root ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
}

/* The slices of places [begin, end), as far as there are places. */
static tt_slice_t slices(const tt_plan_request_t *request, int begin, int end)
{
    return tt_plan_slices(request, begin, end < request->size ? end : request->size);
}

static void scatter(tt_plan_t *plan, int i)
{
    const int place = tt_plan_place(plan), step = 1 << (tt_log2_ceil(plan->size) - 1 - i);
    const int within = place % (2 * step);
    if (i == 0 && place == 0) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
    }
    if (within == 0 && place + step < plan->size) {
        const tt_slice_t part = slices(&plan->request, place + step, place + 2 * step);
        tt_plan_send(plan, tt_plan_peer(plan, step), tt_part_at(source_of(plan), part.begin),
                     part.count);
    } else if (within == step) {
        const tt_slice_t part = slices(&plan->request, place, place + step);
        tt_plan_recv(plan, tt_plan_peer(plan, -step), tt_out_at(part.begin), part.count);
    }
}

static void pass_on(tt_plan_t *plan, int s)
{
    const int size = plan->size, place = tt_plan_place(plan);
    const tt_slice_t mine = tt_plan_slice(plan->count, size, (place - s + size) % size);
    const tt_slice_t next = tt_plan_slice(plan->count, size, (place - s - 1 + size) % size);
    if (place < size - 1) {
        tt_plan_send(plan, tt_plan_peer(plan, 1), tt_part_at(source_of(plan), mine.begin),
                     mine.count);
    }
    if (place > 0) {
        tt_plan_recv(plan, tt_plan_peer(plan, -1), tt_out_at(next.begin), next.count);
    }
}

static void prepare_scatter_gather(tt_plan_t *plan)
{
    const int levels = tt_log2_ceil(plan->size);
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = levels, .phases = {scatter}});
    tt_plan_add_loop(
        plan, (tt_plan_loop_t){.begin = levels, .chunks = plan->size - 1, .phases = {pass_on}});
}

const tt_algorithm_t tt_algorithm_scatter_gather = {
    .name = "scatter_gather",
    .about = "a broadcast as scatter down a tree, then all_gather around a ring",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .collectives = 1 << TT_BROADCAST,
    .needs_several_ranks = true,
    .prepare = prepare_scatter_gather,
};
