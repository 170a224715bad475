/* pairwise: any number of ranks, any leaf map, any wire.
 *
 *     all_reduce      everyone sends slice j of each of its pieces to owner j; the owner evaluates
 *                     the tree over what it got and what it has, and sends its slice of the result
 *                     to everyone
 *     reduce_scatter  the first half, with the ranks' parts for slices
 *     reduce          owners send their slice to the root, as an unfinished sum: only the root has
 *                     memory of the result's dtype
 *     broadcast       the root sends slice j to rank j, who sends it on to everyone
 *     all_gather, gather, scatter, all_to_all   everyone sends what others want of its piece
 *     barrier         everyone sends an empty message to everyone
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
    size_t chunk;
    int chunks;
    size_t slice; /* the longest that this rank owns of any chunk */
    size_t slot;  /* of the scratch buffer: a slice of each piece that others send */
    size_t sums;  /* of the sum buffer: a whole chunk at the root of a reduce, else a slice */
} cut_t;

static cut_t cut_of(const tt_plan_request_t *request)
{
    cut_t cut = {.chunk = request->collective == TT_BROADCAST ? CHUNK_PASSED_ON : CHUNK};
    size_t length = request->count;
    if (request->collective == TT_REDUCE_SCATTER) {
        const size_t part = CHUNK / (size_t)request->size;
        length = tt_plan_part_max(request);
        cut.chunk = part > 64 ? part : 64;
    }
    cut.chunk = tt_chunk_elements(length, cut.chunk);
    cut.chunks = tt_chunk_count(length, cut.chunk);
    return cut;
}

/* What a rank owns of a chunk, as offsets into the pieces. */
static tt_slice_t owned(const tt_plan_request_t *request, const cut_t *cut, int rank, int c)
{
    if (request->collective == TT_REDUCE_SCATTER) {
        const tt_slice_t part = tt_plan_part(request, rank);
        const tt_slice_t chunk = tt_chunk(part.count, cut->chunk, c);
        return (tt_slice_t){part.begin + chunk.begin, chunk.count};
    }
    const tt_slice_t chunk = tt_chunk(request->count, cut->chunk, c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, request->size, rank);
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* The last chunk is the only one of another length, and may be cut such that its last slices are
 * longer. */
static size_t longest_owned(const tt_plan_request_t *request, const cut_t *cut, int rank)
{
    const size_t first = owned(request, cut, rank, 0).count;
    const size_t last = cut->chunks > 0 ? owned(request, cut, rank, cut->chunks - 1).count : 0;
    return first > last ? first : last;
}

/* Peers in an order that differs from rank to rank, so that not all send to the same one. */
static int peer_at(const tt_plan_t *plan, int i)
{
    return (plan->rank + i) % plan->size;
}

static void send_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const cut_t *cut = plan->state;
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, cut, peer, c);
        for (int k = 0; k < plan->pieces_of[plan->rank]; k++) {
            tt_plan_send(plan, c, peer, tt_piece_at(k, slice.begin), slice.count);
        }
    }
}

/* Pieces of a slice lie side by side in a slot of the scratch buffer, in order of ranks. */
static void recv_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const cut_t *cut = plan->state;
    const tt_slice_t slice = owned(request, cut, plan->rank, c);
    size_t at = (size_t)(c % SLOTS) * cut->slot;
    for (int peer = 0; peer < plan->size; peer++) {
        for (int k = 0; peer != plan->rank && k < plan->pieces_of[peer]; k++, at += cut->slice) {
            tt_plan_recv(plan, c, peer, tt_part_at(TT_BUFFER_SCRATCH, at), slice.count);
        }
    }
}

/* The sum over my pieces and what is received of the others'. */
static void make_owned_sum(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const cut_t *cut = plan->state;
    const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
    size_t at = 0;
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, plan->size, &count);
    for (int i = 0; terms != NULL && i < count; i++) {
        if (terms[i].source.rank != plan->rank) {
            terms[i].source = (tt_source_t){plan->rank, tt_part_at(TT_BUFFER_SCRATCH, at)};
            at += cut->slice;
        }
    }
    if (terms != NULL) {
        tt_plan_add_sum(plan, terms, count, is_passed_on);
    }
    tt_free(terms);
}

/* Everyone but `skip` gets my slice of the result and gives me its own. */
static void exchange_slices(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t now,
                            int skip)
{
    const cut_t *cut = plan->state;
    const int c = now.chunk, round = now.round;
    const tt_slice_t mine = owned(request, cut, plan->rank, c);
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        if (peer != skip) {
            tt_plan_send(plan, round, peer, tt_part_at(TT_BUFFER_OUT, mine.begin), mine.count);
        }
    }
    for (int i = 1; i < plan->size && plan->rank != skip; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t theirs = owned(request, cut, peer, c);
        tt_plan_recv(plan, round, peer, tt_part_at(TT_BUFFER_OUT, theirs.begin), theirs.count);
    }
}

