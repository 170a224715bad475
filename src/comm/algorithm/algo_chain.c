/* chain: a broadcast of long vectors in chunks, from each rank to the next one.
 *
 *     round c + v   the rank v places behind the root sends chunk c to the next one (phase v)
 *
 * Cost: size + chunks - 2 rounds, N elements sent. Source: van de Geijn, "Efficient Global Combine
 * Operations", 1991 (pipelined ring).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

enum { CHUNK = 32 << 10 };

static void prepare_chain(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int place = tt_plan_place(plan);
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = tt_cut_vector(request, CHUNK).chunks,
                                            .first = place > 0 ? place - 1 : 0,
                                            .last = place});
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    const int place = tt_plan_place(plan);
    const tt_cut_t cut = tt_cut_vector(request, CHUNK);
    const tt_slice_t part = tt_cut_chunk(&cut, request->count, at.chunk);
    const tt_buffer_t from = place == 0 ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
    if (place == 0 && at.chunk == 0) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
    }
    if (at.phase == place && place < plan->size - 1) {
        tt_plan_send(plan, tt_plan_peer(plan, 1), tt_part_at(from, part.begin), part.count);
    } else if (at.phase == place - 1) {
        tt_plan_recv(plan, tt_plan_peer(plan, -1), tt_out_at(part.begin), part.count);
    }
}

static bool fits_chain(const tt_plan_request_t *request)
{
    return request->collective == TT_BROADCAST && tt_plan_can_send(request);
}

const tt_algorithm_t tt_algorithm_chain = {
    .name = "chain",
    .about = "a broadcast in chunks, from each rank to the next one",
    .source = "van de Geijn 1991",
    .is_canonical = true,
    .fits = fits_chain,
    .prepare = prepare_chain,
    .phase = add_phase,
};
