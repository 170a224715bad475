/* pairwise: any number of ranks, any leaf map, any wire.
 *
 *     all_reduce      every rank sends slice j of each of its pieces to owner j; the owner
 *                     evaluates the tree over what it received and what it has, and sends its slice
 *                     of the result to every rank
 *     reduce_scatter  the first half, with the ranks' parts for slices
 *     reduce          owners send their slice to the root, as an unfinished sum: only the root has
 *                     memory of the result's dtype
 *     scan, exscan    owners send every rank's result of their slice to it, as unfinished sums
 *                     (algo_prefix.c)
 *     broadcast       the root sends slice j to rank j, which sends it on to every rank
 *     all_gather, gather, scatter, all_to_all   every rank sends what others want of its piece
 *     barrier         every rank sends an empty message to every rank
 *
 * What has more than one phase is cut into chunks that stay in the cache, and the phases of
 * consecutive chunks share a round: phase p of chunk c is in round c + p.
 *
 *     sums            0 pieces to owners, 1 add up, 2 slices to all or to those that collect them,
 *                     3 these finish them: AVG divides, 16-bit floats are rounded
 *     broadcast       0 slices to owners, 1 owners to all
 *
 * Cost with one piece per rank: 2 N (size - 1) / size elements sent by each rank in an all_reduce,
 * as a ring's, in size - 1 messages at once.
 *
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", 2005 (pairwise exchange).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/pairwise.h"

/* Elements of the whole vector. What is received in one round is used in the next one, while the
 * next chunk arrives: hence two slots. A round costs calls of the system and a meeting of two
 * ranks, so it should move as much as stays in the cache of a core: 512 KiB each way for two ranks
 * and f32. Where a rank passes on what it receives while more comes in, which only a broadcast's
 * do, shorter chunks let both go on at once earlier. */
enum { CHUNK = 256 << 10, CHUNK_PASSED_ON = 32 << 10, SLOTS = 2 };

/* The lowest rank that has a result; it is that of one piece. */
static int first_result(const tt_plan_t *plan)
{
    return plan->collective == TT_EXSCAN;
}

void tt_prefix_add_sums(tt_plan_t *plan, tt_others_t others, bool is_partial)
{
    const int whole = tt_plan_sum_pieces(plan, tt_plan_givers(plan), others, false);
    for (int rank = first_result(plan); whole >= 0 && rank < plan->size; rank++) {
        const int count = tt_plan_contributors(&plan->request, rank);
        (void)tt_plan_add_prefix_sum(plan, whole, count, is_partial);
    }
}

int tt_prefix_sum(const tt_plan_t *plan, int rank)
{
    return 1 + rank - first_result(plan);
}

/* How a call is cut into chunks, and what a rank needs for one. */
typedef struct {
    tt_cut_t cut;
    size_t slice;       /* the longest that this rank owns of any chunk */
    tt_slots_t pieces;  /* of the scratch buffer: a slice of each piece that others send */
    tt_slots_t results; /* of the sum buffer: my slice of what others collect, in order of ranks,
                         * then a chunk of what I collect */
    size_t collected;   /* where in a slot that begins */
    int owned, finish;  /* the sums: of my slice; of one slice that I collected */
} state_t;

static bool is_prefix(const tt_plan_t *plan)
{
    return tt_collective_is_prefix(plan->collective);
}

/* Whether a rank's result comes to it as unfinished sums. */
static bool collects(const tt_plan_t *plan, int rank)
{
    return plan->collective == TT_REDUCE
               ? rank == plan->root
               : is_prefix(plan) && tt_plan_contributors(&plan->request, rank) > 0;
}

static void exchange_pieces(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const size_t mine = tt_cut_owned(&s->cut, plan->rank, c).count;
    size_t at = tt_slot_at(&s->pieces, c); /* pieces lie side by side, in order of ranks */
    for (int i = 1; i < plan->size && plan->rank < tt_plan_givers(plan); i++) {
        const int peer = tt_plan_peer(plan, i);
        const tt_slice_t slice = tt_cut_owned(&s->cut, peer, c);
        for (int k = 0; k < plan->pieces_of[plan->rank]; k++) {
            tt_plan_send(plan, peer, tt_piece_at(k, slice.begin), slice.count);
        }
    }
    for (int peer = 0; peer < tt_plan_givers(plan); peer++) {
        for (int k = 0; peer != plan->rank && k < plan->pieces_of[peer]; k++, at += s->slice) {
            tt_plan_recv(plan, peer, tt_part_at(TT_BUFFER_SCRATCH, at), mine);
        }
    }
}

