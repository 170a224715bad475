/* prefix: scan and exscan. Rank r's result is the canonical tree over the pieces of ranks 0 ... r
 * (scan) or 0 ... r - 1 (exscan; rank 0 has none, and its out is not touched).
 *
 * On one host, in place: rank s owns slice s of the vector, in all memories. It stores the results
 * of the last rank first, then those of the one before it, and so on: in a call in place these
 * overwrite pieces that no later result needs. No other rank touches the slice, so that none waits.
 *
 *     round 0    slice s of pieces 0 1 2 3  ->  out of rank 3
 *     round 1    slice s of pieces 0 1 2    ->  out of rank 2
 *     round 2    slice s of pieces 0 1      ->  out of rank 1
 *     round 3    slice s of piece  0        ->  out of rank 0
 *
 * By messages, between hosts and where memory is foreign, chunk c goes through
 *
 *     round c      everyone sends slice j of its piece to owner j
 *     round c + 1  the owner adds up every rank's result of its slice, unfinished (16-bit floats
 *                  in f32)
 *     round c + 2  it sends each to its rank, and finishes its own
 *     round c + 3  the rank finishes what it got: AVG divides, 16-bit floats are rounded
 *
 * Cost: in place, everyone reads slices of N / size elements, size (size + 1) / 2 of them; by
 * messages, everyone sends 2 N (size - 1) / size elements, as in an all_reduce. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"
#include "core/base/alloc.h"

/* What is received in one round is used in the next one, while the next chunk arrives. */
enum { CHUNK = 256 << 10, SLOTS = 2 };

static bool is_in_place(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged;
}

/* Ranks whose pieces are needed: of an exscan the last one's is not. */
static int givers(const tt_plan_request_t *request)
{
    return tt_plan_contributors(request, request->size - 1);
}

static bool gets_result(const tt_plan_request_t *request, int rank)
{
    return tt_plan_contributors(request, rank) > 0;
}

/* How a call is cut into chunks, what a rank needs for one, and the numbers of its sums. */
typedef struct {
    size_t chunk;
    int chunks;
    size_t slice;  /* the longest that this rank owns of any chunk */
    size_t pieces; /* of the scratch buffer, for a chunk: a slice of every rank's piece */
    size_t
        results;  /* of the sum buffer, for a chunk: a slice of every rank's result, then `taken` */
    size_t taken; /* where a chunk of this rank's own result is collected */
    int first_sum; /* of the lowest rank that has a result */
    int finish;
} cut_t;

static cut_t cut_of(const tt_plan_request_t *request)
{
    cut_t cut = {.chunk = tt_chunk_elements(request->count, CHUNK)};
    cut.chunks = tt_chunk_count(request->count, cut.chunk);
    return cut;
}

static tt_slice_t owned(const tt_plan_request_t *request, const cut_t *cut, int rank, int c)
{
    const tt_slice_t chunk = tt_chunk(request->count, cut->chunk, c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, request->size, rank);
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* The last chunk may be cut such that its last slices are longer than those of the others. */
static size_t longest_owned(const tt_plan_request_t *request, const cut_t *cut, int rank)
{
    const size_t first = owned(request, cut, rank, 0).count;
    const size_t last = cut->chunks > 0 ? owned(request, cut, rank, cut->chunks - 1).count : 0;
    return first > last ? first : last;
}

/* The lowest rank that has a result; its sum is the first. */
static int first_result(const tt_plan_request_t *request)
{
    return request->collective == TT_EXSCAN;
}

/* ---- in place ---- */

static void plan_in_place(tt_plan_t *plan, const tt_plan_request_t *request)
{
    for (int rank = first_result(request); rank < plan->size; rank++) {
        (void)tt_plan_sum_prefix(plan, request, tt_plan_contributors(request, rank));
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = givers(request), .stride = 1});
}

/* The last rank's result is chunk 0. */
static void add_in_place(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    const tt_slice_t slice = tt_plan_slice(plan->count, plan->size, plan->rank);
    const int rank = plan->size - 1 - at.chunk;
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .round = at.round,
                                  .peer = rank,
                                  .src.offset = slice.begin,
                                  .dst = {TT_BUFFER_OUT, 0, slice.begin},
                                  .count = slice.count,
                                  .sum = rank - first_result(request),
                                  .to = TT_TO_PEER});
}