/* Where the root has a peer's slice of a chunk. */
static size_t collected_at(const cut_t *cut, tt_slice_t slice, int c)
{
    return (size_t)(c % SLOTS) * cut->sums + slice.begin - cut->chunk * (size_t)c;
}

static void collect_slices(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const cut_t *cut = plan->state;
    if (plan->rank != plan->root) {
        tt_plan_send(plan, c + 2, plan->root,
                     tt_part_at(TT_BUFFER_SUM, (size_t)(c % SLOTS) * cut->sums),
                     owned(request, cut, plan->rank, c).count);
        return;
    }
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, cut, peer, c);
        tt_plan_recv(plan, c + 2, peer, tt_part_at(TT_BUFFER_SUM, collected_at(cut, slice, c)),
                     slice.count);
    }
}

static void finish_slices(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const cut_t *cut = plan->state;
    for (int i = 1; i < plan->size && plan->rank == plan->root; i++) {
        const tt_slice_t slice = owned(request, cut, peer_at(plan, i), c);
        const tt_sum_at_t at = {SUM_FINISH, 0, collected_at(cut, slice, c)};
        tt_plan_reduce_at(plan, c + 3, at, tt_part_at(TT_BUFFER_OUT, slice.begin), slice.count);
    }
}

static void reduce_slice(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const cut_t *cut = plan->state;
    const tt_slice_t mine = owned(request, cut, plan->rank, c);
    const size_t slot = (size_t)(c % SLOTS), part = tt_plan_part(request, plan->rank).begin;
    const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
    const bool is_reduce = plan->collective == TT_REDUCE;
    const tt_sum_at_t at = {is_reduce ? SUM_OF_REDUCE : SUM_OWNED, mine.begin, slot * cut->slot};
    const tt_part_t dst = is_reduce && plan->rank != plan->root
                              ? tt_part_at(TT_BUFFER_SUM, slot * cut->sums)
                              : tt_part_at(TT_BUFFER_OUT, mine.begin - (is_scatter ? part : 0));
    tt_plan_reduce_at(plan, c + 1, at, dst, mine.count);
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    cut_t *cut = plan->state;
    const int all = tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, NULL);
    const size_t slots = (size_t)(cut->chunks < SLOTS ? cut->chunks : SLOTS);
    cut->slice = longest_owned(request, cut, plan->rank);
    cut->slot = cut->slice * (size_t)(all - plan->pieces_of[plan->rank]);
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, cut->slot * slots);
    if (plan->collective == TT_REDUCE) {
        const tt_part_t collected = tt_part_at(TT_BUFFER_SUM, 0);
        const tt_plan_term_t whole = {{0, plan->leaves}, {plan->rank, collected}};
        const size_t chunk = cut->chunk < plan->count ? cut->chunk : plan->count;
        cut->sums = plan->rank == plan->root ? chunk : cut->slice;
        tt_plan_add_sum(plan, &whole, 1, false);
        tt_plan_reserve(plan, TT_BUFFER_SUM, cut->sums * slots);
    }
    if (cut->slice > 0) {
        make_owned_sum(plan, request);
    }
}

static void add_reduction(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    switch (at.phase) {
    case 0:
        send_pieces(plan, request, at.chunk);
        recv_pieces(plan, request, at.chunk);
        return;
    case 1:
        reduce_slice(plan, request, at.chunk);
        return;
    case 2:
        if (plan->collective == TT_ALL_REDUCE) {
            exchange_slices(plan, request, at, -1);
        } else {
            collect_slices(plan, request, at.chunk);
        }
        return;
    default:
        finish_slices(plan, request, at.chunk);
    }
}

/* The root's piece and out are the same values: it keeps a copy of its own. */
static void add_broadcast(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    const cut_t *cut = plan->state;
    const tt_slice_t mine = owned(request, cut, plan->rank, at.chunk);
    if (at.phase == 1) {
        exchange_slices(plan, request, at, plan->root);
        return;
    }
    if (plan->rank != plan->root) {
        tt_plan_recv(plan, at.round, plan->root, tt_part_at(TT_BUFFER_OUT, mine.begin), mine.count);
        return;
    }
    if (at.chunk == 0) {
        tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, 0), plan->count);
    }
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, cut, peer, at.chunk);
        tt_plan_send(plan, at.round, peer, tt_piece_at(0, slice.begin), slice.count);
    }
}