/* Every rank but the root of a broadcast gets my slice of the result and gives me its own. */
static void exchange_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const int skip = plan->collective == TT_BROADCAST ? plan->root : -1;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    for (int i = 1; i < plan->size; i++) {
        if (tt_plan_peer(plan, i) != skip) {
            tt_plan_send(plan, tt_plan_peer(plan, i), tt_out_at(mine.begin), mine.count);
        }
    }
    for (int i = 1; i < plan->size && plan->rank != skip; i++) {
        const tt_slice_t theirs = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_recv(plan, tt_plan_peer(plan, i), tt_out_at(theirs.begin), theirs.count);
    }
}

/* Where a rank's result of my slice is that it collects; of a reduce the root's is the only one. */
static tt_part_t result_at(const tt_plan_t *plan, int rank, int c)
{
    const state_t *s = plan->state;
    return tt_part_at(TT_BUFFER_SUM,
                      tt_slot_at(&s->results, c) + (is_prefix(plan) ? s->slice * (size_t)rank : 0));
}

/* Where I have a peer's slice of what I collect. */
static tt_part_t collected_at(const state_t *s, tt_slice_t slice, int c)
{
    return tt_part_at(TT_BUFFER_SUM, tt_slot_at(&s->results, c) + s->collected + slice.begin -
                                         s->cut.chunk * (size_t)c);
}

static void reduce_slice(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    const size_t part = s->cut.has_parts ? tt_plan_part(&plan->request, plan->rank).begin : 0;
    const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
    tt_plan_reduce(
        plan,
        (tt_sum_at_t){.sum = s->owned, .piece = mine.begin, .shift = tt_slot_at(&s->pieces, c)},
        is_passed_on ? result_at(plan, plan->root, c) : tt_out_at(mine.begin - part), mine.count);
}

static void reduce_prefixes(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    const size_t shift = tt_slot_at(&s->pieces, c);
    for (int rank = 0; rank < plan->size; rank++) {
        if (collects(plan, rank)) {
            tt_plan_reduce(plan,
                           (tt_sum_at_t){.sum = tt_prefix_sum(plan, rank),
                                         .piece = mine.begin,
                                         .shift = shift},
                           result_at(plan, rank, c), mine.count);
        }
    }
}

static void finish_slice(tt_plan_t *plan, tt_part_t from, tt_slice_t slice)
{
    const state_t *s = plan->state;
    tt_plan_reduce(plan, (tt_sum_at_t){.sum = s->finish, .shift = from.offset},
                   tt_out_at(slice.begin), slice.count);
}

static void exchange_results(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    for (int i = 1; i < plan->size; i++) {
        const int peer = tt_plan_peer(plan, i);
        if (collects(plan, peer)) {
            tt_plan_send(plan, peer, result_at(plan, peer, c), mine.count);
        }
    }
    if (is_prefix(plan) && collects(plan, plan->rank)) {
        finish_slice(plan, result_at(plan, plan->rank, c), mine);
    }
    for (int i = 1; i < plan->size && collects(plan, plan->rank); i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_recv(plan, tt_plan_peer(plan, i), collected_at(s, slice, c), slice.count);
    }
}

static void finish_results(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int i = 1; i < plan->size && collects(plan, plan->rank); i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        finish_slice(plan, collected_at(s, slice, c), slice);
    }
}

static void add_sums(tt_plan_t *plan, state_t *s)
{
    const tt_others_t received = {TT_BUFFER_SCRATCH, 0, s->slice};
    if (s->slice > 0 && is_prefix(plan)) {
        tt_prefix_add_sums(plan, received, true);
    } else if (s->slice > 0) {
        const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
        s->owned = tt_plan_sum_pieces(plan, plan->size, received, is_passed_on);
    }
    if (collects(plan, plan->rank)) {
        const int leaves =
            is_prefix(plan) ? tt_plan_contributors(&plan->request, plan->rank) : plan->leaves;
        const tt_plan_term_t whole = {{0, leaves}, {plan->rank, tt_part_at(TT_BUFFER_SUM, 0)}};
        s->finish = tt_plan_add_sum(plan, &whole, 1, false);
    }
}

