/* pairwise: any number of ranks, any leaf map, any wire.
 *
 *     all_reduce      every rank sends slice j of each of its pieces to owner j; the owner
 *                     evaluates the tree over what it received and what it has, and sends its slice
 *                     of the result to every rank
 *     reduce_scatter  the first half, with the ranks' parts for slices
 *     reduce          owners send their slice to the root, as an unfinished sum: only the root has
 *                     memory of the result's dtype
 *     broadcast       the root sends slice j to rank j, which sends it on to every rank
 *     all_gather, gather, scatter, all_to_all   every rank sends what others want of its piece
 *     barrier         every rank sends an empty message to every rank
 *
 * What has more than one phase is cut into chunks that stay in the cache, and the phases of
 * consecutive chunks share a round: phase p of chunk c is in round c + p.
 *
 *     all_reduce, reduce_scatter, reduce   0 pieces to owners, 1 add up, 2 slices to all or to the
 *                                          root, 3 the root finishes them (reduce)
 *     broadcast                            0 slices to owners, 1 owners to all
 *
 * Cost with one piece per rank: 2 N (size - 1) / size elements sent by each rank in an all_reduce,
 * as a ring's, in size - 1 messages at once.
 *
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", 2005 (pairwise exchange).
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"
#include "core/base/alloc.h"

/* Elements of the whole vector. What is received in one round is used in the next one, while the
 * next chunk arrives: hence two slots. A round costs calls of the system and a meeting of two
 * ranks, so it should move as much as stays in the cache of a core: 512 KiB each way for two ranks
 * and f32. Where a rank passes on what it receives while more comes in, which only a broadcast's
 * do, shorter chunks let both go on at once earlier. */
enum { CHUNK = 256 << 10, CHUNK_PASSED_ON = 32 << 10, SLOTS = 2 };

/* The sums: that of a rank's slice, and in a reduce before it that of one slice which the root
 * finishes. */
enum { SUM_OWNED, SUM_FINISH = 0, SUM_OF_REDUCE };

/* How a call is cut into chunks, and what a rank needs for one. */
typedef struct {
    tt_cut_t cut;
    size_t slice; /* the longest that this rank owns of any chunk */
    size_t slot;  /* of the scratch buffer: a slice of each piece that others send */
    size_t sums;  /* of the sum buffer: a whole chunk at the root of a reduce, else a slice */
} state_t;

static void exchange_pieces(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const size_t mine = tt_cut_owned(&s->cut, plan->rank, c).count;
    size_t at = (size_t)(c % SLOTS) * s->slot; /* pieces lie side by side, in order of ranks */
    for (int i = 1; i < plan->size; i++) {
        const int peer = tt_plan_peer(plan, i);
        const tt_slice_t slice = tt_cut_owned(&s->cut, peer, c);
        for (int k = 0; k < plan->pieces_of[plan->rank]; k++) {
            tt_plan_send(plan, peer, tt_piece_at(k, slice.begin), slice.count);
        }
    }
    for (int peer = 0; peer < plan->size; peer++) {
        for (int k = 0; peer != plan->rank && k < plan->pieces_of[peer]; k++, at += s->slice) {
            tt_plan_recv(plan, peer, tt_part_at(TT_BUFFER_SCRATCH, at), mine);
        }
    }
}

/* The sum over my pieces and what is received of the others'. */
static void make_owned_sum(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const state_t *s = plan->state;
    const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
    size_t at = 0;
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, plan->size, &count);
    for (int i = 0; terms != NULL && i < count; i++) {
        if (terms[i].source.rank != plan->rank) {
            terms[i].source = (tt_source_t){plan->rank, tt_part_at(TT_BUFFER_SCRATCH, at)};
            at += s->slice;
        }
    }
    if (terms != NULL) {
        tt_plan_add_sum(plan, terms, count, is_passed_on);
    }
    tt_free(terms);
}

/* Every rank but `skip` gets my slice of the result and gives me its own. */
static void exchange_slices(tt_plan_t *plan, int c, int skip)
{
    const state_t *s = plan->state;
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

/* Where the root has a peer's slice of a chunk; the others have their own at the front. */
static size_t collected_at(const state_t *s, tt_slice_t slice, int c)
{
    return (size_t)(c % SLOTS) * s->sums + slice.begin - s->cut.chunk * (size_t)c;
}

static void collect_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    if (plan->rank != plan->root) {
        tt_plan_send(plan, plan->root, tt_part_at(TT_BUFFER_SUM, (size_t)(c % SLOTS) * s->sums),
                     tt_cut_owned(&s->cut, plan->rank, c).count);
        return;
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_recv(plan, tt_plan_peer(plan, i),
                     tt_part_at(TT_BUFFER_SUM, collected_at(s, slice, c)), slice.count);
    }
}