/* What a peer wants of my piece. */
static tt_slice_t given(const tt_plan_request_t *request, int peer)
{
    if (request->collective == TT_ALL_TO_ALL) {
        return tt_plan_part(request, peer);
    }
    size_t at;
    return tt_plan_wanted(request, peer, request->rank, &at);
}

static void add_exchange(tt_plan_t *plan, const tt_plan_request_t *request)
{
    size_t at;
    const tt_slice_t own = given(request, plan->rank);
    const tt_slice_t kept = tt_plan_wanted(request, plan->rank, plan->rank, &at);
    if (plan->collective != TT_BARRIER) {
        tt_plan_copy(plan, 0, tt_piece_at(0, own.begin), tt_part_at(TT_BUFFER_OUT, at), kept.count);
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = given(request, peer_at(plan, i));
        tt_plan_send(plan, 0, peer_at(plan, i), tt_piece_at(0, slice.begin), slice.count);
    }
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_plan_wanted(request, plan->rank, peer_at(plan, i), &at);
        tt_plan_recv(plan, 0, peer_at(plan, i), tt_part_at(TT_BUFFER_OUT, at), slice.count);
    }
}

/* The last phase of each collective. */
static int last_phase(tt_collective_t collective)
{
    static const int phases[TT_COLLECTIVE_COUNT] = {
        [TT_ALL_REDUCE] = 2, [TT_REDUCE_SCATTER] = 1, [TT_REDUCE] = 3, [TT_BROADCAST] = 1};
    return phases[collective];
}

static void plan_pairwise(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int last = last_phase(plan->collective);
    cut_t *cut = plan->state;
    *cut = cut_of(request);
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    }
    tt_plan_add_loop(
        plan, (tt_plan_loop_t){.chunks = last > 0 ? cut->chunks : 1, .stride = 1, .last = last});
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    if (tt_collective_reduces(plan->collective)) {
        add_reduction(plan, request, at);
    } else if (plan->collective == TT_BROADCAST) {
        add_broadcast(plan, request, at);
    } else {
        add_exchange(plan, request);
    }
}

static bool fits_all_but_prefixes(const tt_plan_request_t *request)
{
    return !request->is_staged && !tt_collective_is_prefix(request->collective);
}

/* All slices of a rank together: those of whole chunks, and of the last one. */
static size_t owned_by(const tt_plan_request_t *request, const cut_t *cut, int rank)
{
    if (cut->chunks == 0) {
        return 0;
    }
    return owned(request, cut, rank, 0).count * (size_t)(cut->chunks - 1) +
           owned(request, cut, rank, cut->chunks - 1).count;
}

/* What a rank sends, in elements. */
static size_t sent_by(const tt_plan_request_t *request, const cut_t *cut, int rank)
{
    const size_t count = request->count, others = (size_t)request->size - 1;
    const size_t own = tt_plan_part(request, rank).count;
    switch (request->collective) {
    case TT_ALL_REDUCE:
        return (size_t)tt_plan_pieces_of(request, rank) * (count - owned_by(request, cut, rank)) +
               others * owned_by(request, cut, rank);
    case TT_REDUCE:
        return (size_t)tt_plan_pieces_of(request, rank) * (count - owned_by(request, cut, rank)) +
               (rank != request->root ? owned_by(request, cut, rank) : 0);
    case TT_REDUCE_SCATTER:
        return (size_t)tt_plan_pieces_of(request, rank) * (tt_plan_all(request) - own);
    case TT_BROADCAST:
        return rank == request->root
                   ? count - owned_by(request, cut, rank) + others * owned_by(request, cut, rank)
                   : (others - 1) * owned_by(request, cut, rank);
    case TT_ALL_GATHER:
        return others * own;
    case TT_GATHER:
        return rank != request->root ? own : 0;
    case TT_SCATTER:
        return rank == request->root ? tt_plan_all(request) - own : 0;
    case TT_ALL_TO_ALL: /* one knows what one gives oneself */
        return request->counts == NULL || rank == request->rank ? tt_plan_all(request) - own : 0;
    default:
        break;
    }
    return 0;
}

static tt_plan_cost_t cost_pairwise(const tt_plan_request_t *request)
{
    const int last = last_phase(request->collective);
    const cut_t cut = cut_of(request);
    tt_plan_cost_t cost = {.rounds = last > 0 ? cut.chunks + last : 1};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t sent = sent_by(request, &cut, rank);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_pairwise = {
    .name = "pairwise",
    .about = "the owner of a slice receives it from all, reduces it by the tree, sends it to all",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_all_but_prefixes,
    .plan = plan_pairwise,
    .phase = add_phase,
    .state_bytes = sizeof(cut_t),
    .cost = cost_pairwise,
};