/* ---- by messages ---- */

static int peer_at(const tt_plan_t *plan, int i)
{
    return (plan->rank + i) % plan->size;
}

/* Where rank's result of my slice is, and where my result from all owners is. */
static size_t result_at(const cut_t *cut, int rank, int c)
{
    return (size_t)(c % SLOTS) * cut->results + cut->slice * (size_t)rank;
}

static size_t taken_at(const cut_t *cut, tt_slice_t slice, int c)
{
    return (size_t)(c % SLOTS) * cut->results + cut->taken + slice.begin - cut->chunk * (size_t)c;
}

static void exchange_pieces(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t now)
{
    const cut_t *cut = plan->state;
    const size_t mine = owned(request, cut, plan->rank, now.chunk).count;
    const size_t slot = (size_t)(now.chunk % SLOTS) * cut->pieces;
    for (int i = 1; i < plan->size && plan->rank < givers(request); i++) {
        const int peer = peer_at(plan, i);
        const tt_slice_t slice = owned(request, cut, peer, now.chunk);
        tt_plan_send(plan, now.round, peer, tt_piece_at(0, slice.begin), slice.count);
    }
    for (int peer = 0; peer < givers(request); peer++) {
        const size_t at = slot + cut->slice * (size_t)peer;
        if (peer != plan->rank) {
            tt_plan_recv(plan, now.round, peer, tt_part_at(TT_BUFFER_SCRATCH, at), mine);
        }
    }
}

static void add_results(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t now)
{
    const cut_t *cut = plan->state;
    const tt_slice_t mine = owned(request, cut, plan->rank, now.chunk);
    tt_sum_at_t at = {cut->first_sum, mine.begin, (size_t)(now.chunk % SLOTS) * cut->pieces};
    for (int rank = first_result(request); rank < plan->size; rank++, at.sum++) {
        const size_t result = result_at(cut, rank, now.chunk);
        tt_plan_reduce_at(plan, now.round, at, tt_part_at(TT_BUFFER_SUM, result), mine.count);
    }
}

/* My result of a slice, which lies at `from` in the sum buffer. */
static void finish_slice(tt_plan_t *plan, int round, size_t from, tt_slice_t slice)
{
    const cut_t *cut = plan->state;
    const tt_sum_at_t at = {cut->finish, 0, from};
    tt_plan_reduce_at(plan, round, at, tt_part_at(TT_BUFFER_OUT, slice.begin), slice.count);
}

static void exchange_results(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t now)
{
    const cut_t *cut = plan->state;
    const tt_slice_t mine = owned(request, cut, plan->rank, now.chunk);
    for (int i = 1; i < plan->size; i++) {
        const int peer = peer_at(plan, i);
        const size_t at = result_at(cut, peer, now.chunk);
        if (gets_result(request, peer)) {
            tt_plan_send(plan, now.round, peer, tt_part_at(TT_BUFFER_SUM, at), mine.count);
        }
    }
    if (!gets_result(request, plan->rank)) {
        return;
    }
    finish_slice(plan, now.round, result_at(cut, plan->rank, now.chunk), mine);
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = owned(request, cut, peer_at(plan, i), now.chunk);
        const size_t at = taken_at(cut, slice, now.chunk);
        tt_plan_recv(plan, now.round, peer_at(plan, i), tt_part_at(TT_BUFFER_SUM, at), slice.count);
    }
}

static void finish_results(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t now)
{
    const cut_t *cut = plan->state;
    for (int i = 1; i < plan->size && gets_result(request, plan->rank); i++) {
        const tt_slice_t slice = owned(request, cut, peer_at(plan, i), now.chunk);
        finish_slice(plan, now.round, taken_at(cut, slice, now.chunk), slice);
    }
}