static void finish_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int i = 1; i < plan->size && plan->rank == plan->root; i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_reduce(plan, (tt_sum_at_t){.sum = SUM_FINISH, .shift = collected_at(s, slice, c)},
                       tt_out_at(slice.begin), slice.count);
    }
}

static void reduce_slice(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    const size_t slot = (size_t)(c % SLOTS);
    const size_t part =
        plan->collective == TT_REDUCE_SCATTER ? tt_plan_part(request, plan->rank).begin : 0;
    const bool is_reduce = plan->collective == TT_REDUCE;
    tt_plan_reduce(plan,
                   (tt_sum_at_t){.sum = is_reduce ? SUM_OF_REDUCE : SUM_OWNED,
                                 .piece = mine.begin,
                                 .shift = slot * s->slot},
                   is_reduce && plan->rank != plan->root ? tt_part_at(TT_BUFFER_SUM, slot * s->sums)
                                                         : tt_out_at(mine.begin - part),
                   mine.count);
}

static void prepare_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    state_t *s = plan->state;
    const int all = tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, NULL);
    const size_t slots = (size_t)(s->cut.chunks < SLOTS ? s->cut.chunks : SLOTS);
    s->slice = tt_cut_longest(&s->cut, plan->rank);
    s->slot = s->slice * (size_t)(all - plan->pieces_of[plan->rank]);
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, s->slot * slots);
    if (plan->collective == TT_REDUCE) {
        const tt_part_t collected = tt_part_at(TT_BUFFER_SUM, 0);
        const tt_plan_term_t whole = {{0, plan->leaves}, {plan->rank, collected}};
        s->sums = plan->rank == plan->root ? s->cut.chunk : s->slice;
        tt_plan_add_sum(plan, &whole, 1, false);
        tt_plan_reserve(plan, TT_BUFFER_SUM, s->sums * slots);
    }
    if (s->slice > 0) {
        make_owned_sum(plan, request);
    }
}

static void add_reduction(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    switch (at.phase) {
    case 0:
        exchange_pieces(plan, at.chunk);
        return;
    case 1:
        reduce_slice(plan, request, at.chunk);
        return;
    case 2:
        if (plan->collective == TT_ALL_REDUCE) {
            exchange_slices(plan, at.chunk, -1);
        } else {
            collect_slices(plan, at.chunk);
        }
        return;
    default:
        finish_slices(plan, at.chunk);
    }
}

/* The root's piece and out are the same values: it keeps a copy of its own. */
static void add_broadcast(tt_plan_t *plan, tt_plan_at_t at)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, at.chunk);
    if (at.phase == 1) {
        exchange_slices(plan, at.chunk, plan->root);
        return;
    }
    if (plan->rank != plan->root) {
        tt_plan_recv(plan, plan->root, tt_out_at(mine.begin), mine.count);
        return;
    }
    if (at.chunk == 0) {
        tt_plan_copy(plan, tt_piece_at(0, 0), tt_out_at(0), plan->count);
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), at.chunk);
        tt_plan_send(plan, tt_plan_peer(plan, i), tt_piece_at(0, slice.begin), slice.count);
    }
}

static void add_exchange(tt_plan_t *plan, const tt_plan_request_t *request)
{
    size_t at;
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

static void prepare_pairwise(tt_plan_t *plan, const tt_plan_request_t *request)
{
    static const int last_phases[TT_COLLECTIVE_COUNT] = {
        [TT_ALL_REDUCE] = 2, [TT_REDUCE_SCATTER] = 1, [TT_REDUCE] = 3, [TT_BROADCAST] = 1};
    const int last = last_phases[plan->collective];
    state_t *s = plan->state;
    s->cut = plan->collective == TT_REDUCE_SCATTER
                 ? tt_cut_parts(request, CHUNK / (size_t)plan->size)
                 : tt_cut_vector(request, last == 1 ? CHUNK_PASSED_ON : CHUNK);
    if (tt_collective_reduces(plan->collective)) {
        prepare_reduction(plan, request);
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = last > 0 ? s->cut.chunks : 1, .last = last});
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    if (tt_collective_reduces(plan->collective)) {
        add_reduction(plan, request, at);
    } else if (plan->collective == TT_BROADCAST) {
        add_broadcast(plan, at);
    } else {
        add_exchange(plan, request);
    }
}

static bool fits_all_but_prefixes(const tt_plan_request_t *request)
{
    return !request->is_staged && !tt_collective_is_prefix(request->collective);
}

const tt_algorithm_t tt_algorithm_pairwise = {
    .name = "pairwise",
    .about = "the owner of a slice receives it from all, reduces it by the tree, sends it to all",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_all_but_prefixes,
    .prepare = prepare_pairwise,
    .phase = add_phase,
    .state_bytes = sizeof(state_t),
};
