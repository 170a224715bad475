/* direct: all ranks are local ranks and raise a flag that says where their memory is; each then
 * reads and writes what it needs of the others' memory, and a second flag says that it is done with
 * it. One round.
 *
 *     all_reduce      rank r owns slice r: reads it out of every piece, evaluates the tree, stores
 *                     the result into every rank's out. Reads N per piece / size, writes N.
 *     reduce          the same, but the root's out alone is written
 *     reduce_scatter  the same, but the slice is rank r's part and only its own out is written
 *     all_gather      gets every rank's piece; gather: the root alone does
 *     broadcast       the root puts its slice of the piece into every rank's out, the others get
 *                     the rest, so that all ranks move as much; a short piece they get whole
 *     scatter         gets a part of the root's piece
 *     all_to_all      gets a part of every rank's piece; where it begins stands in the peer's
 *                     table of counts, unless all counts are equal
 *     barrier         nothing is left to do
 *
 * Source: Hashmi et al., "Designing Efficient Shared Address Space Reduction Collectives for
 * Multi-/Many-cores", IPDPS 2018.
 *
 * flag: the pieces lie in the flag lines themselves, so that one hand-over is enough, and every
 * rank computes everything that it wants. What a rank gives in an all_to_all of uneven parts is not
 * known to the others, so that they could not find their part in its line.
 *
 * Cost: every rank reads everything; one hand-over instead of two. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

/* What a rank computes of a sum. */
static tt_slice_t owned(const tt_plan_t *plan)
{
    if (plan->collective == TT_REDUCE_SCATTER) {
        return tt_plan_part(&plan->request, plan->rank);
    }
    return plan->algorithm->travels_in_flags ? (tt_slice_t){0, tt_plan_out_elements(&plan->request)}
                                             : tt_plan_slice(plan->count, plan->size, plan->rank);
}

static void reduce(tt_plan_t *plan, int chunk)
{
    const tt_slice_t slice = owned(plan);
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    const tt_target_t to = is_scatter || plan->algorithm->travels_in_flags ? TT_TO_ME
                           : plan->collective == TT_REDUCE                 ? TT_TO_PEER
                                                                           : TT_TO_LOCAL_RANKS;
    (void)chunk;
    if (plan->sum_count > 0) {
        tt_plan_reduce(plan, (tt_sum_at_t){.piece = slice.begin, .to = to, .peer = plan->root},
                       tt_out_at(is_scatter ? 0 : slice.begin), slice.count);
    }
}

/* What the root of a broadcast puts. Two ranks that move half of 64 KiB each take 0.7 of the time
 * of one that moves it all; of 16 KiB, whose lines go to and fro, 1.1. */
static tt_slice_t put_by_root(const tt_plan_t *plan)
{
    enum { PUT_FROM = 8192 };
    return plan->count < PUT_FROM ? (tt_slice_t){0, 0}
                                  : tt_plan_slice(plan->count, plan->size, plan->root);
}

static void get(tt_plan_t *plan, size_t begin, size_t end)
{
    tt_plan_get(plan, (tt_source_t){plan->root, tt_piece_at(0, begin)}, tt_out_at(begin),
                end - begin);
}

static void broadcast(tt_plan_t *plan, int chunk)
{
    const tt_slice_t put = put_by_root(plan);
    (void)chunk;
    if (plan->rank != plan->root) {
        get(plan, 0, put.begin);
        get(plan, put.begin + put.count, plan->count);
        return;
    }
    get(plan, 0, plan->count); /* out of its own piece; in place nothing moves */
    for (int i = 1; i < plan->size; i++) {
        tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_PUT,
                                      .peer = tt_plan_peer(plan, i),
                                      .to = TT_TO_PEER,
                                      .src = tt_piece_at(0, put.begin),
                                      .dst = tt_out_at(put.begin),
                                      .count = put.count});
    }
}

static void get_all(tt_plan_t *plan, int chunk)
{
    const bool has_table = plan->collective == TT_ALL_TO_ALL && plan->request.counts != NULL;
    (void)chunk;
    for (int i = 0; i < plan->size && plan->collective != TT_BARRIER; i++) {
        /* start with my own, so that not all ranks read the same memory at once */
        const int peer = tt_plan_peer(plan, i);
        size_t at;
        const tt_slice_t part = tt_plan_wanted(&plan->request, plan->rank, peer, &at);
        const tt_part_t src = {TT_BUFFER_PIECE, has_table ? TT_FROM_TABLE : 0, part.begin};
        tt_plan_get(plan, (tt_source_t){peer, src}, tt_out_at(at), part.count);
    }
}

static void prepare_direct(tt_plan_t *plan)
{
    tt_plan_loop_t loop = {.chunks = 1, .phases = {get_all}};
    if (plan->collective == TT_BROADCAST && !plan->algorithm->travels_in_flags) {
        loop.phases[0] = broadcast;
    } else if (tt_collective_reduces(plan->collective)) {
        loop.phases[0] = reduce;
        if (owned(plan).count > 0) {
            tt_plan_sum_pieces(plan, tt_plan_contributors(&plan->request, plan->rank),
                               (tt_others_t){0}, false);
        }
    }
    tt_plan_add_loop(plan, loop);
}

const tt_algorithm_t tt_algorithm_direct = {
    .name = "direct",
    .about = "every rank reads what it needs out of the others' memory",
    .source = "Hashmi et al., IPDPS 2018",
    .is_canonical = true,
    .shares_memory = true,
    .collectives = TT_ALL_BUT_PREFIXES,
    .needs_one_host = true,
    .prepare = prepare_direct,
};

const tt_algorithm_t tt_algorithm_flag = {
    .name = "flag",
    .about = "small contributions travel inside the flag lines, every rank computes everything",
    .source = "Tutti",
    .is_canonical = true,
    .shares_memory = true,
    .travels_in_flags = true,
    .collectives = TT_ALL_COLLECTIVES,
    .needs_one_host = true,
    .needs_even_exchange = true,
    .prepare = prepare_direct,
};
