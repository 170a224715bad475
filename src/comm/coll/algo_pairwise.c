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
 * Cost with one piece per rank: 2 N (size - 1) / size elements sent by each rank in an all_reduce,
 * as a ring's, in size - 1 messages at once.
 *
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", 2005 (pairwise exchange).
 */
#include "comm/coll/plan_pulls.h"
#include "core/base/alloc.h"

/* Elements of the whole vector. What is received in one round is used in the next one, while the
 * next chunk arrives: hence two slots. A round costs calls of the system and a meeting of two
 * ranks, so it should move as much as stays in the cache of a core: 512 KiB each way for two ranks
 * and f32. Where a rank passes on what it receives while more comes in, which only a broadcast's
 * do, shorter chunks let both go on at once earlier. */
enum { CHUNK = 256 << 10, CHUNK_PASSED_ON = 32 << 10, SLOTS = 2 };

static size_t chunk_of(const tt_plan_request_t *request)
{
    if (request->collective == TT_REDUCE_SCATTER) {
        const size_t part = CHUNK / (size_t)request->size;
        return tt_chunk_elements(tt_plan_part_max(request), part > 64 ? part : 64);
    }
    const bool is_passed_on = request->collective == TT_BROADCAST;
    return tt_chunk_elements(request->count, is_passed_on ? CHUNK_PASSED_ON : CHUNK);
}

static int chunks_of(const tt_plan_request_t *request)
{
    const bool is_scatter = request->collective == TT_REDUCE_SCATTER;
    return tt_chunk_count(is_scatter ? tt_plan_part_max(request) : request->count,
                          chunk_of(request));
}

/* What a rank owns of a chunk, as offsets into the pieces. */
static tt_slice_t owned(const tt_plan_request_t *request, int rank, int c)
{
    if (request->collective == TT_REDUCE_SCATTER) {
        const tt_slice_t part = tt_plan_part(request, rank);
        const tt_slice_t chunk = tt_chunk(part.count, chunk_of(request), c);
        return (tt_slice_t){part.begin + chunk.begin, chunk.count};
    }
    const tt_slice_t chunk = tt_chunk(request->count, chunk_of(request), c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, request->size, rank);
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* The longest slice that a rank owns of any chunk. The last chunk is the only one of another
 * length, and may be cut such that its last slices are longer. */
static size_t longest_owned(const tt_plan_request_t *request, int rank)
{
    const int chunks = chunks_of(request);
    const size_t first = owned(request, rank, 0).count;
    const size_t last = chunks > 0 ? owned(request, rank, chunks - 1).count : 0;
    return first > last ? first : last;
}

/* Peers in an order that differs from rank to rank, so that not all send to the same one. */
static int peer_at(const tt_plan_t *plan, int i)
{
    return (plan->rank + i) % plan->size;
}

static void send_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, peer, c);
        for (int k = 0; k < plan->pieces_of[plan->rank]; k++) {
            tt_plan_send(plan, c, peer, tt_piece_at(k, slice.begin), slice.count);
        }
    }
}

/* Receives, and where the tree then finds each piece. Returns the sum over all of them. */
static int recv_pieces(tt_plan_t *plan, const tt_plan_request_t *request, size_t slot, int c)
{
    const tt_slice_t slice = owned(request, plan->rank, c);
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, plan->size, &count);
    for (int i = 0; terms != NULL && i < count; i++) {
        tt_source_t *source = &terms[i].source;
        if (source->rank == plan->rank) {
            source->part.offset = slice.begin;
            continue;
        }
        const tt_part_t dst = tt_part_at(TT_BUFFER_SCRATCH, slot);
        slot += slice.count;
        tt_plan_recv(plan, c, source->rank, dst, slice.count);
        *source = (tt_source_t){plan->rank, dst};
    }
    const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
    const int sum = terms != NULL ? tt_plan_add_sum(plan, terms, count, is_passed_on) : -1;
    tt_free(terms);
    return sum;
}

/* Everyone but `skip` gets my slice of the result and gives me its own. */
static void exchange_slices(tt_plan_t *plan, const tt_plan_request_t *request, int c, int round,
                            int skip)
{
    const tt_slice_t mine = owned(request, plan->rank, c);
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        if (peer != skip) {
            tt_plan_send(plan, round, peer, tt_part_at(TT_BUFFER_OUT, mine.begin), mine.count);
        }
    }
    for (int i = 1; i < plan->size && plan->rank != skip; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t theirs = owned(request, peer, c);
        tt_plan_recv(plan, round, peer, tt_part_at(TT_BUFFER_OUT, theirs.begin), theirs.count);
    }
}

