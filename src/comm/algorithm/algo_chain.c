/* chain: a broadcast of long vectors in chunks, from each rank to the next one.
 *
 *     round c + v   the rank v places behind the root sends chunk c to the next one
 *
 * Cost: size + chunks - 2 rounds, N elements sent. Source: van de Geijn, "Efficient Global Combine
 * Operations", 1991 (pipelined ring).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

enum { CHUNK = 32 << 10 };

static tt_slice_t slice_of(const tt_plan_t *plan, int chunk)
{
    const tt_cut_t cut = tt_cut_vector(&plan->request, CHUNK);
    return tt_cut_chunk(&cut, plan->count, chunk);
}

static void take(tt_plan_t *plan, int chunk)
{
    const tt_slice_t part = slice_of(plan, chunk);
    tt_plan_recv(plan, tt_plan_peer(plan, -1), tt_out_at(part.begin), part.count);
}

static void pass_on(tt_plan_t *plan, int chunk)
{
    const tt_slice_t part = slice_of(plan, chunk);
    const bool is_root = plan->rank == plan->root;
    if (is_root && chunk == 0) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
    }
    if (tt_plan_place(plan) < plan->size - 1) {
        tt_plan_send(plan, tt_plan_peer(plan, 1),
                     tt_part_at(is_root ? TT_BUFFER_PIECE : TT_BUFFER_OUT, part.begin), part.count);
    }
}

static void prepare_chain(tt_plan_t *plan)
{
    const int chunks = tt_cut_vector(&plan->request, CHUNK).chunks, place = tt_plan_place(plan);
    tt_plan_add_loop(plan, place == 0 ? (tt_plan_loop_t){.chunks = chunks, .phases = {pass_on}}
                                      : (tt_plan_loop_t){.begin = place - 1,
                                                         .chunks = chunks,
                                                         .phases = {take, pass_on}});
}

const tt_algorithm_t tt_algorithm_chain = {
    .name = "chain",
    .about = "a broadcast in chunks, from each rank to the next one",
    .source = "van de Geijn 1991",
    .is_canonical = true,
    .collectives = 1 << TT_BROADCAST,
    .needs_several_ranks = true,
    .prepare = prepare_chain,
};
