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

static int place_of(const tt_plan_t *plan)
{
    return (plan->rank - plan->root + plan->size) % plan->size;
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    const int address = place_of(plan);
    const size_t chunk = tt_chunk_elements(request->count, CHUNK);
    const tt_slice_t part = tt_chunk(request->count, chunk, at.chunk);
    const tt_buffer_t from = address == 0 ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
    if (address == 0 && at.chunk == 0) {
        tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, 0), plan->count);
    }
    if (at.phase == address && address < plan->size - 1) {
        tt_plan_send(plan, at.round, (plan->rank + 1) % plan->size, tt_part_at(from, part.begin),
                     part.count);
    } else if (at.phase == address - 1) {
        tt_plan_recv(plan, at.round, (plan->rank - 1 + plan->size) % plan->size,
                     tt_part_at(TT_BUFFER_OUT, part.begin), part.count);
    }
}

static void plan_chain(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int address = place_of(plan);
    const int chunks = tt_chunk_count(request->count, tt_chunk_elements(request->count, CHUNK));
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = chunks,
                                            .stride = 1,
                                            .first = address > 0 ? address - 1 : 0,
                                            .last = address});
}

static bool fits_chain(const tt_plan_request_t *request)
{
    return request->collective == TT_BROADCAST && !request->is_staged;
}

static tt_plan_cost_t cost_chain(const tt_plan_request_t *request)
{
    const size_t chunk = tt_chunk_elements(request->count, CHUNK);
    const int chunks = tt_chunk_count(request->count, chunk);
    const bool is_alone = request->size == 1;
    return (tt_plan_cost_t){.rounds = is_alone ? 1 : chunks + request->size - 2,
                            .sent = is_alone ? 0 : request->count};
}

const tt_algorithm_t tt_algorithm_chain = {
    .name = "chain",
    .about = "a broadcast in chunks, from each rank to the next one",
    .source = "van de Geijn 1991",
    .is_canonical = true,
    .fits = fits_chain,
    .plan = plan_chain,
    .phase = add_phase,
    .cost = cost_chain,
};