static void prepare_sums(tt_plan_t *plan, state_t *s)
{
    const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
    const int sent = is_prefix(plan) ? plan->size : is_passed_on;
    size_t others = 0;
    for (int peer = 0; peer < tt_plan_givers(plan); peer++) {
        others += peer != plan->rank ? (size_t)plan->pieces_of[peer] : 0;
    }
    s->slice = tt_cut_longest(&s->cut, plan->rank);
    s->pieces = tt_plan_reserve_slots(plan, &s->cut, TT_BUFFER_SCRATCH, s->slice * others, SLOTS);
    s->collected = s->slice * (size_t)sent;
    s->results = tt_plan_reserve_slots(
        plan, &s->cut, TT_BUFFER_SUM,
        s->collected + (collects(plan, plan->rank) ? s->cut.chunk : 0), SLOTS);
    add_sums(plan, s);
}

/* The root's piece and out are the same values: it keeps a copy of its own. */
static void give_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    if (plan->rank != plan->root) {
        tt_plan_recv(plan, plan->root, tt_out_at(mine.begin), mine.count);
        return;
    }
    if (c == 0) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_send(plan, tt_plan_peer(plan, i), tt_piece_at(0, slice.begin), slice.count);
    }
}

static void exchange_parts(tt_plan_t *plan, int chunk)
{
    const tt_plan_request_t *request = &plan->request;
    size_t at;
    (void)chunk;
    for (int i = 0; i < plan->size; i++) {
        const tt_slice_t slice = tt_plan_given(request, tt_plan_peer(plan, i));
        if (i > 0) {
            tt_plan_send(plan, tt_plan_peer(plan, i), tt_piece_at(0, slice.begin), slice.count);
        } else if (plan->collective != TT_BARRIER) {
            (void)tt_plan_wanted(request, plan->rank, plan->rank, &at);
            tt_plan_copy(plan, tt_piece_at(0, slice.begin), tt_out_at(at), slice.count);
        }
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_plan_wanted(request, plan->rank, tt_plan_peer(plan, i), &at);
        tt_plan_recv(plan, tt_plan_peer(plan, i), tt_out_at(at), slice.count);
    }
}

void tt_pairwise_prepare(tt_plan_t *plan)
{
    static const tt_plan_loop_t loops[TT_COLLECTIVE_COUNT] = {
        [TT_ALL_REDUCE] = {.phases = {exchange_pieces, reduce_slice, exchange_slices}},
        [TT_REDUCE_SCATTER] = {.phases = {exchange_pieces, reduce_slice}},
        [TT_REDUCE] = {.phases = {exchange_pieces, reduce_slice, exchange_results, finish_results}},
        [TT_SCAN] = {.phases = {exchange_pieces, reduce_prefixes, exchange_results,
                                finish_results}},
        [TT_EXSCAN] = {.phases = {exchange_pieces, reduce_prefixes, exchange_results,
                                  finish_results}},
        [TT_BROADCAST] = {.phases = {give_slices, exchange_slices}},
    };
    tt_plan_loop_t loop = loops[plan->collective];
    state_t *s = plan->state = tt_plan_alloc(plan, 1, sizeof *s);
    if (s == NULL) {
        return;
    }
    if (loop.phases[0] == NULL) {
        tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = 1, .phases = {exchange_parts}});
        return;
    }
    s->cut = plan->collective == TT_REDUCE_SCATTER
                 ? tt_cut_parts(&plan->request, CHUNK / (size_t)plan->size)
                 : tt_cut_vector(&plan->request,
                                 plan->collective == TT_BROADCAST ? CHUNK_PASSED_ON : CHUNK);
    if (tt_collective_reduces(plan->collective)) {
        prepare_sums(plan, s);
    }
    loop.chunks = s->cut.chunks;
    tt_plan_add_loop(plan, loop);
}

const tt_algorithm_t tt_algorithm_pairwise = {
    .name = "pairwise",
    .about = "the owner of a slice receives it from all, reduces it by the tree, sends it to all",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .collectives = TT_ALL_BUT_PREFIXES,
    .prepare = tt_pairwise_prepare,
};