/* The slices of a reduce go to the root, who finishes them a round later. `sums`: my slot. */
static void collect_slices(tt_plan_t *plan, const tt_plan_request_t *request, int c, size_t sums)
{
    const tt_leaves_t all = {0, plan->leaves};
    if (plan->rank != plan->root) {
        tt_plan_send(plan, c + 2, plan->root, tt_part_at(TT_BUFFER_SUM, sums),
                     owned(request, plan->rank, c).count);
        return;
    }
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, peer, c);
        if (slice.count == 0) {
            continue;
        }
        const tt_plan_term_t term = {all, {plan->rank, tt_part_at(TT_BUFFER_SUM, sums)}};
        tt_plan_recv(plan, c + 2, peer, term.source.part, slice.count);
        tt_plan_reduce(plan, c + 3, tt_plan_add_sum(plan, &term, 1, false),
                       tt_part_at(TT_BUFFER_OUT, slice.begin), slice.count);
        sums += slice.count;
    }
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int chunks = chunks_of(request), slots = chunks < SLOTS ? chunks : SLOTS;
    const int others = tt_plan_piece_terms(request, 0, plan->size, TT_BUFFER_PIECE, 0, NULL) -
                       plan->pieces_of[plan->rank];
    const size_t slice = longest_owned(request, plan->rank);
    const size_t slot = slice * (size_t)others;
    const size_t whole = chunk_of(request) < plan->count ? chunk_of(request) : plan->count;
    const size_t sums = plan->collective != TT_REDUCE ? 0
                        : plan->rank == plan->root    ? whole
                                                      : slice;
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, slot * (size_t)slots);
    tt_plan_reserve(plan, TT_BUFFER_SUM, sums * (size_t)slots);
    for (int c = 0; c < chunks; c++) {
        const tt_slice_t mine = owned(request, plan->rank, c);
        const size_t at = (size_t)(c % SLOTS);
        const size_t part = tt_plan_part(request, plan->rank).begin;
        const bool is_scatter = plan->collective == TT_REDUCE_SCATTER;
        const bool is_passed_on = plan->collective == TT_REDUCE && plan->rank != plan->root;
        const tt_part_t dst = is_passed_on
                                  ? tt_part_at(TT_BUFFER_SUM, at * sums)
                                  : tt_part_at(TT_BUFFER_OUT, mine.begin - (is_scatter ? part : 0));
        if (plan->collective == TT_ALL_REDUCE && c >= 2) {
            exchange_slices(plan, request, c - 2, c, -1); /* what is older goes first */
        } else if (plan->collective == TT_REDUCE && c >= 2) {
            collect_slices(plan, request, c - 2, at * sums);
        }
        send_pieces(plan, request, c);
        const int sum = recv_pieces(plan, request, at * slot, c);
        tt_plan_reduce(plan, c + 1, sum, dst, mine.count);
    }
    for (int c = chunks > 2 ? chunks - 2 : 0; c < chunks; c++) {
        if (plan->collective == TT_ALL_REDUCE) {
            exchange_slices(plan, request, c, c + 2, -1);
        } else if (plan->collective == TT_REDUCE) {
            collect_slices(plan, request, c, (size_t)(c % SLOTS) * sums);
        }
    }
}

/* The root's piece and out are the same values: it keeps a copy of its own. */
static void plan_broadcast(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int chunks = chunks_of(request);
    if (plan->rank == plan->root) {
        tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, 0), plan->count);
    }
    for (int c = 0; c <= chunks; c++) {
        if (c > 0) {
            exchange_slices(plan, request, c - 1, c, plan->root);
        }
        for (int i = 1; i < plan->size && c < chunks && plan->rank == plan->root; i++) {
            const int peer = peer_at(plan, i);
            const tt_slice_t slice = owned(request, peer, c);
            tt_plan_send(plan, c, peer, tt_piece_at(0, slice.begin), slice.count);
        }
        if (c < chunks && plan->rank != plan->root) {
            const tt_slice_t slice = owned(request, plan->rank, c);
            tt_plan_recv(plan, c, plan->root, tt_part_at(TT_BUFFER_OUT, slice.begin), slice.count);
        }
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

static void plan_exchange(tt_plan_t *plan, const tt_plan_request_t *request)
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

static void plan_pairwise(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    } else if (plan->collective == TT_BROADCAST) {
        plan_broadcast(plan, request);
    } else {
        plan_exchange(plan, request);
    }
}

static bool fits_all(const tt_plan_request_t *request)
{
    return !request->is_staged;
}

/* All slices of a rank together. */
static size_t owned_by(const tt_plan_request_t *request, int rank)
{
    size_t sum = 0;
    for (int c = 0; c < chunks_of(request); c++) {
        sum += owned(request, rank, c).count;
    }
    return sum;
}

/* What a rank sends, in elements. */
static size_t sent_by(const tt_plan_request_t *request, int rank)
{
    const size_t count = request->count, others = (size_t)request->size - 1;
    const size_t own = tt_plan_part(request, rank).count;
    switch (request->collective) {
    case TT_ALL_REDUCE:
        return (size_t)tt_plan_pieces_of(request, rank) * (count - owned_by(request, rank)) +
               others * owned_by(request, rank);
    case TT_REDUCE:
        return (size_t)tt_plan_pieces_of(request, rank) * (count - owned_by(request, rank)) +
               (rank != request->root ? owned_by(request, rank) : 0);
    case TT_REDUCE_SCATTER:
        return (size_t)tt_plan_pieces_of(request, rank) * (tt_plan_all(request) - own);
    case TT_BROADCAST:
        return rank == request->root
                   ? count - owned_by(request, rank) + others * owned_by(request, rank)
                   : (others - 1) * owned_by(request, rank);
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
    static const int phases[TT_COLLECTIVE_COUNT] = {
        [TT_ALL_REDUCE] = 3, [TT_REDUCE_SCATTER] = 2, [TT_REDUCE] = 4, [TT_BROADCAST] = 2};
    const int extra = phases[request->collective];
    tt_plan_cost_t cost = {.rounds = extra > 0 ? chunks_of(request) + extra - 1 : 1};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t sent = sent_by(request, rank);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_pairwise = {
    .name = "pairwise",
    .about = "the owner of a slice receives it from all, reduces it by the tree, sends it to all",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_all,
    .plan = plan_pairwise,
    .cost = cost_pairwise,
};