/* The sums of everyone's result of my slice, over my piece and what is received of the others'. */
static void make_sums(tt_plan_t *plan, const tt_plan_request_t *request, cut_t *cut)
{
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, plan->size, &count);
    for (int rank = 0; terms != NULL && rank < count; rank++) {
        if (rank != plan->rank) {
            terms[rank].source =
                (tt_source_t){plan->rank, tt_part_at(TT_BUFFER_SCRATCH, cut->slice * (size_t)rank)};
        }
    }
    cut->first_sum = plan->sum_count;
    for (int rank = first_result(request); terms != NULL && rank < plan->size; rank++) {
        (void)tt_plan_add_prefix_sum(plan, terms, tt_plan_contributors(request, rank), true);
    }
    tt_free(terms);
}

static void plan_messages(tt_plan_t *plan, const tt_plan_request_t *request)
{
    cut_t *cut = plan->state;
    *cut = cut_of(request);
    const size_t slots = (size_t)(cut->chunks < SLOTS ? cut->chunks : SLOTS);
    cut->slice = longest_owned(request, cut, plan->rank);
    cut->pieces = cut->taken = cut->slice * (size_t)plan->size;
    cut->results = cut->taken + (cut->chunk < plan->count ? cut->chunk : plan->count);
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, slots * cut->pieces);
    tt_plan_reserve(plan, TT_BUFFER_SUM, slots * cut->results);
    if (cut->slice > 0) {
        make_sums(plan, request, cut);
    }
    if (gets_result(request, plan->rank)) {
        const tt_leaves_t leaves = {0, tt_plan_contributors(request, plan->rank)};
        const tt_plan_term_t whole = {leaves, {plan->rank, tt_part_at(TT_BUFFER_SUM, 0)}};
        cut->finish = tt_plan_add_prefix_sum(plan, &whole, 1, false);
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = cut->chunks, .stride = 1, .last = 3});
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    static void (*const phases[])(tt_plan_t *, const tt_plan_request_t *, tt_plan_at_t) = {
        exchange_pieces, add_results, exchange_results, finish_results};
    if (is_in_place(request)) {
        add_in_place(plan, request, at);
    } else {
        phases[at.phase](plan, request, at);
    }
}

static void plan_prefix(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (is_in_place(request)) {
        plan_in_place(plan, request);
    } else {
        plan_messages(plan, request);
    }
}

static bool fits_prefix(const tt_plan_request_t *request)
{
    return tt_collective_is_prefix(request->collective) && tt_plan_can_sum(request);
}

/* ---- cost ---- */

/* Slices of others that an owner reads, over all results. */
static size_t read_slices(const tt_plan_request_t *request, int owner)
{
    size_t slices = 0;
    for (int rank = 0; rank < request->size; rank++) {
        const int count = tt_plan_contributors(request, rank);
        slices += (size_t)(count - (owner < count));
    }
    return slices;
}

static size_t sent_by(const tt_plan_request_t *request, int rank)
{
    const int receivers = givers(request) - gets_result(request, rank);
    const cut_t cut = cut_of(request);
    size_t own = 0;
    for (int c = 0; c < cut.chunks; c++) {
        own += owned(request, &cut, rank, c).count;
    }
    return (rank < givers(request) ? request->count - own : 0) + own * (size_t)receivers;
}

static tt_plan_cost_t cost_prefix(const tt_plan_request_t *request)
{
    const int in_place = request->collective == TT_SCAN ? request->size : request->size - 1;
    tt_plan_cost_t cost = {.rounds = is_in_place(request) ? in_place : cut_of(request).chunks + 3};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t slice = tt_plan_slice(request->count, request->size, rank).count;
        const size_t read = is_in_place(request) ? slice * read_slices(request, rank) : 0;
        const size_t sent = is_in_place(request) ? 0 : sent_by(request, rank);
        cost.read = read > cost.read ? read : cost.read;
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_prefix = {
    .name = "prefix",
    .about = "scan: the owner of a slice adds up every rank's result of it by the tree",
    .source = "Tutti",
    .is_canonical = true,
    .shares_memory = true,
    .fits = fits_prefix,
    .plan = plan_prefix,
    .phase = add_phase,
    .state_bytes = sizeof(cut_t),
    .cost = cost_prefix,
};
